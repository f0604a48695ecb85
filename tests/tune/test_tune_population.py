"""`divisi tune` with the algorithm pbt: programs that go on from checkpoints, killed and resumed."""

import json
import signal
import subprocess

import pytest
from test_divisi_tune import DIVISI, one_line, script, trials, tune, wait_for

# The state is what was reached so far; progress is the faster the nearer the rate is to 0.8.
PROGRAM = """#!/usr/bin/env python3
import json, os, sys, time
rate = float(sys.argv[1])
load, save = os.environ.get("HPO_CHECKPOINT_LOAD"), os.environ["HPO_CHECKPOINT_SAVE"]
generation = int(os.environ["HPO_GENERATION"])
assert (load is None) == (generation == 0) and not os.path.exists(save)
state = json.load(open(load)) if load else {"reached": 0.0, "segments": 0}
state = {"reached": state["reached"] + 1 - abs(rate - 0.8), "segments": state["segments"] + 1}
os.makedirs("begun", exist_ok=True)
open(f"begun/{os.environ['HPO_TRIAL_ID']}", "a").write("x")
while os.path.exists("wait") and generation == 1:
    time.sleep(0.01)
json.dump(state, open(save, "w"))
print(json.dumps(state))
"""

STUDY = """
name: population
command: [./train, "{rate}"]
space: {rate: {uniform: [0, 1]}}
maximize: reached
workers: WORKERS
algorithm: {name: pbt, population: 4, generations: 5, seed: 1}
"""


@pytest.fixture
def folder(tmp_path):
    script(tmp_path, "train", PROGRAM).chmod(0o755)
    script(tmp_path, "study.yaml", STUDY.replace("WORKERS", "3"))
    return tmp_path


def check(folder):
    """The whole population, each segment once, each from the checkpoint of another."""
    found = trials(folder)
    assert [one["stage"] for one in found] == ["ok"] * 20, found
    segments = {one["number"]: one["config"]["_pbt"] for one in found}
    places = sorted((one["member"], one["generation"]) for one in segments.values())
    assert places == [(member, generation) for member in range(4) for generation in range(5)]
    reached = {0: 0.0, **{one["number"]: one["values"][0] for one in found}}
    for one in found:
        gain = 1 - abs(one["config"]["rate"] - 0.8)
        assert reached[one["number"]] == pytest.approx(reached[one["config"]["_pbt"]["parent"]] + gain)
    assert max(reached.values()) > 3.5
    assert len(list((folder / "population" / "checkpoints").iterdir())) <= 8
    return found


def test_study_file_trains_a_population(folder):
    done = tune(folder, "study.yaml")
    assert done.returncode == 0, done.stderr
    check(folder)
    assert "_pbt" not in json.dumps(json.loads((folder / "population" / "population-0-log" / "config.json").read_text()))


def test_one_seed_gives_one_population(folder):
    script(folder, "study.yaml", STUDY.replace("WORKERS", "1"))
    runs = []
    for name in ("one", "two"):
        assert tune(folder, "study.yaml", "--name", name, "--storage", f"{name}.db").returncode == 0
        runs.append([one["config"] for one in trials(folder, "--storage", f"{name}.db")])
    assert runs[0] == runs[1]


def test_killed_run_goes_on_with_its_population(folder):
    (folder / "wait").touch()
    process = subprocess.Popen([DIVISI, "tune", "study.yaml"], cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_for(lambda: len(list((folder / "begun").glob("*"))) == 7, "three segments of the second generation")
    process.send_signal(signal.SIGKILL)
    process.wait()
    (folder / "wait").unlink()
    done = tune(folder, "study.yaml", "--resume")
    assert done.returncode == 0, done.stderr
    assert len(check(folder)) == 20
    begun = {int(one.name): len(one.read_text()) for one in (folder / "begun").iterdir()}
    assert sorted(begun) == list(range(1, 21))
    assert [number for number, times in begun.items() if times > 1 and number < 5] == [], "what had ended is not repeated"


def test_checkpoint_that_is_gone_is_named(folder):
    (folder / "wait").touch()
    process = subprocess.Popen([DIVISI, "tune", "study.yaml"], cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_for(lambda: len(list((folder / "begun").glob("*"))) == 7, "three segments of the second generation")
    other = tune(folder, "study.yaml", "--resume")
    assert other.returncode != 0 and "works on the study population: one at a time can" in one_line(other)
    process.kill()
    process.wait()
    for path in (folder / "population" / "checkpoints").iterdir():
        path.unlink()
    done = tune(folder, "study.yaml", "--resume")
    assert done.returncode != 0
    assert "is gone, so the population cannot go on: put it back, or begin a study of another name" in one_line(done)


def test_program_without_a_checkpoint_fails_with_the_reason(folder):
    script(folder, "train", "#!/bin/sh\necho '{\"reached\": 1}'\n").chmod(0o755)
    done = tune(folder, "study.yaml", "--retries", "0")
    assert "it saved no checkpoint: the program must write $HPO_CHECKPOINT_SAVE" in done.stdout + done.stderr
    assert {one["stage"] for one in trials(folder)} == {"fail"}


@pytest.mark.parametrize("options, complaint", [
    ("population: 1", "population must be 2 to 100000, not 1"),
    ("population: 1000000000", "population must be 2 to 100000"),
    ("quantile: 0.9", "quantile is above 0 and at most 0.5, not 0.9"),
    ("generation: 3", "there is no option 'generation'"),
    ("seed: 1}\nmax_steps: 5\nenv: {A: b", "runs population x generations trials: set those, not max_steps"),
])
def test_wrong_options_are_refused(folder, options, complaint):
    text = STUDY.replace("WORKERS", "1").replace("population: 4, generations: 5, seed: 1", options)
    script(folder, "study.yaml", text)
    done = tune(folder, "study.yaml")
    assert done.returncode != 0 and complaint in one_line(done)


def test_study_of_another_algorithm_is_no_population(folder):
    other = STUDY.replace("WORKERS", "1").replace("name: pbt, population: 4, generations: 5, seed: 1", "name: random")
    script(folder, "random.yaml", other + "max_steps: 1\n")
    script(folder, "train", "#!/bin/sh\necho '{\"reached\": 1}'\n").chmod(0o755)
    assert tune(folder, "random.yaml").returncode == 0
    done = tune(folder, "study.yaml", "--resume")
    assert done.returncode != 0 and "is no segment of a population" in one_line(done)
