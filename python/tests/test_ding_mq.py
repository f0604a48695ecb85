"""The message queue `divisi` under the real, unmodified DI-engine.

Each test is a program of its own, run by an interpreter that has DI-engine (scripts/ding_venv) and
divisi, the latter with its start-up hook as in an installation unless a test says otherwise.
"""

import shutil
import socket

import pytest

from compat_tools import ROOT, ding_venv, environment, run, write  # noqa: F401


class Engine:
    """An interpreter with DI-engine, and a folder for programs."""

    def __init__(self, venv, folder):
        self.bin = venv / "bin"
        self.folder = folder
        site = folder / "user" / "lib" / "python3.11" / "site-packages"
        site.mkdir(parents=True)
        for name in ["_divisi_ding_mq.py", "divisi_ding_mq.pth"]:
            shutil.copy(ROOT / "python" / "site" / name, site)
        self.installed = environment(PYTHONUSERBASE=str(folder / "user"))
        self.not_installed = environment()

    def python(self, text, *arguments, env=None, code=0):
        """Runs a program; what it printed by itself. The log of DI-engine's libraries is on the
        same stream."""
        result = run(
            [self.bin / "python", write(self.folder, text), *arguments],
            env=env or self.installed,
            cwd=self.folder,
            code=code,
        )
        return result if code else own_lines(result.stdout)

    def ditask(self, *arguments):
        return own_lines(
            run([self.bin / "ditask", *arguments], env=self.installed, cwd=self.folder).stdout
        )


def own_lines(text):
    """What was printed behind "> ". Several processes write to one stream, and a logger may be in the middle of a line: they
    print on a new one."""
    return [line[2:] for line in text.splitlines() if line.startswith("> ")]


@pytest.fixture
def engine(ding_venv, tmp_path):  # noqa: F811
    return Engine(ding_venv, tmp_path)


def test_the_type_is_known_as_soon_as_the_framework_is_loaded(engine):
    program = """
    import sys
    print("> before", "divisi" in sys.modules)
    import ding.framework
    from ding.utils import MQ_REGISTRY
    from ding.framework.message_queue import MQ
    print("> known", sorted(MQ_REGISTRY), issubclass(MQ_REGISTRY["divisi"], MQ))
    """
    assert engine.python(program) == ["before False", "known ['divisi', 'nng', 'redis'] True"]


def test_an_import_does_the_same_where_nothing_is_installed(engine):
    program = """
    import divisi.ding_mq
    from ding.utils import MQ_REGISTRY
    print("> known", sorted(MQ_REGISTRY))
    """
    assert engine.python(program, env=engine.not_installed) == ["known ['divisi', 'nng', 'redis']"]
    assert engine.python(program) == ["known ['divisi', 'nng', 'redis']"]


def test_the_hook_is_idle_without_di_engine(engine):
    program = """
    import sys
    import json, http.client
    print("> loaded", [name for name in sys.modules if name.split(".")[0] in ("ding", "divisi")])
    """
    script = write(engine.folder, program)
    result = run(["/usr/bin/python3", script], env=engine.installed, cwd=engine.folder)
    assert (own_lines(result.stdout), result.stderr) == (["loaded []"], "")


EVENTS = """
import time
from ding.framework import OnlineRLContext, Parallel, task

heard = []

def listening():
    task.on("news", lambda text: heard.append("Got: %s" % text))
    def _listening(ctx):
        pass
    return _listening

def telling():
    def _telling(ctx):
        task.emit("news", "Hi %s times" % ctx.total_step)
    return _telling

def main():
    with task.start(async_mode=False, ctx=OnlineRLContext()):
        task.use(listening())
        task.use(telling())
        task.run(10)
        deadline = time.monotonic() + 200
        while len(heard) < 10 and time.monotonic() < deadline:
            time.sleep(0.05)  # DI-engine forgets queued events when a task stops
    for line in heard:
        print(">", line)

if __name__ == "__main__":
    Parallel.runner(n_parallel_workers=1, mq_type="divisi")(main)
"""


def test_events_of_one_worker(engine):
    assert engine.python(EVENTS) == [f"Got: Hi {i} times" for i in range(10)]


GREETING = """
import time
from ding.framework import OnlineRLContext, Parallel, task

def main():
    with task.start(async_mode=False, ctx=OnlineRLContext()):
        if task.router.node_id == 0:
            heard = []
            task.on("news", lambda text: heard.append("> Got: %s" % text))
            deadline = time.monotonic() + 200
            while not heard and time.monotonic() < deadline:
                time.sleep(0.05)
            print(*heard, flush=True)
        else:
            task.emit("news", "Hi")  # and leaves: the last word arrives too

if __name__ == "__main__":
    Parallel.runner(n_parallel_workers=2, mq_type="divisi")(main)
"""


def test_two_workers(engine):
    assert engine.python(GREETING) == ["Got: Hi"]


@pytest.mark.long
def test_workers_need_no_hook(engine):
    # Nothing but the queue's name tells the workers of divisi: they run the guarded import as
    # little as the runner.
    program = GREETING.replace(
        "    Parallel.runner", "    import divisi.ding_mq\n    Parallel.runner"
    )
    assert engine.python(program, env=engine.not_installed) == ["Got: Hi"]


@pytest.mark.long
def test_one_flag_of_ditask(engine, free_ports):
    write(engine.folder, GREETING, "my_module.py")
    flags = [
        "--package",
        ".",
        "--main",
        "my_module.main",
        "--parallel-workers",
        "2",
        "--topology",
        "mesh",
    ]
    where = ["--address", "127.0.0.1", "--ports", ",".join(map(str, free_ports(2)))]
    assert engine.ditask("--mq-type", "divisi", *flags, *where) == ["Got: Hi"]


EARLY = """
import time
from ding.framework import Parallel, task

def main():
    # Nobody waits for anybody: whoever is first speaks to workers that have not begun.
    heard = []
    with task.start():
        task.emit("hello", task.router.node_id, only_remote=True)
        task.on("hello", heard.append)
        deadline = time.monotonic() + 200
        while len(heard) < 3 and time.monotonic() < deadline:
            time.sleep(0.05)
        print("\\n> node %d heard %s" % (task.router.node_id, sorted(heard)), flush=True)

if __name__ == "__main__":
    Parallel.runner(n_parallel_workers=4, mq_type="divisi", startup_interval=0.5)(main)
"""


@pytest.mark.long
def test_the_first_word_of_every_worker_is_heard_by_all(engine):
    assert sorted(engine.python(EARLY)) == [
        "node 0 heard [1, 2, 3]",
        "node 1 heard [0, 2, 3]",
        "node 2 heard [0, 1, 3]",
        "node 3 heard [0, 1, 2]",
    ]


@pytest.mark.long
def test_a_worker_that_is_slow_to_begin_misses_nothing(engine):
    # Longer than the transport by itself keeps events that nobody listens to.
    program = GREETING.replace("def main():", "def main():\n    slow()", 1)
    slow = "def slow():\n    time.sleep(11 * (task.router.node_id == 0))\n\ndef main"
    assert engine.python(program.replace("def main", slow, 1)) == ["Got: Hi"]


STAR = """
import time
from ding.framework import Parallel, task

def main():
    heard = []
    node = task.router.node_id
    with task.start():
        task.on("hello", heard.append)
        task.emit("hello", node, only_remote=True)
        deadline = time.monotonic() + 200
        # The hub has the last word, when it has heard everybody: whatever it passed on comes before.
        while (len(heard) < 2 if node == 0 else "end" not in heard) and time.monotonic() < deadline:
            time.sleep(0.05)
        if node == 0:
            task.emit("hello", "end", only_remote=True)
        print("\\n> node %d heard %s" % (node, sorted(heard, key=str)), flush=True)

if __name__ == "__main__":
    Parallel.runner(n_parallel_workers=3, mq_type="divisi", topology="star")(main)
"""


@pytest.mark.long
def test_leaves_of_a_star_hear_the_hub_only(engine):
    assert sorted(engine.python(STAR)) == [
        "node 0 heard [1, 2]",
        "node 1 heard [0, 'end']",
        "node 2 heard [0, 'end']",
    ]


BURST = """
import time
from ding.framework import Parallel, task

COUNT = 100_000

def main():
    got, thanks = [], []
    with task.start():
        if task.router.node_id == 0:
            task.on("number", got.append)
            task.on("thanks", thanks.append)
            task.emit("go")
            deadline = time.monotonic() + 200
            while len(got) < COUNT and time.monotonic() < deadline:
                time.sleep(0.05)
            in_order = got == list(range(COUNT))
            print("\\n> got %d, in order: %s" % (len(got), in_order), flush=True)
            task.emit("done")
            while not thanks and time.monotonic() < deadline:
                time.sleep(0.05)
        else:
            task.wait_for("go", timeout=200)
            for i in range(COUNT):
                task.emit("number", i, only_remote=True)
            task.wait_for("done", timeout=250)
            task.emit("thanks", 1, only_remote=True)  # and leaves: the last word arrives too

if __name__ == "__main__":
    Parallel.runner(n_parallel_workers=2, mq_type="divisi", startup_interval=0)(main)
"""


@pytest.mark.long
def test_a_burst_arrives_complete_and_in_order(engine):
    assert engine.python(BURST) == ["got 100000, in order: True"]


def test_a_taken_address_fails_the_run_and_is_named(engine):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        program = f"""
        from ding.framework import Parallel, task

        def main():
            print("> ran")

        if __name__ == "__main__":
            options = dict(protocol="tcp", address="127.0.0.1", ports={port})
            Parallel.runner(n_parallel_workers=1, mq_type="divisi", **options)(main)
        """
        result = engine.python(program, code=1)
    assert own_lines(result.stdout) == []
    assert f"127.0.0.1:{port}" in result.stderr


def test_other_types_are_as_they_were(engine):
    program = """
    import inspect
    from ding.framework import Parallel
    print("> mq_type" , inspect.signature(Parallel.runner).parameters["mq_type"].default)
    try:
        Parallel.runner(2, "pigeon")(print)
    except KeyError as error:
        print(">", error)
    Parallel.runner(1, "nng")(print, "> over nng")
    """
    assert engine.python(program) == ["mq_type nng", "'pigeon'", "over nng"]


def test_platforms_give_their_nodes_an_address(engine):
    program = """
    import os
    os.environ.update(DI_NODES="h0,h1,h2", DI_RANK="1")
    from ding.entry.cli_parsers import PLATFORM_PARSERS
    parsed = PLATFORM_PARSERS["k8s"](None, mq_type="divisi", topology="star", parallel_workers=2)
    print(">", parsed["mq_type"], parsed["address"], parsed["node_ids"], parsed["attach_to"])
    """
    assert engine.python(program) == ["divisi h1 2 tcp://h0:50515,tcp://h0:50516"]
