"""Pruning, reports, stopping rules, retries and repetitions of divisi.tune."""

import json
import logging
import math
import os
import threading

import pytest

import divisi
from compat_tools import write
from divisi.errors import UsageError
from divisi.tune import (
    BaseAlgorithm, BaseSession, EventSet, HpoEvent, HyperbandPruner, MedianPruner, NoImprovement, NopPruner, PatientPruner,
    PercentilePruner, Pruned, R, RegretBelow, Skip, StopAfter, SuccessiveHalvingPruner, TargetReached,
    ThresholdPruner, Trial, choice, current_trial, hpo, report, should_prune, uniform,
)  # fmt: skip
from divisi.tune import _algorithms
from divisi.tune._reports import MetricsFile, TrialReports
from divisi.tune._retries import Retry
from divisi.tune.scheduler import run_scheduler_local

STEPS = 81


def curve(level, step):
    """Falls from 1 towards the level."""
    return level + (1 - level) * math.exp(-step / 10)


def search(objective, space=None, workers=1):
    runner = hpo(objective).grid(silent=True).max_workers(workers)
    return runner.minimize(R["loss"]).spaces(space or {"level": choice(levels(200))})


def levels(count):
    return [i * 7919 % count / count for i in range(1, count + 1)]


class Learner:
    """An objective that reports every step; counts them."""

    def __init__(self):
        self.steps = 0

    def __call__(self, config):
        for step in range(1, STEPS + 1):
            self.steps += 1
            report(step, curve(config["level"], step))
            if should_prune():
                raise Pruned
        return {"loss": config["level"]}


class Counts(EventSet):
    """How steps ended."""

    def __init__(self):
        self.ok, self.pruned, self.final, self.tries = [], [], 0, []

    def step_ok(self, task, result):
        self.ok.append(task.task_id)

    def step_prune(self, task, pruned):
        self.pruned.append((task.task_id, pruned.step, pruned.value))

    def step_final(self, task, ranklist):
        self.final += 1

    def try_fail(self, task, index, max_try, error, metrics):
        self.tries.append((index, max_try, type(error).__name__))


@pytest.mark.parametrize(
    "pruner",
    [MedianPruner(n_warmup_steps=10), "asha", HyperbandPruner(max_resource=STEPS), "hyperband"],
    ids=str,
)
def test_pruning_saves_steps_and_keeps_the_best(pruner):
    learner, counts = Learner(), Counts()
    best = search(learner).prune(pruner).add_event_set(counts).run()
    assert best[0]["level"] == 0
    assert learner.steps < 0.6 * 200 * STEPS
    assert counts.final == 200 == len(counts.ok) + len(counts.pruned)


def test_without_a_pruner_reports_change_nothing():
    learner = Learner()
    assert search(learner).run()[0]["level"] == 0
    assert learner.steps == 200 * STEPS


def test_larger_values_are_better_when_maximizing():
    def objective(config):
        report(0, config["x"])
        if should_prune():
            raise Pruned
        return config["x"]

    counts = Counts()
    xs = [5, 5, 5, 9, 1]
    runner = hpo(objective).grid(silent=True).max_workers(1).maximize(R)
    best = runner.spaces({"x": choice(xs)}).prune(MedianPruner(3)).add_event_set(counts).run()
    assert best[1] == 9 and counts.pruned == [(5, 0, 1.0)]


def test_a_pruned_step_is_logged_and_told_to_the_sampler(caplog, monkeypatch):
    told = []

    def objective(config):
        report(7, 0.25)
        raise Pruned

    original = _algorithms.SamplerSession.on_failure
    monkeypatch.setattr(
        _algorithms.SamplerSession, "on_failure",
        lambda self, task, error: (told.append((error.step, error.value)), original(self, task, error)),
    )  # fmt: skip
    with caplog.at_level(logging.INFO):
        runner = hpo(objective).bayes().max_steps(2).max_workers(1).minimize(R)
        assert runner.spaces({"x": uniform(0, 1)}).prune("none").run() is None
    assert told == [(7, 0.25)] * 2
    assert "Function running pruned, time cost: " in caplog.text
    assert "with the last report 0.25 at step 7." in caplog.text


def test_listeners_of_the_fourteen_events_still_work():
    assert len(HpoEvent) == 14

    class Old(EventSet):
        def step_final(self, task, ranklist):
            seen.append(task.task_id)

    seen = []

    def objective(config):
        raise Pruned

    runner = hpo(objective).grid(silent=True).minimize(R).spaces({"x": choice([1, 2])})
    assert runner.add_event_set(Old()).max_workers(1).run() is None
    assert seen == [1, 2]


def test_the_current_trial_is_the_one_of_its_thread():
    barrier = threading.Barrier(2, timeout=60)
    seen = {}

    def objective(config, number):
        barrier.wait()
        trial = current_trial()
        trial.report(0.5, 3)
        seen[number] = (trial.id, trial.config == config, trial.attempt, trial.last_report)
        return 1

    assert current_trial() is None
    search(objective, {"x": choice([1, 2])}, workers=2).on_target_error("fail_step").run()
    assert seen == {1: (1, True, 1, 0.5), 2: (2, True, 1, 0.5)}
    assert not should_prune()


@pytest.mark.parametrize("step", [-1, 0.5, "x", None, True, math.nan, 2**64])
def test_a_wrong_step_is_named(step):
    with pytest.raises(ValueError, match=r"a whole number from 0 on.*Trial.report takes \(value, step\)"):
        Trial(1, {}).report(0.5, step)
    with pytest.raises(ValueError, match=r"report takes \(step, value\)"):
        report(step, 0.5)


def test_wrong_values_and_names_are_named():
    with pytest.raises(ValueError, match="a number, not 'high'"):
        report(1, "high")
    errors = []

    def objective(config):
        with pytest.raises(ValueError, match="a, b: one of them must be called as the target is"):
            report(1, {"a": 1, "b": 2})
        report(1, {"loss": 3, "b": 2})
        errors.append(current_trial().last_report)
        return {"loss": 1}

    search(objective, {"x": choice([1])}).run()
    assert errors == [3]


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: MedianPruner(interval_steps=0), "interval_steps must be 1 or more"),
        (lambda: MedianPruner(n_startup_trials=1.5), "n_startup_trials must be a whole number"),
        (lambda: PercentilePruner(120.0), "from 0 to 100"),
        (lambda: SuccessiveHalvingPruner(reduction_factor=1), "reduction_factor must be 2 or more"),
        (lambda: SuccessiveHalvingPruner(reduction_factor="auto"), "reduction_factor must be a whole"),
        (lambda: HyperbandPruner(max_resource=0), "max_resource must be 1 or more"),
        (lambda: ThresholdPruner(), "needs lower, upper or both"),
        (lambda: PatientPruner(None, patience=-1), "patience must be 0 or more"),
        (lambda: PatientPruner(3, patience=1), "prune takes a pruner or one of"),
        (lambda: hpo(print).grid().prune("medium"), "prune takes a pruner or one of none, median, asha"),
    ],
)
def test_wrong_pruners_are_refused_when_they_are_made(make, message):
    with pytest.raises((ValueError, UsageError), match=message):
        make()


def test_pruners_print_their_settings():
    assert repr(MedianPruner(2)).startswith("MedianPruner(percentile=50.0, n_startup_trials=2")
    assert repr(NopPruner()) == "NopPruner()"


def test_a_patient_pruner_asks_another_one():
    curves = {"good": [5, 4, 3, 2], "flat": [9, 9, 9, 9], "steady": [9, 8, 7, 6]}

    def objective(config):
        for step, value in enumerate(curves[config["x"]]):
            report(step, value)
            if should_prune():
                raise Pruned
        return {"loss": value}

    counts = Counts()
    patient = PatientPruner(MedianPruner(1), patience=0)
    space = {"x": choice(["good", "steady", "flat", "flat"])}
    search(objective, space).prune(patient).add_event_set(counts).run()
    assert counts.ok == [1, 2, 3, 4], "a flat curve does not become worse"
    counts = Counts()
    space = {"x": choice(["good", "steady", "flat"])}
    search(objective, space).prune(MedianPruner(1)).add_event_set(counts).run()
    assert [number for number, _, _ in counts.pruned] == [2, 3]


def test_a_new_try_reports_from_the_beginning():
    """The pruner forgets what a failed try has reported."""
    seen = []

    def objective(config):
        trial = current_trial()
        report(5 - trial.attempt, 100 if trial.attempt == 1 else 0)
        seen.append((trial.attempt, should_prune()))
        if trial.attempt == 1:
            raise RuntimeError
        return {"loss": 1}

    search(objective, {"x": choice([1])}).prune(ThresholdPruner(upper=10)).run()
    assert seen == [(1, True), (2, False)]


# --- rules that end a search ---


def numbered(config, number):
    return {"loss": config["x"]}


def calls_until(rule, xs, **settings):
    counts = Counts()
    runner = search(numbered, {"x": choice(xs)}).stop_when(rule).add_event_set(counts)
    runner.run()
    return counts.final


def test_rules_end_a_search():
    assert calls_until(TargetReached(3), [9, 5, 3, 1]) == 3
    assert calls_until(NoImprovement(2), [9, 5, 6, 7, 1]) == 4
    assert calls_until(NoImprovement(2, min_delta=1), [9, 8.5, 8.2, 1]) == 3
    assert calls_until(NoImprovement(2, min_delta=1), [9, 8, 8, 1]) == 3, "by more than min_delta"
    counts = Counts()
    search(lambda config: {"loss": 9}, {"x": choice([1, 2, 3, 4])}).stop_when(NoImprovement(2)).add_event_set(counts).run()
    assert counts.final == 3, "an equal one is not better"
    assert calls_until(StopAfter(0), [9, 5, 6]) in (0, 1)
    assert calls_until(StopAfter(3600), [9, 5, 6]) == 3


def test_rules_and_expressions_are_joined():
    assert calls_until(NoImprovement(10) | TargetReached(5), [9, 5, 3]) == 2
    assert calls_until(StopAfter(3600) | (R["loss"] < 4), [9, 5, 3, 1]) == 3
    assert calls_until((R["loss"] < 4) | StopAfter(3600) | TargetReached(5), [9, 5, 3, 1]) == 2
    with pytest.raises(TypeError, match="a rule is combined with a rule or an expression"):
        StopAfter(1) | 3
    for joined in (lambda: (R["loss"] < 4) & StopAfter(1), lambda: StopAfter(1) & (R["loss"] < 4)):
        with pytest.raises(TypeError, match=r"joined by \| only"):
            joined()


def test_a_rule_may_be_used_again():
    rule = NoImprovement(2)
    assert [calls_until(rule, [1, 2, 3, 4]) for _ in range(2)] == [3, 3]


def test_a_time_limit_ends_a_search_without_end():
    started, release = threading.Event(), threading.Event()
    calls = []

    def objective(config):
        calls.append(config)
        started.set()
        release.wait(0.3)
        return {"loss": 1}

    search(objective, {"x": choice([1, 2, 3])}).stop_when(StopAfter(0.1)).run()
    assert started.is_set() and len(calls) == 1


def test_a_search_ends_when_nothing_better_seems_possible():
    def hill(config):
        return 1000 * math.exp(-((config["x"] - 3) ** 2))

    counts = Counts()
    runner = hpo(hill).bayes(silent=True).seed(1).max_steps(60).max_workers(1).maximize(R)
    best = runner.spaces({"x": uniform(0, 10)}).stop_when(RegretBelow(1)).add_event_set(counts).run()
    assert 5 <= counts.final < 60 and best[1] > 999


def test_regret_needs_the_engine():
    class Session(BaseSession):
        def produce(self):
            self.push({"x": 1})

    class Own(BaseAlgorithm):
        def get_session(self, space, service):
            return Session(self, space, service)

    runner = hpo(numbered).search(Own, silent=True).minimize(R["loss"]).spaces({"x": choice([1])})
    with pytest.raises(TypeError, match="RegretBelow needs an algorithm of the engine"):
        runner.stop_when(RegretBelow(1)).run()


@pytest.mark.parametrize("make", [
    lambda: RegretBelow(0), lambda: RegretBelow(None),
    lambda: StopAfter("soon"), lambda: StopAfter(-1), lambda: NoImprovement(0),
    lambda: NoImprovement(1.5), lambda: TargetReached("best"), lambda: TargetReached(math.nan),
])  # fmt: skip
def test_wrong_rules_are_refused(make):
    with pytest.raises(ValueError, match="takes a"):
        make()


# --- tries and repetitions ---


def test_tries_by_class_of_error():
    attempts = []

    def objective(config):
        attempts.append(current_trial().attempt)
        raise {"os": OSError, "value": ValueError, "key": KeyError}[config["x"]]("no")

    counts = Counts()
    runner = search(objective, {"x": choice(["os", "value", "key"])}).add_event_set(counts)
    runner.max_tries(2).retry(on=OSError, tries=4).retry(on=(ValueError, TypeError), tries=1).run()
    assert attempts == [1, 2, 3, 4, 1, 1, 2]
    assert counts.tries == [
        (0, 4, "OSError"), (1, 4, "OSError"), (2, 4, "OSError"), (3, 4, "OSError"),
        (0, 1, "ValueError"), (0, 2, "KeyError"), (1, 2, "KeyError"),
    ]  # fmt: skip


def test_waits_between_tries_grow():
    policy = Retry(on=OSError, wait=1, factor=3, max_wait=20, tries=5)
    assert [policy.wait_after(failed) for failed in range(1, 6)] == [1, 3, 9, 20, 20]
    assert Retry(wait=1, factor=10).wait_after(10**6) == 60


@pytest.mark.parametrize("settings", [
    {"on": "OSError"}, {"on": ()}, {"wait": -1}, {"factor": 0.5}, {"tries": 0}, {"wait": math.inf},
])  # fmt: skip
def test_wrong_policies_are_refused(settings):
    with pytest.raises((ValueError, TypeError), match="retry"):
        hpo(numbered).grid().retry(**settings)


def test_repetitions_become_one_result():
    seeds = []

    def objective(config):
        trial = current_trial()
        seeds.append(trial.seed)
        return {"loss": config["x"] + trial.repeat, "curve": [trial.repeat, 1], "note": f"r{trial.repeat}"}

    best = search(objective, {"x": choice([10, 20])}).repeats(3).run()
    assert best[1] == {"loss": 11.0, "curve": [1.0, 1.0], "note": "r2"}
    assert len(set(seeds)) == 6
    first = list(seeds)
    seeds.clear()
    best = search(objective, {"x": choice([10, 20])}).repeats(3, agg=max).run()
    assert best[1]["loss"] == 12 and seeds == first, "seeds are the same in every run"
    with pytest.raises(ValueError, match="agg is a function or one of mean, median, min, max"):
        hpo(objective).grid().repeats(2, agg="mode")
    with pytest.raises(ValueError, match="repeats must be a whole number"):
        hpo(objective).grid().repeats(0)


def test_a_skip_in_a_repetition_skips_the_step():
    def objective(config):
        if current_trial().repeat == 1:
            raise Skip("no")
        return {"loss": 1}

    assert search(objective, {"x": choice([1])}).repeats(2).run() is None


# --- programs as trials ---

PROGRAM = """
import json, os, signal, sys, time
main_config = {{"exp_name": "template", "level": 0.5}}

def learn(level):
{body}

if __name__ == "__main__":
    learn(main_config["level"])
    with open(os.environ["HPO_RESULT_FILE"], "w") as file:
        json.dump({{"loss": main_config["level"]}}, file)
"""
WRITES_LINES = """
    with open(os.environ["HPO_METRICS_FILE"], "a") as file:
        file.write("this is no report\\n")
        for step in range(1, 6):
            values = {"loss": level, "other": -step}
            file.write(json.dumps({"step": step, "values": values}) + "\\n")
        file.write('{"step": 6, "val')
        file.flush()
    if level > 0.5:
        signal.pause()
"""
CALLS_REPORT = """
    from divisi.tune import report, should_prune
    report(1, level)
    assert not should_prune()
    if level > 0.5:
        signal.pause()
"""
WRITES_EVENTS = """
    from divisi._event_file import EventFile, scalar_event
    file = EventFile(main_config["exp_name"] + "/log/serial")
    file.write(scalar_event("other", 0.0, 1))
    file.write(scalar_event("eval/loss", level, 1))
    if level > 0.5:
        signal.pause()
"""


@pytest.fixture
def programs(tmp_path, monkeypatch):
    """programs(body, **settings): a scheduler over a program whose learn() is the body."""
    made = []
    monkeypatch.setenv("PYTHONPATH", os.path.dirname(os.path.dirname(divisi.__file__)))

    def make(body, **settings):
        template = write(tmp_path, PROGRAM.format(body=body.strip("\n")), "template.py")
        made.append(run_scheduler_local(str(template), "learn", workdir=str(tmp_path), **settings))
        return made[-1]

    yield make
    for scheduler in made:
        scheduler.stop()


def run_programs(scheduler, counts):
    """Two good programs, and one that waits for ever if it is not pruned."""
    runner = hpo(scheduler.enable_hpo()).grid(silent=True).max_workers(1).minimize(R["loss"])
    runner.spaces({"level": choice([0.1, 0.2, 0.9])}).prune(MedianPruner(2)).max_tries(1)
    return runner.add_event_set(counts).run()


@pytest.mark.parametrize(
    "body, settings",
    [
        (WRITES_LINES, {}),
        (WRITES_LINES, {"prune_on": "loss"}),
        (CALLS_REPORT, {}),
        (WRITES_EVENTS, {"tb_dir": "log", "tb_tag": "eval/loss"}),
    ],
    ids=["lines", "prune_on", "report", "tensorboard"],
)
def test_programs_are_pruned_by_what_they_report(programs, caplog, body, settings):
    scheduler, counts = programs(body, **settings), Counts()
    assert run_programs(scheduler, counts)[0]["level"] == 0.1
    assert [number for number, _, _ in counts.pruned] == [3]
    assert scheduler.task_pruned_id == [2] and scheduler.task_abnormal_id == []
    assert "| task_pruned   | [2]" in scheduler.status_table()
    assert scheduler.task_list[2].process.poll() is not None
    complaints = [one.message for one in caplog.records if "reports of learn" in one.message]
    assert len(complaints) == (3 if body == WRITES_LINES else 0), "bad lines are told once a program"


STARTS_A_TEAM = """
    import subprocess
    from divisi import launch
    with open("team.py", "w") as file:
        file.write("import os, signal\\n"
                   "from divisi import Parallel\\n"
                   "from divisi.tune import report\\n"
                   "def main():\\n"
                   "    node = Parallel().node_id\\n"
                   "    open(f'{os.environ[\\"LEVEL\\"]}-{node}.pid', 'w').write(str(os.getpid()))\\n"
                   "    report(node, float(os.environ['LEVEL']))\\n"
                   "    if float(os.environ['LEVEL']) > 0.5: signal.pause()\\n")
    command = [launch.program(), "--package", ".", "--main", "team.main", "--parallel-workers", "2"]
    subprocess.run(command, env={**os.environ, "LEVEL": str(level), "DIVISI_PYTHON": sys.executable}, check=True)
"""


def test_a_ditask_job_is_pruned_as_a_whole(programs, tmp_path):
    scheduler, counts = programs(STARTS_A_TEAM), Counts()
    assert run_programs(scheduler, counts)[0]["level"] == 0.1
    assert scheduler.task_pruned_id == [2] and scheduler.task_abnormal_id == []
    lines = (tmp_path / "learn" / "learn-0-log" / "metrics.jsonl").read_text().splitlines()
    assert sorted(json.loads(line)["step"] for line in lines) == [0, 1], "both workers report"
    workers = [int(path.read_text()) for path in (tmp_path / "learn").glob("0.9-*.pid")]
    assert workers and not any(os.path.exists(f"/proc/{worker}") for worker in workers)


def test_without_pruning_the_table_has_six_rows(programs):
    scheduler = programs("    pass")
    scheduler.submit({"level": 0.1}).result()
    assert "task_pruned" not in scheduler.status_table()


def test_a_report_without_the_named_value_is_told(programs, caplog):
    scheduler, counts = programs(WRITES_LINES.replace("> 0.5", "> 1"), prune_on="reward"), Counts()
    assert run_programs(scheduler, counts)[0]["level"] == 0.1
    assert counts.pruned == []
    assert "no number 'reward': set prune_on to one of its names" in caplog.text


def test_wrong_settings_of_reports_are_refused(programs):
    with pytest.raises(ValueError, match="tb_tag must say which value counts"):
        programs("    pass", tb_dir="log")
    with pytest.raises(ValueError, match="prune_on is a text"):
        programs("    pass", prune_on=3)


def test_the_attempt_is_visible_to_a_program(programs):
    scheduler = programs('    assert os.environ["HPO_ATTEMPT"] == "2"')
    runner = hpo(scheduler.enable_hpo()).grid(silent=True).max_workers(1).minimize(R["loss"])
    assert runner.spaces({"level": choice([0.1])}).max_tries(2).run() is not None


def test_lines_of_a_metrics_file(tmp_path):
    path = tmp_path / "metrics.jsonl"
    file = MetricsFile(path)
    assert file.read() == []
    path.write_bytes(b'{"step": 1, "values": {"a": 1}}\n{"step": 2, "va')
    assert file.read() == [{"step": 1, "values": {"a": 1}}]
    with open(path, "ab") as out:
        out.write(b'lues": {"a": NaN}}\n' + b"x" * 100000 + b'\n{"step": 3, "values": {"a": 2}}\n')
    second, third = file.read()
    assert math.isnan(second["values"]["a"]) and third["step"] == 3
    assert "more than 65536 bytes" in file.complaint
    for bad in (b"[]", b"3", b'{"step": -1, "values": {}}', b'{"step": 1}', b"\xff\xfe", b"[" * 60000,
                b'{"step": 1, "values": [1]}'):  # fmt: skip
        with open(path, "ab") as out:
            out.write(bad + b"\n")
        assert file.read() == []


class Judge:
    """A pruner that notes whom it judged."""

    def __init__(self):
        self.judged, self.last = [], None

    def report(self, number, step, value):
        self.last = value

    def should_prune(self, number):
        self.judged.append(self.last)
        return True


def test_only_new_reports_are_judged():
    judge = Judge()
    reports = TrialReports(Trial(1, None, pruner=judge), None, "a")
    assert not reports.take([]) and judge.judged == []
    assert reports.take([{"step": 3, "values": {"loss": 5.0}}])
    assert not reports.take([])
    assert not reports.take([{"step": 3, "values": {"loss": 6.0}}, {"step": 4, "values": {}}])
    assert judge.judged == [5.0]
    assert reports.take([{"step": 4, "values": {"loss": 7.0}}, {"step": 4, "values": {"loss": 8.0}}])
    assert judge.judged == [5.0, 7.0]


def test_reports_of_a_program_alone_change_nothing(tmp_path, monkeypatch):
    monkeypatch.delenv("HPO_METRICS_FILE", raising=False)
    report(1, 2)
    path = tmp_path / "metrics.jsonl"
    monkeypatch.setenv("HPO_METRICS_FILE", str(path))
    report(1, 2)
    report(2, {"loss": 0.5, "reward": 3})
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert lines == [
        {"step": 1, "values": {"value": 2.0}}, {"step": 2, "values": {"loss": 0.5, "reward": 3.0}},
    ]  # fmt: skip
