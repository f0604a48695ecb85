"""Eight Python workers: how long until all have answered, and calls to one of them. Ours, and Ray's actors.

One at a time: a call, and the wait for its answer. Many: a thousand on their way, then the wait for all answers.
"""
import json
import os
import tempfile
import threading
import time
from pathlib import Path

PAYLOAD = bytes(64)
IN_FLIGHT = 1000
WARM_UP = 100
DEADLINE_S = 60.0


def rates(one_call, many_calls, seconds):
    """Calls a second, one at a time and many in flight, each measured for so long."""
    for _ in range(WARM_UP):
        one_call()
    many_calls()
    found = []
    for calls, count in ((one_call, 1), (many_calls, IN_FLIGHT)):
        made, begin = 0, time.perf_counter()
        while time.perf_counter() - begin < seconds:
            calls()
            made += count
        found.append(made / (time.perf_counter() - begin))
    return {"serial_per_s": found[0], "many_per_s": found[1], "sent": 1, "received": 1, "disordered": 0}


def ours_main(folder, begin, workers, seconds):
    """Node 0 measures, the others answer."""
    from divisi import Parallel
    router = Parallel()
    ended = threading.Event()
    router.on("end", ended.set)
    if router.node_id != 0:
        router.serve("echo", lambda payload: payload)
        router.on("ping", lambda payload: router.emit("pong", payload, to=0))
        router.ready()
        if not ended.wait(DEADLINE_S):
            raise TimeoutError("the measuring worker does not come to an end")
        return

    left = [0]
    all_here = threading.Event()

    def pong(payload):
        left[0] -= 1
        if left[0] == 0:
            all_here.set()

    router.on("pong", pong)
    router.ready()
    if not router.wait_for_peers(workers - 1, DEADLINE_S):
        raise TimeoutError("not all workers came")
    for peer in range(1, workers):
        router.call(peer, "echo", PAYLOAD)
    start = time.monotonic() - begin

    def many_calls():
        left[0] = IN_FLIGHT
        all_here.clear()
        for _ in range(IN_FLIGHT):
            router.emit("ping", PAYLOAD, to=1)
        if not all_here.wait(DEADLINE_S):
            raise TimeoutError(f"{left[0]} answers are missing")

    result = rates(lambda: router.call(1, "echo", PAYLOAD), many_calls, seconds)
    result["start_ms"] = result["start_with_runtime_ms"] = start * 1e3
    (Path(folder) / "result.json").write_text(json.dumps(result))
    router.emit("end")
    router.flush()


def ours(workers, seconds):
    """Workers of a job, which node 0 calls; there is nothing to start before them."""
    from divisi import Parallel
    with tempfile.TemporaryDirectory() as folder:
        Parallel.runner(n_parallel_workers=workers)(ours_main, folder, time.monotonic(), workers, seconds)
        return json.loads((Path(folder) / "result.json").read_text())


def ray(workers, seconds):
    """Ray's actors on this host, two CPUs, no dashboard. The start counts from after ray.init, and from before it."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    import ray as runtime
    before = time.monotonic()
    runtime.init(num_cpus=2, include_dashboard=False, _node_ip_address="127.0.0.1", logging_level="error",
                 log_to_driver=False)

    @runtime.remote(num_cpus=0)
    class Actor:
        """Answers with what it was given."""

        def echo(self, payload):
            return payload

    try:
        begin = time.monotonic()
        actors = [Actor.remote() for _ in range(workers)]
        runtime.get([actor.echo.remote(PAYLOAD) for actor in actors])
        end = time.monotonic()
        echo = actors[1].echo
        result = rates(lambda: runtime.get(echo.remote(PAYLOAD)),
                       lambda: runtime.get([echo.remote(PAYLOAD) for _ in range(IN_FLIGHT)]), seconds)
    finally:
        runtime.shutdown()
    return {**result, "start_ms": (end - begin) * 1e3, "start_with_runtime_ms": (end - before) * 1e3}
