"""A deadline for every test: one that hangs ends the run, saying where every thread of it stands."""

import faulthandler
import os

import pytest

# The short forms take seconds, on a busy machine a minute or two; the long ones many minutes.
DEADLINE_S = 7200 if os.environ.get("DIVISI_SOAK") else 600


def pytest_configure(config):
    config.divisi_stderr = os.dup(2)  # before pytest puts its own in its place


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item):
    faulthandler.dump_traceback_later(DEADLINE_S, exit=True, file=item.config.divisi_stderr)
    yield
    faulthandler.cancel_dump_traceback_later()
