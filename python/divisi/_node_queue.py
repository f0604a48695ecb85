"""A message queue with DI-engine's six verbs over the native transport.

    queue = NodeQueue(listen_to="ipc:///tmp/a.ipc", attach_to=["ipc:///tmp/b.ipc"])
    queue.subscribe("greeting")
    queue.publish("greeting", b"Hi")
    topic, data = queue.recv()
    queue.stop()

Data is opaque: what the caller pickled stays pickled. While both processes live nothing is lost,
and what one thread publishes arrives in that order. A process has one node, hence one queue at a
time.

Threads: `recv` belongs to one thread; everything else may be called from any.
"""

from __future__ import annotations

import fnmatch
import logging
import random
import threading
from collections import deque
from typing import Any, Callable, Deque, Dict, List, Optional, Set, Tuple

from . import _native

Message = Tuple[str, bytes]

# While a message waits for its listener, the queue looks this often whether there is one. It waits
# at start-up only.
_LISTENER_POLL_S = 0.02
# Like the transport's own bound. Beyond it a message without a listener is dropped, with a word.
_HELD_BYTES = 64 << 20


class NodeQueue:
    """See the module. `listens(topic)`, where given, says whether a message would find a listener
    now; until it does, the message waits here."""

    def __init__(
        self,
        listen_to: str = "",
        attach_to: Optional[List[str]] = None,
        listens: Optional[Callable[[str], bool]] = None,
        join_timeout: float = 60.0,
        **_ignored: Any,
    ) -> None:
        """Binds, and waits for those it dials. So a bad address is an error here and not in some
        thread."""
        self.listen_to = _with_scheme(listen_to) if listen_to else ""
        self.attach_to = [_with_scheme(address) for address in attach_to or []]
        self._listens = listens
        self._topics: Set[str] = set()
        # What has come, and of it what nobody listens to yet. Both belong to the thread that
        # receives.
        self._arrived: Deque[Message] = deque()
        self._held: Dict[str, Deque[bytes]] = {}
        self._held_bytes = 0
        self._lock = threading.Lock()
        self._open = False
        _native.node_open(self.listen_to, self.attach_to, _any_id(), join_timeout=join_timeout)
        self._open = True

    def join(self, peers: int, timeout: float) -> bool:
        """Blocks until this queue is linked with `peers` others, dialled or dialling; False after
        the timeout."""
        return _native.router_wait_for_peers(peers, timeout)

    def listen(self) -> None:
        """Says where this queue is. It has been listening since it was made."""
        logging.info("divisi listens on %s, attached to %s", self.listen_to, self.attach_to)

    def publish(self, topic: str, data: bytes) -> None:
        """To all peers that want the topic. Waits while one of them is behind; an error after the
        transport's `send_timeout`. Does nothing on a stopped queue."""
        if self._open:
            _native.node_publish(topic, data)

    def subscribe(self, topic: str) -> None:
        """From now on `recv` gets the topic; what came before for want of a listener is not lost
        either."""
        with self._lock:
            new = self._open and topic not in self._topics
            self._topics.add(topic)
        if new:
            _native.node_subscribe(topic)

    def unsubscribe(self, topic: str) -> None:
        """No more of the topic, or of all that match it: a task that stops names its events as
        `task.*`."""
        with self._lock:
            gone = fnmatch.filter(self._topics, topic) if self._open else []
            self._topics.difference_update(gone)
        for name in gone:
            _native.node_unsubscribe(name)

    def recv(self) -> Optional[Message]:
        """The next message. Blocks; None once the queue is stopped."""
        while self._open:
            self._release()
            while self._arrived:
                topic, data = self._arrived.popleft()
                if self._listens is None or self._listens(topic):
                    return topic, data
                self._hold(topic, data)
            message = _native.node_recv(_LISTENER_POLL_S) if self._held else _native.node_recv()
            if message is not None:
                self._arrived.append(message)
        return None

    def stop(self) -> None:
        """Sends what is left, says goodbye and closes. Ends a `recv` that waits."""
        with self._lock:
            was_open, self._open = self._open, False
        if was_open:
            _native.node_close()

    def __del__(self) -> None:
        if getattr(self, "_open", False):
            self.stop()

    def _hold(self, topic: str, data: bytes) -> None:
        if self._held_bytes + len(data) > _HELD_BYTES:
            logging.warning("an event %s that nobody listens to was dropped", topic)
            return
        self._held.setdefault(topic, deque()).append(data)
        self._held_bytes += len(data)

    def _release(self) -> None:
        """What has found its listener goes before everything that came later."""
        for topic in [topic for topic in self._held if self._listens(topic)]:
            messages = self._held.pop(topic)
            self._held_bytes -= sum(map(len, messages))
            self._arrived.extendleft((topic, data) for data in reversed(messages))


def _any_id() -> int:
    """A node of its own for each queue. What programs call their node id is often 0 in several
    launchers at once, which the transport would refuse."""
    return random.SystemRandom().randrange(1 << 24, 1 << 31)


def _with_scheme(address: str) -> str:
    return address if "://" in address else "tcp://" + address
