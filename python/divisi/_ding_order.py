"""Order inside DI-engine.

Its queue may deliver in order; its thread pools do not: `task.emit` hands remote events to three
threads, and each event loop runs callbacks on two. `keep_order` changes, in the process that calls
it and only there, the two places where that happens:

* the remote half of `task.emit` runs in the thread that emits, so the queue sees events in the
  order of the program;
* an event loop runs the callbacks of one event one after another. Different events still run side
  by side on its two threads, so a callback may wait for another event as before.
"""

from __future__ import annotations

import functools
import threading
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Callable, Deque, Dict, Tuple

Job = Tuple[Callable[..., Any], tuple, dict]

# Jobs of one event that run before another event gets its turn on the thread.
_RUN = 64


class OrderedPool:
    """What an event loop needs of a thread pool, with the jobs of one event in order."""

    def __init__(self, max_workers: int = 2) -> None:
        self._pool = ThreadPoolExecutor(max_workers=max_workers)
        self._lock = threading.Lock()
        self._waiting: Dict[str, Deque[Job]] = {}  # an event is a key while a thread works on it

    def submit(self, trigger: Callable[..., Any], event: str, *args: Any, **kwargs: Any) -> None:
        """Runs `trigger(event, *args, **kwargs)` after all earlier jobs of the event. `trigger`
        does not raise."""
        job = (trigger, (event, *args), kwargs)
        with self._lock:
            jobs = self._waiting.get(event)
            if jobs is not None:
                jobs.append(job)
                return
            self._waiting[event] = deque([job])
        self._pool.submit(self._work, event)

    def shutdown(self, wait: bool = True) -> None:
        """Runs what was submitted, then ends the threads."""
        self._pool.shutdown(wait=wait)

    def _work(self, event: str) -> None:
        left = _RUN
        while True:
            with self._lock:
                jobs = self._waiting[event]
                if not jobs:
                    del self._waiting[event]
                    return
                trigger, args, kwargs = jobs.popleft()
            trigger(*args, **kwargs)
            left -= 1
            if left == 0:
                try:
                    self._pool.submit(self._work, event)
                    return
                except RuntimeError:  # the pool takes nothing new any more: the rest runs here
                    left = len(jobs) + 1


def keep_order(router: Any) -> None:
    """Changes the event loops and the task of this process. Called with the router before its
    `main` runs."""
    from ding.framework import event_loop
    from ding.framework.task import Task

    event_loop.ThreadPoolExecutor = OrderedPool
    router._event_loop._thread_pool.shutdown()
    router._event_loop._thread_pool = OrderedPool()
    if not hasattr(Task.emit, "divisi"):
        Task.emit = _emit_in_order(Task.emit)


def _emit_in_order(original: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(original)
    def emit(
        self: Any,
        event: str,
        *args: Any,
        only_remote: bool = False,
        only_local: bool = False,
        **kwargs: Any,
    ) -> None:
        remote = not only_local and self._running and self.router.is_active
        if not remote:
            original(self, event, *args, only_remote=only_remote, only_local=only_local, **kwargs)
            return
        self.router.emit(self._wrap_event_name(event), event, *args, **kwargs)
        if not only_remote:
            original(self, event, *args, only_local=True, **kwargs)

    emit.divisi = True  # type: ignore[attr-defined]
    return emit
