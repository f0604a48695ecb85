"""The example cartpole_dqn, from end to end: solves its task alone, in processes, over tcp; processes that are
killed come back; Ctrl-C leaves nothing behind; every mistake is one clear line.

DIVISI_BUILD names the build to test. DIVISI_SOAK=1: 20 kills of each role, 10 seeds.
"""

import contextlib
import json
import os
import pathlib
import random
import secrets
import shutil
import signal
import struct
import subprocess
import sys
import time
from array import array
from xml.etree import ElementTree

import divisi
import pytest
from ports import free_ports

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
BUILD = REPOSITORY / os.environ.get("DIVISI_BUILD", "build/release")
PROGRAM = str(BUILD / "bin" / "cartpole_dqn")
PACKAGES = str(pathlib.Path(divisi.__file__).parent.parent)
SOAK = bool(os.environ.get("DIVISI_SOAK"))


def first_of(count):
    """Seeds, of which `./test` takes the first and `./test --all` the others too."""
    return [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(1, count))]


KILLS = first_of(20 if SOAK else 3)
SEEDS = first_of(10 if SOAK else 3)
DEADLINE = 120  # seconds; only a hang ever waits for it
TOKEN = "CARTPOLE_TEST"
ROLES = ["replay", "learner", "collector", "collector", "evaluator"]  # of nodes 0 to 4
AGAIN = "starting it again"  # what the launcher says of a process
ENDLESS = "env.stop_value=600"  # more than an episode can give
GOAL = "env.stop_value=195"


def until(condition, what):
    """The first true value of condition(), which is asked again and again."""
    deadline = time.monotonic() + DEADLINE
    while True:
        if value := condition():
            return value
        assert time.monotonic() < deadline, f"waited {DEADLINE} s for {what}"
        time.sleep(0.002)


class Run:
    """A running cartpole_dqn, and everything it started: found by a token in the environment."""

    def __init__(self, folder, *arguments, command=(PROGRAM,), run_folder="run"):
        self.token = secrets.token_hex(8)
        self.sockets = folder / f"tmp_{self.token}"
        self.sockets.mkdir()
        self.out, self.err = folder / f"out_{self.token}", folder / f"err_{self.token}"
        self.run_folder = folder / run_folder
        variables = {key: value for key, value in os.environ.items() if not key.startswith("DIVISI_")}
        variables.update({TOKEN: self.token, "TMPDIR": str(self.sockets), "PYTHONPATH": PACKAGES})
        with open(self.out, "wb") as out, open(self.err, "wb") as err:
            self.process = subprocess.Popen(
                [*command, *map(str, arguments)], cwd=folder, env=variables, stdin=subprocess.DEVNULL,
                stdout=out, stderr=err, start_new_session=True,
                # Whoever started the tests may ignore Ctrl-C: a program in the background does.
                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
            )

    def processes(self):
        """{pid: command line} of all that belong to it."""
        found = {}
        for entry in filter(str.isdigit, os.listdir("/proc")):
            try:
                environment = pathlib.Path(f"/proc/{entry}/environ").read_bytes()
                command = pathlib.Path(f"/proc/{entry}/cmdline").read_bytes()
            except OSError:
                continue
            if f"{TOKEN}={self.token}".encode() in environment.split(b"\0") and command:
                found[int(entry)] = command.decode().split("\0")
        return found

    def workers(self):
        """{node: pid}"""
        return {
            int(command[1].rsplit("-", 1)[1]): pid
            for pid, command in self.processes().items()
            if len(command) > 1 and command[1].startswith("divisi-worker-node-")
        }

    def log(self):
        """The whole lines of log.jsonl."""
        try:
            text = (self.run_folder / "log.jsonl").read_text()
        except FileNotFoundError:
            return []
        return [json.loads(line) for line in text.split("\n")[:-1]]

    def wait_log(self, condition, what):
        """Lines of the log, once one fulfils the condition; all of them if the run ended before."""
        return until(
            lambda: (lines := self.log()) and any(map(condition, lines)) and lines
            or self.process.poll() is not None and (self.log() or [{"kind": "ended"}]),
            what,
        )

    def result(self):
        return json.loads((self.run_folder / "result.json").read_text())

    def end(self):
        """(exit code, standard output, standard error), after checking that nothing was left behind."""
        try:
            self.process.wait(DEADLINE)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still runs after {DEADLINE} s: {self}") from None
        until(lambda: not self.processes(), f"the end of {self.processes()}")
        assert os.listdir(self.sockets) == []
        return self.process.returncode, self.out.read_text(), self.err.read_text()

    def kill(self):
        for pid in self.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()

    def __repr__(self):
        output = self.run_folder / "workers.log"
        return "\n".join([
            f"code {self.process.returncode}", self.out.read_text(), self.err.read_text(),
            output.read_text() if output.exists() else "", *map(str, self.log()[-3:]),
        ])


@pytest.fixture
def start(tmp_path):
    """start(*arguments): a Run; whatever is left of it afterwards is killed."""
    runs = []

    def begin(*arguments, **more):
        runs.append(Run(tmp_path, *arguments, **more))
        return runs[-1]

    yield begin
    for run in runs:
        run.kill()


@pytest.fixture
def run(start):
    """run(*arguments): a Run that has ended."""

    def to_the_end(*arguments, **more):
        started = start(*arguments, **more)
        started.end()
        return started

    return to_the_end


def assert_solved(run, goal=195):
    assert run.process.returncode == 0, run
    result = run.result()
    assert result["solved"] is True and result["eval_value"] >= goal, result
    last = run.log()[-1]
    assert last["kind"] == "solved", last
    assert {key: last[key] for key in ("env_step", "train_iter")} == {
        key: result[key] for key in ("env_step", "train_iter")
    }
    for name in ("ckpt/latest.ckpt", "ckpt/final.pth.tar", "ckpt/eval.pth.tar", "replay.ckpt"):
        assert (run.run_folder / name).stat().st_size > 100, name


def assert_one_line(run, *parts, code=(1, 2)):
    """It failed, and said why in one line that has the parts."""
    assert run.process.returncode in ((code,) if isinstance(code, int) else code), run
    lines = run.err.read_text().splitlines()
    assert len(lines) == 1 and lines[0].startswith("cartpole_dqn: "), run
    for part in parts:
        assert part in lines[0], (part, lines[0])


def floats_of(path):
    """The numbers of the tensors beside the body of a checkpoint; its layout is in src/rl/saved_file.h."""
    data = path.read_bytes()
    assert data[:8] == b"DIVISI01"
    (kind,) = struct.unpack_from("<I", data, 8)
    at = 12 + kind
    body, count = struct.unpack_from("<QI", data, at)
    sizes = struct.unpack_from(f"<{count}Q", data, at + 12)
    at += 12 + 8 * count + body
    numbers = array("f", data[at : at + sum(sizes)])
    assert at + sum(sizes) + 4 == len(data) and len(numbers) > 1000
    return numbers


# --- it solves the task ---


@pytest.mark.parametrize("how", [["--alone"], [], ["--parallel-workers", 4], ["--parallel-workers", 2]], ids=str)
@pytest.mark.parametrize("seed", SEEDS)
def test_solves_its_task(run, how, seed):
    ended = run(*how, "--run-folder", "run", "--seed", seed)
    assert_solved(ended)
    out = ended.out.read_text()
    assert "solved: mean return" in out and "go on with" not in out
    nodes = {node["role"] for line in ended.log() for node in line.get("nodes", [])}
    assert nodes == ({"all roles"} if how == ["--alone"] else {"learner", "collector"} if 2 in how
                     else {"learner", "collector", "evaluator"} if 4 in how else set(ROLES))
    assert ElementTree.parse(ended.run_folder / "return.svg").getroot().tag.endswith("svg")
    assert list(ended.run_folder.glob("events.out.tfevents*"))
    assert not list(ended.run_folder.rglob(".tmp*"))


@pytest.mark.long
@pytest.mark.parametrize("seed", SEEDS if SOAK else [0])
def test_the_long_preset_reaches_475(run, seed):
    assert_solved(run("--preset", "long", "--run-folder", "run", "--seed", seed), goal=475)


@pytest.mark.parametrize("seed", SEEDS if SOAK else [0])
def test_separate_processes_over_tcp_solve_it(start, seed):
    ports = free_ports(len(ROLES))
    nodes = []
    for node, role in enumerate(ROLES):
        others = ",".join(f"tcp://127.0.0.1:{port}" for port in ports[:node])
        nodes.append(start("--role", role, "--node-id", node, "--port", ports[node], "--run-folder", "run",
                           "--seed", seed, *(["--attach-to", others] if others else [])))
    for node in nodes:
        code, _, _ = node.end()
        assert code == 0, node
    assert_solved(nodes[0])


def test_plain_lines_on_a_pipe_name_what_happens(run):
    out = run("--run-folder", "run", "--seed", 1, "policy.learn.learning_rate=0.0001").out.read_text()
    assert "\x1b" not in out
    assert "5 of 5 nodes up" in out and "env steps" in out and "updates" in out


# --- processes that are killed ---

# Slow enough that there is a middle; the second and third if the first was over too soon.
SLOWER = [0.0001, 0.00003, 0.00001]


# One of each: nobody else does the work of the one that is killed.
SINGLE = ["replay", "learner", "collector", "evaluator"]


@pytest.mark.parametrize("node", range(4), ids=lambda node: SINGLE[node])
@pytest.mark.parametrize("seed", KILLS)
def test_a_process_that_is_killed_comes_back_and_the_task_is_solved(start, node, seed):
    for attempt, rate in enumerate(SLOWER):
        run = start("--run-folder", f"run{attempt}", "--seed", seed, "checkpoint_seconds=0.05",
                    "--roles", ",".join(SINGLE), f"policy.learn.learning_rate={rate}", run_folder=f"run{attempt}")
        at = random.Random(seed).randint(200, 500)
        lines = run.wait_log(lambda line: line["train_iter"] > at, "training")
        before = run.workers()
        if lines[-1]["kind"] == "solved" or len(before) != len(SINGLE):
            run.end()
            continue
        after = {}

        def came_back_or_ended():
            now = run.workers()
            if now.get(node, before[node]) != before[node]:
                after.update(now)
            return after or run.process.poll() is not None

        with contextlib.suppress(ProcessLookupError):  # it has just ended
            os.kill(before[node], signal.SIGKILL)
        until(came_back_or_ended, "the new process")
        run.end()
        if not after:  # solved before it could come back: it does not count
            continue
        assert_solved(run)
        # Nobody else was started anew, not even later.
        assert {other: pid for other, pid in after.items() if other != node} == {
            other: pid for other, pid in before.items() if other != node
        }
        restarts = [line for line in (run.run_folder / "workers.log").read_text().splitlines() if AGAIN in line]
        assert len(restarts) == 1 and f" node {node} " in restarts[0], restarts
        # A learner goes on from its checkpoint: no line is of a beginning.
        later = run.log()[len(lines):]
        assert later and all(line["train_iter"] > 100 for line in later), later[0]
        return
    raise AssertionError("solved before the kill, each time")


def test_a_run_whose_launcher_is_killed_ends_and_goes_on_later(start, run):
    first = start("--run-folder", "run", ENDLESS, "checkpoint_seconds=0.05")
    first.wait_log(lambda line: line["train_iter"] > 500, "training")
    os.kill(first.process.pid, signal.SIGKILL)
    first.process.wait()
    until(lambda: not first.processes(), "the end of its processes")
    before = first.log()[-1]
    second = run("--run-folder", "run", GOAL)
    assert_solved(second)
    later = [line for line in second.log() if line["seconds"] > before["seconds"]]
    assert later[0]["train_iter"] > 100


# --- Ctrl-C ---

MOMENTS = {
    "at once": lambda run: True,
    "with the first worker": lambda run: run.workers() or run.process.poll() is not None,
    "with the log": lambda run: (run.run_folder / "log.jsonl").exists(),
    "while it trains": lambda run: any(line["train_iter"] > 300 for line in run.log()),
}


@pytest.mark.parametrize("how, moment", [
    (how, moment)
    for how in ([], ["--alone"], ["--no-display"], ["--parallel-workers", 4])
    for moment in MOMENTS
    if SOAK or not how or moment == "while it trains"
], ids=str)
def test_ctrl_c_leaves_nothing_behind(start, how, moment):
    if moment == "with the first worker" and how == ["--alone"]:
        moment = "with the log"
    run = start(*how, "--run-folder", "run", ENDLESS)
    until(lambda: MOMENTS[moment](run), moment)
    os.killpg(run.process.pid, signal.SIGINT)  # as a terminal does
    code, out, err = run.end()
    assert code in (130, -signal.SIGINT), run
    assert "Traceback" not in err and "terminate" not in err
    assert not (run.run_folder / "result.json").exists()
    assert not list(run.run_folder.rglob(".tmp*"))
    if "stopped" in out:
        assert "cartpole_dqn --run-folder run\n" in out


def test_sigterm_ends_it_as_well(start):
    run = start("--run-folder", "run", ENDLESS)
    run.wait_log(lambda line: line["train_iter"] > 100, "training")
    run.process.terminate()
    code, _, _ = run.end()
    assert code in (143, -signal.SIGTERM), run


@pytest.mark.parametrize("how", [["--alone"], ["--parallel-workers", 2]], ids=str)
def test_an_interrupt_that_comes_twice_leaves_the_last_checkpoint(start, how):
    run = start(*how, "--no-display", "--run-folder", "run", ENDLESS, "checkpoint_seconds=1000000")
    run.wait_log(lambda line: line["train_iter"] > 300, "training")
    before = (run.run_folder / "ckpt" / "latest.ckpt").read_bytes()
    os.killpg(run.process.pid, signal.SIGINT)  # as `timeout` does: to its program, then to the group
    run.process.send_signal(signal.SIGINT)
    code, _, err = run.end()
    assert code == 130, run
    assert "did not end" not in err, err
    assert (run.run_folder / "ckpt" / "latest.ckpt").read_bytes() != before
    assert not list(run.run_folder.rglob(".tmp*"))


# --- nobody waits for a time-out ---


@pytest.mark.parametrize("how", [
    ["--roles", "replay,learner,collector,evaluator"],
    ["--roles", "evaluator,collector,learner,replay"],
    ["--parallel-workers", 2],
    ["--roles", "collector,replay,evaluator,learner", "policy.learn.batch_size=1000"],
    ["--roles", "learner,collector,evaluator,replay", "policy.learn.batch_size=512", "policy.learn.publish_freq=8",
     "policy.collect.max_staleness=8", "policy.other.replay_buffer.samples_per_insert=8"],
], ids=lambda how: " ".join(map(str, how)))
def test_one_collector_and_a_large_batch_do_not_stand_still(run, how):
    ended = run("--preset", "long", *how, "--run-folder", "run", ENDLESS, "max_env_step=3000")
    assert ended.process.returncode == 0, ended
    assert ended.result()["train_iter"] > 0
    # What a node says that has waited for a minute.
    log = (ended.run_folder / "workers.log").read_text()
    assert "no new model" not in log, log


# --- checkpoint and resume ---


@pytest.mark.parametrize("how", [[], ["--alone"]], ids=str)
def test_an_interrupted_run_goes_on_where_it_was(start, run, how):
    first = start(*how, "--run-folder", "run", ENDLESS, "checkpoint_seconds=0.05")
    first.wait_log(lambda line: line["train_iter"] > 500, "training")
    os.killpg(first.process.pid, signal.SIGINT)
    first.end()
    before = first.log()
    second = run("--run-folder", "run", GOAL)
    assert "env.stop_value: 195, was 600" in second.out.read_text()
    assert_solved(second)
    later = second.log()[len(before):]
    assert later[0]["train_iter"] >= before[-1]["train_iter"] - 64
    assert later[0]["env_step"] >= before[-1]["env_step"] - 1024  # the replay went on as well
    assert later[0]["seconds"] >= before[-1]["seconds"]


@pytest.mark.parametrize("how", [["--alone"], ["--parallel-workers", 2]], ids=str)
def test_the_line_that_an_interrupt_prints_resumes_that_experiment(start, tmp_path, how):
    first = start(*how, "--preset", "long", "--seed", 33, ENDLESS, run_folder="runs/cartpole_dqn_seed33")
    first.wait_log(lambda line: line["train_iter"] > 100, "training")
    os.killpg(first.process.pid, signal.SIGINT)
    _, out, _ = first.end()
    saved = json.loads((first.run_folder / "config.json").read_text())
    assert saved["version"] == divisi.__version__
    assert saved["commands"][0].endswith("--preset long --seed 33 env.stop_value=600")
    assert saved["config"]["seed"] == 33 and saved["config"]["policy.nstep"] == 5

    line = next(line for line in out.splitlines() if "go on with: " in line)
    assert "before a mean return of 600" in line
    command = line.split("go on with: ")[1].split()
    second = start(command=command, run_folder=first.run_folder.relative_to(tmp_path))
    trained = first.log()[-1]["train_iter"]
    second.wait_log(lambda line: line["train_iter"] > trained + 100, "training")
    os.killpg(second.process.pid, signal.SIGINT)
    _, out, _ = second.end()
    assert " was " not in out and "before a mean return of 600" in out
    again = json.loads((first.run_folder / "config.json").read_text())
    assert again.pop("commands") == [*saved.pop("commands"), " ".join(command)]
    assert again == saved
    assert ">CartPole-v1, DQN, seed 33<" in (first.run_folder / "return.svg").read_text()


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A run that is over."""
    folder = tmp_path_factory.mktemp("finished")
    run = Run(folder, "--run-folder", "run", "max_env_step=3000", ENDLESS)
    assert run.end()[0] == 0, run
    assert run.result()["solved"] is False
    assert "not solved: 3," in run.out.read_text()
    return folder


@pytest.fixture
def old(finished, tmp_path):
    shutil.copytree(finished / "run", tmp_path / "run")
    return tmp_path / "run"


def test_a_run_that_is_over_goes_on_only_with_resume(old, run):
    assert_one_line(run("--run-folder", "run"), "run", "is over", "--resume", code=2)
    before = json.loads((old / "result.json").read_text())
    ended = run("--run-folder", "run", "--resume", "policy.learn.learning_rate=0.0001", GOAL,
                "max_env_step=1000000")
    assert_solved(ended)
    assert ended.result()["env_step"] >= before["env_step"], "the replay was not saved at the end"
    assert ended.result()["train_iter"] > before["train_iter"]


# --- mistakes ---


@pytest.mark.parametrize("arguments, parts", [
    (["env.name=CartPol-v1"], ["CartPol-v1", "did you mean 'CartPole-v1'"]),
    (["env.name=Pendulum-v1"], ["continuous", "CartPole-v1"]),
    (["policy.lern.batch_size=3"], ["policy.lern.batch_size", "did you mean 'policy.learn.batch_size'"]),
    (["--aloen"], ["--aloen", "did you mean '--alone'", "--help"]),
    (["policy.learn.batch_size=many"], ["policy.learn.batch_size=many", "a whole number"]),
    (["policy.learn.batch_size=0"], ["policy.learn.batch_size=0", "1 to 65536"]),
    (["policy.learn.learning_rate=0"], ["policy.learn.learning_rate=0", "above 0"]),
    (["policy.discount_factor=0"], ["policy.discount_factor=0", "above 0"]),
    (["policy.learn.learning_rate=nan"], ["policy.learn.learning_rate=nan"]),
    (["--seed"], ["--seed needs a value"]),
    (["--seed", "x"], ["seed=x"]),
    (["--parallel-workers", "0"], ["--parallel-workers 0", "1 to 1024"]),
    (["--role", "learnr"], ["learnr", "did you mean 'learner'"]),
    (["--roles", "learner,collector"], ["at least one replay"]),
    (["--roles", "replay,learner,learner,collector,evaluator"], ["one learner only"]),
    (["--preset", "medium"], ["medium", "short or long"]),
    (["--config", "none.json"], ["none.json", "cannot be read"]),
    (["--port", "99999"], ["--port 99999", "65535"]),
    (["--run-folder", "/proc/none"], ["/proc/none", "cannot be made"]),
    (["--parallel-workers", "3", "policy.collect.max_staleness=4"],
     ["1 collector of 64 rows", "bring 256 rows, the learner needs 320", "Give 5 or more"]),
], ids=lambda value: " ".join(value) if value[0].startswith("-") or "=" in value[0] else "")
def test_a_wrong_argument_is_one_line(run, tmp_path, arguments, parts):
    ended = run("--runs", "runs", *arguments)
    assert_one_line(ended, *parts, code=2)
    assert not (tmp_path / "runs").exists()


def test_a_wrong_configuration_file_is_named(run, tmp_path):
    (tmp_path / "my.json").write_text('{"policy": {"learn": {"batch_sise": 4}}}')
    assert_one_line(run("--config", "my.json"), "my.json", "batch_sise", "did you mean", code=2)
    (tmp_path / "my.json").write_text('{"policy": ')
    assert_one_line(run("--config", "my.json"), "my.json", code=2)


def truncate(path):
    os.truncate(path, path.stat().st_size // 2)


def empty(path):
    os.truncate(path, 0)


def flip(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 4
    path.write_bytes(data)


@pytest.mark.parametrize("how", [[], ["--alone"]], ids=str)
@pytest.mark.parametrize("harm", [truncate, empty, flip])
@pytest.mark.parametrize("name", ["ckpt/latest.ckpt", "replay.ckpt"])
def test_a_damaged_checkpoint_is_named(run, old, how, harm, name):
    harm(old / name)
    harmed = (old / name).read_bytes()
    ended = run(*how, "--run-folder", "run", "--resume")
    words = "not a checkpoint" if harm is empty else "truncated or damaged; delete it"
    assert_one_line(ended, f"run/{name}: {words}", "run/workers.log")
    assert (old / name).read_bytes() == harmed


@pytest.mark.parametrize("how", [[], ["--alone"]], ids=str)
def test_a_checkpoint_of_another_network_is_refused(run, old, how):
    ended = run(*how, "--run-folder", "run", "--resume", "policy.model.encoder_hidden_size_list=64,64")
    assert_one_line(ended, "run/ckpt/latest.ckpt", "4-128-128-64-2 dueling", "4-64-64-2 dueling", "policy.model")


@pytest.mark.parametrize("how", [[], ["--alone"]], ids=str)
def test_a_replay_of_another_size_is_refused(run, old, how):
    ended = run(*how, "--run-folder", "run", "--resume", "policy.other.replay_buffer.replay_buffer_size=500")
    assert_one_line(ended, "run/replay.ckpt", "20000 rows", "500")


# Weights that all move by 1 at a time, in so many layers: the values overflow after two updates.
DEEP = "policy.model.encoder_hidden_size_list=" + ",".join(["128"] * 16)
EXPLODES = ["policy.learn.learning_rate=1", "policy.learn.target_update_freq=1", "policy.discount_factor=1"]


@pytest.mark.parametrize("how", [[], ["--alone"]], ids=str)
def test_a_loss_that_is_no_number_ends_the_run_with_the_step_and_the_last_good_checkpoint(run, how):
    # The checkpoint of a run that ends before its first update.
    first = run("--alone", "--run-folder", "run", DEEP, ENDLESS, "max_env_step=1")
    assert first.process.returncode == 0 and first.result()["train_iter"] == 0, first
    how = how or ["--roles", ",".join(ROLES)]
    ended = run(*how, "--run-folder", "run", "--resume", *EXPLODES, "max_env_step=1000000")
    assert_one_line(ended, "loss is ", "at train_iter ", "the last good checkpoint is run/ckpt/latest.ckpt", code=1)
    step = int(ended.err.read_text().split("train_iter ")[1].split(";")[0])
    assert 0 < step < 1000
    numbers = floats_of(ended.run_folder / "ckpt" / "latest.ckpt")
    assert all(abs(number) < 1e30 for number in numbers), "the checkpoint is not good"
    # Nothing was started again and again.
    assert AGAIN not in (ended.run_folder / "workers.log").read_text()


def test_without_a_checkpoint_none_is_named(run):
    ended = run("--run-folder", "run", DEEP, ENDLESS, *EXPLODES)
    text = ended.err.read_text()
    assert_one_line(ended, "loss is ", "at train_iter ")
    exists = (ended.run_folder / "ckpt" / "latest.ckpt").exists()
    assert ("the last good checkpoint is run/ckpt/latest.ckpt" in text) == exists, text
    assert ("no checkpoint yet" in text) != exists, text


# A file system of its own for the run, in a mount namespace; afterwards its contents are copied out.
SMALL_DISK = """
mkdir disk && mount -t tmpfs -o size=4m none disk || exit 99
"$0" --run-folder disk/run "$@"
code=$?
mv disk/fill . 2>/dev/null
cp -r disk/run run
exit $code
"""


@pytest.mark.parametrize("how", [[], ["--alone"]], ids=str)
def test_a_full_disk_ends_the_run_and_the_last_checkpoint_stays(start, tmp_path, how):
    run = start(*how, ENDLESS, "checkpoint_seconds=0.05",
                command=("unshare", "-m", "sh", "-c", SMALL_DISK, PROGRAM))
    # The shell's namespace, from outside.
    disk = pathlib.Path(f"/proc/{run.process.pid}/root{tmp_path}/disk")
    log = disk / "run" / "log.jsonl"
    until(lambda: log.exists() and log.read_text().count("\n") > 20, "training")
    with contextlib.suppress(OSError), open(disk / "fill", "wb", buffering=0) as file:
        while True:
            file.write(b"x" * 4096)
    run.end()
    assert_one_line(run, "No space left on device", "disk/run", code=1)
    floats_of(run.run_folder / "ckpt" / "latest.ckpt")  # whole
    assert not list(run.run_folder.rglob(".tmp*"))


# --- a node of another version ---

STRANGER = """
import sys, threading
from divisi import Parallel, task

def main():
    with task.start():
        router, answered = task.router, threading.Event()
        router.on("replay.refused", lambda text: (print("REFUSED", text, flush=True), answered.set()))
        router.emit("replay.hello", 1, PROTOCOL, OBSERVATIONS, to=0)
        assert answered.wait(60)

if __name__ == "__main__":
    Parallel.runner(n_parallel_workers=1, topology="alone", protocol="tcp", address="127.0.0.1",
                    ports=[int(sys.argv[1])], node_ids=[1], attach_to=[sys.argv[2]])(main)
"""

FALSE_REPLAY = """
import sys, threading
from divisi import Parallel, task

def main():
    with task.start():
        router, gone = task.router, threading.Event()
        router.on("replay.hello", lambda node, *_: router.emit("replay.refused", WORDS, to=node))
        for event in ("peer_left", "peer_lost"):
            router.on(event, lambda node: gone.set())
        router.on("peer_joined", lambda node: router.emit("replay.here", 0, 1, to=node))
        for peer in router.peers():
            router.emit("replay.here", 0, 1, to=peer["node_id"])
        assert gone.wait(60)

if __name__ == "__main__":
    Parallel.runner(n_parallel_workers=1, topology="alone", protocol="tcp", address="127.0.0.1",
                    ports=[int(sys.argv[1])], node_ids=[0])(main)
"""


# A collector and learner that says more than once what it has to say.
INSISTENT = """
import queue, sys
import numpy as np
from divisi import Parallel, task

ROWS = 64

def rows(first):
    number = np.arange(first, first + ROWS, dtype=np.float32)
    state = np.repeat(number[:, None], 4, axis=1)
    return {"observation": state, "next_observation": state, "action": np.zeros(ROWS, np.int32),
            "reward": number, "not_done": np.ones(ROWS, np.float32), "discount": np.ones(ROWS, np.float32)}

def main():
    with task.start():
        router, answers = task.router, queue.Queue()
        for event in ("replay.inserted", "replay.samples", "replay.welcome", "replay.refused"):
            router.on(event, lambda *answer: answers.put(answer))
        router.emit("replay.hello", 1, 1, 4, to=0)
        assert answers.get(timeout=60) == ()
        totals = []
        for number in (5, 5, 6, 5, 6):
            router.emit("replay.insert", 1, number, rows(0), 100, 1, 1.0, to=0)
            totals.append(answers.get(timeout=60)[1])
        print("TOTALS", *totals, flush=True)
        # Of all rows only the one with index 7 matters from here on.
        index = np.arange(2 * ROWS, dtype=np.int64)
        router.emit("replay.priorities", index, np.where(index == 7, 1e6, 0).astype(np.float32), to=0)
        router.emit("replay.sample", 1, 1, 64, 1, to=0)
        drawn = np.asarray(answers.get(timeout=60)[1]["index"])
        print("DRAWN", sum(drawn == 7), "of", len(drawn), flush=True)

if __name__ == "__main__":
    Parallel.runner(n_parallel_workers=1, topology="alone", protocol="tcp", address="127.0.0.1",
                    ports=[int(sys.argv[1])], node_ids=[1], attach_to=[sys.argv[2]])(main)
"""


def start_python(start, tmp_path, source, *arguments):
    path = tmp_path / "node.py"
    path.write_text(source)
    return start(path, *arguments, command=(sys.executable,))


@pytest.mark.parametrize("protocol, observations, words", [
    (99, 4, "node 1 speaks version 99 of the replay's events, this replay version 1"),
    (1, 3, "node 1 has observations of 3 numbers, this replay holds 4"),
], ids=["version", "environment"])
def test_a_replay_refuses_a_collector_that_does_not_fit(start, tmp_path, protocol, observations, words):
    ports = free_ports(2)
    replay = start("--role", "replay", "--node-id", 0, "--port", ports[0], "--run-folder", "run")
    source = STRANGER.replace("PROTOCOL", str(protocol)).replace("OBSERVATIONS", str(observations))
    stranger = start_python(start, tmp_path, source, ports[1], f"127.0.0.1:{ports[0]}")
    code, out, err = stranger.end()
    assert code == 0 and f"REFUSED {words}" in out, (out, err)
    # The task of the stranger has ended, and with it everybody's.
    assert replay.end()[0] == 0, replay


def test_an_insert_that_comes_again_counts_once_and_priorities_decide_what_is_drawn(start, tmp_path):
    ports = free_ports(2)
    replay = start("--role", "replay", "--node-id", 0, "--port", ports[0], "--run-folder", "run",
                   "policy.priority=true", "policy.other.replay_buffer.samples_per_insert=0")
    node = start_python(start, tmp_path, INSISTENT, ports[1], f"127.0.0.1:{ports[0]}")
    code, out, err = node.end()
    assert code == 0, (out, err)
    assert "TOTALS 100 100 200 200 200" in out, out
    drawn = int(out.split("DRAWN ")[1].split()[0])
    assert drawn > 48, out  # it has nearly all of the weight
    assert replay.end()[0] == 0, replay


@pytest.mark.parametrize("role", ["learner", "collector"])
def test_a_node_that_is_refused_says_why_and_ends_alone(start, tmp_path, role):
    ports = free_ports(2)
    words = "node 1 speaks version 1 of the replay's events, this replay version 2: build both anew"
    replay = start_python(start, tmp_path, FALSE_REPLAY.replace("WORDS", repr(words)), ports[0])
    node = start("--role", role, "--node-id", 1, "--port", ports[1], "--run-folder", "run",
                 "--attach-to", f"tcp://127.0.0.1:{ports[0]}")
    code, _, err = node.end()
    assert code in (1, 2) and words in err.splitlines()[-1], err
    assert replay.end()[0] == 0, replay  # its own task went on

