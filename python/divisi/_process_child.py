"""What runs inside a supervisor's child process: requests off the socket, replies onto it."""
from __future__ import annotations

import pickle
import signal
import socket
import traceback
from typing import Any, List, Optional, Tuple

from ._frames import Bytes, Frame, FrameSocket, encode
from ._payloads import ChildTraceback, ReserveMethod
from ._sessions import NOTICE, Worker, log, name_of


def serve(sock: socket.socket, worker: Worker) -> None:
    """The whole life of the child: builds its object, answers until the stream ends."""
    # A fork inherits the handlers of the program: its SIGTERM handler is about the program, not about this child.
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    link = FrameSocket(sock)
    try:
        target = worker.build()
    except Exception as error:
        log.warning("child %d could not be built", worker.proc_id, exc_info=True)
        link.send(_encode_error(NOTICE, error))
        return
    try:
        while True:
            for frame in link.receive(wait=True):
                reply = _do(worker, target, frame)
                if reply is None:
                    return
                link.send(reply)
    except (EOFError, BrokenPipeError, KeyboardInterrupt):
        return  # the supervisor has hung up, is gone, or leaves as well


def _do(worker: Worker, target: Any, frame: Frame) -> Optional[List[Bytes]]:
    """The frame to answer with; None for the request to end."""
    try:
        req_id, method, args, kwargs = frame.load()
    except Exception as problem:
        text = f"the request cannot be unpickled in child {worker.proc_id}: {problem!r}"
        return _encode_error(frame.number, pickle.UnpicklingError(text))
    if method is ReserveMethod.SHUTDOWN:
        return None
    reply = worker.answer(target, req_id, method, args, kwargs)
    if reply.err is not None:
        return _encode_error(frame.number, reply.err)
    try:
        return encode(frame.number, (reply.data, None, reply.extra))
    except Exception as problem:
        text = f"the result of {name_of(method)} of child {worker.proc_id} cannot be pickled: {problem!r}"
        return _encode_error(frame.number, pickle.PicklingError(text))


def _encode_error(number: int, error: BaseException) -> List[Bytes]:
    text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    try:
        # There and back: many exceptions can be pickled, but not rebuilt from what was pickled.
        pickle.loads(pickle.dumps(error, protocol=5))
    except Exception:
        error = RuntimeError(f"{type(error).__qualname__}: {error}")
    return encode(number, (None, (error, text), None))


def decode_reply(frame: Frame) -> Tuple[Any, Optional[BaseException], Any]:
    """A reply's data, error and extra, for the supervisor. Whatever unpickling raises comes out of here."""
    data, failed, extra = frame.load()
    if failed is None:
        return data, None, extra
    error, text = failed
    error.__cause__ = ChildTraceback(text)
    return data, error, extra
