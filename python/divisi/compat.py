"""Runs a program written for DI-engine with divisi, without installing anything over `ding`.

    python -m divisi.compat my_script.py arguments...
    python -m divisi.compat -m my_package.my_module arguments...

The program finds `ding.framework` and its kin (see docs/from-di-engine.md), `ditk.hpo` and
`lighttuner.hpo` (see docs/tuner.md), and so do the processes it starts. Beside a real DI-engine this refuses: two packages cannot share a name, and guessing
which one was meant would be worse.
"""

from __future__ import annotations

import importlib.util
import os
import runpy
import sys
import types
from importlib import metadata
from pathlib import Path
from typing import List, Optional

SHIM = str(Path(__file__).absolute().parent / "_ding_shim")
"""The folder that holds the packages `ding`, `ditk` and `lighttuner`; on a search path it is last."""

_USAGE = "usage: python -m divisi.compat (SCRIPT | -m MODULE) [ARGUMENTS...]"


def installed() -> str:
    """Why the package `ding` of divisi must not be imported in this environment, in one line; empty
    if it may."""
    try:
        version = metadata.version("DI-engine")
    except metadata.PackageNotFoundError:
        return ""
    return (
        f"DI-engine {version} is installed here and `ding` is its name: "
        "uninstall DI-engine, or divisi-ding (with DI-engine, use mq_type='divisi')"
    )


def refusal() -> str:
    """Why `ding` is not ours to provide to a program, in one line; empty if it is."""
    reason = installed()
    place = "" if reason else _other_ding()
    if place:
        reason = f"another `ding` is importable from {place}: take it off the search path"
    return reason


def provide() -> None:
    """Makes `import ding` find divisi's package in this process and in those it starts. Behind
    everything else."""
    if SHIM not in sys.path:
        sys.path.append(SHIM)
    inherited = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    if SHIM not in inherited:
        os.environ["PYTHONPATH"] = os.pathsep.join([*inherited, SHIM])


def main(arguments: Optional[List[str]] = None) -> int:
    """The command. Returns an exit code; a program that exits by itself does so."""
    arguments = sys.argv[1:] if arguments is None else arguments
    as_module = arguments[:1] == ["-m"]
    rest = arguments[1:] if as_module else arguments
    if not rest or (rest[0].startswith("-") and not as_module):
        wants_help = arguments[:1] in (["-h"], ["--help"])
        print(_USAGE, file=sys.stdout if wants_help else sys.stderr)
        return 0 if wants_help else 2

    # As the interpreter would: the program's own folder comes first.
    sys.path[0] = os.getcwd() if as_module else str(Path(rest[0]).resolve().parent)
    reason = refusal()
    if reason:
        print(f"divisi.compat: {reason}", file=sys.stderr)
        return 2
    provide()
    if as_module:
        sys.argv = rest
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
        return 0
    return _run_script(rest)


def ditask() -> Optional[int]:
    """The command `ditask` as pip installs it. Where a real DI-engine is installed as well,
    the command is still that one's: pip lets the later of two packages own a script, and nothing
    else of DI-engine changed.
    """
    if installed():
        from ding.entry.cli_ditask import cli_ditask as command
    else:
        from .launch import main as command
    return command()


def _other_ding() -> str:
    """Where a `ding` that is not ours would be imported from. A bare folder of that name is not a
    package."""
    try:
        spec = importlib.util.find_spec("ding")
    except (ImportError, ValueError):
        return ""
    if spec is None or not spec.origin:
        return ""
    package = Path(spec.origin).parent
    return "" if package.parent.name == "_ding_shim" else str(package)


def _run_script(argv: List[str]) -> int:
    script = argv[0]
    try:
        source = Path(script).read_bytes()
    except OSError as error:
        print(f"divisi.compat: {script}: {error.strerror}", file=sys.stderr)
        return 2
    # Not runpy: the module must stay `__main__` for good, since worker processes and pickles look
    # there.
    module = types.ModuleType("__main__")
    module.__file__ = os.path.abspath(script)
    sys.modules["__main__"] = module
    sys.argv = argv
    exec(compile(source, module.__file__, "exec"), module.__dict__)
    return 0


if __name__ == "__main__":
    sys.exit(main())
