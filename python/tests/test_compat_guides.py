"""The Python listings of DI-engine's two guides on distributed running, as programs with the same
imports and calls.

What is changed: names and texts are ours, and sleeps are shorter, since the runtime does not need
them.
"""

import re
import subprocess
import sys
import time

from compat_tools import DEADLINE_S, compat, environment, run, write
from small_programs import Output


def unmarked(text):
    """Without the `[node 0] ` that the launcher puts before each line of a worker."""
    return re.sub(r"^\[node \d+\] ", "", text, flags=re.MULTILINE)


def test_an_event_of_one_process(tmp_path):
    program = """
    from ding.framework import OnlineRLContext, task

    with task.start(async_mode=False, ctx=OnlineRLContext()):
        task.on("news", lambda text: print("Got: %s" % text))
        task.emit("news", "Hi")
    """
    assert compat(tmp_path, program) == "Got: Hi\n"


def test_middleware_that_sends_and_receives_with_the_slip_of_the_guide(tmp_path):
    program = """
    from ding.framework import OnlineRLContext, task

    def listening():
        task.on("news", lambda text: print("Got: %s" % text))
        def _listening(ctx):
            pass
        return _listening

    def telling():
        def _telling(ctx):
            task.exit("news", "Hi %s times" % ctx.total_step)
        return _telling

    with task.start(async_mode=False, ctx=OnlineRLContext()):
        task.use(listening())
        task.use(telling())
        task.run(10)
    """
    assert compat(tmp_path, program) == "".join(f"Got: Hi {i} times\n" for i in range(10))


def test_two_processes(tmp_path):
    program = """
    from time import sleep
    from ding.framework import OnlineRLContext, Parallel, task

    def main():
        with task.start(async_mode=False, ctx=OnlineRLContext()):
            if task.router.node_id == 0:
                task.on("news", lambda text: print("Got: %s" % text))
            else:
                task.emit("news", "Hi")
            sleep(3)

    if __name__ == "__main__":
        Parallel.runner(n_parallel_workers=2)(main)
    """
    assert compat(tmp_path, program) == "[node 0] Got: Hi\n"


HELLO = """
from ding.framework import Parallel, Task

def main():
    with Task() as task:
        task.use(lambda _: print("Hello"))
        task.run(max_step=10)

if __name__ == "__main__":
    {start}
"""


def test_a_task_as_context_manager(tmp_path):
    assert compat(tmp_path, HELLO.format(start="main()")) == "Hello\n" * 10


def test_the_same_in_three_processes(tmp_path):
    out = compat(tmp_path, HELLO.format(start="Parallel.runner(n_parallel_workers=3)(main)"))
    # The first worker that is through with its steps finishes the task of the others.
    assert set(unmarked(out).split()) == {"Hello"}
    assert max(out.count(f"[node {node}]") for node in range(3)) == 10


def ditask(*arguments):
    return [sys.executable, "-m", "divisi.compat", "-m", "ding.entry.cli_ditask", *arguments]


def test_the_same_under_ditask(tmp_path):
    write(tmp_path, HELLO.format(start="main()"), "my_module/__init__.py")
    command = ditask("--package", "my_module", "--main", "my_module.main", "--protocol", "ipc")
    assert unmarked(run(command, env=environment(), cwd=tmp_path).stdout) == "Hello\n" * 10


def test_two_workers_under_ditask(tmp_path):
    write(tmp_path, HELLO.format(start="main()"), "my_module/__init__.py")
    command = ditask(
        "--package",
        "my_module",
        "--main",
        "my_module.main",
        "--parallel-workers",
        "2",
        "--protocol",
        "ipc",
    )
    out = run(command, env=environment(), cwd=tmp_path).stdout
    # Connected: the first worker that is through with its steps finishes the task of the other.
    assert set(unmarked(out).split()) == {"Hello"}
    assert max(out.count(f"[node {node}]") for node in range(2)) == 10
    # Not connected: nobody finishes anybody's task.
    alone = run([*command, "--topology", "alone"], env=environment(), cwd=tmp_path).stdout
    assert unmarked(alone) == "Hello\n" * 20


SERVERS = """
from ding.framework import task

def main():
    node = task.router.node_id
    with task.start():
        if node == 0:
            heard = []
            task.on("hello", lambda who: heard.append(who))
            while len(heard) < 2:
                task.wait_for("hello", timeout=0.1)
            task.emit("welcome", sorted(heard))
            print("heard", sorted(heard))
            task.wait_for("thanks", timeout=60)
        else:
            task.emit("hello", node)
            answer = task.wait_for("welcome", timeout=60)
            print("welcome", answer[0][0])
            task.emit("thanks")
"""


def test_three_servers_find_each_other(tmp_path, free_ports):
    write(tmp_path, SERVERS, "my_module.py")
    ports = free_ports(3)

    servers = []

    def server(rank, *more):
        command = ditask(
            "--package",
            ".",
            "--main",
            "my_module.main",
            "--parallel-workers",
            "1",
            "--protocol",
            "tcp",
        )
        command += [
            "--ports",
            str(ports[rank]),
            "--node-ids",
            str(rank),
            "--address",
            "127.0.0.1",
            *more,
        ]
        process = subprocess.Popen(
            command,
            env=environment(),
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        servers.append((process, Output(process.stdout), Output(process.stderr)))

    hub = f"127.0.0.1:{ports[0]}"  # without a scheme, as in the guide
    # The first server comes last: the order does not matter.
    deadline = time.monotonic() + DEADLINE_S
    try:
        for rank in (1, 2):
            server(rank, "--attach-to", hub)
        for _, _, err in servers:
            assert err.up_to("listen on", deadline), err.rest()
        server(0)
        for process, out, err in servers:
            assert out.ends(deadline) and err.ends(deadline), (out.rest(), err.rest())
            process.wait(DEADLINE_S)
    finally:
        for process, _, _ in servers:
            process.kill()
    outputs = [(unmarked(out.rest()), err.rest()) for _, out, err in servers]
    assert [process.returncode for process, _, _ in servers] == [0, 0, 0], outputs
    assert [out for out, _ in outputs] == [
        "welcome [1, 2]\n",
        "welcome [1, 2]\n",
        "heard [1, 2]\n",
    ]
    for _, out, err in servers:
        out.close()
        err.close()
