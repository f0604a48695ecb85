"""The rows of `bench/run --python`, and what it takes to run them: the package, and an environment with the peers."""
import os
import subprocess
import sys
from pathlib import Path

from rows import Probe, Row

HERE = Path(__file__).resolve().parent
PROGRAM = "bench.py"
PEERS = ["pynng==0.9.0", "pyzmq==27.3.0", "numpy"]  # what Debian has of numpy is seen, and good enough

LAYERS = "reference's layers"  # pickle, nng bus, two-thread pools: peer.py
PEER_NAMES = {"pynng": f"{LAYERS}, PyPI's nng", "nng": f"{LAYERS}, Debian's nng", "pipe": "multiprocessing.Pipe",
              "zmq": "pyzmq PAIR, pickle 5"}

ROUND_TRIP_BAR = 0.333
BURST_BAR = 10
ARRAY_BAR = 4
STARTUP_BAR = 0.25
LOCAL_BAR = 4


def python_rows(quick):
    """The list; with `quick` each measures less."""
    rows = []

    def probe(field, *words):
        return Probe((PROGRAM, *map(str, words)), field)

    def against_all(name, field, unit, bar, lower_is_better, measure, *words):
        ours = probe(field, measure, "ours", *words)
        for side, peer_name in PEER_NAMES.items():
            rows.append(Row(f"{name} over {peer_name}", ours, probe(field, measure, side, *words), peer_name, unit,
                            bar if peer_name.startswith(LAYERS) else None, lower_is_better, lossy_peer=True))

    against_all("Python round trip 64 B", "p50_us", "us, p50", ROUND_TRIP_BAR, True,
                "pingpong", 64, 500 if quick else 5000)
    against_all("Python burst 64 B", "msgs_per_s", "msgs/s", BURST_BAR, False,
                "burst", 64, 10_000 if quick else 100_000)
    against_all("Python array 100 MiB", "mb_per_s", "MB/s", ARRAY_BAR, False, "array", 100, 2 if quick else 6)

    workers = 8
    for interval, bar in ((1, STARTUP_BAR), (0, None)):
        rows.append(Row(f"Python start of {workers} workers, peer's interval {interval} s",
                        probe("last_main_ms", "startup", "ours", workers, 0),
                        probe("last_main_ms", "startup", "pynng", workers, interval), LAYERS, "ms", bar, True))

    count = 20_000 if quick else 200_000
    rows.append(Row("Python local emits", probe("emits_per_s", "local", "ours", count),
                    probe("emits_per_s", "local", "pynng", count), LAYERS, "emits/s", LOCAL_BAR, lossy_peer=True))
    rows.append(Row("Python local emit, one at a time", probe("p50_us", "local", "ours", count),
                    probe("p50_us", "local", "pynng", count), LAYERS, "us, p50", None, True, lossy_peer=True))

    trips = 1000 if quick else 10_000
    for kind in ("process", "thread"):
        for field, name in (("serial_per_s", "one at a time"), ("each_per_s", "one for each child"),
                            ("window_per_s", "ten for each child")):
            peer_name = "multiprocessing.Queue" if kind == "process" else "queue.Queue"
            rows.append(Row(f"Python supervisor, {kind}, {name}", probe(field, "children", "ours", kind, trips),
                            probe(field, "children", "queues", kind, trips), peer_name, "trips/s"))
    return rows


def environment(root, say):
    """The interpreter of a virtual environment in build/ that has the peers; made on first use."""
    folder = root / "build" / "bench-venv"
    python = folder / "bin" / "python"
    check = [str(python), "-c", "import numpy, pynng, zmq"]
    if python.exists() and subprocess.run(check, stderr=subprocess.DEVNULL).returncode == 0:
        return python
    say(f"making {folder.relative_to(root)} with {', '.join(PEERS)} ...")
    for command in ([base_python(), "-m", "venv", "--system-site-packages", str(folder)],
                    [str(python), "-m", "pip", "install", "--quiet", *PEERS], check):
        if subprocess.run(command, stdout=sys.stderr).returncode != 0:
            sys.exit(f"bench/run: {' '.join(command)} failed")
    return python


def base_python():
    """The system's: the package was built for it."""
    return "/usr/bin/python3" if os.access("/usr/bin/python3", os.X_OK) else sys.executable


def program(tree, python, command):
    """The command line and the environment of one probe."""
    variables = dict(os.environ, PYTHONPATH=str(tree / "python"), PYTHONDONTWRITEBYTECODE="1")
    return [str(python), str(HERE / command[0]), *command[1:]], variables
