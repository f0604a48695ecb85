"""A message queue with DI-engine's six verbs over the native transport.

    queue = NodeQueue(listen_to="ipc:///tmp/a.ipc", attach_to=["ipc:///tmp/b.ipc"])
    queue.subscribe("greeting")
    queue.publish("greeting", b"Hi")
    topic, data = queue.recv()
    queue.stop()

Data is opaque: what the caller pickled stays pickled. While both processes live nothing is lost,
and what one thread publishes arrives in that order. A process has one node, hence one queue at a
time.

All topics travel under one name of the transport. It could send to each peer only what that one
subscribed to, but a peer that is slow to start would then miss what is said before it subscribes;
so every peer gets everything, as with DI-engine's own default queue, and what nobody listens to yet
waits at its receiver.

Threads: `recv` belongs to one thread; everything else may be called from any.
"""

from __future__ import annotations

import logging
import random
import threading
import time
import uuid
from collections import deque
from typing import Any, Callable, Deque, Dict, List, Optional, Set, Tuple

from . import _native

Message = Tuple[str, bytes]

CHANNEL = "divisi.queue"
"""The name under which the transport knows all topics. A message is the topic, a zero, the data."""

# Under the empty topic queues greet each other; the data is who greets.
_GREETING = ""
_GREET_EVERY_S = 0.05
# While a message waits for its listener, the queue looks this often whether there is one.
_LISTENER_POLL_S = 0.02
# From the first subscription on, a program has this long to make its other listeners. What nobody
# listens to then is not meant for it.
_LISTENERS_MADE_S = 10.0
# Like the transport's own bound. Beyond it a message without a listener is dropped, with a word.
_HELD_BYTES = 64 << 20


class NodeQueue:
    """See the module. `listens(topic)`, where given, says whether a message would find a listener
    now; until it does, the message waits here. With a `secret` only queues with the same one are
    admitted."""

    def __init__(
        self,
        listen_to: str = "",
        attach_to: Optional[List[str]] = None,
        listens: Optional[Callable[[str], bool]] = None,
        join_timeout: float = 60.0,
        secret: bytes = b"",
        **_ignored: Any,
    ) -> None:
        """Binds, and waits for those it dials. So a bad address is an error here and not in some
        thread."""
        self.listen_to = _with_scheme(listen_to) if listen_to else ""
        self.attach_to = [_with_scheme(address) for address in attach_to or []]
        self._listens = listens
        self._name = uuid.uuid4().bytes
        self._greeted: Set[bytes] = set()
        self._listeners_since: Optional[float] = None
        # What has come, and of it what nobody listens to yet. Both belong to the thread that
        # receives.
        self._arrived: Deque[Message] = deque()
        self._held: Dict[str, Deque[bytes]] = {}
        self._held_bytes = 0
        self._lock = threading.Lock()
        self._open = False
        _native.node_open(
            self.listen_to, self.attach_to, _any_id(), secret=secret, join_timeout=join_timeout
        )
        self._open = True
        _native.node_subscribe(CHANNEL)

    def join(self, peers: int, timeout: float) -> bool:
        """Blocks until `peers` other queues, dialled or dialling, are known to hear this one and
        are heard; False after the timeout. To be called before the first `recv`."""
        deadline = time.monotonic() + timeout
        while len(self._greeted) < peers:
            if time.monotonic() >= deadline:
                return False
            # Again and again: a peer may be linked and not yet listen.
            self.publish(_GREETING, self._name)
            message = _native.node_recv(_GREET_EVERY_S)
            while message is not None:
                self._sort(message)
                message = _native.node_recv(0.0)
        return True

    def listen(self) -> None:
        """Says where this queue is. It has been listening since it was made."""
        logging.info("divisi listens on %s, attached to %s", self.listen_to, self.attach_to)

    def publish(self, topic: str, data: bytes) -> None:
        """To all peers. Waits while one of them is behind; an error after the transport's
        `send_timeout`. Does nothing on a stopped queue."""
        if self._open:
            _native.node_publish(CHANNEL, b"%b\0%b" % (topic.encode(), data))

    def subscribe(self, topic: str) -> None:
        """Tells that the program has begun to listen. All topics arrive in any case."""
        if self._listeners_since is None:
            self._listeners_since = time.monotonic()

    def unsubscribe(self, topic: str) -> None:
        """Nothing to do: see `subscribe`."""

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
                self._sort(message)
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

    def _sort(self, message: Message) -> None:
        topic, _, data = message[1].partition(b"\0")
        if topic:
            self._arrived.append((topic.decode(), data))
        elif data not in self._greeted:
            # Our earlier greetings may have been sent before this peer listened.
            self._greeted.add(data)
            self.publish(_GREETING, self._name)

    def _hold(self, topic: str, data: bytes) -> None:
        if self._listeners_are_made():
            return
        if self._held_bytes + len(data) > _HELD_BYTES:
            logging.warning("an event %s that nobody listens to yet was dropped", topic)
            return
        self._held.setdefault(topic, deque()).append(data)
        self._held_bytes += len(data)

    def _listeners_are_made(self) -> bool:
        since = self._listeners_since
        return since is not None and time.monotonic() - since > _LISTENERS_MADE_S

    def _release(self) -> None:
        """What has found its listener goes before everything that came later."""
        if not self._held:
            return
        for topic in [topic for topic in self._held if self._listens(topic)]:
            messages = self._held.pop(topic)
            self._held_bytes -= sum(map(len, messages))
            self._arrived.extendleft((topic, data) for data in reversed(messages))
        if self._listeners_are_made():
            self._held.clear()
            self._held_bytes = 0


def _any_id() -> int:
    """A node of its own for each queue. What programs call their node id is often 0 in several
    launchers at once, which the transport would refuse."""
    return random.SystemRandom().randrange(1 << 24, 1 << 31)


def _with_scheme(address: str) -> str:
    return address if "://" in address else "tcp://" + address
