"""One run of a supervisor's child, from its start to its stop or its end: the session; and that of a thread.

A session knows which requests are out, so that each gets exactly one reply: the child's, or an error when the child is
gone. Processes are in _process_session.py.
"""
from __future__ import annotations

import itertools
import logging
import pickle
import queue
import threading
import time
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple

from ._inbox import Channel, Inbox
from ._payloads import Notice, RecvPayload, ReserveMethod, SendPayload, WorkerLost, failure

log = logging.getLogger("divisi.supervisor")

# Without a timeout of its own a stop waits this long, for a thread before it is abandoned and for a process before
# it is killed: long enough for a process to save what its SIGTERM handler saves.
STOP_S = 5.0
NOTICE = 0  # number of a frame that answers nothing: the child could not be built


class Worker(NamedTuple):
    """What a child is made of. `init` is a factory, called where the child runs, or a ready object."""

    proc_id: int
    init: Any
    shm_buffer: Any
    shm_callback: Optional[Callable[[RecvPayload, Any], Any]]

    def build(self) -> Any:
        """The object whose methods are called."""
        return self.init() if callable(self.init) else self.init

    def answer(self, target: Any, req_id: str, method: Any, args: Any, kwargs: Any) -> RecvPayload:
        """Does one request. An exception becomes the reply's `err`; the child lives on."""
        reply = RecvPayload(self.proc_id, req_id, method)
        try:
            if method is ReserveMethod.GETATTR:
                reply.data = getattr(target, *args)
                return reply
            reply.data = getattr(target, method)(*args, **kwargs)
            if self.shm_callback is not None and self.shm_buffer is not None:
                self.shm_callback(reply, self.shm_buffer)
        except Exception as error:
            log.warning("child %d: %s failed", self.proc_id, name_of(method), exc_info=True)
            reply.data, reply.err = None, error
        return reply


class Session:
    """The part that both kinds share: requests that are out, and what becomes of them."""

    def __init__(self, worker: Worker, inbox: Inbox) -> None:
        self.worker = worker
        self._inbox = inbox
        self._numbers = itertools.count(NOTICE + 1)
        self._out: Dict[int, SendPayload] = {}  # single dictionary operations only: whoever pops a request answers it
        self._lost: Optional[str] = None

    @property
    def busy(self) -> bool:
        """Whether the child owes a reply."""
        return bool(self._out)

    def submit(self, request: SendPayload) -> None:
        """Hands a request to the child. Never raises and never waits for the child: what fails is in the reply."""
        self._inbox.expect(request)
        number = next(self._numbers)
        self._out[number] = request
        if self._lost is None:
            try:
                self._transmit(number, request)
            except OSError:
                return  # it has just ended: whoever polls the channel finds that out and answers
            except Exception as error:
                text = f"child {request.proc_id}: the arguments of {name_of(request.method)} cannot be sent: {error!r}"
                self._settle(number, pickle.PicklingError(text), error)
                return
            if self._lost is None:
                return
        # Gone before, or meanwhile; then lose() may have answered already, or not have seen this request.
        log.warning("send to child %d, which is gone: %s", request.proc_id, self._lost)
        self._settle(number, WorkerLost(self._lost))

    def pop(self, number: int) -> Optional[SendPayload]:
        """The request of that number, for the one who answers it; None if somebody has."""
        return self._out.pop(number, None)

    def lose(self, text: str, cause: Optional[BaseException] = None) -> List[RecvPayload]:
        """The child is gone. Returns an error for each request that was out."""
        self._lost = text
        replies = []
        for number in list(self._out):
            request = self._out.pop(number, None)
            if request is not None:
                error = WorkerLost(text)
                error.__cause__ = cause
                replies.append(failure(request, error))
        return replies

    def ask_to_stop(self, why: str) -> None:
        """Starts the stop and reports what was out; `stop` waits for it."""
        raise NotImplementedError

    def stop(self, deadline: float) -> None:
        """Ends the child by the deadline (of time.monotonic), by force where there is some. Once is enough."""
        raise NotImplementedError

    def _transmit(self, number: int, request: SendPayload) -> None:
        raise NotImplementedError

    def _settle(self, number: int, error: Exception, cause: Optional[BaseException] = None) -> None:
        request = self._out.pop(number, None)
        if request is not None:
            error.__cause__ = cause
            self._inbox.post([failure(request, error)])

    def _end(self, text: str, cause: Optional[BaseException] = None) -> List[RecvPayload]:
        """The child ended by itself: an error for each request, or one notice if there were none."""
        replies = self.lose(text, cause)
        if not replies:
            error = WorkerLost(text)
            error.__cause__ = cause
            replies.append(Notice(self.worker.proc_id, err=error))
        return replies


class ThreadChannel(Channel):
    """One queue for the replies of all threads. None in it wakes the reader."""

    def __init__(self) -> None:
        self.replies: queue.SimpleQueue[Optional[Tuple[ThreadSession, int, Any]]] = queue.SimpleQueue()

    def poll(self, timeout: Optional[float], out: List[RecvPayload]) -> None:
        try:
            item = self.replies.get(True, timeout)
            while True:
                if item is not None:
                    session, number, value = item
                    session.on_reply(number, value, out)
                item = self.replies.get_nowait()
        except queue.Empty:
            return

    def wake(self) -> None:
        self.replies.put(None)


class ThreadSession(Session):
    """A child in a daemon thread of this process. Nothing is copied: arguments and results are shared."""

    def __init__(self, worker: Worker, inbox: Inbox, channel: ThreadChannel) -> None:
        super().__init__(worker, inbox)
        self._requests: queue.SimpleQueue[Optional[Tuple[int, SendPayload]]] = queue.SimpleQueue()
        self._stopped = False  # requests that are still queued are not begun
        self._thread = threading.Thread(target=self._serve, args=(channel.replies.put,), daemon=True,
                                        name=f"divisi-child-{worker.proc_id}")
        self._thread.start()

    def on_reply(self, number: int, value: Any, out: List[RecvPayload]) -> None:
        """What the thread has put into the queue: a reply, or under the number of notices why it ended."""
        if number == NOTICE:
            text, cause = value
            out.extend(self._end(text, cause))
        elif self.pop(number) is not None:
            out.append(value)

    def ask_to_stop(self, why: str) -> None:
        self._stopped = True
        self._requests.put(None)
        self._inbox.post(self.lose(why))

    def stop(self, deadline: float) -> None:
        self._thread.join(max(0.0, deadline - time.monotonic()))
        if self._thread.is_alive():
            log.warning("child %d does not end: its thread is abandoned", self.worker.proc_id)

    def _transmit(self, number: int, request: SendPayload) -> None:
        self._requests.put((number, request))

    def _serve(self, put: Callable[[Tuple[ThreadSession, int, Any]], None]) -> None:
        worker = self.worker
        try:
            target = worker.build()
        except BaseException as error:
            log.warning("child %d could not be built", worker.proc_id, exc_info=True)
            put((self, NOTICE, (f"child {worker.proc_id} could not be built: {error!r}", error)))
            return
        while True:
            item = self._requests.get()
            if item is None or self._stopped:
                return
            number, request = item
            if request.method is ReserveMethod.SHUTDOWN:
                put((self, NOTICE, (f"child {worker.proc_id} was asked to shut down", None)))
                return
            try:
                reply = worker.answer(target, request.req_id, request.method, request.args, request.kwargs)
            except BaseException as error:  # SystemExit and its kind end a child, as they end a process
                put((self, NOTICE, (f"child {worker.proc_id} ended with {error!r}", error)))
                return
            put((self, number, reply))


def name_of(method: Any) -> str:
    """A method, for a message."""
    return method.name.lower() if isinstance(method, ReserveMethod) else f"{method}()"
