"""Numbered, pickled objects over one stream socket, without a thread on the usual way.

A frame is a header (size of the rest, number, count of buffers), the sizes of those buffers, a pickle, and the buffers
themselves: arrays of 64 KiB and more travel outside the pickle and are rebuilt in the memory they were read into.
The number stays outside too, so whoever receives a frame that cannot be unpickled still knows what it answers.
"""
from __future__ import annotations

import pickle
import select
import socket
import struct
import threading
from collections import deque
from typing import Any, Deque, List, NamedTuple, Optional, Sequence, Tuple, Union

Bytes = Union[bytes, bytearray, memoryview]

_HEADER = struct.Struct("<QQQ")
_SIZE = struct.Struct("<Q")
_READ_SIZE = 1 << 16
# Below this a copy into the pickle is cheaper than one more element in the system call.
_OUT_OF_BAND = 1 << 16
# Where buffers start inside a frame: the alignment that the allocator gives the frame itself.
_ALIGN = 16
# How long a sender waits for a full socket that is being read. The reader takes microseconds when it is reading at
# all; when it is busy, the rest is left to a thread.
_PATIENCE_MS = 2
_MAX_PARTS = 512  # of one sendmsg; the kernel takes 1024


class Frame(NamedTuple):
    """One message as it was read: its number, and what `load` makes an object of."""

    number: int
    buffers: int  # how many follow the pickle
    body: Bytes

    def load(self) -> Any:
        """The object. Whatever unpickling raises comes out of here."""
        if not self.buffers:
            return pickle.loads(self.body)
        view = memoryview(self.body)
        sizes = [_SIZE.unpack_from(view, _SIZE.size * i)[0] for i in range(self.buffers + 1)]
        start = _SIZE.size * len(sizes)
        end = start + sizes[0]
        buffers = []
        for size in sizes[1:]:
            at = _aligned(end)
            end = at + size
            buffers.append(view[at:end])
        return pickle.loads(view[start:start + sizes[0]], buffers=buffers)


def _aligned(offset: int) -> int:
    return (offset + _ALIGN - 1) // _ALIGN * _ALIGN


def encode(number: int, value: Any) -> List[Bytes]:
    """The parts of one frame, in order. Raises what pickle raises; views in it belong to `value`."""
    buffers: List[memoryview] = []

    def keep_inside(buffer: pickle.PickleBuffer) -> bool:
        view = buffer.raw()
        if view.nbytes < _OUT_OF_BAND:
            return True
        buffers.append(view)
        return False

    body = pickle.dumps(value, protocol=5, buffer_callback=keep_inside)
    if not buffers:
        return [_HEADER.pack(len(body), number, 0) + body]
    table = b"".join(_SIZE.pack(size) for size in (len(body), *(view.nbytes for view in buffers)))
    parts: List[Bytes] = [table + body]
    end = len(parts[0])
    for view in buffers:
        parts += [bytes(_aligned(end) - end), view]
        end = _aligned(end) + view.nbytes
    return [_HEADER.pack(end, number, len(buffers)), *parts]


class FrameSocket:
    """Both directions of a connected stream socket, which it owns.

    One thread at a time receives; any thread may send, also beside it. `send` does not wait for a reader that is busy:
    what the socket does not take goes out from a thread that exists only while there is a backlog.
    """

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._send_lock = threading.Lock()
        self._backlog: Deque[bytes] = deque()  # guarded by _send_lock
        self._writer: Optional[threading.Thread] = None  # guarded by _send_lock
        self._closed = False  # guarded by _send_lock
        # Owned by the receiver: a header that is not complete, or a frame that is not.
        self._head = b""
        self._open: Optional[Tuple[int, int, bytearray]] = None
        self._filled = 0

    def fileno(self) -> int:
        """For a poller; -1 once closed."""
        return self._sock.fileno()

    def send(self, parts: Sequence[Bytes]) -> None:
        """Sends one frame, or keeps a copy of what does not fit. OSError when the other side is gone."""
        with self._send_lock:
            if self._closed:
                raise BrokenPipeError("the socket is closed")
            rest = parts if self._backlog or self._writer else self._write(parts)
            if not rest:
                return
            # A copy: the caller may change its arrays as soon as this returns.
            self._backlog.append(b"".join(rest))
            if self._writer is None:
                self._writer = threading.Thread(target=self._write_backlog, name="divisi-frames", daemon=True)
                self._writer.start()

    def receive(self, wait: bool) -> List[Frame]:
        """The frames that are here: at least one with `wait`, perhaps none without. EOFError at the end."""
        flags = 0 if wait else socket.MSG_DONTWAIT
        while True:
            try:
                frames = self._fill(flags) if self._open else self._read(flags)
            except BlockingIOError:
                return []
            except ConnectionError as error:
                raise EOFError("the other side is gone") from error
            if frames:
                return frames

    def close(self) -> None:
        """Ends both directions at once: the other side reads the end of the stream, a backlog is dropped."""
        with self._send_lock:
            if self._closed:
                return
            self._closed = True
            self._backlog.clear()
            writer = self._writer
            try:
                self._sock.shutdown(socket.SHUT_RDWR)  # wakes the writer; holds also for copies left by a fork
            except OSError:
                pass  # the other side was first
        if writer is not None:
            writer.join()
        self._sock.close()

    def forget(self) -> None:
        """Closes this process's copy only, after a fork: the conversation is the parent's."""
        self._closed = True
        self._sock.close()

    def _write(self, parts: Sequence[Bytes]) -> Sequence[Bytes]:
        """Writes while the socket takes something; returns what is left."""
        patience: Optional[select.poll] = None
        while parts:
            try:
                sent = self._sock.sendmsg(parts[:_MAX_PARTS], (), socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
            except BlockingIOError:
                if patience is None:
                    patience = select.poll()
                    patience.register(self._sock, select.POLLOUT)
                if not patience.poll(_PATIENCE_MS):
                    return parts
                continue
            parts = _after(parts, sent)
        return ()

    def _write_backlog(self) -> None:
        while True:
            with self._send_lock:
                if self._closed or not self._backlog:
                    self._writer = None
                    return
                data = self._backlog.popleft()
            try:
                self._sock.sendall(data)
            except OSError:
                with self._send_lock:  # the reader is gone; whoever receives here hears of it
                    self._backlog.clear()

    def _read(self, flags: int) -> List[Frame]:
        data = self._sock.recv(_READ_SIZE, flags)
        if not data:
            raise EOFError("the other side is gone")
        if self._head:
            data = self._head + data
            self._head = b""
        frames: List[Frame] = []
        at = 0
        while len(data) - at >= _HEADER.size:
            size, number, count = _HEADER.unpack_from(data, at)
            at += _HEADER.size
            if len(data) - at < size:
                whole = bytearray(size)
                self._filled = len(data) - at
                whole[:self._filled] = data[at:]
                self._open = (number, count, whole)
                return frames
            frames.append(Frame(number, count, data[at:at + size]))
            at += size
        self._head = data[at:]
        return frames

    def _fill(self, flags: int) -> List[Frame]:
        assert self._open is not None
        number, count, whole = self._open
        with memoryview(whole) as view:
            while self._filled < len(whole):
                size = self._sock.recv_into(view[self._filled:], 0, flags)
                if not size:
                    raise EOFError("the other side ended inside a frame")
                self._filled += size
        self._open = None
        return [Frame(number, count, whole)]


def _after(parts: Sequence[Bytes], sent: int) -> Sequence[Bytes]:
    """`parts` without their first `sent` bytes."""
    for i, part in enumerate(parts):
        size = len(part)
        if sent < size:
            return [memoryview(part)[sent:], *parts[i + 1:]]
        sent -= size
    return ()
