"""What travels between a supervisor and its children, and the error of a child that is gone."""
from __future__ import annotations

import enum
import itertools
import os
import time
from dataclasses import dataclass, field
from typing import Any, Dict, Iterable, Optional, Union

_serial = itertools.count()


def new_req_id() -> str:
    """32 hex digits that no other request has: nanoseconds, a count, and the process."""
    return f"{time.time_ns():016x}{next(_serial) & 0xFFFFFFFF:08x}{os.getpid() & 0xFFFFFFFF:08x}"


class ChildType(enum.Enum):
    """What a child runs in."""

    PROCESS = "process"
    """A process of its own."""
    THREAD = "thread"
    """A thread of this process."""


class ReserveMethod(enum.Enum):
    """Methods of the child itself. Members, not strings, so no method of a user's object has the same name."""

    SHUTDOWN = "_shutdown"
    """Ends the child; sent by the supervisor itself."""
    GETATTR = "_getattr"
    """Reads the attribute that is the first argument."""


@dataclass
class SendPayload:
    """One request: call `method` of child `proc_id` with `args` and `kwargs`."""

    proc_id: int
    """The child, from 0."""
    req_id: str = field(default_factory=new_req_id)
    """Unique; the reply has the same. Anything that can be the key of a dict will do."""
    method: Union[str, ReserveMethod, None] = None
    """A method of the child's object, or of the child itself."""
    args: Iterable[Any] = field(default_factory=list)
    """Positional arguments."""
    kwargs: Dict[str, Any] = field(default_factory=dict)
    """Keyword arguments."""


@dataclass
class RecvPayload:
    """One reply. `err` is the exception of a call that failed, else None; `extra` is for the `shm_callback`.

    `req_id` is None in one case: a child ended while it had no requests, and `recv` had nothing else to wait for.
    """

    proc_id: int
    """The child that answers."""
    req_id: Optional[str] = None
    """Of the request."""
    method: Union[str, ReserveMethod, None] = None
    """Of the request."""
    data: Any = None
    """What the method returned."""
    err: Optional[BaseException] = None
    """What it raised, or None."""
    extra: Any = None
    """For the `shm_callback`: what it has moved out of `data`."""


class Notice(RecvPayload):
    """Answers no request: the child ended while it had none."""


class WorkerLost(RuntimeError):
    """The child ended, or was restarted, before it answered."""


class ChildTraceback(Exception):
    """The cause of an exception that came from a child process: its text is the traceback there."""

    def __str__(self) -> str:
        return "\n" + str(self.args[0])


def failure(request: SendPayload, error: BaseException) -> RecvPayload:
    """The reply to a request that got no answer but an error."""
    return RecvPayload(request.proc_id, request.req_id, request.method, err=error)
