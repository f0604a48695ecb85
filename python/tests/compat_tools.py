"""Shared by the tests of compatibility: programs in processes of their own."""

import os
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

DEADLINE_S = 120


def environment(*folders, **variables):
    """This process's environment with exactly the package under test, then `folders`, on the search
    path."""
    env = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    return {
        **env,
        "PYTHONPATH": os.pathsep.join([PACKAGES, *map(str, folders)]),
        "PYTHONUNBUFFERED": "1",
        **variables,
    }


def write(folder, text, name="program.py"):
    """A file with the dedented text; its path."""
    path = Path(folder) / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(textwrap.dedent(text))
    return path


def run(command, *, env, cwd, code=0):
    """Runs to the end; the finished process, with its output as text."""
    result = subprocess.run(
        [str(part) for part in command],
        env=env,
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )
    assert (
        result.returncode == code
    ), f"exit code {result.returncode}\n{result.stdout}\n{result.stderr}"
    return result


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
