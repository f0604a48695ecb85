"""The shared secret of a job, as the Python side gets it."""

import logging
import os
from typing import Any, Set, Union

from . import _native
from .errors import UsageError

_log = logging.getLogger("divisi")
_warned: Set[str] = set()


def secret_of_environment() -> bytes:
    """Of the file that ``DIVISI_SECRET_FILE`` names, read as ``ditask --secret-file`` reads it; empty if
    there is none."""
    path = os.environ.get("DIVISI_SECRET_FILE")
    if not path:
        return b""
    secret, warning = _native.read_secret_file(path, "DIVISI_SECRET_FILE")
    if warning:
        warn_once(warning)
    return secret


def given_secret(secret: Any) -> bytes:
    """The ``secret`` of a runner, as bytes."""
    if secret is None:
        return b""
    if not isinstance(secret, (bytes, str)):
        raise UsageError(f"secret is bytes or a str, not a {type(secret).__name__}")
    if not secret:
        raise UsageError("secret is empty: leave it out for a job without one")
    return secret.encode() if isinstance(secret, str) else bytes(secret)


def chosen_secret(secret: Union[None, bytes, str]) -> bytes:
    """What was given, else the environment's; may be empty."""
    return given_secret(secret) or secret_of_environment()


def warn_once(text: str) -> None:
    """Logs a warning, the same one only the first time."""
    if text not in _warned:
        _warned.add(text)
        _log.warning(text)
