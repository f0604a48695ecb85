"""Studies: what is stored, what a resumed search does, and that kill -9 loses and repeats nothing."""

import collections
import json
import math
import os
import random
import signal
import subprocess
import sys
import textwrap
import time

import pytest

from divisi.errors import Error, UsageError
from divisi.tune import (
    NotStorable, R, Skip, choice, conditional, fixed, hpo, list_studies, load_study, lograndint,
    loguniform, normal, qloguniform, quniform, randint, remove_study, uniform,
)  # fmt: skip
from divisi.tune._inverse import invert
from divisi.tune._storage import decode, encode

SPACE = {"x": uniform(-2, 2), "n": randint(0, 9), "c": choice(["a", "b"])}


@pytest.fixture(params=["sqlite", "file"])
def url(request, tmp_path):
    return f"{request.param}:{tmp_path}/study.{'db' if request.param == 'sqlite' else 'jsonl'}"


def value_of(config):
    return config["x"] ** 2 + config["n"] + (config["c"] == "a")


def search(algorithm, steps, url, objective=value_of):
    runner = getattr(hpo(objective), algorithm)(silent=True).max_workers(1).max_steps(steps)
    if algorithm != "grid":
        runner = runner.seed(5)
    if url is not None:
        runner = runner.storage(url).resume()
    return runner.spaces(SPACE).minimize(R)


# --- texts ---


@pytest.mark.parametrize(
    "value",
    [
        None, True, 0, -5, 2**70, 0.1, math.inf, -math.inf, "text", "line\nline", "\udc80", b"\x00\xff",
        [1, [2]], (1, (2, "a")), {"a": 1}, {"$int": 1}, {1: 2, (1, 2): 3}, {1, 2}, [],
        {"a": {"b": [None]}},
    ],
)  # fmt: skip
def test_a_value_is_the_same_after_storing(value):
    text = encode(value)
    assert "\n" not in text
    json.loads(text)
    assert decode(text) == value
    assert type(decode(text)) is type(value)


def test_nan_and_numpy_are_stored():
    numpy = pytest.importorskip("numpy")
    assert math.isnan(decode(encode(math.nan)))
    assert decode(encode(numpy.float64(0.5))) == 0.5
    assert decode(encode(numpy.int32(7))) == 7
    again = decode(encode({"a": numpy.arange(6, dtype=numpy.float32).reshape(2, 3)}))["a"]
    assert again.dtype == numpy.float32 and again.shape == (2, 3)


def test_what_cannot_be_stored_is_named():
    with pytest.raises(NotStorable, match=r"\['a'\]\[1\] is a object"):
        encode({"a": [1, object()]})


# --- runs ---


def test_nothing_is_written_without_storage(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = search("random", 3, None).run()
    assert result.study is None
    assert os.listdir(tmp_path) == []


def test_a_run_is_stored(url):
    result = search("random", 6, url).run()
    study = load_study(url)
    assert study.name == "value_of" and study.maximize == [False]
    assert study.algorithm == "random algorithm"
    assert study.options["seed"] == 5
    assert [one["name"] for one in study.space] == ["c", "n", "x"]
    assert [trial.id for trial in study.trials] == [1, 2, 3, 4, 5, 6]
    assert all(trial.value == value_of(trial.config) == trial.retval for trial in study.trials)
    assert study.best.id == result.trial_id and study.best.config == result[0]
    assert result.study.best.id == result.trial_id
    assert study.best.metrics["time"] > 0


def test_every_end_is_stored(url):
    def objective(config, step):
        if step == 1:
            raise Skip("not", "now")
        if step == 2:
            raise KeyError("lost")
        return {"value": config["x"], "model": object()} if step == 3 else {"value": math.nan}

    hpo(objective).random(silent=True).seed(1).max_workers(1).max_steps(4).max_tries(2).storage(
        url
    ).spaces({"x": uniform(0, 1)}).minimize(R["value"]).run()
    skipped, failed, opaque, nan = load_study(url).trials
    assert (skipped.state, skipped.error) == ("skip", "not, now")
    assert (failed.state, failed.error, failed.tries) == ("fail", "KeyError: 'lost'", 2)
    assert opaque.state == "ok" and opaque.value == opaque.config["x"] and opaque.retval is None
    assert nan.state == "ok" and math.isnan(nan.value)


def test_what_is_not_stored_is_logged_and_the_step_counts(url, caplog):
    hpo(lambda config: {"v": 1, "lock": object()}).random(silent=True).max_steps(1).storage(url).spaces(
        {"x": uniform(0, 1)}
    ).minimize(R["v"]).run()
    assert "the return value of step 1 is not stored: ['lock'] is a object" in caplog.text


def test_an_existing_study_is_not_overwritten(url):
    search("random", 2, url).run()
    with pytest.raises(Error, match="the study 'value_of' exists in .*, with 2 trials"):
        search("random", 2, url).resume(False).run()
    search("random", 2, url).resume(False).study_name("other").run()
    assert [one["name"] for one in list_studies(url)] == ["value_of", "other"]
    remove_study(url, "other")
    assert [one["name"] for one in list_studies(url)] == ["value_of"]


@pytest.mark.parametrize("algorithm", ["grid", "random", "bayes"])
def test_a_search_goes_on_where_it_ended(url, algorithm):
    whole = search(algorithm, 12, f"{url}.whole.db").run()
    calls = []

    def objective(config):
        calls.append(config)
        return value_of(config)

    search(algorithm, 12, url, objective).stop_when(lambda _: len(calls) == 5).run()
    assert len(calls) == 5
    result = search(algorithm, 12, url, objective).run()
    assert calls == [trial.config for trial in whole.study.trials]
    assert result.trial_id == whole.trial_id and tuple(result)[:2] == tuple(whole)[:2]


def test_the_seed_is_chosen_once(url):
    def runner():
        unseeded = hpo(value_of).bayes(silent=True).max_workers(1).max_steps(9)
        return unseeded.spaces(SPACE).minimize(R).storage(url).resume()

    runner().stop_when(lambda record: True).run()
    seed = load_study(url).options["seed"]
    assert len(load_study(url)) == 1
    result = runner().run()
    assert result.study.options["seed"] == seed
    again = search("bayes", 9, "memory:").seed(seed).run()
    assert [trial.raw for trial in again.study.trials] == [trial.raw for trial in result.study.trials]


def test_other_spaces_are_refused(url):
    search("random", 3, url).run()
    wider = {**SPACE, "x": uniform(-2, 3)}
    with pytest.raises(UsageError, match=r"variable 'x' was uniform\(-2, 2\) and is uniform\(-2, 3\)"):
        search("random", 5, url).spaces(wider).run()
    with pytest.raises(UsageError, match=r"variable 'c' was choice\(\[\"a\", .*\]\) and is choice\(\[\"a\", \"d\"\]\)"):
        search("random", 5, url).spaces({**SPACE, "c": choice(["a", "d"])}).run()
    with pytest.raises(UsageError, match="other directions"):
        hpo(value_of).random(silent=True).spaces(SPACE).maximize(R).storage(url).resume().run()
    result = search("random", 5, url).spaces(wider).allow_space_change().run()
    assert [trial.id for trial in result.study.trials] == [1, 2, 3, 4, 5]


def test_wrong_settings_leave_no_study(url):
    with pytest.raises(ValueError):
        hpo(value_of).grid(silent=True).spaces(SPACE).minimize(R).storage(url).run()
    with pytest.raises(Error, match="no study"):
        load_study(url)


def test_bad_storages_are_one_line():
    for bad in ("redis:x", "study.txt"):
        with pytest.raises(UsageError, match="write sqlite:PATH"):
            search("random", 1, bad).run()
    with pytest.raises(ValueError, match="fsync is one of"):
        hpo(value_of).random().storage("memory:", fsync="never")


# --- configurations of users ---


def test_enqueued_configurations_come_first(url):
    result = (
        search("random", 4, url)
        .enqueue({"x": 0.25, "n": 3, "c": "b"}, {"x": -2, "n": 0, "c": "b"})
        .run()
    )
    trials = result.study.trials
    assert trials[0].config == {"x": 0.25, "n": 3, "c": "b"} and trials[0].by_user
    assert trials[1].config == {"x": -2, "n": 0, "c": "b"}
    assert len(trials) == 4 and not trials[2].by_user
    # The same script again does not run them again.
    again = search("random", 5, url).enqueue({"x": 0.25, "n": 3, "c": "b"}).run()
    assert len(again.study.trials) == 5 and sum(trial.by_user for trial in again.study.trials) == 2


def test_enqueue_works_without_storage():
    result = search("random", 2, None).enqueue({"x": 0.0, "n": 0, "c": "b"}).run()
    assert result[0] == {"x": 0.0, "n": 0, "c": "b"} and result.trial_id == 1


@pytest.mark.parametrize(
    "config, problem",
    [
        ({"x": 5.0, "n": 1, "c": "a"}, "'x': 5.0 is not from -2.0 to 2.0"),
        ({"x": 0.0, "n": 1, "c": "z"}, "'c': 'z' is none of the alternatives"),
        ({"x": 0.0, "n": 1.5, "c": "a"}, "'n': 1.5 is none of its values"),
        ({"x": "no", "n": 1, "c": "a"}, "'x': 'no' is not a number of its range"),
        ({"x": 0.0, "c": "a"}, "has no value for 'n'"),
        ({"x": 0.0, "n": 1, "c": "a", "lr": 1}, "has 'lr', which is not searched here"),
    ],
)
def test_a_configuration_that_does_not_fit_is_refused(config, problem):
    with pytest.raises(ValueError, match=problem):
        search("random", 2, None).enqueue(config).run()


@pytest.mark.parametrize(
    "hyper",
    [
        uniform(-3, 7), quniform(0, 1, 0.05), randint(-5, 5), choice([[1, 2], "a", None, 2.5]), fixed(3),
        loguniform(1e-5, 1e-1), qloguniform(1, 100, 0.5), lograndint(1, 500), normal(3, 2),
        10 ** uniform(-5, -1), 1 - uniform(0, 1) * 3, 2 ** randint(3, 9), randint(0, 10**6) * 3,
        uniform(0.5, 3) >> math.sqrt,
    ],
)  # fmt: skip
def test_values_lead_back_to_draws(hyper):
    native = hyper.space.native
    rng = random.Random(4)
    for _ in range(20):
        count = native.count()
        raw = native.lower() + rng.random() * native.length() if count is None else native.at(rng.randrange(count))
        value = hyper.value_of(raw)
        again = hyper.value_of(invert(hyper, value))
        assert again == value if not isinstance(value, float) else math.isclose(again, value, rel_tol=1e-9)


def test_transforms_that_cannot_be_inverted_are_refused():
    with pytest.raises(ValueError, match="not monotone"):
        invert(uniform(-1, 1) ** 2, 0.5)
    with pytest.raises(ValueError, match="do not give numbers"):
        invert(uniform(0, 1) >> str, 0.5)


def test_results_of_another_study_are_known(url):
    first = search("random", 8, url).run()
    calls = []

    def objective(config):
        calls.append(config)
        return value_of(config)

    result = search("bayes", 10, None, objective).add_trials(load_study(url)).add_trials(
        [({"x": 0.0, "n": 0, "c": "b"}, -1.0)]
    ).run()  # fmt: skip
    assert len(calls) == 1  # eight and one are known
    assert result.trial_id == 9
    assert {trial.value for trial in result.study.trials} >= {trial.value for trial in first.study.trials}
    with pytest.raises(TypeError, match="add_trials takes"):
        search("random", 1, None).add_trials([5])


def test_ask_and_tell(url):
    with search("bayes", 6, url).study() as study:
        ids = []
        while (trial := study.ask()) is not None:
            ids.append(trial.id)
            assert trial.state == "running"
            if trial.id == 2:
                study.tell(trial.id, state="fail", error="no luck")
            else:
                study.report(trial.id, 1, 0.5)
                study.tell(trial.id, value_of(trial.config), returned={"a": 1})
        assert ids == [1, 2, 3, 4, 5, 6]
        with pytest.raises(UsageError, match="trial 1 has its result already"):
            study.tell(1, 0.0)
        with pytest.raises(ValueError, match="has a value"):
            study.tell(1)
        with pytest.raises(ValueError, match="state is one of"):
            study.tell(1, 0.0, state="fine")
    with pytest.raises(UsageError, match="the study is closed"):
        study.ask()
    read = load_study(url)
    assert read.trial(1).reports == [(1, 0.5)] and read.trial(2).error == "no luck"
    with pytest.raises(RuntimeError, match="no algorithm here"):
        read.ask()
    # The same suggestions as a run with the same seed.
    assert read.trial(1).raw == search("bayes", 1, None).storage("memory:").run().study.trial(1).raw


# --- processes ---

PROGRAM = """
import os, sys
from divisi.tune import EventSet, R, choice, hpo, randint, uniform

url, algorithm, steps, workers, log = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), sys.argv[5]
file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
kill_after = int(os.environ.get("KILL_AFTER", -1))
kill_in = int(os.environ.get("KILL_IN", -1))

def note(what, step):
    os.write(file, f"{what} {step}\\n".encode())

def die():
    os.kill(os.getpid(), 9)

class Notes(EventSet):
    def step_ok(self, task, result):
        note("told", task.task_id)
        if task.task_id == kill_after:
            die()

def objective(config, step):
    note("begin", step)
    if step == kill_in:
        die()
    print(step, flush=True)
    return config["x"] ** 2 + config["n"] + (config["c"] == "a")

runner = getattr(hpo(objective), algorithm)(silent=True)
result = (runner.seed(5).max_workers(workers).max_steps(steps).storage(url).resume()
    .spaces({"x": uniform(-2, 2), "n": randint(0, 9), "c": choice(["a", "b"])})
    .minimize(R).add_event_set(Notes()).run())
print("best", result.trial_id, flush=True)
"""


@pytest.fixture
def program(tmp_path):
    path = tmp_path / "program.py"
    path.write_text(textwrap.dedent(PROGRAM))

    def start(url, algorithm, steps, workers, **environment):
        arguments = [sys.executable, str(path), url, algorithm, str(steps), str(workers), str(tmp_path / "log")]
        return subprocess.Popen(
            arguments, stdout=subprocess.PIPE, env={**os.environ, **environment}, text=True
        )

    return start


def notes(tmp_path):
    lines = (tmp_path / "log").read_text().split("\n")
    return [(line.split()[0], int(line.split()[1])) for line in lines if line]


@pytest.mark.parametrize("algorithm", ["random", "bayes"])
@pytest.mark.parametrize("where", ["KILL_AFTER", "KILL_IN"])
def test_H101_a_killed_run_ends_like_one_that_was_not(program, url, tmp_path, algorithm, where):
    whole = search(algorithm, 14, f"{url}.whole.db").run()
    process = program(url, algorithm, 14, 1, **{where: "6"})
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    unfinished = {trial.id for trial in load_study(url).trials if trial.state == "running"}
    assert unfinished == (set() if where == "KILL_AFTER" else {6})
    process = program(url, algorithm, 14, 1)
    output = process.communicate()[0]
    assert process.returncode == 0
    begun = collections.Counter(step for what, step in notes(tmp_path) if what == "begin")
    assert begun == {step: 2 if step in unfinished else 1 for step in range(1, 15)}
    study = load_study(url)
    assert [trial.config for trial in study.trials] == [trial.config for trial in whole.study.trials]
    assert study.best.id == whole.trial_id and study.best.value == whole[1]
    assert output.split("\n")[-2] == f"best {whole.trial_id}"
    assert [trial.attempt for trial in study.trials] == [begun[step] for step in range(1, 15)]


KILLS = 200 if os.environ.get("DIVISI_SOAK") == "1" else 20


@pytest.mark.parametrize("kind", ["sqlite", "file"])
def test_killed_at_random_points_nothing_is_lost_or_repeated(program, tmp_path, kind):
    url = f"{kind}:{tmp_path}/study.{'db' if kind == 'sqlite' else 'jsonl'}"
    rng = random.Random(kind)
    steps = 12 * KILLS
    finished = set()
    told = set()
    for _ in range(KILLS // 2):
        process = program(url, "random", steps, 2)
        for _ in range(rng.randrange(1, 12)):
            process.stdout.readline()
        until = time.perf_counter() + rng.random() * 2e-3  # somewhere between two writes
        while time.perf_counter() < until:
            pass
        process.kill()
        process.communicate()
        seen = notes(tmp_path)
        told = {step for what, step in seen if what == "told"}
        last = {}
        for place, (what, step) in enumerate(seen):
            last.setdefault((what, step), []).append(place)
        for step in told:
            assert max(last["begin", step]) < min(last["told", step]), f"step {step} was repeated"
        for step in finished:  # also those whose end was stored just before the kill
            assert len(last["begin", step]) == begun[step], f"step {step} was repeated"
        trials = load_study(url, "objective").trials
        finished = {trial.id for trial in trials if trial.state == "ok"}
        assert told <= finished, "a finished step was lost"
        begun = collections.Counter(step for what, step in seen if what == "begin")
        assert set(begun) <= {trial.id for trial in trials}
    process = program(url, "random", max(finished) + 5, 2)
    process.communicate()
    assert process.returncode == 0
    trials = load_study(url, "objective").trials
    assert all(trial.state == "ok" for trial in trials)
    assert [trial.id for trial in trials] == list(range(1, len(trials) + 1))
    whole = search("random", len(trials), "memory:").run()
    assert [trial.raw for trial in whole.study.trials] == [trial.raw for trial in trials]


def test_several_processes_share_one_study(program, url, tmp_path):
    processes = [program(url, "random", 60, 2) for _ in range(3)]
    outputs = [process.communicate()[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0, 0]
    begun = collections.Counter(step for what, step in notes(tmp_path) if what == "begin")
    assert begun == {step: 1 for step in range(1, 61)}
    study = load_study(url)
    assert len(study) == 60
    assert f"best {study.best.id}" in {output.split("\n")[-2] for output in outputs}
    whole = search("random", 60, "memory:").run()
    assert [trial.raw for trial in whole.study.trials] == [trial.raw for trial in study.trials]


def test_an_interrupted_step_is_begun_anew(url):
    def objective(config, step):
        if step == 3:
            os.kill(os.getpid(), signal.SIGTERM)
            while True:
                time.perf_counter()  # where the cancellation arrives
        return value_of(config)

    result = search("random", 6, url, objective).grace(0).run()
    assert result.interrupted
    assert [trial.state for trial in result.study.trials] == ["ok", "ok", "running"]
    result = search("random", 6, url).study_name("objective").run()
    assert [trial.attempt for trial in result.study.trials] == [1, 1, 2, 1, 1, 1]


def test_a_closed_search_with_an_error_leaves_the_study_whole(url):
    def objective(config, step):
        if step == 3:
            raise ValueError("stop here")
        return value_of(config)

    with pytest.raises(ValueError, match="stop here"):
        search("random", 6, url, objective).max_tries(1).on_failure("raise").run()
    assert [trial.state for trial in load_study(url).trials] == ["ok", "ok", "fail"]
    assert len(search("random", 6, url).study_name("objective").run().study) == 6


def test_conditional_spaces_are_stored_and_resumed(tmp_path):
    kind = choice(["sgd", "adam"])
    space = {
        "optimizer": kind,
        "momentum": conditional(kind, {"sgd": uniform(0, 1)}),
        "lr": conditional(kind, {"sgd": loguniform(1e-3, 1), "adam": loguniform(1e-5, 1e-2)}),
    }

    def runner(steps, url):
        found = hpo(lambda config: config.get("momentum", 0.5) + config["lr"]).tpe(silent=True).seed(1)
        return found.max_steps(steps).max_workers(1).minimize(R).spaces(space).storage(str(tmp_path / url)).resume()

    runner(12, "s.db").run()
    resumed = runner(30, "s.db").run()
    whole = runner(30, "w.db").run()
    configs = [one.config for one in resumed.study.trials]
    assert configs == [one.config for one in whole.study.trials] and len(configs) == 30
    assert all(("momentum" in one) == (one["optimizer"] == "sgd") for one in configs)
    with pytest.raises(ValueError, match="conditional spaces"):
        runner(40, "s.db").enqueue({"optimizer": "adam", "lr": 1e-3}).run()
    other = {**space, "momentum": conditional(kind, {"adam": uniform(0, 1)})}
    with pytest.raises(Exception, match="momentum if optimizer in"):
        runner(40, "s.db").spaces(other).run()


def test_resume_without_a_storage_is_refused():
    with pytest.raises(ValueError, match="call storage"):
        hpo(lambda config: 1).random().max_steps(1).minimize(R).spaces({"x": uniform(0, 1)}).resume().run()


_ASK_AND_WORKERS = """
import threading, time
from divisi.tune import R, hpo, uniform

started = threading.Event()
study = hpo(lambda config: 0).random(silent=True).max_steps(2).minimize(R).spaces({"x": uniform(0, 1)}).study()
make = study._configs.make

def slow_make(*args):
    started.set()
    time.sleep(0.3)  # others have the interpreter; the study's lock is held
    return make(*args)

study._configs.make = slow_make
asker = threading.Thread(target=study.ask)
asker.start()
started.wait()
assert len(study._native.workers()) == 1
asker.join()
print("asked")
"""


def test_workers_are_seen_while_a_configuration_is_made():
    done = subprocess.run([sys.executable, "-c", _ASK_AND_WORKERS], stdout=subprocess.PIPE, text=True, timeout=60)
    assert done.stdout == "asked\n"
