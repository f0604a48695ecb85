"""Threads that run steps: at most `max_workers` at a time, and nobody polls."""

from __future__ import annotations

import collections
import ctypes
import enum
import threading
import time
from typing import Any, Callable, Deque, Dict, List, Optional, Type

from ._records import Task


_AGAIN_S = 0.1  # a trial that is being prepared when its time is over


class ServiceState(enum.IntEnum):
    """The life of a service."""

    PENDING = 1
    RUNNING = 2
    CLOSING = 3
    DEAD = 4


class ServiceBusy(RuntimeError):
    """No worker became free in time."""


class ServiceNoLongerAccept(RuntimeError):
    """The service takes no new work."""


class Cancelled(BaseException):
    """Raised inside an objective whose step is cancelled."""


class TrialTimeout(TimeoutError):
    """A try that took longer than `trial_timeout`; there is no further one."""

    final = True
    """A retry is pointless."""


class _Call:
    """A function that `ThreadService.call` runs."""

    def __init__(self) -> None:
        # Guarded by the service's lock of cancellations:
        self.sent = False  # Cancelled is on its way into it
        self.expired = False  # its time is over


def _raise_in(thread: int, error: Optional[Type[BaseException]]) -> None:
    """Raises an exception in another thread when it runs Python code again; None takes back one that
    was not delivered."""
    raised = ctypes.py_object() if error is None else ctypes.py_object(error)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), raised)


class ThreadService:
    """Runs tasks on threads. Subclasses say what a task does and what happens around it.

    For one task, in this order: `before_exec`, `execute`, `after_exec`, `callback`, `after_sent_back`,
    `after_callback`; only then its slot is free. An error in any of them closes the service and is
    kept in `error`; errors of the task itself are results.
    """

    def __init__(self, max_workers: int):
        self._max_workers = max_workers
        self._condition = threading.Condition()
        # Guarded by the condition:
        self._state = ServiceState.PENDING
        self._error: Optional[BaseException] = None
        self._taken = 0  # slots
        self._last_id = 0
        self._queue: Deque[Task] = collections.deque()
        self._idle = 0
        self._threads: List[threading.Thread] = []
        self._cancelling = threading.Lock()
        # Guarded by it:
        self._cancelled = False
        self._callers: Dict[int, _Call] = {}  # threads inside of call()

    def execute(self, task: Task) -> Any:
        """The work; gives what the others are called with."""
        raise NotImplementedError("a service has to say what its tasks do")

    def before_exec(self, task: Task) -> None:
        """Before the work."""

    def after_exec(self, task: Task, result: Any) -> None:
        """After the work, before anybody knows of it."""

    def callback(self, task: Task, result: Any) -> None:
        """Hands the result on."""

    def after_sent_back(self, task: Task, result: Any) -> None:
        """The result has been handed on."""

    def after_callback(self, task: Task, result: Any) -> None:
        """The last step; the slot is free afterwards."""

    @property
    def state(self) -> ServiceState:
        """Where it stands."""
        return self._state

    @property
    def error(self) -> Optional[BaseException]:
        """The first error around a task."""
        return self._error

    def start(self) -> None:
        """Lets `send` in."""
        with self._condition:
            if self._state != ServiceState.PENDING:
                raise RuntimeError(f"the service was started already and is {self._state.name}")
            self._state = ServiceState.RUNNING

    def reserve(self, timeout: Optional[float] = None) -> None:
        """Waits for a free slot and takes it; `submit` or `give_back` must follow."""
        deadline = None if timeout is None else time.monotonic() + timeout
        with self._condition:
            if self._state == ServiceState.PENDING:
                raise RuntimeError("the service is not started")
            while self._state == ServiceState.RUNNING and self._taken >= self._max_workers:
                rest = None if deadline is None else deadline - time.monotonic()
                if rest is not None and rest <= 0:
                    raise ServiceBusy(f"all {self._max_workers} workers are busy")
                self._condition.wait(rest)
            self._check_open()
            self._taken += 1

    def wait_until(self, ready: Callable[[], bool]) -> None:
        """Waits until `ready` says yes when a step has ended, or until new work is refused."""
        with self._condition:
            self._condition.wait_for(lambda: ready() or self._state != ServiceState.RUNNING)

    def give_back(self) -> None:
        """Frees a reserved slot."""
        with self._condition:
            self._free()

    def submit(self, config: Any, task_id: Optional[int] = None) -> Task:
        """Runs a configuration in the reserved slot; the next number is its own unless one is given."""
        with self._condition:
            try:
                self._check_open()
            except ServiceNoLongerAccept:
                self._free()
                raise
            number = self._last_id + 1 if task_id is None else task_id
            self._last_id = max(self._last_id, number)
            task = Task(number, config)
            self._queue.append(task)
            if self._idle >= len(self._queue):
                self._condition.notify_all()
            else:
                # Daemons: an objective that hangs must not keep the program from ending.
                thread = threading.Thread(target=self._work, name="divisi-tune", daemon=True)
                self._threads = [one for one in self._threads if one.is_alive()]
                self._threads.append(thread)
                thread.start()
            return task

    def send(self, config: Any, timeout: Optional[float] = None) -> Task:
        """Waits for a free worker and runs a configuration on it."""
        self.reserve(timeout)
        return self.submit(config)

    def close(self) -> None:
        """Refuses new work; what runs goes on."""
        with self._condition:
            self._close()

    def join(self, timeout: Optional[float] = None) -> bool:
        """Waits until nothing runs in a closed service; whether that is so."""
        with self._condition:
            return self._condition.wait_for(lambda: self._state == ServiceState.DEAD, timeout)

    def join_threads(self, timeout: Optional[float] = None) -> None:
        """Waits until the threads of a closed service have ended."""
        deadline = None if timeout is None else time.monotonic() + timeout
        for thread in list(self._threads):
            thread.join(None if deadline is None else max(0.0, deadline - time.monotonic()))

    def shutdown(self) -> None:
        """Closes, and waits for what runs."""
        self.close()
        self.join()

    def call(
        self,
        function: Callable[..., Any],
        *args: Any,
        limit: Optional[float] = None,
        cancel: Optional[Callable[[int], bool]] = None,
    ) -> Any:
        """Calls a function that `cancel` may interrupt; to be used inside of `execute`. After `limit`
        seconds it is interrupted likewise, and `TrialTimeout` raised; `cancel`, which gets the number of
        the thread, takes the place of the interruption where the function waits for a process; it is
        called again as long as it says False: there is no process yet."""
        thread = threading.get_ident()
        call = _Call()
        with self._cancelling:
            if self._cancelled:
                raise Cancelled
            self._callers[thread] = call
        timer = None
        if limit is not None:
            timer = threading.Timer(limit, self._expire, (thread, call, cancel))
            timer.daemon = True
            timer.start()
        try:
            return function(*args)
        except BaseException as error:
            if call.expired:
                raise TrialTimeout(f"the try took longer than {limit:g} seconds") from error
            raise
        finally:
            if timer is not None:
                timer.cancel()
            with self._cancelling:
                self._callers.pop(thread, None)
                # Not delivered so far: it must not hit the code after this.
                if call.sent:
                    _raise_in(thread, None)

    def _expire(
        self, thread: int, call: _Call, cancel: Optional[Callable[[int], bool]]
    ) -> None:
        with self._cancelling:
            if self._callers.get(thread) is not call or call.sent:
                return
            call.expired = True
            if cancel is not None:
                if cancel(thread) is False:
                    again = threading.Timer(_AGAIN_S, self._expire, (thread, call, cancel))
                    again.daemon = True
                    again.start()
                return
            call.sent = True
            _raise_in(thread, Cancelled)

    def cancel(self) -> None:
        """Closes, and raises `Cancelled` in every function that `call` runs, once. One that waits
        inside of a system call notices when the call returns."""
        self.close()
        with self._cancelling:
            self._cancelled = True
            for thread, call in self._callers.items():
                if not call.sent:
                    call.sent = True
                    _raise_in(thread, Cancelled)

    def _check_open(self) -> None:
        if self._state != ServiceState.RUNNING:
            raise ServiceNoLongerAccept(f"the service takes no new work: it is {self._state.name}")

    def _free(self) -> None:
        self._taken -= 1
        if self._state == ServiceState.CLOSING and self._taken == 0:
            self._state = ServiceState.DEAD
        self._condition.notify_all()

    def _close(self) -> None:
        if self._state in (ServiceState.PENDING, ServiceState.RUNNING):
            self._state = ServiceState.CLOSING if self._taken else ServiceState.DEAD
        self._condition.notify_all()

    def _work(self) -> None:
        while True:
            task = self._next()
            if task is None:
                return
            self._run(task)

    def _next(self) -> Optional[Task]:
        with self._condition:
            self._idle += 1
            try:
                self._condition.wait_for(lambda: self._queue or self._state == ServiceState.DEAD)
                return self._queue.popleft() if self._queue else None
            finally:
                self._idle -= 1

    def _run(self, task: Task) -> None:
        try:
            self.before_exec(task)
            result = self.execute(task)
            self.after_exec(task, result)
            self.callback(task, result)
            self.after_sent_back(task, result)
            self.after_callback(task, result)
        except Cancelled:  # it hit the last line of call()
            self.close()
        except BaseException as error:
            with self._condition:
                if self._error is None:
                    self._error = error
                self._close()
        finally:
            self.give_back()
