"""Supervisor: a small pool of children that answer requests, for environments, loaders and savers.

    supervisor = Supervisor(ChildType.PROCESS)
    for _ in range(4):
        supervisor.register(make_env)
    supervisor.start_link()
    sent = [SendPayload(proc_id=i, method="step", args=[action]) for i in range(4)]
    for payload in sent:
        supervisor.send(payload)
    replies = supervisor.recv_all(sent)
    supervisor.shutdown()

A child does one request at a time, in order, and lives on when one fails. Every request that was sent gets one reply:
the child's, or WorkerLost if the child ends or is restarted first. Calls may come from any thread.
"""
from __future__ import annotations

import logging
import multiprocessing
import os
import queue
import sys
import threading
import time
from abc import ABC, abstractmethod
from multiprocessing.context import BaseContext
from typing import Any, Callable, Dict, List, Optional, Sequence, Union

from ._inbox import Channel, Claim, Inbox
from ._payloads import ChildType, RecvPayload, ReserveMethod, SendPayload, WorkerLost, failure
from ._process_session import ProcessChannel, ProcessSession
from ._sessions import STOP_S, Session, ThreadChannel, ThreadSession, Worker

__all__ = ["Supervisor", "ChildType", "SendPayload", "RecvPayload", "ReserveMethod", "Child", "ChildProcess",
           "ChildThread", "WorkerLost"]

ShmCallback = Callable[[RecvPayload, Any], Any]
RecvCallback = Callable[[RecvPayload, Dict[str, SendPayload]], Any]

log = logging.getLogger("divisi.supervisor")

# What the children get to end when nobody holds the supervisor any more: the collector should not wait long.
_DROPPED_S = 1.0


class Child(ABC):
    """One child. It may run many times: each start is a new session, with nothing left of the one before."""

    def __init__(self, proc_id: int, init: Any, shm_buffer: Any = None,
                 shm_callback: Optional[ShmCallback] = None) -> None:
        self._worker = Worker(proc_id, init, shm_buffer, shm_callback)
        self._session: Optional[Session] = None
        self._inbox: Optional[Inbox] = None
        self._channel: Optional[Channel] = None

    @property
    def proc_id(self) -> int:
        """Its place among the children, from 0."""
        return self._worker.proc_id

    def start(self, inbox: Inbox, channel: Channel) -> None:
        """Starts the child; its replies go to the inbox, by way of the channel."""
        self._inbox, self._channel = inbox, channel
        self._session = self._start_session(inbox, channel)

    def restart(self) -> None:
        """Stops the child and starts it anew. Requests that it has not answered are answered with WorkerLost."""
        session, inbox, channel = self._session, self._inbox, self._channel
        if session is None or inbox is None or channel is None:
            log.warning("restart of child %d, which is not running", self.proc_id)
            return
        # The old session stays until there is a new one: it answers what other threads send meanwhile.
        session.ask_to_stop(f"child {self.proc_id} was restarted")
        session.stop(time.monotonic() + STOP_S)
        inbox.forget_notices(self.proc_id)
        self.start(inbox, channel)

    def send(self, payload: SendPayload) -> None:
        """Hands over a request; warns and does nothing if the child was never started."""
        session = self._session
        if session is None:
            log.warning("send to child %d, which is not running", self.proc_id)
            return
        session.submit(payload)

    def ask_to_stop(self, why: str) -> None:
        """Begins the stop, so that several children can end at the same time."""
        if self._session is not None:
            self._session.ask_to_stop(why)

    def shutdown(self, timeout: Optional[float] = None) -> None:
        """Ends the child within the timeout (5 s without one): a process by force, a thread is abandoned."""
        session, self._session = self._session, None
        self._inbox = self._channel = None
        if session is not None:
            session.ask_to_stop(f"child {self.proc_id} was shut down")
            session.stop(time.monotonic() + (STOP_S if timeout is None else timeout))

    @abstractmethod
    def _start_session(self, inbox: Inbox, channel: Channel) -> Session:
        ...


class ChildProcess(Child):
    """A child in a process of its own."""

    def __init__(self, proc_id: int, init: Any, shm_buffer: Any = None, shm_callback: Optional[ShmCallback] = None,
                 mp_ctx: Union[BaseContext, str, None] = None) -> None:
        super().__init__(proc_id, init, shm_buffer, shm_callback)
        self._context = _context(mp_ctx)

    def _start_session(self, inbox: Inbox, channel: Channel) -> Session:
        assert isinstance(channel, ProcessChannel)
        return ProcessSession(self._worker, inbox, channel, self._context)


class ChildThread(Child):
    """A child in a thread of this process."""

    def _start_session(self, inbox: Inbox, channel: Channel) -> Session:
        assert isinstance(channel, ThreadChannel)
        return ThreadSession(self._worker, inbox, channel)


class Supervisor:
    """Children, requests to them, and their replies.

    `type_` is what children run in. `mp_ctx` is how processes start: a start method ("fork", "spawn", "forkserver") or
    a context of multiprocessing; None means fork where there is one. Reading any other attribute reads it of every
    child: `supervisor.action_space` is a list.
    """

    _running = False  # also before __init__ has set it, for __getattr__

    def __init__(self, type_: Union[ChildType, str], mp_ctx: Union[BaseContext, str, None] = None) -> None:
        self._type = ChildType(type_)
        self._mp_ctx = _context(mp_ctx)
        self._children: List[Child] = []
        self._switching = threading.Lock()  # one start_link or shutdown at a time
        self._inbox: Optional[Inbox] = None
        self._owner = os.getpid()

    def register(self, init: Any, shm_buffer: Any = None, shm_callback: Optional[ShmCallback] = None) -> None:
        """Adds a child, to be started by the next `start_link`.

        `init` is a factory, which is called inside the child, or a ready object. With a buffer,
        `shm_callback(reply, shm_buffer)` runs in the child after each call that succeeded, to move what is large out
        of the reply.
        """
        proc_id = len(self._children)
        if self._type is ChildType.PROCESS:
            self._children.append(ChildProcess(proc_id, init, shm_buffer, shm_callback, self._mp_ctx))
        else:
            self._children.append(ChildThread(proc_id, init, shm_buffer, shm_callback))

    def start_link(self) -> None:
        """Starts every child; does nothing while they run. If one cannot start, none is left running."""
        with self._switching:
            if self._running:
                return
            channel: Channel = ProcessChannel() if self._type is ChildType.PROCESS else ThreadChannel()
            inbox = Inbox(channel)
            try:
                for child in self._children:
                    child.start(inbox, channel)
            except BaseException:
                self._stop_children(STOP_S)
                inbox.close()
                raise
            self._owner = os.getpid()
            self._inbox = inbox
            self._running = True

    def send(self, payload: SendPayload) -> None:
        """Sends a request to child `payload.proc_id`. Only warns if nothing runs or there is no such child.

        Does not wait for a child that is busy. What cannot be pickled, and a child that is gone, is an `err` of the
        reply.
        """
        if not self._running:
            log.warning("send on a supervisor that is not running: ignored")
            return
        if not 0 <= payload.proc_id < len(self._children):
            log.warning("send to child %s: there are %d children", payload.proc_id, len(self._children))
            return
        self._children[payload.proc_id].send(payload)

    def recv(self, ignore_err: bool = False, timeout: Optional[float] = None) -> RecvPayload:
        """The next reply of any child, in order of arrival.

        Raises the child's exception, unless errors are ignored: then it is in `err`. Raises queue.Empty after the
        timeout, RuntimeError when not running. When the supervisor is shut down meanwhile: RuntimeError in the main
        thread; in any other SystemExit, which ends that thread quietly.
        """
        reply = self._live_inbox().next(timeout)
        if reply.err is not None and not ignore_err:
            raise reply.err
        return reply

    def recv_all(self, send_payloads: Sequence[SendPayload], ignore_err: bool = False,
                 callback: Optional[RecvCallback] = None, timeout: Optional[float] = None) -> List[RecvPayload]:
        """The replies to these requests, in their order. Replies to other requests stay for other calls.

        The timeout is that of each wait for one more of them. After it: TimeoutError, or with `ignore_err` a reply
        with `err` TimeoutError for each that is missing. `callback(reply, remaining)` sees each reply as it comes and
        may add requests to `remaining` (by their id), which are then waited for too. A call that raises has given its
        requests up: their replies are dropped whenever they come. A request that was never sent gets LookupError
        when there is no timeout to end the wait.
        """
        assert send_payloads, "recv_all needs at least one request"
        inbox = self._live_inbox()
        asked = {payload.req_id for payload in send_payloads}
        remaining = {payload.req_id: payload for payload in send_payloads}
        claim = inbox.claim()
        claimed = set(remaining)
        answers: Dict[str, RecvPayload] = {}
        arrived = _claim(claim, send_payloads, timeout)
        try:
            while remaining:
                for reply in arrived or _next(claim, remaining, ignore_err, timeout):
                    req_id: Any = reply.req_id
                    if remaining.pop(req_id, None) is None:
                        continue  # the callback has taken it out
                    if req_id in asked:
                        answers[req_id] = reply
                    if reply.err is not None and not ignore_err:
                        raise reply.err
                    if callback is not None:
                        callback(reply, remaining)
                arrived = []
                added = [remaining[req_id] for req_id in remaining.keys() - claimed]
                if added:
                    claimed.update(payload.req_id for payload in added)
                    arrived = _claim(claim, added, timeout)
        finally:
            inbox.give_up(claimed)
        return [answers[payload.req_id] for payload in send_payloads if payload.req_id in answers]

    def get_child_attr(self, proc_id: int, key: str) -> Any:
        """One attribute of one child."""
        assert self._running, "the supervisor is not running: call start_link first"
        return self._get_attr([self._children[proc_id]], key)[0]

    def shutdown(self, timeout: Optional[float] = None) -> None:
        """Ends every child and drops every reply. `start_link` may follow.

        The timeout is for all of them together, 5 s without one. A process that works is terminated at once, one that
        has not ended by then is killed; a thread that has not ended by then is abandoned.
        """
        with self._switching:
            if not self._running:
                return
            self._running = False
            if self._owner != os.getpid():
                return  # a fork of the program: the children are not ours
            inbox, self._inbox = self._inbox, None
            self._stop_children(STOP_S if timeout is None else timeout)
            assert inbox is not None
            inbox.close()

    def __getattr__(self, key: str) -> List[Any]:
        if key.startswith("__"):
            raise AttributeError(key)  # copy, pickle and their like ask for what an object does not have
        assert self._running, f"the supervisor is not running, so {key!r} of its children cannot be read"
        return self._get_attr(self._children, key)

    def __del__(self) -> None:
        # At the end of the program threads cannot be joined any more, and multiprocessing has ended the processes.
        if self._running and self._owner == os.getpid() and not sys.is_finalizing():
            self.shutdown(_DROPPED_S)

    def _get_attr(self, children: Sequence[Child], key: str) -> List[Any]:
        sent = [SendPayload(proc_id=child.proc_id, method=ReserveMethod.GETATTR, args=[key]) for child in children]
        for payload in sent:
            self.send(payload)
        return [reply.data for reply in self.recv_all(sent)] if sent else []

    def _live_inbox(self) -> Inbox:
        inbox = self._inbox
        if inbox is None:
            raise RuntimeError("the supervisor is not running: call start_link first")
        return inbox

    def _stop_children(self, timeout: float) -> None:
        deadline = time.monotonic() + timeout
        for child in self._children:
            child.ask_to_stop(f"child {child.proc_id} was shut down")
        for child in self._children:
            child.shutdown(max(0.0, deadline - time.monotonic()))


def _context(mp_ctx: Union[BaseContext, str, None]) -> BaseContext:
    if isinstance(mp_ctx, BaseContext):
        return mp_ctx
    if mp_ctx is None:
        mp_ctx = "fork" if "fork" in multiprocessing.get_all_start_methods() else "spawn"
    return multiprocessing.get_context(mp_ctx)


def _claim(claim: Claim, payloads: Sequence[SendPayload], timeout: Optional[float]) -> List[RecvPayload]:
    """Claims requests; returns errors for those that would be waited for in vain and for ever."""
    unknown = claim.add(payloads)
    if timeout is not None:
        return []
    return [failure(payload, LookupError(f"request {payload.req_id} was not sent, or its reply was taken already"))
            for payload in unknown]


def _next(claim: Claim, remaining: Dict[str, SendPayload], ignore_err: bool,
          timeout: Optional[float]) -> List[RecvPayload]:
    """The next reply, or those that stand for what has not come in time."""
    try:
        return [claim.next(timeout)]
    except queue.Empty:
        text = f"no reply within {timeout} s to {len(remaining)} requests: {', '.join(map(str, remaining))}"
        if not ignore_err:
            raise TimeoutError(text) from None
        log.warning(text)
        return [failure(payload, TimeoutError(f"no reply within {timeout} s to request {payload.req_id}"))
                for payload in remaining.values()]
