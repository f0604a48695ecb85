"""The standard module `logging`, with a root logger that writes to the terminal without being asked."""

import logging as _logging
import os as _os
import sys as _sys
from logging import *  # noqa: F401,F403
from logging import Logger

__all__ = [
    *_logging.__all__, "LoggingFileHandler", "LoggingTerminalHandler", "getLogger", "try_init_root",
]  # fmt: skip

_LINE = "[%(asctime)s][%(filename)s:%(lineno)d][%(levelname)s] %(message)s"


class LoggingTerminalHandler(_logging.StreamHandler):
    """Writes to the standard error, whatever that is at the time."""

    def __init__(self):
        super().__init__(_sys.stderr)
        self.setFormatter(_logging.Formatter(_LINE, "%m-%d %H:%M:%S"))

    def emit(self, record):
        """One line; a console that fails is no reason to fail."""
        self.stream = _sys.stderr
        super().emit(record)


class LoggingFileHandler(_logging.FileHandler):
    """Appends to a file, whose folders are made."""

    def __init__(self, filename, mode="a", **options):
        path = _os.path.abspath(filename)
        _os.makedirs(_os.path.dirname(path), exist_ok=True)
        super().__init__(path, mode, **options)
        self.file_path = path
        self.setFormatter(_logging.Formatter(_LINE, "%Y-%m-%d %H:%M:%S"))


def try_init_root(level=None):
    """The root logger, with a terminal handler if it had no handler; its level only if one is given."""
    root = _logging.getLogger()
    if not root.handlers:
        root.addHandler(LoggingTerminalHandler())
    if level is not None:
        root.setLevel(level)
    return root


def getLogger(name=None, level=None, with_files=None) -> Logger:
    """A logger, which also writes to `with_files`; a file that it, or a logger that it hands records
    to, has already is not added twice."""
    logger = try_init_root() if name is None else _logging.getLogger(name)
    if level is not None:
        logger.setLevel(level)
    for file in with_files or []:
        path = _os.path.abspath(file)
        owner = _owner(logger, path)
        if owner is None:
            logger.addHandler(LoggingFileHandler(path))
        else:
            logger.warning(f"File {file!r} has already been added to logger {owner.name!r}.")
    return logger


def _owner(logger, path):
    while logger is not None:
        for handler in logger.handlers:
            if isinstance(handler, _logging.FileHandler) and handler.baseFilename == path:
                return logger
        logger = logger.parent if logger.propagate else None
    return None


def _on_root(name):
    def log(*args, **kwargs):
        getattr(try_init_root(), name)(*args, **{"stacklevel": 2, **kwargs})

    log.__name__ = log.__qualname__ = name
    log.__doc__ = f"`Logger.{name}` of the root logger, which gets a terminal handler if it has none."
    return log


debug, info, warning, error = (_on_root(name) for name in ("debug", "info", "warning", "error"))
critical, exception, log = (_on_root(name) for name in ("critical", "exception", "log"))
fatal, warn = critical, warning
