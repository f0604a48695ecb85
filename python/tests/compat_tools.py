"""Shared by the tests of compatibility: programs in processes of their own."""

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import divisi

ROOT = Path(__file__).resolve().parents[2]
"""Of the source tree."""

# Not resolved: in the build tree the package is links to its sources, and only the links lie beside
# the native module.
PACKAGES = str(Path(divisi.__file__).absolute().parent.parent)
"""The folder that holds the package under test."""

DEADLINE_S = 300
"""For a program that ends by itself within seconds, unless the machine has other things to do: every
process with DI-engine loads a learning library first."""


def environment(*folders, **variables):
    """This process's environment with exactly the package under test, then `folders`, on the search
    path."""
    env = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    return {
        **env,
        "PYTHONPATH": os.pathsep.join([PACKAGES, *map(str, folders)]),
        "PYTHONFAULTHANDLER": "1",
        **variables,
    }


def write(folder, text, name="program.py"):
    """A file with the dedented text; its path."""
    path = Path(folder) / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(textwrap.dedent(text))
    return path


def run(command, *, env, cwd, code=0):
    """Runs to the end; the finished process, with its output as text. A program that does not end
    says where it is, in all its processes, and is killed with them."""
    command = [str(part) for part in command]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    process = subprocess.Popen(command, env=env, cwd=cwd, start_new_session=True, **pipes)
    try:
        out, err = process.communicate(timeout=DEADLINE_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGABRT)
        out, err = process.communicate(timeout=DEADLINE_S)
        pytest.fail(f"no end after {DEADLINE_S} s\n{out}\n{err}")
    assert process.returncode == code, f"exit code {process.returncode}\n{out}\n{err}"
    return subprocess.CompletedProcess(command, code, out, err)


def compat(folder, text, *arguments):
    """What a program prints under `python -m divisi.compat`."""
    command = [sys.executable, "-m", "divisi.compat", write(folder, text), *arguments]
    return run(command, env=environment(), cwd=folder).stdout


@pytest.fixture(scope="session")
def ding_venv():
    """The environment with the real DI-engine: made once for a source tree."""
    place = ROOT / "build" / "ding-venv"
    subprocess.run([ROOT / "scripts" / "ding_venv", place], check=True)
    return place
