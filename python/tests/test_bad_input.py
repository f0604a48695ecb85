"""Mistakes, interrupts and failures: one clear message, the right exit code, no hang, nothing left behind."""
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from small_programs import DEADLINE_S, PACKAGES

import divisi
from divisi import EventLoop, Parallel

RUN = """
if __name__ == "__main__":
    Parallel.runner(**json.loads(sys.argv[1]))(main)
"""


def options(workers=2, **more):
    """Of a runner, as a program's argument."""
    return json.dumps({"n_parallel_workers": workers, "grace": 1, "log_level": "error", **more})


def failed(ended, text, code=1):
    """The program failed, and its last line says why."""
    assert ended.code == code, ended
    assert text in ended.last_line, ended
    return ended


# --- listeners and emits ---


@pytest.mark.parametrize("workers", [1, 2])
def test_a_listener_that_raises_fails_the_run(run_program, workers):
    ended = run_program(
        """
def main():
    with task.start():
        task.on("e", lambda: 1 / 0)
        task.emit("e")
"""
        + RUN,
        options(workers),
    )
    failed(ended, "division by zero")
    assert "ZeroDivisionError" in ended.last_line
    assert "in <lambda>" in ended.err, "the listener's own line is shown"
    if workers > 1:
        assert "node " in ended.last_line


def test_a_listener_of_the_wrong_arity(run_program):
    ended = run_program(
        """
def main():
    heard = Gathered()
    def listener(one, two):
        pass
    with task.start():
        task.on("e", listener)
        task.on("e", heard.add)
        task.router.barrier()
        if me() == 1:
            task.emit("e", 1, only_remote=True)
            task.router.barrier()
        else:
            heard.wait(1)
            task.router.barrier()
            task.use(lambda ctx: None)
            task.run(max_step=1)
"""
        + RUN,
        options(),
    )
    failed(ended, "listener() missing 1 required positional argument: 'two'")
    assert "node 0" in ended.last_line


@pytest.mark.parametrize("listener", [None, 7, "name"])
def test_a_listener_that_is_no_callable(task, listener):
    loop = EventLoop("bad")
    with task.start():
        for target in (task, loop, Parallel()):
            for register in (target.on, target.once):
                with pytest.raises(TypeError, match="callable"):
                    register("e", listener)
    loop.stop()


@pytest.mark.parametrize("name", [None, 7, b"bytes", ["list"]])
def test_a_name_that_is_no_text(task, name):
    loop = EventLoop("bad")
    with task.start():
        for target in (task, loop):
            with pytest.raises(TypeError, match="str"):
                target.emit(name)
            with pytest.raises(TypeError, match="str"):
                target.on(name, print)
            with pytest.raises(TypeError, match="str"):
                target.wait_for(name, timeout=0)
    loop.stop()


@pytest.mark.parametrize("name", ["", "x" * 300, "\ud800"], ids=["empty", "long", "surrogate"])
def test_a_name_that_is_no_name(run_program, name):
    ended = run_program(
        """
name = json.loads(sys.argv[2])
def main():
    with task.start():
        task.router.barrier()
        if me() == 0:
            for call in (lambda: task.emit(name, 1), lambda: task.router.emit(name, 1)):
                try:
                    call()
                    tell("passed")
                except Exception as error:
                    tell(type(error).__name__, str(error) != "")
        task.router.barrier()
"""
        + RUN,
        options(),
        json.dumps(name),
    ).ok()
    assert all(values != ["passed"] for values in ended.results), ended
    assert len(ended.results) == 2


def test_emitting_after_stop(task):
    loop = EventLoop("stopped")
    loop.stop()
    loop.emit("e")  # ignored
    with task.start():
        pass
    with pytest.raises(AssertionError, match=r"task\.emit.*must be started"):
        task.emit("e")
    Parallel().emit("e")


def test_emitting_after_stop_in_a_worker(run_program):
    ended = run_program(
        """
def main():
    with task.start():
        pass
    task.emit("e")
"""
        + RUN,
        options(),
    )
    failed(ended, "task.emit was called while the task is not running: the task must be started first")


@pytest.mark.parametrize(
    "arguments, text",
    [
        ({"to": 1.5}, "node id"),
        ({"one_of": True}, "one_of"),
        ({"to": 1, "one_of": True}, "one_of"),
        ({"policy": "sometimes"}, "sometimes"),
    ],
)
def test_wrong_arguments_of_emit(task, arguments, text):
    with task.start():
        with pytest.raises(ValueError, match=text):
            task.emit("e", **arguments)


def test_wrong_arguments_of_start(task):
    with pytest.raises(ValueError, match="n_async_workers"):
        task.start(n_async_workers=0)
    with pytest.raises(ValueError, match="on_error"):
        task.start(on_error="panic")
    with pytest.raises(ValueError, match="on_error"):
        EventLoop(on_error="panic")
    with pytest.raises(ValueError, match="threads"):
        EventLoop(threads=0)
    assert not task.running


# --- forks ---


def test_a_fork_with_a_live_router(run_program):
    ended = run_program(
        """
def main():
    heard = Gathered()
    with task.start():
        task.on("e", heard.add)
        task.router.barrier()
        if me() == 0:
            pid = os.fork()
            if pid == 0:
                # Not a node: nothing of the parent's is touched, and a task of its own works.
                ok = not task.router.is_active and not task.running
                ran = []
                with task.start():
                    task.on("e", ran.append)
                    task.emit("e", 1)
                os._exit(0 if ok and ran == [1] else 1)
            status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            tell("child", status)
            task.emit("e", "parent goes on", only_remote=True)
        else:
            heard.wait(1)
            tell("heard", heard)
        task.router.barrier()
"""
        + RUN,
        options(),
    ).ok()
    assert sorted(ended.results) == [["child", 0], ["heard", ["parent goes on"]]]


def test_a_forked_child_that_exits_the_usual_way(run_program):
    ended = run_program(
        """
import multiprocessing

def work(queue):
    queue.put(task.router.is_active)

def main():
    with task.start():
        task.router.barrier()
        context = multiprocessing.get_context("fork")
        queue = context.Queue()
        child = context.Process(target=work, args=(queue,))
        child.start()
        active = queue.get(timeout=60)
        child.join(60)
        tell(me(), [active, child.exitcode])
        task.router.barrier()
"""
        + RUN,
        options(),
    ).ok()
    assert ended.of_nodes() == {0: [False, 0], 1: [False, 0]}


def test_a_fork_without_a_router(run_program):
    ended = run_program(
        """
loop = EventLoop("parents")
with task.start():
    task.on("e", lambda: None)
    task.emit("e")
    pid = os.fork()
    if pid == 0:
        ran = []
        with task.start():
            task.on("e", lambda: ran.append(1))
            task.emit("e")
        tell("child", ran)
        sys.exit(0)
    tell("status", os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
tell("parent", task.running)
"""
    ).ok()
    assert ended.results == [["child", [1]], ["status", 0], ["parent", False]]


# --- interrupts ---


def test_ctrl_c_while_a_task_waits(start_program):
    program = start_program(
        """
with task.start():
    tell("waits")
    task.wait_for("never")
"""
    )
    program.wait_line("waits")
    program.process.send_signal(signal.SIGINT)
    ended = program.end()
    assert ended.code == -signal.SIGINT, ended
    assert ended.last_line == "KeyboardInterrupt"


def test_ctrl_c_while_a_loop_waits_may_be_caught(start_program):
    program = start_program(
        """
loop = EventLoop("waits")
heard = []
loop.on("e", heard.append)
for i in range(3):
    try:
        tell("waits", i)
        loop.wait_for("never")
    except KeyboardInterrupt:
        loop.emit("e", i)
loop.stop()
tell("ended", heard)
"""
    )
    for _ in range(3):
        program.wait_line("waits")
        program.process.send_signal(signal.SIGINT)
    assert program.end().ok().results == [["ended", [0, 1, 2]]]


def test_ctrl_c_while_a_pipeline_runs(start_program):
    program = start_program(
        """
def step(ctx):
    try:
        yield
    finally:
        if ctx.total_step == 1:
            tell("runs")
with task.start(async_mode=len(sys.argv) > 1):
    task.use(step)
    task.use(lambda ctx: time.sleep(0.001))
    task.run()
"""
    )
    program.wait_line("runs")
    program.process.send_signal(signal.SIGINT)
    ended = program.end()
    assert ended.code == -signal.SIGINT, ended
    assert ended.last_line == "KeyboardInterrupt"


@pytest.mark.parametrize("whom", ["launcher", "group"])
@pytest.mark.parametrize("workers", [1, 2])
def test_ctrl_c_under_a_runner(start_program, workers, whom):
    program = start_program(
        """
def main():
    with task.start():
        tell("waits", me())
        task.wait_for("never")

if __name__ == "__main__":
    Parallel.runner(**json.loads(sys.argv[1]))(main)
""",
        options(workers, grace=60),
    )
    for _ in range(workers):
        program.wait_line("waits")
    if whom == "launcher":
        program.process.send_signal(signal.SIGINT)
    else:  # as a terminal does
        os.killpg(program.process.pid, signal.SIGINT)
    ended = program.end()
    assert ended.code in (130, -signal.SIGINT), ended
    assert ended.last_line == "KeyboardInterrupt"


def test_ctrl_c_while_workers_join(start_program, free_ports):
    nobody, own = free_ports(2)
    program = start_program(
        """
def main():
    tell("main must not run")

if __name__ == "__main__":
    tell("begins")
    Parallel.runner(**json.loads(sys.argv[1]))(main)
""",
        options(1, protocol="tcp", address="127.0.0.1", ports=[own], attach_to=[f"127.0.0.1:{nobody}"]),
    )
    program.wait_line("begins")
    deadline = time.monotonic() + 60
    while True:  # until it listens: it has begun to join then
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", own)) == 0:
                break
        assert time.monotonic() < deadline
        time.sleep(0.01)
    program.process.send_signal(signal.SIGINT)
    ended = program.end()
    assert ended.code in (130, -signal.SIGINT), ended
    assert ended.results == []


def test_sys_exit_in_main(run_program):
    program = (
        """
def main():
    sys.exit(json.loads(sys.argv[2]))
"""
        + RUN
    )
    assert run_program(program, options(1), "0").code == 0
    assert run_program(program, options(1), "5").code == 5
    assert run_program(program, options(2), "0").code == 0
    failed(run_program(program, options(2), "5"), "5")


def test_os_exit_in_main(run_program):
    ended = run_program(
        """
def main():
    if me() == 1:
        os._exit(9)
    task.router.barrier()
"""
        + RUN,
        options(),
    )
    failed(ended, "node 1")


def test_a_crash_in_main(run_program):
    ended = run_program(
        """
import ctypes
def main():
    if me() == 1:
        ctypes.string_at(0)
    task.start()
    task.wait_for("never")
"""
        + RUN,
        options(),
    )
    failed(ended, "node 1")
    assert "SEGV" in ended.last_line or "11" in ended.last_line


def test_a_worker_whose_launcher_was_killed_ends_too(start_program):
    program = start_program(
        """
def main():
    with task.start():
        tell("waits")
        task.wait_for("never")
"""
        + RUN,
        options(),
    )
    for _ in range(2):
        program.wait_line("waits")
    program.process.kill()
    assert program.end().code == -signal.SIGKILL


# --- mains ---


@pytest.mark.parametrize("main", ["lambda: 0", "local()", "threading.Lock().acquire"])
def test_a_main_that_cannot_be_pickled(run_program, main):
    ended = run_program(
        f"""
def local():
    def inner():
        pass
    return inner

if __name__ == "__main__":
    Parallel.runner(n_parallel_workers=2)({main})
"""
    )
    failed(ended, "a main that other processes can import by name")
    assert "pickle" in ended.last_line


def test_arguments_that_cannot_be_pickled(run_program):
    ended = run_program(
        """
def main(lock):
    pass

if __name__ == "__main__":
    Parallel.runner(n_parallel_workers=2)(main, threading.Lock())
"""
    )
    failed(ended, "lock")


def test_a_main_that_is_no_function(run_program):
    failed(run_program("Parallel.runner(n_parallel_workers=2)('main')"), "callable")


def test_wrong_arguments_of_main(run_program):
    for workers in (1, 2):
        ended = run_program("def main(one, two): pass\n" + RUN, options(workers))
        failed(ended, "main() missing 2 required positional arguments")


def test_a_program_without_the_guard(run_program):
    ended = run_program(
        """
def main():
    pass
Parallel.runner(n_parallel_workers=2, log_level="error")(main)
"""
    )
    failed(ended, 'under `if __name__ == "__main__":`')


def test_a_program_from_a_pipe(tmp_path):
    import subprocess
    import sys

    from small_programs import PACKAGES

    # There is no file that a worker could import.
    program = "from divisi import *\ndef main(): pass\nParallel.runner(n_parallel_workers=2, log_level='error')(main)\n"
    for command in (["-c", program], ["-"]):
        ended = subprocess.run(
            [sys.executable, *command], input=program, capture_output=True, text=True, timeout=90, cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": PACKAGES},
        )
        assert ended.returncode == 1, ended
        assert "main" in ended.stderr.strip().rsplit("\n", 1)[-1], ended.stderr


def test_a_module_that_fails_in_the_worker(run_program):
    ended = run_program(
        """
if __name__ != "__main__":
    raise ImportError("only in workers")
def main():
    pass
"""
        + RUN,
        options(),
    )
    failed(ended, "only in workers")


# --- parameters of the runner ---


@pytest.mark.parametrize(
    "arguments, error, text",
    [
        ({"n_parallel_workers": 0}, AssertionError, "n_parallel_workers must be at least 1, not 0"),
        ({"n_parallel_workers": -3}, AssertionError, "not -3"),
        ({"topology": "ring"}, ValueError, "ring"),
        ({"protocol": "udp"}, Exception, "udp"),
        ({"mq_type": "kafka"}, KeyError, "kafka"),
        ({"mq_type": "redis"}, KeyError, "redis"),
        ({"n_workers": 2}, TypeError, "n_workers"),
        ({"protocol": "tcp", "ports": [1, 2, 3]}, AssertionError, "3 ports.*2"),
        ({"protocol": "tcp", "ports": "50515"}, ValueError, "ports"),
        ({"protocol": "tcp", "ports": [70000, 70001]}, ValueError, "70000"),
        ({"node_ids": [1, 2, 3]}, ValueError, "node_ids|node ids"),
        ({"node_ids": [4, 4]}, ValueError, "4"),
        ({"node_ids": -1}, ValueError, "-1"),
        ({"worker_lost": "panic"}, ValueError, "panic"),
        ({"hub_lost": "panic"}, ValueError, "panic"),
        ({"send_policy": "panic"}, ValueError, "panic"),
        ({"codec": "json"}, ValueError, "json"),
        ({"log_level": "loud"}, ValueError, "loud"),
        ({"attach_to": ["no address"]}, ValueError, "no address"),
        ({"max_retries": -1, "auto_recover": True}, ValueError, "max_retries"),
        ({"protocol": "tcp", "address": "no.such.host.invalid"}, Exception, "no.such.host.invalid"),
        ({"queue_bytes": -1}, ValueError, "queue_bytes must be at least 1, not -1"),
        ({"queue_bytes": 0}, ValueError, "queue_bytes must be at least 1, not 0"),
        ({"queue_bytes": 10**30}, ValueError, "queue_bytes must be at most"),
        ({"memory_bytes": -1}, ValueError, "memory_bytes"),
        ({"max_message_bytes": 2**64}, ValueError, "max_message_bytes"),
        ({"max_restarts": -1}, ValueError, "max_restarts"),
        ({"max_retries": 2**40, "auto_recover": True}, ValueError, "max_retries must be at most"),
        ({"node_ids": 2**40}, ValueError, "node_ids must be at most"),
        ({"node_ids": 2**31 - 1}, ValueError, "node_ids: the ids of 2 workers from 2147483647 on are too large"),
        ({"job_id": "x" * 2000}, ValueError, "job_id has 2000 bytes; it may have at most 1024"),
        ({"secret": ""}, ValueError, "secret is empty"),
        ({"secret": b""}, ValueError, "secret is empty"),
    ],
    ids=str,
)
def test_wrong_parameters(arguments, error, text):
    before = children()
    with pytest.raises(error, match=text):
        Parallel.runner(**{"n_parallel_workers": 2, "log_level": "error", **arguments})(print, "main must not run")
    assert children() == before


@pytest.mark.parametrize(
    "arguments",
    [{"labels": "gpu"}, {"attach_to": "tcp://h:1"}, {"n_parallel_workers": "2"}, {"n_parallel_workers": 1.5}, {"ports": 1.5},
     {"startup_interval": "soon"}, {"grace": "long"}, {"grace": -1}, {"relay": "maybe"}, {"secret": 5}, {"topology": 5},
     {"queue_bytes": "64 MiB"}, {"max_retries": 1.5}],
    ids=str,
)
def test_parameters_of_the_wrong_type(arguments):
    with pytest.raises((TypeError, ValueError, AssertionError)) as caught:
        Parallel.runner(**{"n_parallel_workers": 1, "log_level": "error", **arguments})(print, "main must not run")
    assert next(iter(arguments)) in str(caught.value)


def test_a_missing_secret_file(run_program):
    ended = run_program("def main(): pass" + RUN, options(), env={"DIVISI_SECRET_FILE": "/nonexistent/secret"})
    failed(ended, "/nonexistent/secret")


@pytest.mark.parametrize(
    "content, text", [("", "is empty"), (" \n\t", "is empty"), ("q" * 5000, "is longer than 4096 bytes")],
    ids=["nothing", "blanks", "long"],
)
def test_a_secret_file_that_holds_no_secret(run_program, tmp_path, content, text):
    (tmp_path / "secret").write_text(content)
    env = {"DIVISI_SECRET_FILE": str(tmp_path / "secret")}
    failed(run_program("def main(): pass" + RUN, options(), env=env), text)


def test_a_secret_file_that_others_can_read_is_told_of_once(run_program, tmp_path):
    (tmp_path / "secret").write_text("s3cret\n")
    (tmp_path / "secret").chmod(0o644)
    env = {"DIVISI_SECRET_FILE": str(tmp_path / "secret")}
    ended = run_program("def main(): pass" + RUN, options(), env=env).ok()
    assert ended.err.count("can be read by others; chmod 600 it") == 1, ended


@pytest.mark.parametrize("name", ["main", "train"])
def test_a_main_of_a_session_without_a_file_names_the_cause(name):
    program = (
        "from divisi import Parallel\n"
        f"def {name}(): pass\n"
        f"Parallel.runner(n_parallel_workers=2, join_timeout=5)({name})\n"
    )
    for arguments, given in ((["-c", program], None), (["-"], program)):
        ended = subprocess.run(
            [sys.executable, *arguments], input=given, text=True, capture_output=True, timeout=DEADLINE_S,
            env={**os.environ, "PYTHONPATH": PACKAGES},
        )
        assert ended.returncode == 1, ended
        last = ended.stderr.strip().splitlines()[-1]
        assert f"main ({name}) is defined in a session without a file" in last, ended
        assert "put it into a module" in last


def test_a_function_of_a_module_runs_from_a_session_without_a_file(tmp_path):
    (tmp_path / "mine.py").write_text("def main(): print('ran')\n")
    program = "import mine\nfrom divisi import Parallel\nParallel.runner(n_parallel_workers=2)(mine.main)\n"
    ended = subprocess.run(
        [sys.executable, "-c", program], text=True, capture_output=True, timeout=DEADLINE_S, cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": PACKAGES},
    )
    assert (ended.returncode, ended.stdout.count("ran")) == (0, 2), ended


def test_a_runner_inside_a_run(run_program):
    ended = run_program(
        """
def main():
    Parallel.runner(n_parallel_workers=1)(print)
"""
        + RUN,
        options(1),
    )
    assert ended.code == 1, ended
    assert "Error" in ended.last_line


def test_two_jobs_on_one_port(start_program, free_ports, tmp_path):
    ports = free_ports(2)
    program = (
        """
def main():
    tell("runs", me())
    while not os.path.exists(sys.argv[2]):
        time.sleep(0.02)
"""
        + RUN
    )
    end = tmp_path / "end"
    tcp = {"protocol": "tcp", "address": "127.0.0.1", "ports": ports}
    first = start_program(program, options(**tcp), end)
    for _ in range(2):
        first.wait_line("runs")
    ended = start_program(program, options(**tcp), end).end()
    end.touch()
    failed(ended, "127.0.0.1:")
    assert any(f"127.0.0.1:{port}" in ended.last_line for port in ports), ended
    assert ended.results == []
    assert "in use" in ended.last_line
    first.end().ok()


def test_a_peer_that_is_not_there(run_program, free_ports):
    own, nobody = free_ports(2)
    ended = run_program(
        "def main(): tell('main must not run')" + RUN,
        options(1, protocol="tcp", address="127.0.0.1", ports=[own], attach_to=[f"127.0.0.1:{nobody}"], join_timeout=0.3),
    )
    failed(ended, f"127.0.0.1:{nobody}")
    assert ended.results == []


def test_two_nodes_with_one_id(start_program, free_ports, tmp_path):
    port, other = free_ports(2)
    program = (
        """
def main():
    tell("runs", me())
    while not os.path.exists(sys.argv[2]):
        time.sleep(0.02)
"""
        + RUN
    )
    end = tmp_path / "end"
    tcp = {"protocol": "tcp", "address": "127.0.0.1", "node_ids": 4}
    first = start_program(program, options(1, ports=[port], **tcp), end)
    first.wait_line("runs")
    ended = start_program(program, options(1, ports=[other], attach_to=[f"127.0.0.1:{port}"], **tcp), end).end()
    end.touch()
    failed(ended, "4")
    assert "id" in ended.last_line
    first.end().ok()


# --- leaks ---


def children():
    """Of this process."""
    found = set()
    for task in os.listdir("/proc/self/task"):
        try:
            found.update(Path(f"/proc/self/task/{task}/children").read_text().split())
        except OSError:
            pass
    return found


def unix_sockets(folder):
    """Names of the unix sockets in a folder."""
    lines = Path("/proc/net/unix").read_text().splitlines()[1:]
    return {parts[7] for parts in map(str.split, lines) if len(parts) > 7 and folder in parts[7]}


def in_use():
    """Descriptors, threads and children of this process."""
    return len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task")), len(children())


def assert_no_more_than(before):
    """A thread that was joined may be seen a moment longer."""
    deadline = time.monotonic() + 10
    while any(now > then for now, then in zip(in_use(), before)):
        assert time.monotonic() < deadline, f"{in_use()} in use, {before} before"
        time.sleep(0.01)


@pytest.fixture
def temporary():
    """A temporary folder with a short name, for the socket files of one test."""
    folder = tempfile.mkdtemp(prefix="dv")
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


LEAKS = {
    "ends": "pass",
    "raises": "raise RuntimeError('x')",
    "is killed": "os.kill(os.getpid(), signal.SIGKILL)",
    "exits": "os._exit(3)",
    "is terminated": "os.kill(os.getppid(), signal.SIGTERM); task.wait_for('never')",
    "is interrupted": "os.kill(os.getppid(), signal.SIGINT); task.wait_for('never')",
}


@pytest.mark.parametrize("how", LEAKS)
def test_nothing_is_left_behind_when_a_worker(run_program, temporary, how):
    shared = set(os.listdir("/dev/shm"))
    ended = run_program(
        f"""
import numpy as np
def main():
    heard = Gathered()
    with task.start():
        task.on("e", heard.add)
        task.router.barrier()
        task.emit("e", np.zeros(100000), only_remote=True)
        heard.wait(2)
        task.router.barrier()
        if me() == 1:
            {LEAKS[how]}
"""
        + RUN,
        options(3),
        env={"TMPDIR": temporary},
    )
    assert (ended.code == 0) == (how == "ends"), ended
    # run_program has seen that no process is left.
    assert os.listdir(temporary) == []
    assert unix_sockets(temporary) == set()
    assert {name for name in set(os.listdir("/dev/shm")) - shared if "divisi" in name or "ditask" in name} == set()


def test_runs_in_one_process_leave_no_descriptor_thread_or_file(temporary, monkeypatch):
    monkeypatch.setenv("TMPDIR", temporary)

    def run():
        Parallel.runner(n_parallel_workers=1, log_level="error")(body)

    def body():
        with divisi.task.start():
            divisi.task.on("e", lambda: None)
            divisi.task.emit("e")

    run()  # what is made once
    before = in_use()
    for _ in range(10):
        run()
    assert_no_more_than(before)
    assert os.listdir(temporary) == []


def test_loops_and_tasks_leave_no_descriptor_or_thread():
    def use():
        loop = EventLoop("one")
        loop.on("e", lambda: None)
        loop.emit("e")
        loop.wait_for("never", timeout=0.001)
        loop.stop()
        with divisi.task.start(async_mode=True):
            divisi.task.use(lambda ctx: divisi.task.emit("e"))
            divisi.task.run(max_step=2)
        with divisi.Task() as other:
            other.emit("e")

    use()  # what is made once
    before = in_use()
    for _ in range(10):
        use()
    assert_no_more_than(before)


def test_launches_leave_no_descriptor_or_thread_in_the_launcher(run_program, temporary):
    ended = run_program(
        """
def main():
    pass

def count():
    return [len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))]

if __name__ == "__main__":
    launch = Parallel.runner(n_parallel_workers=2, log_level="error")
    launch(main)  # what is made once
    before = count()
    for _ in range(3):
        launch(main)
    deadline = time.monotonic() + 10  # a thread that was joined may be seen a moment longer
    while any(now > then for now, then in zip(count(), before)) and time.monotonic() < deadline:
        time.sleep(0.01)
    tell(before, count())
""",
        env={"TMPDIR": temporary},
    ).ok()
    ((before, after),) = ended.results
    assert all(now <= then for now, then in zip(after, before)), ended
    assert os.listdir(temporary) == []
