"""What the workers of the event benchmarks do. `side` names the module that carries the events: ours or peer.

Both sides run this same code. Worker 0 measures, worker 1 answers; results go into files of a folder that the launcher
made, since the launcher is no node. Nothing here relies on a message to arrive: what may be lost is numbered, counted,
and where the programs could not go on without it, sent again.
"""
import importlib
import json
import queue
import threading
import time
from pathlib import Path
from statistics import median

LOST_AFTER_S = 2.0  # a small message that has not come back by then will not
LOST_ARRAY_AFTER_S = 30.0
QUIET_S = 0.5  # a burst is over when its end was announced and nothing has come for so long
AGAIN_S = 0.1
DEADLINE_S = 60.0


def numbered(number, size):
    """A payload of that size that begins with its number."""
    return number.to_bytes(8, "little") + bytes(size - 8)


def number_of(payload):
    """What `numbered` put in."""
    return int.from_bytes(payload[:8], "little")


def late(numbers):
    """How many of them came after a higher one."""
    highest, count = -1, 0
    for number in numbers:
        count += number < highest
        highest = max(highest, number)
    return count


def percentile(times, share):
    """The time below which that share of them lies."""
    return sorted(times)[min(len(times) - 1, int(len(times) * share))]


def pingpong(side, folder, size, trips):
    """Round trips, one at a time: emit, and wait in the main thread for the listener of the answer."""
    with importlib.import_module(side).Node() as node:
        if node.local_id == 1:
            node.on("ping", lambda payload: node.emit("pong", payload))
            return _wait_for_the_end(node, folder)
        pongs = queue.SimpleQueue()
        node.on("pong", lambda payload: pongs.put(number_of(payload)))
        _meet(node, pongs, size)
        times, came = [], 0
        for number in range(1, trips + 1):
            begin = time.perf_counter()
            node.emit("ping", numbered(number, size))
            if _next(pongs, number, LOST_AFTER_S):
                times.append(time.perf_counter() - begin)
                came += 1
        _end(node, folder, {"p50_us": percentile(times, 0.5) * 1e6, "p99_us": percentile(times, 0.99) * 1e6,
                            "sent": trips, "received": came, "disordered": 0})


def burst(side, folder, size, count):
    """One way, as fast as the sender can; the clock runs from the first emit to the last arrival."""
    with importlib.import_module(side).Node() as node:
        if node.local_id == 0:
            pongs = queue.SimpleQueue()
            node.on("pong", lambda payload: pongs.put(number_of(payload)))
            _meet(node, pongs, size)
            (Path(folder) / "begin").write_text(str(time.monotonic()))  # one clock for all processes
            for number in range(count):
                node.emit("item", numbered(number, size))
            return _end(node, folder, None)
        arrived = []
        node.on("ping", lambda payload: node.emit("pong", payload))
        node.on("item", lambda payload: arrived.append((number_of(payload), time.monotonic())))
        _wait_for_the_end(node, folder, lambda: _when_quiet(folder, arrived, count))


def array(side, folder, mebibytes, count):
    """Arrays to the other process, one at a time, until the receiver has read a byte of each page and said so."""
    import numpy
    with importlib.import_module(side).Node() as node:
        if node.local_id == 1:
            node.on("ping", lambda payload: node.emit("pong", payload))
            node.on("array", lambda data: node.emit("pong", numbered(_read(data), 8)))
            return _wait_for_the_end(node, folder)
        pongs = queue.SimpleQueue()
        node.on("pong", lambda payload: pongs.put(number_of(payload)))
        _meet(node, pongs, 64)
        data = numpy.zeros(mebibytes << 20, dtype=numpy.uint8)
        times = []
        for number in range(1, count + 1):
            data[::4096] = number
            begin = time.perf_counter()
            node.emit("array", data)
            if _next(pongs, number, LOST_ARRAY_AFTER_S):
                times.append(time.perf_counter() - begin)
        _end(node, folder, array_result(data.nbytes, times, count))


def burst_result(begin, arrived, count):
    """The JSON line of a burst, from (number, time of arrival) of what arrived."""
    span = max(when for _, when in arrived) - begin
    return {"msgs_per_s": len(arrived) / span, "sent": count, "received": len(arrived),
            "disordered": late(number for number, _ in arrived)}


def array_result(size, times, count):
    """The JSON line of an array benchmark."""
    return {"mb_per_s": size / median(times) / 1e6, "sent": count, "received": len(times), "disordered": 0}


def started(folder):
    """Main of the start-up benchmark: notes when it began."""
    now = time.monotonic()
    (Path(folder) / f"{threading.get_native_id()}.main").write_text(str(now))


def _read(data):
    """The number that is in every page of an array."""
    pages = data[::4096]
    number = int(pages[0])
    assert int(pages.sum(dtype="uint64")) == number * len(pages), "pages differ"
    return number


def _meet(node, pongs, size):
    """Until a message has gone there and back: the peer's links come up some time after its main has begun."""
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        node.emit("ping", numbered(0, size))
        if _next(pongs, 0, AGAIN_S):
            return
    raise TimeoutError("the other worker does not answer")


def _next(pongs, number, timeout):
    """Waits for that answer; earlier ones were given up."""
    try:
        while pongs.get(timeout=timeout) != number:
            pass
        return True
    except queue.Empty:
        return False


def _when_quiet(folder, arrived, count):
    """Called when the end was announced: waits until nothing more comes."""
    while len(arrived) < count and time.monotonic() - (arrived[-1][1] if arrived else 0) < QUIET_S:
        time.sleep(QUIET_S / 10)
    return burst_result(float((Path(folder) / "begin").read_text()), arrived, count)


def _end(node, folder, result):
    if result is not None:
        (Path(folder) / "result.json").write_text(json.dumps(result))
    deadline = time.monotonic() + DEADLINE_S
    while not (Path(folder) / "ended").exists() and time.monotonic() < deadline:
        node.emit("end")
        time.sleep(AGAIN_S)


def _wait_for_the_end(node, folder, result=None):
    announced = threading.Event()
    node.on("end", announced.set)
    if not announced.wait(DEADLINE_S):
        raise TimeoutError("the other worker does not come to an end")
    if result is not None:
        (Path(folder) / "result.json").write_text(json.dumps(result()))
    (Path(folder) / "ended").touch()
