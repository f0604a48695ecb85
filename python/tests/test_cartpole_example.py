"""examples/cartpole_dqn_py: learns, alone and in several processes."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from compat_tools import DEADLINE_S, PACKAGES

MAIN = Path(__file__).resolve().parents[2] / "examples" / "cartpole_dqn_py" / "main.py"
SOLVED = re.compile(r"solved: mean return ([\d.]+) with (\d+) env steps, (\d+) updates")


def start(folder, *arguments):
    path = os.pathsep.join([PACKAGES, os.environ.get("PYTHONPATH", "")])
    return subprocess.Popen(
        [sys.executable, str(MAIN), *map(str, arguments)], cwd=folder, text=True, start_new_session=True,
        env={**os.environ, "PYTHONPATH": path}, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )


def run(folder, *arguments, code=0):
    process = start(folder, *arguments)
    out, err = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == code, f"{process.returncode}\n{out}\n{err}"
    return out, err


def solved(out):
    mean, env_steps, updates = SOLVED.search(out).groups()
    assert float(mean) >= 195
    return int(env_steps), int(updates)


def test_alone_it_reaches_the_stop_value_and_leaves_its_files(tmp_path):
    out, _ = run(tmp_path, "--seed", 0)
    env_steps, updates = solved(out)
    assert 0 < updates and env_steps < 200_000
    folder = tmp_path / "cartpole_dqn_seed0"
    assert {"eval.pth.tar", "final.pth.tar"} <= set(os.listdir(folder / "ckpt"))
    assert (folder / "result.pkl").exists() and len(list((folder / "log").iterdir())) == 1

    # Goes on where it ended.
    resumed, _ = run(tmp_path, "--seed", 0, "--resume")
    at = int(re.search(r"resumed at train_iter (\d+)", resumed)[1])
    assert updates <= at <= solved(resumed)[1]


@pytest.mark.long
def test_four_workers_reach_it_too(tmp_path):
    out, _ = run(tmp_path, "--seed", 0, "--parallel-workers", 4, "--exp-name", "four")
    solved(out)
    assert "final.pth.tar" in os.listdir(tmp_path / "four" / "ckpt")


@pytest.mark.long
def test_separate_processes_with_a_replay_of_its_own_reach_it(tmp_path, free_ports):
    ports = free_ports(4)
    at = [f"127.0.0.1:{port}" for port in ports]

    def role(node, label, *attach):
        more = ["--attach-to", ",".join(attach)] if attach else []
        return start(tmp_path, "--labels", label, "--node-id", node, "--port", ports[node], *more)

    processes = [
        role(0, "learner"),
        role(1, "replay", at[0]),
        role(2, "collector", at[0], at[1]),
        role(3, "evaluator", at[0]),
    ]
    ended = [process.communicate(timeout=DEADLINE_S) for process in processes]
    assert [process.returncode for process in processes] == [0] * 4, ended
    solved(ended[0][0])


@pytest.mark.parametrize("replay", ["in the learner", pytest.param("in C++", marks=pytest.mark.long)])
def test_a_python_learner_learns_from_collectors_in_cpp(tmp_path, free_ports, replay):
    ports = free_ports(5)
    at = [f"127.0.0.1:{port}" for port in ports]
    program = Path(os.environ["DIVISI_BUILD"]) / "bin" / "cartpole_dqn"

    def in_cpp(node, role, *attach):
        more = ["--attach-to", ",".join(f"tcp://{address}" for address in attach)] if attach else []
        return subprocess.Popen(
            [program, "--run-folder", "cpp", "--role", role, "--node-id", str(node), "--port", str(ports[node]), *more],
            cwd=tmp_path, text=True, start_new_session=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )

    # The node with the replay is dialled by all others.
    separate = replay == "in C++"
    first = [in_cpp(4, "replay")] if separate else []
    attach = ["--attach-to", at[4]] if separate else []
    learner = start(tmp_path, "--labels", "learner", "--node-id", 0, "--port", ports[0], *attach)
    to_all = [at[0], at[4]] if separate else [at[0]]
    processes = [learner, *first, in_cpp(1, "collector", *to_all), in_cpp(2, "collector", *to_all),
                 in_cpp(3, "evaluator", at[0])]
    ended = [process.communicate(timeout=DEADLINE_S) for process in processes]
    assert [process.returncode for process in processes] == [0] * len(processes), ended
    solved(ended[0][0])


def test_its_help_has_examples(tmp_path):
    out, _ = run(tmp_path, "--help")
    assert "main.py --parallel-workers 4" in out and "policy.learn.batch_size=128" in out


@pytest.mark.parametrize("override, text", [
    ("policy.lern.batch_size=1", "there is no 'policy.lern.batch_size'; the nearest is policy.learn.batch_size"),
    ("batch_size=1", "there is no 'batch_size'; the nearest is policy.learn.batch_size"),
    ("policy.learn.batch_size=many", "policy.learn.batch_size is of type int, like 64; 'many' is not"),
    ("policy.learn.batch_size", "'policy.learn.batch_size' is not of the form key=value, like policy.learn.batch_size=128"),
])
def test_a_wrong_override_is_one_clear_line(tmp_path, override, text):
    out, err = run(tmp_path, override, code=2)
    assert (out, err) == ("", f"main.py: {text}\n")


def test_an_override_is_taken(tmp_path):
    out, _ = run(tmp_path, "max_env_step=100", "policy.learn.batch_size=16", "--exp-name", "short")
    assert re.search(r"not solved: the best mean return was [\d.]+, after", out)


@pytest.fixture
def example(monkeypatch):
    monkeypatch.syspath_prepend(str(MAIN.parent))
    import replay

    yield replay
    for name in ("replay", "config", "policy", "roles"):
        sys.modules.pop(name, None)


def test_the_names_of_the_parameters_are_those_of_cpp(example):
    from config import configure
    from policy import DQN

    names = set(DQN(configure(), 0).model.state_dict())
    layers = ["encoder.0", "encoder.2", "encoder.4", "value.0", "value.2", "advantage.0", "advantage.2"]
    assert names == {f"{layer}.{kind}" for layer in layers for kind in ("weight", "bias")}


def test_the_limiter_keeps_both_sides_in_step_and_never_blocks_both(example):
    import random

    for seed in range(50):
        chance = random.Random(seed)
        limiter = example.Limiter(samples_per_insert=24, min_size=64, slack=768)
        inserted = sampled = 0
        for _ in range(2000):
            may_insert, may_sample = limiter.may_insert(), limiter.may_sample(192)
            assert may_insert or may_sample, f"seed {seed}: nobody may go on"
            if may_insert and (not may_sample or chance.random() < 0.5):
                limiter.insert(8)
                inserted += 8
            else:
                limiter.sample(192)
                sampled += 192
            assert inserted < 64 or abs(24 * (inserted - 64) - sampled) <= 768 + 192


def test_the_service_holds_back_who_is_ahead_and_ignores_what_is_repeated(example):
    import numpy as np

    service = example.ReplayService(example.Replay(100, 4, 0), example.Limiter(1.0, 4, 4))
    rows = {key: np.zeros((4, 4) if "observation" in key else 4, dtype) for key, dtype in example.FIELDS.items()}
    totals, batches = [], []
    for seq in range(3):
        service.insert(7, seq, rows, 4, totals.append)
    assert totals == [4, 8]  # the third is ahead
    service.insert(7, 2, rows, 4, totals.append)
    assert totals == [4, 8]
    service.sample(2, 2, lambda batch, total: batches.append((len(batch["action"]), batch["index"].dtype, total)))
    assert batches == [(4, np.int64, 12)] and totals == [4, 8, 12, 12]
