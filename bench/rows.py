"""The rows of the table: what is measured, beside whom, and the bar it has to clear."""
from dataclasses import dataclass

SIZES = {64: "64 B", 1024: "1 KB", 65536: "64 KB", 1048576: "1 MB"}

# performance.md section 5, column "first complete version", and issue 2 for the socket over zmq.
BARS = {
    ("ipc", "zmq-pushpull-ipc"): (2, 2, 2, 1.5),
    ("ipc", "unix"): (0.2, 0.4, 0.7, 0.8),
    ("tcp", "zmq-pushpull-tcp"): (1.5, 1.5, 1.2, 1),
    ("tcp", "tcp"): (0.2, 0.4, 0.7, 0.8),
}
ROUND_TRIP_BAR = 0.6
INLINE_BAR = 3
QUEUED_BAR = 2
STARTUP_BAR = 3


@dataclass(frozen=True)
class Probe:
    """One program run, and the field of its JSON line that is the figure."""
    command: tuple
    field: str


@dataclass(frozen=True)
class Row:
    name: str
    ours: Probe
    peer: Probe
    peer_name: str
    unit: str
    bar: float | None = None  # None: informative
    lower_is_better: bool = False
    lossy_peer: bool = False  # say how much of the peer's messages arrived, and in which order

    def meets_bar(self, ratio):
        return self.bar is None or (ratio <= self.bar if self.lower_is_better else ratio >= self.bar)


def all_rows(quick):
    seconds = "0.3" if quick else "1"
    rows = []

    def burst(transport, size):
        return Probe(("bench_burst", transport, str(size), seconds), "msgs_per_s")

    def one_way(link, peer, size, bar):
        rows.append(Row(f"one-way {link} {SIZES[size]} over {peer}", burst(f"ours-{link}", size), burst(peer, size),
                        peer, "msgs/s", bar))

    # Size by size, so that ours and its peers at one size are neighbours in time.
    for position, size in enumerate(SIZES):
        for (link, peer), bars in BARS.items():
            one_way(link, peer, size, bars[position])
        for link in ("ipc", "tcp"):
            if size >= 65536:  # where our Buffer is shared, against libzmq sharing as well
                one_way(link, f"zmq-nocopy-{link}", size, None)
            one_way(link, f"nng-pair-{link}", size, None)

    def trip(transport, size):
        trips = 2000 if quick or size > 64 else 10000
        return Probe(("bench_pingpong", transport, str(size), str(trips)), "p50_us")

    for link, raw in (("ipc", "unix"), ("tcp", "tcp")):
        for peer in (f"zmq-pushpull-{link}", f"nng-pair-{link}", raw):
            due = peer == "zmq-pushpull-ipc"
            rows.append(Row(f"round trip {link} 64 B over {peer}", trip(f"ours-{link}", 64), trip(peer, 64), peer,
                            "us, p50", ROUND_TRIP_BAR if due else None, True))
    rows.append(Row("round trip ipc 1 MB over zmq-pushpull-ipc", trip("ours-ipc", 1048576),
                    trip("zmq-pushpull-ipc", 1048576), "zmq-pushpull-ipc", "us, p50", None, True))

    def local(way, listeners=1, field="ns"):
        return Probe(("bench_local_event", way, str(listeners)), field)

    rows.append(Row("in-process emit, inline listener", local("inline"), local("table"),
                    "direct call through a table", "ns", INLINE_BAR, True))
    rows.append(Row("in-process emit, queued listener", local("queued"), local("mailbox"), "mailbox", "ns",
                    QUEUED_BAR, True))
    for listeners in (2, 8):
        rows.append(Row(f"in-process emit, {listeners} inline listeners", local("inline", listeners),
                        local("table", listeners), "direct call through a table", "ns", None, True))
    rows.append(Row("in-process emit to a sleeping listener", local("queued-wake", field="p50_ns"),
                    local("mailbox-wake", field="p50_ns"), "mailbox", "ns, p50", None, True))

    def startup(workers, field):
        return Probe(("bench_startup", str(workers)), field)

    for workers in (1, 2, 4, 8, 16):
        rows.append(Row(f"start of {workers} workers to full mesh", startup(workers, "mesh_ms"),
                        startup(workers, "exec_ms"), f"exec and reap, {workers} times", "ms",
                        STARTUP_BAR if workers == 8 else None, True))

    rows.append(Row("start of 8 workers, against all at once", startup(8, "mesh_ms"), startup(8, "exec_at_once_ms"),
                    "exec and reap, 8 at once", "ms", None, True))

    def fanout(transport, receivers, interested):
        return Probe(("bench_fanout", transport, str(receivers), str(interested), "0.3" if quick else "0.5"),
                     "emits_per_s")

    for receivers in (1, 2, 4, 8, 16):
        rows.append(Row(f"fan-out 64 B to {receivers}", fanout("ours", receivers, receivers),
                        fanout("zmq", receivers, receivers), "zmq-pubsub-ipc", "emits/s"))
    for receivers in (4, 16):
        rows.append(Row(f"fan-out 64 B to {receivers}, 1 interested", fanout("ours", receivers, 1),
                        fanout("zmq", receivers, 1), "zmq-pubsub-ipc", "emits/s"))

    def churn(kills):
        return Probe(("bench_churn", "2" if quick else "5", kills), "msgs_per_s")

    rows.append(Row("survivors while a leaf is killed each second", churn("kill"), churn("quiet"),
                    "the same, nobody killed", "msgs/s"))
    return rows
