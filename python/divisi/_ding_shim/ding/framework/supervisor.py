"""Children that are called by name."""

from divisi.supervisor import (
    Child,
    ChildProcess,
    ChildThread,
    ChildType,
    RecvPayload,
    ReserveMethod,
    SendPayload,
    Supervisor,
)

__all__ = [
    "Child",
    "ChildProcess",
    "ChildThread",
    "ChildType",
    "RecvPayload",
    "ReserveMethod",
    "SendPayload",
    "Supervisor",
]
