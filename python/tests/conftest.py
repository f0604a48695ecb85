"""Fixtures for tests that run small programs of several processes."""
import ports
import pytest
from small_programs import DEADLINE_S, Program

import divisi


@pytest.fixture
def start_program(tmp_path):
    """start_program(source, *arguments, env=None): a Program that runs."""
    started = []

    def start(source, *arguments, env=None, flags=(), preamble=True):
        started.append(Program(tmp_path, source, arguments, env, flags, preamble))
        return started[-1]

    yield start
    for program in started:
        program.close()


@pytest.fixture
def run_program(start_program):
    """run_program(source, *arguments, timeout=..., env=None): (code, out, err) after its end."""

    def run(source, *arguments, timeout=DEADLINE_S, **more):
        return start_program(source, *arguments, **more).end(timeout)

    return run


@pytest.fixture
def free_ports():
    """free_ports(n): port numbers that nobody listens on."""
    return ports.free_ports


@pytest.fixture
def task():
    """The task of this process, stopped afterwards."""
    yield divisi.task
    try:
        divisi.task.stop()
    except Exception:  # the test has seen it, or has failed
        pass
