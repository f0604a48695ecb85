"""The threads of asynchronous steps.

Not concurrent.futures: its threads are joined when the interpreter ends, so one middleware that
never returns would keep the process for ever. These are daemons, and ``join`` has a time limit.
"""

import queue
import threading
import time
from typing import Any, Callable, List, Optional


class Job:
    """One call on the pool."""

    __slots__ = ("call", "error", "is_done", "result")

    def __init__(self, call: Callable[[], Any]):
        self.call: Optional[Callable[[], Any]] = call
        self.result: Any = None
        self.error: Optional[BaseException] = None
        self.is_done = False


class Pool:
    """``n`` threads that run jobs in the order in which they were submitted."""

    def __init__(self, n: int, name: str = "divisi-step"):
        self._jobs: "queue.SimpleQueue[Optional[Job]]" = queue.SimpleQueue()
        self._changed = threading.Condition()
        self._pending: List[Job] = []
        self._threads = [
            threading.Thread(target=self._work, name=f"{name}-{i}", daemon=True) for i in range(n)
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, call: Callable[[], Any], joined: bool = True) -> Job:
        """``joined``: :meth:`sync` waits for it and raises what it raised."""
        job = Job(call)
        if joined:
            with self._changed:
                self._pending.append(job)
        self._jobs.put(job)
        return job

    def wait(self, jobs: List[Job]) -> None:
        """Until all of these are done, or one of them has failed: raises its error."""
        with self._changed:
            self._changed.wait_for(
                lambda: all(job.is_done for job in jobs) or any(job.error for job in jobs)
            )
            for job in jobs:
                if job.error is not None:
                    raise job.error

    def sync(self) -> None:
        """Waits for everything submitted; raises the first failure, the others go on."""
        with self._changed:
            jobs = list(self._pending)
        try:
            self.wait(jobs)
        finally:
            with self._changed:
                self._pending = [job for job in self._pending if not job.is_done]

    def is_current(self) -> bool:
        """Whether the calling thread is one of the pool's."""
        return threading.current_thread() in self._threads

    def close(self, timeout: float) -> bool:
        """Lets the threads end after their jobs; False if some still run after the time-out."""
        for _ in self._threads:
            self._jobs.put(None)
        deadline = time.monotonic() + timeout
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(max(0.0, deadline - time.monotonic()))
        return not any(
            thread.is_alive() for thread in self._threads if thread is not threading.current_thread()
        )

    def _work(self) -> None:
        while True:
            job = self._jobs.get()
            if job is None:
                return
            assert job.call is not None
            result, failed = None, None
            try:
                result = job.call()
            except BaseException as error:  # noqa: B902 (it is raised where somebody waits)
                failed = error
            job.call = None
            with self._changed:  # together: who sees the error takes the job for done
                job.result, job.error, job.is_done = result, failed, True
                self._changed.notify_all()
