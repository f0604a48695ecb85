"""Replies on their way from the children of a supervisor to the calls that wait for them.

There is no thread here. Of the calls that wait, one reads the channel for all (the leader); the others sleep until it
has sorted what it read. A reply belongs to the `recv_all` that claimed its request, else to the next `recv`.
"""
from __future__ import annotations

import queue
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Callable, Deque, Dict, Iterable, List, Optional, Set

from ._payloads import Notice

if TYPE_CHECKING:
    from ._payloads import RecvPayload, SendPayload

# A leader that was woken to leave is back within microseconds. More than this means that the call to close came out of
# a signal handler of the very thread that leads: it cannot leave before the handler ends.
_LEADER_LEAVES_S = 1.0


def _closed_meanwhile() -> BaseException:
    """For a call that waited when the supervisor was shut down. In a thread of the program there is usually nobody to
    catch an error, and nothing is wrong: SystemExit ends that thread without a traceback, and only that thread."""
    text = "the supervisor was shut down"
    return RuntimeError(text) if threading.current_thread() is threading.main_thread() else SystemExit(text)


class Channel:
    """Where replies come from. One thread at a time polls; any thread may wake it."""

    def poll(self, timeout: Optional[float], out: List[RecvPayload]) -> None:
        """Waits for something to happen and appends the replies that came of it, perhaps none."""
        raise NotImplementedError

    def wake(self) -> None:
        """Makes the poll that runs, or the next one, return."""
        raise NotImplementedError

    def close(self) -> None:
        """Frees what the channel holds. Nobody polls any more."""


class Claim:
    """The requests one `recv_all` waits for, and the replies of them that have come."""

    def __init__(self, inbox: Inbox) -> None:
        self._inbox = inbox
        self._arrived: Deque[RecvPayload] = deque()

    def next(self, timeout: Optional[float]) -> RecvPayload:
        """The next reply to a claimed request, in order of arrival. queue.Empty after the timeout."""
        return self._inbox._wait(self._take, timeout)

    def add(self, requests: Iterable[SendPayload]) -> List[SendPayload]:
        """Claims more requests; returns those that nobody is working on."""
        return self._inbox._claim(self._arrived, list(requests))

    def _take(self) -> Optional[RecvPayload]:
        return self._arrived.popleft() if self._arrived else None


class Inbox:
    """Sorts replies. Every method may be called from any thread.

    A request is pending from `expect` until a reply with its id has been sorted. `give_up` says that nobody wants that
    reply any more: it is dropped when it comes, so it cannot turn up in an unrelated call. A notice answers nothing: a
    child ended while it had nothing to do.
    """

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._pending: Dict[str, SendPayload] = {}  # single dictionary operations only, so no lock
        self._changed = threading.Condition(threading.Lock())
        # Guarded by _changed:
        self._ready: Deque[RecvPayload] = deque()
        self._notices: Deque[RecvPayload] = deque()
        self._claims: Dict[str, Deque[RecvPayload]] = {}
        self._unwanted: Set[str] = set()
        self._sleepers = 0
        self._led = False
        self._closed = False

    def expect(self, request: SendPayload) -> None:
        """A request is about to go out."""
        self._pending[request.req_id] = request

    def next(self, timeout: Optional[float]) -> RecvPayload:
        """The next reply that no `recv_all` has claimed. queue.Empty after the timeout."""
        return self._wait(self._take_any, timeout)

    def claim(self) -> Claim:
        """An empty claim, for one `recv_all`."""
        return Claim(self)

    def give_up(self, ids: Iterable[str]) -> None:
        """The replies to these requests are not wanted, whether they are here, on their way, or never come."""
        with self._changed:
            for req_id in ids:
                self._claims.pop(req_id, None)
                if req_id in self._pending:
                    self._unwanted.add(req_id)

    def post(self, replies: Iterable[RecvPayload]) -> None:
        """Replies that did not come through the channel, from whatever thread found them."""
        with self._changed:
            for reply in replies:
                self._sort(reply)
            self._tell()

    def forget_notices(self, proc_id: int) -> None:
        """The child is back: nobody needs to hear of its end any more."""
        with self._changed:
            self._notices = deque(notice for notice in self._notices if notice.proc_id != proc_id)

    def close(self) -> None:
        """Every call that waits ends (`_closed_meanwhile`); the channel is freed."""
        with self._changed:
            self._closed = True
            self._tell()
            self._sleepers += 1
            self._changed.wait_for(lambda: not self._led, _LEADER_LEAVES_S)
            self._sleepers -= 1
        self._channel.close()

    def _wait(self, take: Callable[[], Optional[RecvPayload]], timeout: Optional[float]) -> RecvPayload:
        deadline = None if timeout is None else time.monotonic() + timeout
        looked = False
        with self._changed:
            while True:
                found = take()
                if found is not None:
                    return found
                if self._closed:
                    raise _closed_meanwhile()
                left = None if deadline is None else max(0.0, deadline - time.monotonic())
                if looked and left == 0.0:
                    raise queue.Empty
                looked = True
                if self._led:
                    self._sleepers += 1
                    self._changed.wait(left)
                    self._sleepers -= 1
                else:
                    self._lead(left)

    def _lead(self, timeout: Optional[float]) -> None:
        """Reads the channel once, without the lock, and sorts what came. Called and left with the lock held."""
        self._led = True
        self._changed.release()
        replies: List[RecvPayload] = []
        try:
            self._channel.poll(timeout, replies)
        finally:
            self._changed.acquire()
            self._led = False
            for reply in replies:
                self._sort(reply)
            if self._sleepers:
                self._changed.notify_all()  # theirs may be among them, and one of them leads if this call leaves

    def _take_any(self) -> Optional[RecvPayload]:
        if self._ready:
            return self._ready.popleft()
        # Of interest only to a call that would otherwise wait for ever.
        if self._notices and not self._pending:
            return self._notices.popleft()
        return None

    def _claim(self, arrived: Deque[RecvPayload], requests: List[SendPayload]) -> List[SendPayload]:
        wanted: Set[Optional[str]] = {request.req_id for request in requests}
        unknown = []
        with self._changed:
            waiting, self._ready = self._ready, deque()
            for reply in waiting:
                here = reply.req_id in wanted
                (arrived if here else self._ready).append(reply)
                if here:
                    wanted.discard(reply.req_id)
            for request in requests:
                if request.req_id in wanted:
                    self._unwanted.discard(request.req_id)
                    self._claims[request.req_id] = arrived
                    if request.req_id not in self._pending:
                        unknown.append(request)
        return unknown

    def _sort(self, reply: RecvPayload) -> None:
        if isinstance(reply, Notice) or reply.req_id is None:
            self._notices.append(reply)
            return
        self._pending.pop(reply.req_id, None)
        if reply.req_id in self._unwanted:
            self._unwanted.discard(reply.req_id)
            return
        self._claims.pop(reply.req_id, self._ready).append(reply)

    def _tell(self) -> None:
        if self._sleepers:
            self._changed.notify_all()
        if self._led:
            self._channel.wake()
