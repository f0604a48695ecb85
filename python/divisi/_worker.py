"""What a worker's process runs: finds its ``main``, joins the job, calls it."""

import importlib
import logging
import multiprocessing.spawn
import pickle
import sys
import traceback
from functools import partial
from typing import Any, Callable, List

from . import _native, parallel
from .errors import UsageError
from .task import run_as_main


def main() -> None:
    """Entered by the command that a launcher starts (see ``parallel._worker_command``)."""
    if not _native.is_spawned():
        sys.exit("divisi._worker is started by Parallel.runner and ditask, not by hand")
    logging.getLogger().setLevel(logging.INFO)
    code = _native.run_spawned(_resolve)
    sys.exit(code)


def _resolve(entry: bytes, module: str, function: str, search_path: List[str]) -> Callable[[], Any]:
    parallel._resolving = True
    try:
        main = _of_runner(entry) if entry else _of_package(module, function, search_path)
        return partial(run_as_main, main)
    finally:
        parallel._resolving = False


def _of_runner(entry: bytes) -> Callable[[], Any]:
    preparation, pickled = pickle.loads(entry)
    try:
        multiprocessing.spawn.prepare(preparation)
        call, args, kwargs = pickle.loads(pickled)
    except Exception as error:
        traceback.print_exc()
        raise UsageError(f"main cannot be imported: {type(error).__name__}: {error}") from None
    return partial(call, *args, **kwargs)


def _of_package(module: str, function: str, search_path: List[str]) -> Callable[[], Any]:
    sys.path[:0] = search_path
    name = f"{module}.{function}"
    try:
        found = importlib.import_module(module)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if module == missing or module.startswith(missing + "."):
            places = ", ".join(search_path)
            raise UsageError(f"--main {name}: no module {missing} in {places}") from None
        traceback.print_exc()
        raise UsageError(f"--main {name}: importing it failed: {error}") from None
    except Exception as error:
        traceback.print_exc()
        raise UsageError(
            f"--main {name}: importing it failed: {type(error).__name__}: {error}"
        ) from None
    try:
        call = getattr(found, function)
    except AttributeError:
        raise UsageError(f"--main {name}: {found.__file__} has no function {function}") from None
    if not callable(call):
        raise UsageError(f"--main {name}: {function} is a {type(call).__name__}, not a function")
    return call
