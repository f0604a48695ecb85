"""The same measurements over a plain connection of two processes: multiprocessing.Pipe, and pyzmq.

Nothing but objects there and back: no names of events, no listeners, no third process. That is less than a runtime
does, and so a limit to come near to rather than a peer.
"""
import multiprocessing
import os
import pickle
import time

from workload import array_result, burst_result, number_of, numbered, percentile


class PipeEnd:
    """multiprocessing.Pipe as it comes: objects are pickled into it."""

    def __init__(self, connection):
        self.send, self.recv = connection.send, connection.recv


class ZmqEnd:
    """A PAIR socket with pickle 5: large buffers as parts of their own, not copied by pyzmq."""

    def __init__(self, address, bind):
        import zmq
        self._more = zmq.RCVMORE
        self._socket = zmq.Context.instance().socket(zmq.PAIR)
        (self._socket.bind if bind else self._socket.connect)(address)

    def send(self, value):
        buffers = []
        head = pickle.dumps(value, protocol=5, buffer_callback=buffers.append)
        if buffers:
            self._socket.send_multipart([head, *buffers], copy=False)
        else:
            self._socket.send(head)

    def recv(self):
        head = self._socket.recv()
        if not self._socket.getsockopt(self._more):
            return pickle.loads(head)
        buffers = [frame.buffer for frame in self._socket.recv_multipart(copy=False)]
        return pickle.loads(head, buffers=buffers)


def pair(kind, child, *args):
    """Runs child(end, *args) in another process; returns our end and the process."""
    context = multiprocessing.get_context("fork")
    if kind == "pipe":
        ours, theirs = context.Pipe()
        process = context.Process(target=lambda: child(PipeEnd(theirs), *args))
        process.start()
        return PipeEnd(ours), process
    address = f"ipc://@divisi_bench_{os.getpid()}"  # abstract: leaves no file
    process = context.Process(target=lambda: child(ZmqEnd(address, bind=False), *args))
    process.start()  # before this process has a context: contexts do not survive a fork
    return ZmqEnd(address, bind=True), process


def pingpong(kind, size, trips):
    """Round trips, one at a time."""
    end, process = pair(kind, _echo)
    times = []
    for number in range(trips + 1):
        begin = time.perf_counter()
        end.send(numbered(number, size))
        assert number_of(end.recv()) == number
        times.append(time.perf_counter() - begin)
    end.send(None)
    process.join()
    del times[0]  # the process has just been started
    return {"p50_us": percentile(times, 0.5) * 1e6, "p99_us": percentile(times, 0.99) * 1e6, "sent": trips,
            "received": trips, "disordered": 0}


def burst(kind, size, count):
    """One way, as fast as the sender can; the clock runs from the first send to the last arrival."""
    end, process = pair(kind, _collect)
    end.send(None)
    end.recv()  # it is there
    begin = time.monotonic()
    for number in range(count):
        end.send(numbered(number, size))
    end.send(None)
    arrived = end.recv()
    process.join()
    return burst_result(begin, arrived, count)


def array(kind, mebibytes, count):
    """Arrays, one at a time, until the receiver has read them."""
    import numpy
    end, process = pair(kind, _read_arrays)
    data = numpy.zeros(mebibytes << 20, dtype=numpy.uint8)
    times = []
    for number in range(1, count + 1):
        data[::4096] = number
        begin = time.perf_counter()
        end.send(data)
        assert end.recv() == number
        times.append(time.perf_counter() - begin)
    end.send(None)
    process.join()
    return array_result(data.nbytes, times, count)


def _echo(end):
    while True:
        value = end.recv()
        if value is None:
            return
        end.send(value)


def _collect(end):
    assert end.recv() is None
    end.send(None)
    arrived = []
    while True:
        payload = end.recv()
        if payload is None:
            break
        arrived.append((number_of(payload), time.monotonic()))
    end.send(arrived)


def _read_arrays(end):
    while True:
        data = end.recv()
        if data is None:
            return
        pages = data[::4096]
        number = int(pages[0])
        assert int(pages.sum(dtype="uint64")) == number * len(pages)
        end.send(number)
