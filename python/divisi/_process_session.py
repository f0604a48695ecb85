"""A supervisor's child in a process of its own, seen from the supervisor: its socket, its exit, its end by force."""
from __future__ import annotations

import os
import pickle
import select
import signal
import socket
import threading
import time
from multiprocessing.context import BaseContext
from typing import Callable, Dict, List, Optional, Protocol, Set

from ._frames import Frame, FrameSocket, encode
from ._inbox import Channel, Inbox
from ._payloads import RecvPayload, SendPayload
from ._process_child import decode_reply, serve
from ._sessions import NOTICE, STOP_S, Session, Worker, log, name_of

# What an idle process gets to leave by itself before SIGTERM; it takes some milliseconds.
_LEAVE_S = 1.0
# After the end of its stream, what a process gets to have an exit code worth reporting.
_EXIT_CODE_S = 1.0
_EVENTS = 64  # of one epoll: more come with the next

# Two threads that start processes at once would hand each other's sockets on to the wrong child.
_start_lock = threading.Lock()


class _Inherited(Protocol):
    def forget(self) -> None:
        """Closes this process's copies of descriptors, and nothing else."""


# What a forked child gets copies of and must not keep: with them, the end of this process or of one child would go
# unnoticed by the others. Filled before each fork, whoever forks.
_parents_own: Set[_Inherited] = set()


def _after_fork_in_child() -> None:
    global _start_lock
    _start_lock = threading.Lock()  # whoever forked held the old one
    for inherited in list(_parents_own):
        inherited.forget()
    _parents_own.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)


class ProcessChannel(Channel):
    """One epoll over the sockets and the exits of all children: no polling, whoever of them ends."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._handlers: Dict[int, Callable[[List[RecvPayload]], None]] = {}
        self._wake_reader, self._wake_writer = os.pipe()
        os.set_blocking(self._wake_reader, False)
        os.set_blocking(self._wake_writer, False)
        self.add(self._wake_reader, self._woken)
        _parents_own.add(self)

    def add(self, fd: int, handler: Callable[[List[RecvPayload]], None]) -> None:
        """Calls the handler from `poll` while the descriptor is readable."""
        self._handlers[fd] = handler
        self._epoll.register(fd, select.EPOLLIN)

    def remove(self, fd: int) -> None:
        """Undoes `add`, before the descriptor is closed: copies of it in other processes would stay in the epoll."""
        if self._handlers.pop(fd, None) is not None:
            self._epoll.unregister(fd)

    def poll(self, timeout: Optional[float], out: List[RecvPayload]) -> None:
        for fd, _ in self._epoll.poll(timeout, _EVENTS):
            handler = self._handlers.get(fd)
            if handler is not None:
                handler(out)

    def wake(self) -> None:
        try:
            os.write(self._wake_writer, b"w")
        except BlockingIOError:
            pass  # full of earlier ones

    def close(self) -> None:
        _parents_own.discard(self)
        self.forget()

    def forget(self) -> None:
        self._epoll.close()
        os.close(self._wake_reader)
        os.close(self._wake_writer)

    def _woken(self, out: List[RecvPayload]) -> None:
        del out
        try:
            os.read(self._wake_reader, 4096)
        except BlockingIOError:
            pass


class ProcessSession(Session):
    """A child in a process of its own, on the other end of a socket pair."""

    def __init__(self, worker: Worker, inbox: Inbox, channel: ProcessChannel, context: BaseContext) -> None:
        super().__init__(worker, inbox)
        self._channel = channel
        self._reading = threading.Lock()  # held to read, and to close what is read
        self._open = True  # guarded by _reading
        self._stopped = False  # guarded by _reading
        with _start_lock:
            ours, theirs = socket.socketpair()
            self._link = FrameSocket(ours)
            _parents_own.add(self)
            self._pidfd = -1
            try:
                self._process = context.Process(target=serve, args=(theirs, worker), daemon=True,  # type: ignore[attr-defined]
                                                name=f"divisi-child-{worker.proc_id}")
                self._process.start()
            except BaseException:
                _parents_own.discard(self)
                self._link.close()
                raise
            finally:
                theirs.close()
            self._pidfd = _open_pidfd(self._process.pid)
        # The fallback is a pipe that children of the child hold open as well.
        self._sentinel: int = self._pidfd if self._pidfd >= 0 else self._process.sentinel
        channel.add(self._link.fileno(), self._on_readable)
        channel.add(self._sentinel, self._on_exit)

    def forget(self) -> None:
        """For `_parents_own`."""
        self._link.forget()
        if self._pidfd >= 0:
            os.close(self._pidfd)

    def ask_to_stop(self, why: str) -> None:
        replies: List[RecvPayload] = []
        with self._reading:
            self._read_what_is_here(replies)
            if self._open:
                self._hang_up()
        busy = self.busy
        replies += self.lose(why)
        self._inbox.post(replies)
        if busy:
            self._process.terminate()  # an idle child leaves by itself at the end of its stream

    def stop(self, deadline: float) -> None:
        with self._reading:
            if self._stopped:
                return
            self._stopped = True
        left = deadline - time.monotonic()
        if not _readable(self._sentinel, min(left, _LEAVE_S)):
            self._process.terminate()
            if not _readable(self._sentinel, deadline - time.monotonic()):
                log.warning("child %d does not end on SIGTERM: it is killed", self.worker.proc_id)
                self._process.kill()
                _readable(self._sentinel, STOP_S)
        self._exit_code()
        _parents_own.discard(self)
        if self._pidfd >= 0:
            os.close(self._pidfd)
        try:
            self._process.close()
        except ValueError:
            pass  # somebody else has reaped it, or the kernel does not let it go: nothing more to be done

    def _transmit(self, number: int, request: SendPayload) -> None:
        self._link.send(encode(number, (request.req_id, request.method, request.args, request.kwargs)))

    def _on_readable(self, out: List[RecvPayload]) -> None:
        with self._reading:
            if not self._open:
                return
            try:
                self._take(self._link.receive(wait=False), out)
            except EOFError:
                self._gone(out)

    def _on_exit(self, out: List[RecvPayload]) -> None:
        with self._reading:
            # Asked again, because the event may be that of an earlier child whose descriptor had this number.
            if self._open and _readable(self._sentinel, 0):
                self._read_what_is_here(out)
                if self._open:
                    self._gone(out)

    def _read_what_is_here(self, out: List[RecvPayload]) -> None:
        try:
            while self._open:
                frames = self._link.receive(wait=False)
                if not frames:
                    return
                self._take(frames, out)
        except EOFError:
            return

    def _take(self, frames: List[Frame], out: List[RecvPayload]) -> None:
        for frame in frames:
            if frame.number == NOTICE:
                _, error, _ = decode_reply(frame)
                self._hang_up()
                out.extend(self._end(f"child {self.worker.proc_id} could not be built: {error!r}", error))
                return
            request = self.pop(frame.number)
            if request is None:
                continue
            try:
                data, error, extra = decode_reply(frame)
            except Exception as problem:
                text = f"the reply to {name_of(request.method)} cannot be unpickled: {problem!r}"
                data, error, extra = None, pickle.UnpicklingError(f"child {request.proc_id}: {text}"), None
            out.append(RecvPayload(request.proc_id, request.req_id, request.method, data, error, extra))

    def _gone(self, out: List[RecvPayload]) -> None:
        self._hang_up()
        pid = self._process.pid
        _readable(self._sentinel, _EXIT_CODE_S)
        out.extend(self._end(f"child {self.worker.proc_id} (pid {pid}) {_how_it_ended(self._exit_code())}"))

    def _exit_code(self) -> Optional[int]:
        """Of a process that has ended; reaps it."""
        code: Optional[int] = self._process.exitcode
        if code is None:  # a fork server has yet to pass it on
            self._process.join(_EXIT_CODE_S)
            code = self._process.exitcode
        return code

    def _hang_up(self) -> None:
        self._open = False
        self._channel.remove(self._sentinel)
        self._channel.remove(self._link.fileno())
        self._link.close()


def _open_pidfd(pid: int) -> int:
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):  # not in this Python, this kernel, or this sandbox
        return -1


def _readable(fd: int, timeout: float) -> bool:
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(max(0.0, timeout) * 1000))


def _how_it_ended(code: Optional[int]) -> str:
    if code is None:
        return "closed its connection"
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"
