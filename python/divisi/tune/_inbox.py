"""How the main thread of a run waits."""

from __future__ import annotations

import os
import select
import signal
import threading
import time
from typing import Any, Dict, Optional


class Inbox:
    """What the main thread waits for: the end of the session, or a signal.

    A pipe, because the interpreter writes signals into one at once (`set_wakeup_fd`); a thread that
    waits for a lock may miss a signal that comes just before.
    """

    _ENDED = b"\0"  # signals are written as their number

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._closed = True
        self._read = self._write = -1
        self._handlers: Dict[int, Any] = {}
        self._wakeup = -1

    def __enter__(self) -> "Inbox":
        self._read, self._write = os.pipe()
        self._closed = False
        os.set_blocking(self._read, False)
        os.set_blocking(self._write, False)
        if threading.current_thread() is threading.main_thread():
            self._wakeup = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
            for number in (signal.SIGINT, signal.SIGTERM):
                handler = signal.signal(number, lambda *_: None)
                self._handlers[number] = signal.SIG_DFL if handler is None else handler
        return self

    def __exit__(self, *_: Any) -> None:
        if self._handlers:
            signal.set_wakeup_fd(self._wakeup)
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        with self._lock:
            self._closed = True
            os.close(self._read)
            os.close(self._write)

    def ended(self) -> None:
        """The session has ended; on its thread."""
        with self._lock:
            if not self._closed:
                os.write(self._write, self._ENDED)

    def wait(self, deadline: Optional[float]) -> str:
        """ "ended", "signal", or "timeout" at the deadline."""
        poll = select.poll()
        poll.register(self._read, select.POLLIN)
        while True:
            rest = None if deadline is None else max(0.0, deadline - time.monotonic())
            # A day at most: longer waits do not fit into poll's milliseconds.
            if not poll.poll(None if rest is None else min(rest, 86400.0) * 1000):
                if deadline is not None and time.monotonic() >= deadline:
                    return "timeout"
                continue
            written = os.read(self._read, 1)
            if written == self._ENDED:
                return "ended"
            if written[0] in (signal.SIGINT, signal.SIGTERM):
                return "signal"
