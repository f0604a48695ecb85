"""What a queue must be able to do."""

from __future__ import annotations

from typing import Any, Optional, Tuple


class MQ:
    """Base of all queues. A constructor takes the keyword arguments of its kind and ignores all
    others."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Nothing to set up here."""

    def listen(self) -> None:
        """Binds, or connects. Called in the thread that receives."""
        raise NotImplementedError

    def publish(self, topic: str, data: bytes) -> None:
        """Sends to all peers."""
        raise NotImplementedError

    def subscribe(self, topic: str) -> None:
        """Wants the topic."""
        raise NotImplementedError

    def unsubscribe(self, topic: str) -> None:
        """Wants it no more."""
        raise NotImplementedError

    def recv(self) -> Optional[Tuple[str, bytes]]:
        """Blocks for the next message; nothing once the queue is stopped."""
        raise NotImplementedError

    def stop(self) -> None:
        """Closes. May be called again."""
