"""EventLoop: named events inside a process."""

import threading
from typing import Any, Callable, Dict, Optional, Tuple

from . import _native


class EventLoop:
    """Named events inside a process, with a thread of its own for the listeners.

    >>> loop = EventLoop("trainer")
    >>> loop.on("loss", lambda step, loss: print(step, loss))
    >>> loop.emit("loss", 7, 0.25)      # returns at once
    >>> loop.stop()                     # runs what is queued, then ends
    7 0.25

    Listeners run one after another in the order of the emits (``threads`` > 1: in order for each
    event name). What a listener raises is stored, the first error stays, and the next ``emit``
    raises it; with ``on_error="log"`` it is only logged.
    """

    loops: Dict[str, "EventLoop"] = {}
    """The loops of :meth:`get_event_loop`, by name."""
    _loops_lock = threading.Lock()

    def __init__(self, name: str = "default", threads: int = 1, on_error: str = "raise") -> None:
        if on_error not in ("raise", "log"):
            raise ValueError(f"on_error is 'raise' or 'log', not {on_error!r}")
        self._name = name
        self._core = _native.Loop(name, threads, on_error == "log")

    @classmethod
    def get_event_loop(cls, name: str = "default") -> "EventLoop":
        """The loop registered under this name; made on first use, forgotten by its ``stop``."""
        with cls._loops_lock:
            if name not in cls.loops:
                cls.loops[name] = cls(name)
            return cls.loops[name]

    @property
    def name(self) -> str:
        """As given to the constructor."""
        return self._name

    def on(self, event: str, fn: Callable) -> None:
        """Calls ``fn`` with the arguments of every emit; added twice, it is called twice."""
        _check_callable(fn)
        self._core.on(event, fn, False)

    def once(self, event: str, fn: Callable) -> None:
        """As :meth:`on`, for the first emit only."""
        _check_callable(fn)
        self._core.on(event, fn, True)

    def off(self, event: str, fn: Optional[Callable] = None) -> None:
        """Removes the first registration of ``fn``, or all. ``event`` is a glob (``*``, ``?``, ``[a-z]``)."""
        if fn is None:
            self._core.off(event)
        else:
            self._core.off_function(event, fn)

    def emit(self, event: str, *args: Any, **kwargs: Any) -> None:
        """Queues the event and returns. Raises the stored error of a listener, if there is one."""
        self._core.emit(event, args, kwargs)

    def wait_for(
        self, event: str, timeout: float = float("inf"), ignore_timeout_exception: bool = True
    ) -> Optional[Tuple[tuple, dict]]:
        """Blocks until the event: ``(args, kwargs)``, or None after the time-out or ``stop``."""
        return self._core.wait_for(event, timeout, ignore_timeout_exception)

    def listened(self, event: str) -> bool:
        """Whether the event has a listener."""
        return self._core.listened(event)

    def stop(self) -> None:
        """Runs what is queued, removes all listeners, then raises a stored error nobody has seen."""
        with self._loops_lock:
            if self.loops.get(self._name) is self:
                del self.loops[self._name]
        self._core.stop()

    @property
    def _exception(self) -> Optional[BaseException]:
        return self._core.error()


def _check_callable(fn: Callable) -> None:
    if not callable(fn):
        raise TypeError(f"a listener is a callable, not a {type(fn).__name__}")
