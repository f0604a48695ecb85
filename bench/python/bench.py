"""One measurement of the Python benchmark: prints one JSON line.

bench.py pingpong|burst SIDE SIZE COUNT      SIDE: ours, pynng, nng, pipe or zmq
bench.py array SIDE MEBIBYTES COUNT
bench.py startup SIDE WORKERS INTERVAL       SIDE: ours, pynng or nng
bench.py local SIDE COUNT
bench.py children SIDE process|thread COUNT  SIDE: ours or queues

pynng and nng are both peer.py, over PyPI's pynng or over Debian's library.
"""
import importlib
import json
import os
import sys
import tempfile
import time
from pathlib import Path

sys.dont_write_bytecode = True


def between_workers(measure, side, *numbers):
    """A measurement whose two workers exchange events."""
    import workload
    with tempfile.TemporaryDirectory() as folder:
        options = {"interval": 0} if side == "peer" else {}  # its default would only add a second of waiting
        importlib.import_module(side).run(getattr(workload, measure), 2, (side, folder, *numbers), **options)
        return json.loads((Path(folder) / "result.json").read_text())


def startup(side, workers, interval):
    """From the call of the runner to the moment the last worker's main begins."""
    import workload
    module = importlib.import_module(side)
    with tempfile.TemporaryDirectory() as folder:
        begin = time.monotonic()
        module.run(workload.started, workers, (folder,), interval=interval)
        mains = [float(file.read_text()) - begin for file in Path(folder).glob("*.main")]
    return {"last_main_ms": max(mains) * 1e3, "sent": workers, "received": len(mains), "disordered": 0}


def local(side, count):
    """Events inside a process: rate of a stream of emits until the last listener has run, and one at a time."""
    import workload
    loop = importlib.import_module(side).EventLoop("bench")
    arrived, times = [], []
    loop.on("item", arrived.append)

    def until(size):
        deadline = time.monotonic() + workload.DEADLINE_S
        while len(arrived) < size and time.monotonic() < deadline:
            time.sleep(0.0005)

    begin = time.perf_counter()
    for number in range(count):
        loop.emit("item", number)
    until(count)
    rate = len(arrived) / (time.perf_counter() - begin)
    numbers = list(arrived)
    loop.on("stamp", lambda sent: times.append(time.perf_counter() - sent))
    for number in range(1000):
        loop.emit("stamp", time.perf_counter())
        while len(times) <= number:
            time.sleep(0.0002)
    loop.stop()
    return {"emits_per_s": rate, "p50_us": workload.percentile(times, 0.5) * 1e6, "sent": count,
            "received": len(numbers), "disordered": workload.late(numbers)}


def measure(name, side, *arguments):
    """The result of one command line."""
    if side in ("pynng", "nng"):
        os.environ["DIVISI_BENCH_NNG"] = "debian" if side == "nng" else "pypi"  # for the workers as well
        side = "peer"
    if name == "children":
        import children
        return children.round_trips(side, arguments[0], int(arguments[1]))
    if name == "startup":
        return startup(side, int(arguments[0]), float(arguments[1]))
    numbers = [int(argument) for argument in arguments]
    if name == "local":
        return local(side, *numbers)
    if side in ("pipe", "zmq"):
        import connections
        return getattr(connections, name)(side, *numbers)
    return between_workers(name, side, *numbers)


if __name__ == "__main__":
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    print(json.dumps(measure(*sys.argv[1:])))
