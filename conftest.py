"""A deadline for every test: one that hangs ends the run, saying where every thread of it stands."""

import faulthandler
import os

import pytest

# Longer than the deadlines inside of tests, which say what was waited for; the long forms take many minutes.
# What several tests share (a wheel, a Kubernetes) is made outside of it.
DEADLINE_S = 7200 if os.environ.get("DIVISI_SOAK") else 900


def pytest_configure(config):
    config.divisi_stderr = os.dup(2)  # before pytest puts its own in its place


@pytest.fixture(autouse=True)
def deadline(pytestconfig):
    faulthandler.dump_traceback_later(DEADLINE_S, exit=True, file=pytestconfig.divisi_stderr)
    yield
    faulthandler.cancel_dump_traceback_later()
