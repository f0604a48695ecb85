"""The default queue."""

from __future__ import annotations

from typing import Any, List, Optional

from divisi._node_queue import NodeQueue
from divisi._secret import secret_of_environment

from .mq import MQ

__all__ = ["NNGMQ"]


class NNGMQ(NodeQueue, MQ):
    """A queue that listens on one address and dials others. Unlike its namesake it loses nothing
    and keeps order."""

    def __init__(
        self, listen_to: str, attach_to: Optional[List[str]] = None, **_ignored: Any
    ) -> None:
        """Binds `listen_to` and dials `attach_to`."""
        super().__init__(listen_to, attach_to, secret=secret_of_environment())
