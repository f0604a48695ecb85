"""A wait that ends when the task does: for middleware that need something from another node."""

import math
import threading
import time
from typing import Any, Callable

_LOOK_S = 1.0
"""C++ code of this process can end the task as well, and an error of a listener is stored without a
word: both are looked for once in a while."""


class Waiter:
    """Lets a middleware wait for what listeners bring, without missing it and without outliving its
    task::

        waiter, results = Waiter(task), []

        def on_result(result):
            with waiter.changed:
                results.append(result)
                waiter.wake()

        task.on("result", on_result)
        ...
        if not waiter.wait(lambda: results, timeout=60):
            ...  # nothing came in time, or the task is over

    Change what the predicate reads only while ``changed`` is held. Threads: all calls from any.

    :param task: a task that was started
    """

    def __init__(self, task: Any) -> None:
        self._task = task
        self.changed = threading.Condition(threading.RLock())
        """The condition; its lock may be taken again by the thread that holds it."""
        task._wakers.append(self.wake)
        task.on("finish", lambda *_, **__: self.wake())

    def wake(self) -> None:
        """Lets every waiting thread look again."""
        with self.changed:
            self.changed.notify_all()

    def over(self) -> bool:
        """Whether the task is at its end: finished, stopped, or failed."""
        task = self._task
        return task.finish or not task.running or task._failed or task._exception is not None

    def wait(self, predicate: Callable[[], Any], timeout: float = math.inf) -> bool:
        """Waits until the predicate is true. False after the time-out, or when the task is over."""
        deadline = time.monotonic() + timeout
        with self.changed:
            while not predicate():
                left = deadline - time.monotonic()
                if left <= 0 or self.over():
                    return False
                self.changed.wait(min(left, _LOOK_S))
            return True
