"""The newest model of a sender: to everybody, and to whoever joins later."""

import threading
import weakref
from typing import Any

from ..errors import UsageError
from ..task import task


class LatestModel:
    """Emits models and keeps the last one for peers that join later or come back as new processes.

    A peer that is slower than the sender gets the newest only (``latest_only``). Threads: any.
    """

    def __init__(self, event: str) -> None:
        self._event = event
        self._lock = threading.Lock()
        self._payload: Any = None
        itself = weakref.ref(self)  # a router's listener cannot be taken back

        def welcome(node_id: int) -> None:
            sender = itself()
            if sender is not None:
                sender._welcome(node_id)

        task.router.on("peer_joined", welcome)
        task.router.on("peer_back", welcome)  # perhaps as a new process

    def send(self, payload: Any) -> None:
        """To every peer. The payload is kept: it must not change any more."""
        with self._lock:
            self._payload = payload
            task.emit(self._event, payload, only_remote=True, policy="latest_only")

    def send_later(self, payload: Any) -> None:
        """As :meth:`send`, from a thread that may be slower than the end of the task."""
        try:
            self.send(payload)
        except UsageError:
            if task.running:
                raise

    def _welcome(self, node_id: int) -> None:
        with self._lock:
            if self._payload is None or not task.running:
                return
            try:
                task.emit(
                    self._event, self._payload, only_remote=True, to=node_id, policy="latest_only"
                )
            except UsageError:
                if task.running:
                    raise
