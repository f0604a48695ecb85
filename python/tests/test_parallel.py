"""Several processes: section 9.3 of the specification, and the rules around it."""
import contextlib
import hmac
import json
import os
import pickle
import re
import signal
import socket
import struct
import tempfile

import msgpack
import pytest

from divisi import Parallel

RUN = """
if __name__ == "__main__":
    Parallel.runner(**json.loads(sys.argv[1]))(main)
"""
"""The end of a program whose options are its argument."""

CATCH = """
if __name__ == "__main__":
    try:
        Parallel.runner(**json.loads(sys.argv[1]))(main)
    except WorkerError as error:
        tell("failed", str(error), error.exit_code, error.node_id)
    else:
        tell("succeeded")
"""
"""The same, and it tells how the run ended."""


@pytest.fixture(params=["ipc", "tcp"])
def options(request, free_ports):
    """options(n, ...): of a runner, as a program's argument; on both transports."""

    def make(workers, **more):
        made = {"n_parallel_workers": workers, "protocol": request.param, **more}
        if request.param == "tcp":
            made.update(address="127.0.0.1", ports=free_ports(workers))
        return json.dumps(made)

    return make


def ipc(workers, **more):
    """As the fixture `options`, for what does not depend on the transport."""
    return json.dumps({"n_parallel_workers": workers, **more})


def failure(ended):
    """(text, exit code, node id) that a program with CATCH has told."""
    assert ended.code == 0, ended
    told = [values for values in ended.results if values[0] in ("failed", "succeeded")]
    assert len(told) == 1 and told[0][0] == "failed", ended
    return tuple(told[0][1:])


# --- 9.3 ---


def test_A050_two_nodes_hear_each_others_ping(run_program, options):
    ended = run_program(
        """
def main():
    heard = Gathered()
    with task.start():
        task.on("ping", heard.add)
        for i in range(30):
            task.emit("ping", me(), only_remote=True)
            if heard:
                break
            time.sleep(0.03)
        if not heard:  # a busy machine: the 30 tries are over; the other one's events still come
            heard.wait(1)
    tell(me(), heard[0])
"""
        + RUN,
        options(2),
    ).ok()
    assert ended.of_nodes() == {0: 1, 1: 0}


def test_A051_both_nodes_count_remote_emits(run_program, options):
    ended = run_program(
        """
def main():
    heard = Gathered()
    with task.start():
        task.on("count", heard.add)
        def step(ctx):
            time.sleep(0.2 + 0.1 * me())
            task.emit("count", ctx.total_step, only_remote=True)
        task.use(step)
        task.run(max_step=10)
    tell(me(), len(heard))
"""
        + RUN,
        options(2),
    ).ok()
    assert set(ended.of_nodes()) == {0, 1}
    assert all(0 < count <= 10 for count in ended.of_nodes().values())


def test_A052_only_remote_does_not_reach_the_own_listener(run_program, options):
    ended = run_program(
        """
def main():
    heard = Gathered()
    with task.start():
        task.on("count", heard.add)
        if me() == 1:
            for i in range(20):
                task.emit("count", i, only_remote=True)
        else:
            heard.wait(20)
        task.router.barrier()
    tell(me(), heard)
"""
        + RUN,
        options(2),
    ).ok()
    assert ended.of_nodes() == {0: list(range(20)), 1: []}


def test_A053_an_exception_leaves_the_launcher_with_its_text(run_program, options):
    ended = run_program(
        """
def main():
    with task.start():
        def step(ctx):
            time.sleep(0.01)
            if me() == 0 and ctx.total_step == 10:
                raise Exception("uncaught exception")
        task.use(step)
        task.run()
"""
        + CATCH,
        options(2),
    )
    text, code, node = failure(ended)
    assert "uncaught exception" in text and "node 0" in text
    assert (code, node) == (1, 0)
    assert "in step" in ended.err, "the worker's own traceback"


@pytest.mark.parametrize("size", [1, 2_000_000])
@pytest.mark.parametrize("pause", [0, 0.01, None], ids=["at_once", "meanwhile", "afterwards"])
def test_A054_a_node_that_left_does_not_disturb_the_sender(run_program, options, pause, size):
    ended = run_program(
        """
def main():
    pause, size = json.loads(sys.argv[2])
    with task.start():
        if me() == 0:
            assert task.wait_for("greeting", timeout=60) is not None
            return
        left = Gathered()
        task.router.on("peer_left", left.add)
        for i in range(10):
            task.emit("greeting", bytes(size))
            if pause is not None:
                time.sleep(pause)
            elif i == 0:
                left.wait(1)
        tell(i)
"""
        + RUN,
        options(2),
        json.dumps([pause, size]),
    ).ok()
    assert ended.results == [[9]]


RECOVER = """
def main():
    with task.start():
        if me() == 0:
            recovered = threading.Event()
            task.on("recovered_p1", recovered.set)
            assert recovered.wait(60), "node 0 never heard of the recovery"
        elif me() == 1:
            heard, late = Gathered(), Gathered()
            task.on("greeting", lambda is_late: (late if is_late else heard).add(1))
            if task.router._retries == 0:
                heard.wait(3)  # in the middle of the traffic
                raise RuntimeError("P1 Error")
            task.emit("recovered_p1", only_remote=True)
            late.wait(1)  # of those that were not kept from before
            task.emit("heard_p2", only_remote=True)
        else:
            heard, recovered = threading.Event(), threading.Event()
            task.on("heard_p2", heard.set)
            task.on("recovered_p1", recovered.set)
            for _ in range(6000):  # all the time, also while node 1 fails and is called again
                task.emit("greeting", recovered.is_set(), only_remote=True)
                if heard.wait(0.01):
                    break
            assert heard.is_set(), "node 1 is deaf after its recovery"
        tell(me(), task.router.retries)
"""


def test_A055_auto_recover_calls_main_again(run_program, options):
    ended = run_program(RECOVER + RUN, options(3, auto_recover=True, max_retries=1)).ok()
    assert ended.of_nodes() == {0: 0, 1: 1, 2: 0}


def test_A056_no_retry_is_left(run_program, options):
    text, code, node = failure(run_program(RECOVER + CATCH, options(3, auto_recover=True, max_retries=0, grace=0.5)))
    assert "P1 Error" in text
    assert (code, node) == (1, 1)


def test_A057_the_first_to_end_ends_all(run_program, options):
    ended = run_program(
        """
def main():
    with task.start():
        def step(ctx):
            time.sleep(0.5)
            # On a busy machine the others may need longer for their two steps than node 0 for five.
            end = time.monotonic() + 60
            while me() == 0 and ctx.total_step == 5 and not task.finish and time.monotonic() < end:
                time.sleep(0.01)
        task.use(step)
        task.run(max_step=10 if me() == 0 else 2)
        tell(me(), task.ctx.total_step)
"""
        + RUN,
        options(3),
    ).ok()
    steps = ended.of_nodes()
    assert set(steps) == {0, 1, 2}
    assert all(step < 7 for step in steps.values())


def test_A058_finish_spreads_over_attached_nodes(start_program, free_ports):
    program = (
        """
def main():
    with task.start():
        def step(ctx):
            time.sleep(1)
            if me() == 1 and ctx.total_step == 1:
                task.finish = True
        task.use(step)
        task.run(max_step=20)
        tell(me(), task.ctx.total_step)
"""
        + RUN
    )
    hub, *ports = free_ports(3)
    tcp = {"protocol": "tcp", "address": "127.0.0.1", "topology": "alone"}
    one = start_program(program, json.dumps({"n_parallel_workers": 1, "ports": [hub], **tcp}))
    two = start_program(
        program,
        json.dumps(
            {"n_parallel_workers": 2, "ports": ports, "node_ids": [1, 2], "attach_to": [f"tcp://127.0.0.1:{hub}"], **tcp}
        ),
    )
    steps = {**two.end().ok().of_nodes(), **one.end().ok().of_nodes()}
    assert set(steps) == {0, 1, 2}
    assert steps[1] == 1
    assert all(step < 19 for step in steps.values())


@pytest.mark.parametrize("protocol, starts", [
    ("ipc", 10), pytest.param("ipc", 100, marks=pytest.mark.long), ("tcp", 10)])
def test_A059_the_greeting_arrives_in_every_start(run_program, free_ports, protocol, starts):
    options = {"n_parallel_workers": 2, "log_level": "error", "protocol": protocol}
    if protocol == "tcp":
        options.update(address="127.0.0.1", ports=free_ports(2))
    ended = run_program(
        """
def main():
    with task.start():
        if me() == 0:
            heard = Gathered()
            task.on("greeting_0", heard.add)
            heard.wait(1)
            tell(heard[0])
        else:
            task.emit("greeting_0", "Hi from node 1")

if __name__ == "__main__":
    for i in range(int(sys.argv[2])):
        Parallel.runner(**json.loads(sys.argv[1]))(main)
""",
        json.dumps(options),
        starts,
        timeout=600,  # a hundred programs
    ).ok()
    assert ended.results == [["Hi from node 1"]] * starts


HELLO = """
def main():
    heard = Gathered()
    with task.start():
        task.on("hello", heard.add)
        task.emit("hello", me(), only_remote=True)
        task.router.flush()
        expected = {"mesh": 3, "star": 3 if me() == 0 else 1, "alone": 0}[sys.argv[2]]
        heard.wait(expected)
        if sys.argv[2] == "mesh":
            task.router.barrier()
        elif sys.argv[2] == "star":
            # The hub lets the leaves go when it has heard that each has what it expects.
            done, go = Gathered(), threading.Event()
            task.on("done", done.add)
            task.on("go", go.set)
            if me() == 0:
                done.wait(3)
                task.emit("go", only_remote=True)
            else:
                task.emit("done", me(), only_remote=True)
                assert go.wait(60)
        tell(me(), sorted(heard))
"""


def test_A060_leaves_of_a_star_hear_only_the_hub(run_program, options):
    ended = run_program(HELLO + RUN, options(4, topology="star"), "star").ok()
    assert ended.of_nodes() == {0: [1, 2, 3], 1: [0], 2: [0], 3: [0]}


def test_A061_everybody_in_a_mesh_hears_the_first_emit_of_everybody(run_program, options):
    ended = run_program(HELLO + RUN, options(4, topology="mesh"), "mesh").ok()
    assert ended.of_nodes() == {i: [j for j in range(4) if j != i] for i in range(4)}


def test_alone_hears_nobody(run_program, options):
    ended = run_program(HELLO + RUN, options(2, topology="alone"), "alone").ok()
    assert ended.of_nodes() == {0: [], 1: []}


def test_A064_wrong_parameters(free_ports):
    def main():
        raise AssertionError("main must not run")

    with pytest.raises(AssertionError, match="n_parallel_workers.*0"):
        Parallel.runner(n_parallel_workers=0)
    with pytest.raises(ValueError, match="ring"):
        Parallel.runner(n_parallel_workers=1, topology="ring")(main)
    with pytest.raises(AssertionError, match="3 ports.*2"):
        Parallel.runner(n_parallel_workers=1 + 1, protocol="tcp", ports=free_ports(3))(print)
    with pytest.raises(AssertionError, match="3 ports.*2"):
        Parallel.get_node_addrs(2, protocol="tcp", ports=[1, 2, 3])


@pytest.mark.parametrize("workers, taken", [(1, 0), (2, 0), (2, 1), (4, 3)])
def test_A065_an_occupied_port(run_program, free_ports, workers, taken):
    ports = free_ports(workers)
    with socket.socket() as occupied:
        occupied.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        occupied.bind(("127.0.0.1", ports[taken]))
        occupied.listen()
        options = {"n_parallel_workers": workers, "protocol": "tcp", "address": "127.0.0.1", "ports": ports}
        ended = run_program(
            """
def main():
    tell("main must not run")

if __name__ == "__main__":
    began = time.monotonic()
    try:
        Parallel.runner(**json.loads(sys.argv[1]))(main)
    except Error as error:
        tell(str(error), getattr(error, "exit_code", None), time.monotonic() - began)
""",
            json.dumps(options),
        ).ok()
    assert len(ended.results) == 1, ended
    text, code, took = ended.results[0]
    assert f"127.0.0.1:{ports[taken]}" in text
    assert code == 3
    assert took < 10


def test_A042_every_listener_made_before_run_gets_what_came_before_it(run_program):
    ended = run_program(
        """
def main():
    heard = Gathered()
    router = task.router
    with task.start():
        for step in range(3):
            if me() == 1:
                task.emit("greeting", step, only_remote=True)
                router.emit("greeting", step)
                assert router.flush(60)
            router.barrier()  # the event is there, the listener is not
            if me() == 0:
                task.on("greeting", lambda value, step=step: heard.add(["task", step, value]))
                router.on("greeting", lambda value, step=step: heard.add(["router", step, value]))
            router.barrier()
        if me() == 0:
            router.ready()
            heard.wait(18)
            for where in ("task", "router"):
                tell([[value for kind, of, value in heard if (kind, of) == (where, step)] for step in range(3)])
        router.barrier()

if __name__ == "__main__":
    Parallel.runner(n_parallel_workers=2)(main)
"""
    ).ok()
    assert ended.results == [[[[0, 1, 2]] * 3]] * 2


def test_an_error_of_a_router_listener_that_nobody_sees_fails_the_run(run_program):
    ended = run_program(
        """
def main():
    failed = threading.Event()
    def listener(value):
        failed.set()
        raise KeyError("nobody looks")
    task.router.on("e", listener)
    task.router.barrier()
    if me() == 1:
        task.router.emit("e", 1)
    else:
        assert failed.wait(60)
    task.router.barrier()

if __name__ == "__main__":
    Parallel.runner(n_parallel_workers=2, log_level="error")(main)
"""
    )
    assert ended.code == 1, ended
    assert "nobody looks" in ended.err, ended


@pytest.mark.parametrize("dials", ["the peer", "who runs again"])
def test_A066_a_runner_may_run_again_in_one_process(start_program, free_ports, dials):
    tcp = {"n_parallel_workers": 1, "protocol": "tcp", "address": "127.0.0.1", "topology": "alone"}
    port, other = free_ports(2)
    again, stays = {**tcp, "ports": [port], "node_ids": 0}, {**tcp, "ports": [other], "node_ids": 1}
    if dials == "the peer":
        stays["attach_to"] = [f"127.0.0.1:{port}"]
    else:
        again["attach_to"] = [f"127.0.0.1:{other}"]
    peer = start_program(
        """
def main():
    enough = threading.Event()
    with task.start():
        task.on("enough", enough.set)
        for i in range(6000):  # in one run of its own, all the time
            task.emit("word", i, only_remote=True)
            if enough.wait(0.02):
                return
    raise AssertionError("nobody said that it is enough")
"""
        + RUN,
        json.dumps(stays),
    )
    one = start_program(
        """
def main(i):
    heard = Gathered()
    with task.start():
        task.on("word", heard.add)
        heard.wait(1)
        if i == 2:
            task.emit("enough", only_remote=True)
    tell(heard[0])

if __name__ == "__main__":
    for i in range(3):
        Parallel.runner(**json.loads(sys.argv[1]))(main, i)
        assert not Parallel().is_active
        assert Parallel().node_id is None
""",
        json.dumps(again),
    )
    words = [word for (word,) in one.end().ok().results]
    assert len(words) == 3 and words == sorted(set(words)), words
    peer.end().ok()


def test_A067_a_failed_attempt_does_not_finish_its_peers(run_program, options):
    ended = run_program(
        """
def main():
    heard = Gathered()
    with task.start():
        task.on("recovered", heard.add)
        def step(ctx):
            if me() == 1 and task.router.retries < 2:
                raise RuntimeError("an attempt fails")
            if me() == 1:
                task.emit("recovered", me(), only_remote=True)
            else:
                heard.wait(1)
        task.use(step)
        task.use(lambda ctx: tell(me(), task.finish))
        task.run(max_step=1)
        task.router.barrier()
"""
        + RUN,
        options(2, auto_recover=True),
    ).ok()
    assert ended.of_nodes() == {0: False, 1: False}


def test_A068_a_killed_worker_fails_the_run(run_program, options):
    ended = run_program(
        """
def main():
    with task.start():
        task.router.barrier()
        if me() == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        task.wait_for("never")
"""
        + CATCH,
        options(3),
    )
    text, code, node = failure(ended)
    assert "node 1" in text
    assert (code, node) == (128 + signal.SIGKILL, 1)


@pytest.mark.parametrize("receivers", [1, 2, 4, 6])
def test_A069_every_receiver_gets_every_message(run_program, receivers):
    ended = run_program(
        """
def main():
    count, sizes, wrong = 0, set(), 0
    end = threading.Event()
    def receive(data):
        nonlocal count, wrong
        if int.from_bytes(data[:8], "little") != count:
            wrong += 1
        count += 1
        sizes.add(len(data))
        if count == 1000:
            end.set()
    with task.start():
        if me() == 0:  # which leaves after the last emit
            for i in range(1000):
                task.emit("data", i.to_bytes(8, "little") + bytes(99992), only_remote=True)
        else:
            task.on("data", receive)
            assert end.wait(60), count
    if me() != 0:
        tell(me(), [count, list(sizes), wrong])
"""
        + RUN,
        ipc(receivers + 1, topology="star"),
    ).ok()
    assert ended.of_nodes() == {i + 1: [1000, [100000], 0] for i in range(receivers)}


REFUSED = """
def main():
    heard = Gathered()
    with task.start():
        task.on("secret", heard.add)
        task.emit("secret", [1, 2])
        tell("main ran", me())
        while not os.path.exists(sys.argv[2]):
            time.sleep(0.02)
        received = sum(topic["received"] for topic in task.router.stats()["topics"])
    tell("heard", len(heard), received)

if __name__ == "__main__":
    try:
        Parallel.runner(**json.loads(sys.argv[1]))(main)
    except Error as error:
        tell("refused", str(error), error.exit_code)
"""


class Unpickled:
    """Makes a file when it is decoded."""

    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return open, (self.path, "w")


def say_all_at_once(port, unpickled, secret, job):
    """A dialler as in docs/wire.md, which sends events behind its proof without waiting for an answer to it. Returns
    when the other side has closed."""

    def frame(kind, content=b"", codec=0, number=0):
        return struct.pack("<BBBBIQ", kind, 0, codec, 0, len(content), number) + content

    def event(codec, body, number):
        topic = b"task.secret"
        return frame(0x10, struct.pack("<IIH", 0, len(body), len(topic)) + topic + body, codec, number)

    me = {"job": job, "node": 9, "incarnation": 7, "nonce": bytes(32), "auth": bool(secret)}
    with socket.create_connection(("127.0.0.1", port), timeout=60) as sock, sock.makefile("rb") as answers:
        sock.sendall(b"DIVISI\2\0" + frame(1, msgpack.packb(me)))
        answers.read(8)
        length = struct.unpack("<BBBBIQ", answers.read(16))[4]
        other = {"node": 0, "incarnation": 0, "nonce": bytes(32), **msgpack.unpackb(answers.read(length))}
        ids = struct.pack("<4Q", 9, 7, other["node"], other["incarnation"])
        proof = hmac.digest(secret, b"divisi dialler" + me["nonce"] + other["nonce"] + ids + job.encode(), "sha256")
        with contextlib.suppress(ConnectionError):  # it may have closed already
            sock.sendall(
                frame(2, msgpack.packb({"proof": proof}))
                + frame(3, msgpack.packb({"resume": 0, "credit": 1 << 20}))
                + event(1, msgpack.packb([5]), 1)
                + event(2, pickle.dumps(((Unpickled(unpickled),), None), protocol=5), 2)
                + frame(0x27)
            )
            sock.shutdown(socket.SHUT_WR)
            while answers.read(1 << 16):
                pass


@pytest.mark.parametrize("wrong", [{"secret": "wrong"}, {"job_id": "another"}, {"secret": None}], ids=str)
def test_A071_a_wrong_secret_or_job_is_refused_and_both_sides_say_why(start_program, free_ports, tmp_path, wrong):
    port, other = free_ports(2)
    common = {"n_parallel_workers": 1, "protocol": "tcp", "address": "127.0.0.1", "job_id": "mine", "secret": "right"}
    end = tmp_path / "end"
    one = start_program(REFUSED, json.dumps({**common, "ports": [port]}), end)
    one.wait_line("main ran")
    two = start_program(
        REFUSED,
        json.dumps({**common, "ports": [other], "node_ids": 1, "attach_to": [f"127.0.0.1:{port}"], **wrong}),
        end,
    )
    refused = two.end().ok()
    given = {**common, **wrong}
    say_all_at_once(port, tmp_path / "unpickled", (given["secret"] or "").encode(), given["job_id"])
    end.touch()
    refusing = one.end().ok()
    assert [values[0] for values in refused.results] == ["refused"], refused
    word = "job" if "job_id" in wrong else "secret"
    assert word in refused.results[0][1], refused
    assert f"127.0.0.1:{port}" in refused.results[0][1], refused
    assert refused.results[0][2] == 3
    assert re.search(rf"(?im)^.*(refus|reject).*{word}|{word}.*(refus|reject)", refusing.err), refusing
    assert refusing.results == [["heard", 1, 0]], "its own emit, nothing else"
    assert not (tmp_path / "unpickled").exists(), "nothing was decoded"


def test_A071_who_proves_the_secret_is_heard_whatever_it_waits_for(start_program, free_ports, tmp_path):
    (port,) = free_ports(1)
    options = {"n_parallel_workers": 1, "protocol": "tcp", "address": "127.0.0.1", "ports": [port], "job_id": "mine",
               "secret": "right"}
    end = tmp_path / "end"
    one = start_program(REFUSED, json.dumps(options), end)
    one.wait_line("main ran")
    say_all_at_once(port, tmp_path / "unpickled", b"right", "mine")
    end.touch()
    assert one.end().ok().results == [["heard", 3, 2]]
    assert (tmp_path / "unpickled").exists()


def test_A071_the_same_secret_and_job_connect(start_program, free_ports, tmp_path):
    program = """
def main():
    heard = Gathered()
    with task.start():
        task.on("e", heard.add)
        assert task.router.wait_for_peers(1)
        task.emit("e", {1, 2}, only_remote=True)
        heard.wait(1)
        task.router.barrier()
    tell(me(), sorted(heard[0]))
"""
    port, other = free_ports(2)
    common = {"n_parallel_workers": 1, "protocol": "tcp", "address": "127.0.0.1", "job_id": "mine", "secret": "right"}
    one = start_program(program + RUN, json.dumps({**common, "ports": [port]}))
    two = start_program(
        program + RUN,
        json.dumps({**common, "ports": [other], "node_ids": 1, "attach_to": [f"tcp://127.0.0.1:{port}"]}),
    )
    assert two.end().ok().results == [[1, [1, 2]]]
    assert one.end().ok().results == [[0, [1, 2]]]


# --- the runner and the router (3.1 to 3.7) ---


def test_padding():
    for given in (None, []):
        assert Parallel.padding_param(given, 3, 50515) == [50515, 50516, 50517]
    assert Parallel.padding_param(50515, 3, 0) == [50515, 50516, 50517]
    assert Parallel.padding_param([50515], 3, 0) == [50515, 50516, 50517]
    assert Parallel.padding_param([5, 9, 7], 3, 0) == [5, 9, 7]
    assert Parallel.padding_param([5, 9], 3, 0) == [5, 9]


def test_addresses():
    addresses = Parallel.get_node_addrs(2, protocol="ipc")
    for i, address in enumerate(addresses):
        assert re.fullmatch(rf"ipc://{re.escape(tempfile.gettempdir())}/ditask_[a-z0-9]{{4}}_{i}\.ipc", address)
    assert Parallel.get_node_addrs(2, protocol="ipc") != addresses
    assert Parallel.get_node_addrs(2, protocol="tcp", address="h") == ["tcp://h:50515", "tcp://h:50516"]
    with pytest.raises(Exception, match="unknown protocol"):
        Parallel.get_node_addrs(2, protocol="udp")
    assert Parallel.get_ip().count(".") == 3


def test_an_inactive_router():
    router = Parallel()
    assert router is Parallel()
    assert router.is_active is False
    assert router.node_id is router.local_id is router.n_parallel_workers is router.mq_type is None
    assert router.labels == set()
    assert router.get_attch_to_len() == router.get_attach_to_len() == 0
    router.emit("nobody hears it")
    assert router.peers() == []
    router.stop()


def test_what_a_worker_knows_of_itself(run_program, options):
    ended = run_program(
        """
def main(argument, *, key):
    router = task.router
    assert router is Parallel()
    with task.start(labels={"more"}):
        assert task.get_attch_to_len() == router.get_attch_to_len()
        tell(me(), [router.is_active, router.node_id, router.local_id, router.n_parallel_workers, router.mq_type,
                    sorted(router.labels), sorted(task.labels), router.get_attch_to_len(), router.auto_recover,
                    router.max_retries, router.retries, argument, key])
        router.barrier()
        assert [peer["node_id"] for peer in router.peers()] == [15 - me()]
        router.barrier()

if __name__ == "__main__":
    Parallel.runner(**json.loads(sys.argv[1]))(main, "positional", key="keyword")
""",
        options(2, node_ids=7, labels=["a", "b"], auto_recover=True, max_retries=5),
    ).ok()
    for node in (7, 8):
        assert ended.of_nodes()[node] == [
            True, node, node - 7, 2, "nng", ["a", "b"], ["a", "b", "distributed", "more", f"node.{node}"], node - 7,
            True, 5, 0, "positional", "keyword",
        ]
    assert ended.err.count("listen on") == 2
    assert ended.err.count("attach to") == 2
    assert ended.err.count("Stopping parallel worker on node: 7") == 1


def test_one_worker_runs_in_the_calling_process(run_program, options):
    ended = run_program(
        """
def main(pid):
    tell(os.getpid() == pid, task.router.is_active, me())

if __name__ == "__main__":
    Parallel.runner(**json.loads(sys.argv[1]))(main, os.getpid())
    Parallel.runner(**json.loads(sys.argv[1]))(lambda pid: main(pid), os.getpid())
""",
        options(1),
    ).ok()
    assert ended.results == [[True, True, 0]] * 2


def test_workers_are_fresh_processes(run_program):
    ended = run_program(
        """
changed = "as written"

def main(pid):
    tell(me(), [changed, os.getpid() != pid, os.getppid() == pid, __name__])

if __name__ == "__main__":
    changed = "by the launcher"
    Parallel.runner(n_parallel_workers=2)(main, os.getpid())
"""
    ).ok()
    assert ended.of_nodes() == {i: ["as written", True, True, "__mp_main__"] for i in range(2)}


def test_main_of_another_module_with_a_changed_search_path(run_program, tmp_path):
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    (folder / "my_module.py").write_text(
        "from divisi import task\ndef main():\n    print('RESULT [%d]' % task.router.node_id, flush=True)\n"
    )
    ended = run_program(
        """
sys.path.insert(0, sys.argv[1])
import my_module
if __name__ == "__main__":
    Parallel.runner(n_parallel_workers=2)(my_module.main)
""",
        folder,
    ).ok()
    assert sorted(ended.results) == [[0], [1]]


def test_router_events_are_apart_from_those_of_tasks(run_program, options):
    ended = run_program(
        """
def main():
    heard = Gathered()
    router = task.router
    with task.start():
        task.on("e", lambda *args: heard.add(["task", args]))
        router.on("e", lambda *args, **kwargs: heard.add(["router", args, kwargs]))
        router.once("f", lambda: heard.add("once"))
        router.barrier()
        if me() == 1:
            router.emit("e", 1, x=2)
            router.emit("f")
            router.emit("f")
            router.emit("last")
        else:
            last = threading.Event()
            router.on("last", last.set)
            assert last.wait(60)
            router.off("e")
        router.barrier()
        if me() == 1:
            router.emit("e", 2)
            router.flush()
        router.barrier()
    tell(me(), heard)
"""
        + RUN,
        options(2),
    ).ok()
    assert ended.of_nodes() == {0: [["router", [1], {"x": 2}], "once"], 1: []}


def test_targets(run_program, options):
    ended = run_program(
        """
def main():
    heard = Gathered()
    with task.start():
        task.add_role(task.role.LEARNER if me() == 0 else task.role.COLLECTOR)
        task.on("e", heard.add)
        task.router.barrier()
        if me() == 0:
            task.emit("e", "node", only_remote=True, to=2)
            task.emit("e", "label", only_remote=True, to="g?u")
            task.emit("e", "no such label", only_remote=True, to="cpu")
            task.emit("e", "role", only_remote=True, to=task.role.COLLECTOR)
            for i in range(6):
                task.emit("e", i, only_remote=True, to=task.role.COLLECTOR, one_of=True)
            task.emit("e", "all", only_remote=True)
            task.router.flush()
        task.router.barrier()
    tell(me(), heard)
"""
        + RUN,
        options(4, labels=["gpu"]),
    ).ok()
    heard = ended.of_nodes()
    words = {node: [one for one in values if isinstance(one, str)] for node, values in heard.items()}
    each = ["label", "role", "all"]
    assert words == {0: [], 1: each, 2: ["node", *each], 3: each}
    shares = {node: [one for one in values if isinstance(one, int)] for node, values in heard.items()}
    assert sorted(sum(shares.values(), [])) == list(range(6))
    assert [len(shares[node]) for node in range(4)] == [0, 2, 2, 2]


def test_calls_with_an_answer(run_program, options):
    ended = run_program(
        """
def main():
    router = task.router
    def divide(a, b):
        return {"by": me(), "result": a / b}
    router.serve("divide", divide)
    router.barrier()
    if me() == 1:
        tell(router.call(0, "divide", 6, 3))
        try:
            router.call(0, "divide", 6, 0)
        except Error as error:
            tell(str(error))
        try:
            router.call(0, "nothing", timeout=0.2)
        except Error as error:
            tell("no answer")
    router.barrier()
"""
        + RUN,
        options(2),
    ).ok()
    assert ended.results[0] == [{"by": 0, "result": 2.0}]
    assert "ZeroDivisionError" in ended.results[1][0]
    assert ended.results[2] == ["no answer"]


def test_a_bad_call_is_an_error_of_its_caller_only(run_program):
    ended = run_program(
        """
def main():
    router = task.router
    router.serve("answer", lambda of: {"object": object(), "number": 5}[of])
    router.barrier()
    if me() == 1:
        for args in (("object",), ("number", "too many"), ("number",)):
            try:
                tell(router.call(0, "answer", *args))
            except Error as error:
                tell(str(error))
    router.barrier()
    router.emit("idle")  # raises what a call has left behind
"""
        + RUN,
        ipc(2),
    ).ok()
    [cannot_travel], [too_many], [number] = ended.results
    assert "object" in cannot_travel and "within" not in cannot_travel
    assert "TypeError" in too_many
    assert number == 5


def test_listeners_of_a_failed_attempt_are_gone(run_program, options):
    ended = run_program(
        """
def main():
    heard = Gathered()
    router = task.router
    router.on("e", lambda: heard.add("router"))
    with task.start():
        task.on("e", lambda: heard.add("task"))
        if me() == 1 and router.retries < 2:
            raise RuntimeError("an attempt fails")
        router.barrier()
        if me() == 0:
            router.emit("e")
            task.emit("e", only_remote=True)
        else:
            heard.wait(2)
        router.barrier()
    tell(me(), heard)
"""
        + RUN,
        options(2, auto_recover=True, max_retries=2),
    ).ok()
    # In either order: the router and the task have loops of their own.
    heard = {node: sorted(names) for node, names in ended.of_nodes().items()}
    assert heard == {0: [], 1: ["router", "task"]}


@pytest.mark.parametrize("workers", [1, 2])
def test_what_an_attempt_has_started_by_using_it_ends_with_it(run_program, workers):
    ended = run_program(
        """
def main():
    attempt = task.router.retries
    heard = Gathered()
    if attempt == 2:
        task.start()
    task.on("e", lambda: tell("heard", me(), attempt))
    task.on("e", heard.add)
    task.use(lambda ctx: tell("ran", me(), attempt))
    if attempt == 0:
        raise RuntimeError("before the run")
    task.run(1)
    task.emit("e", only_local=True)
    if attempt == 1:
        heard.wait(1)
        raise RuntimeError("after it")

if __name__ == "__main__":
    for i in range(2):
        Parallel.runner(**json.loads(sys.argv[1]))(main)
        assert not task.running
"""
        ,
        ipc(workers, auto_recover=True),
    ).ok()
    once = [[what, node, attempt] for what in ("heard", "ran") for node in range(workers)
            for attempt in (1, 2)]
    assert sorted(ended.results) == sorted(once * 2)


@pytest.mark.parametrize("emitter", ["task", "task.router"])
def test_an_emit_that_chooses_to_wait_waits_under_any_send_policy(run_program, emitter):
    ended = run_program(
        """
def main():
    emitter = eval(sys.argv[2])
    over = threading.Event()
    numbers = []
    def hear(number, block):
        numbers.append(number)
        time.sleep(0.001)
    with task.start():
        emitter.on("number", hear)
        emitter.on("over", over.set)
        task.router.barrier()
        if me() == 0:
            for i in range(300):
                emitter.emit("number", i, bytes(20000), policy="block")
            emitter.emit("over")
        else:
            over.wait()
        task.router.barrier()
        if me() == 1:
            tell(len(numbers))
        task.router.barrier()
"""
        + RUN,
        ipc(2, send_policy="drop_oldest", queue_bytes=1 << 20, memory_bytes=8 << 20),
        emitter,
    ).ok()
    assert ended.results == [[300]]


@pytest.mark.parametrize("policy", ["ignore", "restart"])
def test_worker_lost(run_program, policy, tmp_path):
    ended = run_program(
        """
def main():
    with task.start():
        if me() == 1 and not os.path.exists(sys.argv[2]):
            open(sys.argv[2], "w").close()
            os.kill(os.getpid(), signal.SIGKILL)
        if me() == 0 and sys.argv[3] == "restart":
            restarted = Gathered()
            task.on("restarted", restarted.add)
            restarted.wait(1)
        elif me() == 1:
            task.emit("restarted", me(), only_remote=True)
            task.router.flush()
        tell(me())
"""
        + RUN,
        ipc(2, worker_lost=policy),
        tmp_path / "killed",
        policy,
    ).ok()
    assert sorted(ended.results) == ([[0]] if policy == "ignore" else [[0], [1]])


@pytest.mark.parametrize("workers", [1, 2])
def test_terminating_the_launcher_lets_all_workers_finish(start_program, workers):
    program = start_program(
        """
def main():
    with task.start():
        task.use(lambda ctx: time.sleep(0.01))
        tell("runs", me())
        task.run()
    tell("ended", me())

if __name__ == "__main__":
    try:
        Parallel.runner(n_parallel_workers=int(sys.argv[1]), grace=60)(main)
    finally:
        tell("cleaned up")
""",
        workers,
    )
    for _ in range(workers):
        program.wait_line("runs")
    program.process.terminate()
    ended = program.end()
    assert ended.code == 143, ended
    assert sorted(ended.results[:-1]) == [["ended", i] for i in range(workers)], ended
    assert ended.results[-1] == ["cleaned up"]
    assert "Traceback" not in ended.err


def test_the_sum_of_everything_sent_is_in_the_counters(run_program, options):
    ended = run_program(
        """
def main():
    with task.start():
        task.on("e", lambda i: None)
        task.router.barrier()
        if me() == 1:
            for i in range(10):
                task.emit("e", i, only_remote=True)
            task.router.flush()
        task.router.barrier()
        topics = {topic["topic"]: [topic["sent"], topic["received"], topic["dropped"]]
                  for topic in task.router.stats()["topics"]}
        tell(me(), topics["task.e"])
"""
        + RUN,
        options(2),
    ).ok()
    assert ended.of_nodes() == {0: [0, 10, 0], 1: [10, 0, 0]}


def test_a_forked_child_that_leaves_main_is_not_the_worker(run_program):
    ended = run_program(
        """
def main():
    heard = Gathered()
    codes = []
    with task.start():
        task.on("e", heard.add)
        task.router.barrier()
        if me() == 1:
            for how in ("raise", "exit", "return"):
                pid = os.fork()
                if pid == 0:
                    if how == "raise":
                        raise RuntimeError("only the child")
                    if how == "exit":
                        sys.exit(5)
                    return
                codes.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
            task.emit("e", codes, only_remote=True)
        else:
            heard.wait(1)
            tell(heard[0])
        task.router.barrier()
"""
        + RUN,
        ipc(2),
    ).ok()
    assert ended.results == [[[1, 5, 0]]]
    assert "RuntimeError: only the child" in ended.err


def test_a_forked_child_of_a_single_worker_does_not_go_on_with_the_program(run_program):
    ended = run_program(
        """
def main():
    pid = os.fork()
    if pid == 0:
        raise RuntimeError("only the child")
    tell(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))

if __name__ == "__main__":
    Parallel.runner(n_parallel_workers=1)(main)
    tell("after", os.getpid() == os.getpgid(0))
"""
    ).ok()
    assert ended.results == [[1], ["after", True]]


@pytest.mark.parametrize("workers", [1, 2])
def test_a_signal_handler_of_the_program_does_not_keep_its_signal(start_program, workers):
    program = start_program(
        """
def main():
    hits = []
    signal.signal(signal.SIGTERM, lambda number, frame: hits.append(number))
    with task.start():
        tell("runs")
        task.use(lambda ctx: time.sleep(0.01))
        task.run()
    tell("hits", hits)
"""
        + RUN,
        ipc(workers, log_level="error"),
    )
    for _ in range(workers):
        program.wait_line("runs")
    program.process.send_signal(signal.SIGTERM)
    ended = program.end()
    assert ended.code == 128 + signal.SIGTERM, ended
    assert ended.results == [["hits", [signal.SIGTERM]]] * workers
