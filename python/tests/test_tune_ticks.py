"""The calls that drive a scheduler tick by tick, and how trials are started."""

import json
import os
import queue
import signal
import subprocess
import sys
import threading

import pytest

from compat_tools import environment, write
from divisi.tune import EventSet, M, R, Skip, TrialTimeout, hpo, uniform
from divisi.tune import _inject, _msgpack
from divisi.tune._gpus import GpuSlots
from divisi.tune.scheduler import (
    Scheduler, SchedulerError, SchedulerFull, SchedulerStopped, TrialFailed, run_scheduler_local,
)  # fmt: skip
from test_tune_scheduler import DEADLINE_S, HEAD, SPACE, WRITES, start_of, wait_until

# Writes its result, then waits to be told to end.
HELD = WRITES + """
    while not os.path.exists("go"):
        time.sleep(0.01)
"""
SILENT = """
if __name__ == "__main__":
    time.sleep(600)
"""


@pytest.fixture
def ticked(tmp_path, monkeypatch):
    """ticked(body, **settings): a configured scheduler over a template with that body."""
    monkeypatch.chdir(tmp_path)
    made = []

    def make(body=HELD, **settings):
        template = write(tmp_path, HEAD + body, "template.py")
        made.append(Scheduler().config(str(template), "cartpole", missing="ok", grace=0.2, **settings))
        return made[-1]

    yield make
    for scheduler in made:
        scheduler.stop()


def samples(*starts):
    return [{"DI-toolkit-hpo-id": n + 1, **start_of(start)} for n, start in enumerate(starts)]


def test_H078_configuration_makes_the_folder_and_the_queues(ticked, tmp_path):
    scheduler = ticked(max_number_of_running_task=20, max_number_of_tasks=10000, time_out=2000)
    assert (tmp_path / "cartpole").is_dir()
    assert scheduler._max_running == 20 and scheduler._max_tasks == 10000 and scheduler._time_out == 2000
    taken, given = scheduler.get_mp_queues()
    assert taken is not None and given is not None
    assert scheduler.get_mp_queues() == (taken, given)
    mine = queue.Queue(), queue.Queue()
    (tmp_path / "other").mkdir()
    other = ticked(mp_queue_input=mine[0], mp_queue_output=mine[1], workdir=str(tmp_path / "other"))
    assert other.get_mp_queues() == mine


@pytest.mark.parametrize("given", [samples(0.5, 0.6), [start_of(0.5), start_of(0.6)]])
def test_H079_defined_tasks_wait_when_they_are_queued(ticked, given):
    scheduler = ticked()
    scheduler.define_rl_task(given)
    assert [task.hpo_id for task in scheduler.task_list] == ["1", "2"]
    assert scheduler.task_defined_id == [0, 1] and scheduler.task_waiting_id == []
    scheduler.add_defined_rl_tasks_into_waiting_list()
    scheduler.add_defined_rl_tasks_into_waiting_list()
    assert scheduler.task_waiting_id == [0, 1] and all(task.waiting for task in scheduler.task_list)
    assert scheduler.count_running_tasks() == 0


def test_H080_emitted_tasks_run_until_they_end_or_are_cancelled(ticked):
    scheduler = ticked(WRITES + "    time.sleep(3)\n", time_out=2.5, max_number_of_tasks=2)
    scheduler.define_rl_task(samples(0.5, 0.6))
    scheduler.add_defined_rl_tasks_into_waiting_list()
    one, two = scheduler.task_list
    scheduler.emit_task(0)
    wait_until(lambda: one.pid is not None)
    scheduler.emit_task(1)
    assert scheduler.task_waiting_id == [] and scheduler.task_running_id == [0, 1]
    assert scheduler.count_running_tasks() == 2
    for task in (one, two):
        scheduler.check_task_start(task)
        assert scheduler.check_task_alive(task)
    scheduler.cancel_task(0)
    assert not scheduler.check_task_alive(one)
    wait_until(lambda: not scheduler.check_task_alive(two))
    assert scheduler.check_task_timeout(one) and scheduler.check_task_timeout(two)
    assert scheduler.task_running_id == [0, 1]  # nobody has looked
    assert scheduler.load_task_result(two)[0] == {"eval_value": 60.0}


def test_H081_ended_tasks_are_finished_when_they_are_checked(ticked, tmp_path):
    body = HELD.replace("os.makedirs", "while main_config['policy']['other']['eps']['start'] > 0.55: time.sleep(1)\n    os.makedirs")
    scheduler = ticked(body, max_number_of_tasks=2)
    scheduler.define_rl_task(samples(0.5, 0.6))
    with pytest.raises(SchedulerFull):
        scheduler.define_rl_task(samples(0.7))
    scheduler.add_defined_rl_tasks_into_waiting_list()
    scheduler.emit_task(0)
    scheduler.emit_task(1)
    scheduler.check_running_tasks()
    assert scheduler.task_running_id == [0, 1] and scheduler.task_finished_id == []
    scheduler.cancel_task(1)
    (tmp_path / "cartpole" / "go").touch()
    wait_until(lambda: not scheduler.check_task_alive(scheduler.task_list[0]))
    scheduler.check_running_tasks()
    assert scheduler.task_running_id == [] and scheduler.task_finished_id == [0, 1]
    assert scheduler.task_success_id == [0] and scheduler.task_abnormal_id == [1]
    assert [report["result"]["status"] for report in scheduler.task_reports] == ["success", "cancelled"]
    assert scheduler.load_task_result(scheduler.task_list[1]) == (None, None)
    assert not scheduler.check_finish()


def test_H082_all_tasks_have_to_succeed(ticked, tmp_path):
    scheduler = ticked(HELD.replace('"go"', '"go-" + os.environ["HPO_TASK_ID"]'), max_number_of_tasks=2)
    for number, start in enumerate((0.5, 0.6)):
        scheduler.define_rl_task([start_of(start)])
        scheduler.add_defined_rl_tasks_into_waiting_list()
        scheduler.emit_task(number)
        assert not scheduler.check_finish()
    for number, task in enumerate(scheduler.task_list):
        assert not scheduler.check_finish()
        (tmp_path / "cartpole" / f"go-{number}").touch()
        wait_until(lambda task=task: not scheduler.check_task_alive(task))
        scheduler.check_running_tasks()
        assert scheduler.task_success_id == list(range(number + 1))
    assert scheduler.check_finish()


def test_a_check_ends_what_took_too_long(ticked):
    scheduler = ticked(SILENT, time_out=0.01)
    scheduler.define_rl_task(samples(0.5))
    scheduler.add_defined_rl_tasks_into_waiting_list()
    scheduler.emit_task(0)
    wait_until(lambda: scheduler.check_task_timeout(scheduler.task_list[0]))
    assert scheduler.check_task_alive(scheduler.task_list[0])
    wait_until(lambda: scheduler.task_list[0].pid is not None)
    scheduler.check_running_tasks()
    assert scheduler.task_abnormal_id == [0] and scheduler.task_reports[0]["result"] == {"status": "time out"}


def test_what_cannot_be_emitted_or_cancelled(ticked):
    scheduler = ticked()
    scheduler.define_rl_task(samples(0.5))
    with pytest.raises(SchedulerError, match="task 0 does not wait"):
        scheduler.emit_task(0)
    with pytest.raises(SchedulerError, match="no task 7"):
        scheduler.cancel_task(7)
    with pytest.raises(ValueError, match="a configuration is a dict"):
        scheduler.define_rl_task([3])
    scheduler.stop()
    with pytest.raises(SchedulerStopped):
        scheduler.define_rl_task(samples(0.5))


def in_background(function):
    thread = threading.Thread(target=function, daemon=True)
    thread.start()
    return thread


def test_run_takes_samples_from_a_queue_and_gives_reports(ticked):
    scheduler = ticked(WRITES, max_number_of_tasks=3, max_number_of_running_task=2, poll_interval=0.01)
    taken, given = scheduler.get_mp_queues()
    taken.put(samples(0.5, 0.75))
    taken.put("no samples")
    taken.put(samples(1.0))
    thread = in_background(scheduler.run)
    thread.join(DEADLINE_S)
    assert not thread.is_alive() and scheduler.check_finish() and scheduler.finish
    reports = given.get(timeout=DEADLINE_S)
    while len(reports) < 3:
        reports = given.get(timeout=DEADLINE_S)
    assert sorted(report["return"]["eval_value"] for report in reports) == [50.0, 75.0, 100.0]


@pytest.mark.parametrize("how", ["message", "call"])
def test_H084_run_ends_when_it_is_told_to_although_the_limit_is_reached(ticked, how):
    scheduler = ticked(SILENT, max_number_of_tasks=1, poll_interval=0.01)
    taken, _ = scheduler.get_mp_queues()
    taken.put(samples(0.5))
    thread = in_background(scheduler.run)
    wait_until(lambda: scheduler.task_running_id == [0] and scheduler.task_list[0].pid)
    if how == "message":
        taken.put({"stop_scheduler": True})
    else:
        scheduler.stop()
    thread.join(DEADLINE_S)
    assert not thread.is_alive() and scheduler.task_abnormal_id == [0]


# --- metrics and time limits ---


def local(tmp_path, body, **settings):
    template = write(tmp_path, HEAD + body, "template.py")
    return run_scheduler_local(str(template), "cartpole", workdir=str(tmp_path), grace=0.2, **settings)


class Failures(EventSet):
    """What became of tries."""

    def __init__(self):
        self.metrics, self.errors = [], []

    def try_fail(self, task, index, tries, error, metrics):
        self.metrics.append(metrics)
        self.errors.append(error)


def test_metrics_of_a_trial(tmp_path):
    body = 'if __name__ == "__main__":\n    if os.environ["HPO_TASK_ID"] == "0": sys.exit(7)\n' + WRITES
    failures = Failures()
    with local(tmp_path, body, max_number_of_running_task=1) as scheduler:
        runner = hpo(scheduler.enable_hpo()).grid(silent=True).max_steps(1).add_event_set(failures)
        _, _, metrics = runner.maximize(M["run_time"] - M["queue_time"]).spaces(SPACE).run()
    assert metrics["attempt"] == 2 and metrics["exit_code"] == 0
    assert 0 <= metrics["queue_time"] and 0 < metrics["run_time"] <= metrics["time"]
    (failed,) = failures.metrics
    assert failed["attempt"] == 1 and failed["exit_code"] == 7


def test_trial_timeout_ends_a_program(tmp_path):
    failures = Failures()
    with local(tmp_path, SILENT) as scheduler:
        runner = hpo(scheduler.enable_hpo()).grid(silent=True).max_steps(1).trial_timeout(0.3)
        assert runner.maximize(R).spaces(SPACE).add_event_set(failures).run() is None
        assert scheduler.task_reports[0]["result"] == {"status": "time out"}
        assert len(scheduler.task_list) == 1
    (error,) = failures.errors
    assert isinstance(error, TrialTimeout) and str(error) == "the try took longer than 0.3 seconds"


def test_trial_timeout_raises_in_a_function():
    failures = Failures()

    def slow(config):
        if config["x"] < 0.5:
            while True:
                threading.Event().wait(0.01)
        return config["x"]

    runner = hpo(slow).grid(silent=True).max_steps(2).max_workers(1).trial_timeout(0.2)
    config, value, _ = runner.maximize(R).spaces({"x": uniform(0, 1)}).add_event_set(failures).run()
    assert value == 1.0
    (error,) = failures.errors
    assert isinstance(error, TrialTimeout) and failures.metrics[0]["attempt"] == 1


def test_trial_timeout_leaves_quick_tries_alone():
    def quick(config):
        if config["x"] == 0:
            raise Skip
        return config["x"]

    runner = hpo(quick).grid(silent=True).max_steps(50).trial_timeout(60)
    assert runner.maximize(R).spaces({"x": uniform(0, 1)}).run()[1] == 1.0
    with pytest.raises(ValueError, match="trial_timeout"):
        runner.trial_timeout("soon")


# --- how a configuration reaches the program ---

PROGRAM = """#!/bin/sh
{
  printf '{"config": "%s", "argv": "%s", "lr": "%s"}' "$HPO_CONFIG" "$*" "$HPO_PARAM_policy__lr"
} > "$HPO_RESULT_FILE"
"""
CONFIG = {"policy": {"lr": 1e-05, "layers": [64, 32], "name": 'a "b"', "on": True, "off": None}}


@pytest.fixture
def shell(tmp_path):
    """shell(inject): what a program that is not Python was given."""
    program = tmp_path / "train.sh"
    program.write_text(PROGRAM)
    program.chmod(0o755)

    def run(inject, config=CONFIG):
        with run_scheduler_local(str(program), inject, workdir=str(tmp_path), inject=inject) as scheduler:
            return scheduler.submit(config).result(DEADLINE_S)

    return run


def test_inject_json(shell):
    given = shell("json")
    with open(given["config"], encoding="utf-8") as file:
        assert json.load(file) == {**CONFIG, "exp_name": "json-0"}
    assert given["argv"] == ""


def test_inject_yaml(shell):
    yaml = pytest.importorskip("yaml")
    with open(shell("yaml")["config"], encoding="utf-8") as file:
        assert yaml.safe_load(file) == {**CONFIG, "exp_name": "yaml-0"}


def test_inject_env(shell):
    assert shell("env", {"policy": {"lr": 0.25}}) == {"config": "", "argv": "", "lr": "0.25"}


def test_inject_argv(shell):
    given = shell("argv", {"policy": {"lr": 0.25, "layers": [1, 2], "name": "adam"}})
    assert given["argv"] == "--policy.lr=0.25 --policy.layers=[1, 2] --policy.name=adam --exp_name=argv-0"


def test_a_python_program_is_started_with_python(tmp_path):
    template = write(tmp_path, """
        import json, os
        with open(os.environ["HPO_CONFIG"]) as config, open(os.environ["HPO_RESULT_FILE"], "w") as out:
            json.dump({"lr": json.load(config)["policy"]["lr"]}, out)
        """, "plain.py")  # fmt: skip
    with run_scheduler_local(str(template), "p", workdir=str(tmp_path), inject="json") as scheduler:
        assert scheduler.submit(CONFIG).result(DEADLINE_S) == {"lr": 1e-05}


@pytest.mark.parametrize("value", [float("nan"), {1, 2}, object()])
def test_what_is_not_json_is_refused(shell, value):
    with pytest.raises(ValueError, match="not JSON"):
        shell("json", {"x": value})


def test_bad_ways_of_starting(tmp_path, shell):
    plain = write(tmp_path, "no program", "notes.txt")
    with pytest.raises(ValueError, match="neither a Python file nor executable"):
        run_scheduler_local(str(plain), "p", workdir=str(tmp_path), inject="argv")
    with pytest.raises(ValueError, match="inject is one of python, json, yaml, env, argv"):
        run_scheduler_local(str(plain), "p", workdir=str(tmp_path), inject="xml")
    with pytest.raises(ValueError, match="cannot be handed over"):
        shell("argv", {"a=b": 1})
    with pytest.raises(OSError):
        run_scheduler_local(str(tmp_path / "nothing"), "p", workdir=str(tmp_path), inject="argv")


@pytest.mark.parametrize("value", [0.1, 1e-5, 1e22, -1.5e300, 5e-324, 1.0, float("inf"), float("-inf")])
def test_numbers_of_yaml(value):
    yaml = pytest.importorskip("yaml")
    assert yaml.safe_load(_inject.yaml_text({"a": value, "b": {"c": [value, {"d": "1e5"}], "e": {}}})) == {
        "a": value, "b": {"c": [value, {"d": "1e5"}], "e": {}},
    }  # fmt: skip


# --- GPUs ---

SHOWS_GPU = """
if __name__ == "__main__":
    with open(os.environ["HPO_RESULT_FILE"], "w") as file:
        json.dump(os.environ.get("CUDA_VISIBLE_DEVICES"), file)
    while not os.path.exists("go"):
        time.sleep(0.01)
"""


def test_trials_have_gpus_of_their_own(tmp_path):
    with local(tmp_path, SHOWS_GPU, max_number_of_running_task=8, gpus=[3, 5, 6], slots_per_task=1) as scheduler:
        futures = [scheduler.submit(start_of(0.5)) for _ in range(5)]
        wait_until(lambda: scheduler.task_running_id == [0, 1, 2])
        assert scheduler.task_waiting_id == [3, 4] and not scheduler.monitor_resource()
        (tmp_path / "cartpole" / "go").touch()
        shown = [future.result(DEADLINE_S) for future in futures]
        assert sorted(shown[:3]) == ["3", "5", "6"] and set(shown) == {"3", "5", "6"}
        assert scheduler.monitor_resource()


def test_shares_of_gpus():
    pairs = GpuSlots([0, 1, 2], 2)
    taken = pairs.take()
    assert taken == ["0", "1"] and not pairs.fits() and pairs.take() is None
    pairs.give_back(taken)
    assert pairs.fits()
    thirds = GpuSlots(["a", "b"], 1 / 3)
    shared = [thirds.take() for _ in range(6)]
    assert shared == [["a"], ["b"]] * 3 and thirds.take() is None
    thirds.give_back(["b"])
    assert thirds.take() == ["b"]


@pytest.mark.parametrize("gpus, per_task", [([], 1), ([0, 0], 1), ([0], 2), ([0], 0), ([0, 1], 1.5), ([0], 0.3), ([0], "x"), (["0,1"], 1)])
def test_impossible_gpus(gpus, per_task):
    with pytest.raises(ValueError):
        GpuSlots(gpus, per_task)


def test_slots_need_gpus(tmp_path):
    with pytest.raises(ValueError, match="slots_per_task is a number of gpus"):
        local(tmp_path, WRITES, slots_per_task=2)


# --- results ---


def test_messagepack_as_data():
    values = {
        b"\xc0": None, b"\xc2": False, b"\xc3": True, b"\x05": 5, b"\xff": -1, b"\xcc\xff": 255,
        b"\xcd\x01\x00": 256, b"\xce\x00\x01\x00\x00": 65536, b"\xcf" + b"\xff" * 8: 2**64 - 1,
        b"\xd0\x80": -128, b"\xd3" + b"\xff" * 8: -1, b"\xca\x3f\xc0\x00\x00": 1.5,
        b"\xcb\x3f\xf8" + b"\x00" * 6: 1.5, b"\xa2hi": "hi", b"\xd9\x02hi": "hi", b"\xc4\x02hi": b"hi",
        b"\x92\x01\x02": [1, 2], b"\xdc\x00\x01\x01": [1], b"\x81\xa1a\x01": {"a": 1},
        b"\xde\x00\x01\xa1a\x01": {"a": 1},
    }  # fmt: skip
    for data, value in values.items():
        read = _msgpack.loads(data)
        assert read == value and type(read) is type(value)
        for end in range(len(data)):
            with pytest.raises(ValueError):
                _msgpack.loads(data[:end])
        with pytest.raises(ValueError):
            _msgpack.loads(data + b"\x00")
    for bad in (b"\xc1", b"\xd4\x01\x00", b"\x91" * 200 + b"\x00", b"\xdd\xff\xff\xff\xff", b"\x81\x90\x01", b"\xa1\xff"):
        with pytest.raises(ValueError):
            _msgpack.loads(bad)


WRITES_ALL = """
if __name__ == "__main__":
    os.makedirs(main_config["exp_name"])
    with open(main_config["exp_name"] + "/result.msgpack", "wb") as file:
        file.write(b"\\x81\\xa1f\\xa7msgpack")
    with open(main_config["exp_name"] + "/result.pkl", "wb") as file:
        pickle.dump({"f": "pickle"}, file)
"""


@pytest.mark.parametrize("form, found", [("auto", "msgpack"), ("msgpack", "msgpack"), ("pickle", "pickle")])
def test_formats_of_results(tmp_path, form, found):
    with local(tmp_path, WRITES_ALL, result_format=form) as scheduler:
        assert scheduler.submit(start_of(0.5)).result(DEADLINE_S) == {"f": found}


def test_a_result_in_another_format_is_none(tmp_path):
    with local(tmp_path, WRITES_ALL, result_format="json") as scheduler:
        with pytest.raises(TrialFailed) as failed:
            scheduler.submit(start_of(0.5)).result(DEADLINE_S)
    assert "cartpole-0/result.json" in failed.value.log_tail
    with pytest.raises(ValueError, match="result_format is one of"):
        local(tmp_path, WRITES, on_exists="reuse", result_format="csv")


def test_files_that_are_not_kept(tmp_path):
    body = 'if __name__ == "__main__":\n    if os.environ["HPO_TASK_ID"] == "1": sys.exit(7)\n' + WRITES
    with local(tmp_path, body, keep_files=False) as scheduler:
        scheduler.submit(start_of(0.5)).result(DEADLINE_S)
        with pytest.raises(TrialFailed):
            scheduler.submit(start_of(0.5)).result(DEADLINE_S)
    left = sorted(entry.name for entry in (tmp_path / "cartpole").iterdir())
    assert left == ["1.py", "cartpole-0", "cartpole-1-log"]


# --- processes that a trial starts ---

ESCAPES = """
if __name__ == "__main__":
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.closerange(0, 3)
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            with open("escaped.tmp", "w") as file:
                file.write(str(os.getpid()))
            os.rename("escaped.tmp", "escaped")
            time.sleep(600)
        os._exit(0)
    while not os.path.exists("escaped"):
        time.sleep(0.01)
"""
STAYS = """
    print("ready", flush=True)
    time.sleep(600)
"""


def is_gone(pid):
    """Whether there is no such process."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def escaped_of(folder):
    path = folder / "cartpole" / "escaped"
    wait_until(path.exists)
    return int(path.read_text())


def test_what_escaped_its_process_group_ends_with_the_trial(tmp_path):
    body = ESCAPES + WRITES.replace('if __name__ == "__main__":', "")
    with local(tmp_path, body) as scheduler:
        assert scheduler.submit(start_of(0.5)).result(DEADLINE_S) == {"eval_value": 50.0}
        assert is_gone(escaped_of(tmp_path))


@pytest.mark.parametrize("how", ["time out", "stop"])
def test_what_escaped_its_process_group_ends_with_a_cancelled_trial(tmp_path, how):
    with local(tmp_path, ESCAPES + STAYS, time_out=2.0 if how == "time out" else None) as scheduler:
        future = scheduler.submit(start_of(0.5))
        pid = escaped_of(tmp_path)
        if how == "stop":
            scheduler.stop()
        with pytest.raises((TrialFailed, SchedulerStopped)):
            future.result(DEADLINE_S)
        assert is_gone(pid)


TUNER = """
import time
from divisi.tune.scheduler import run_scheduler_local
scheduler = run_scheduler_local("template.py", "cartpole", grace=0.2)
scheduler.submit({})
while not scheduler.task_list[0].pid:
    time.sleep(0.01)
print(scheduler.task_list[0].pid, flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGABRT])
def test_trials_of_a_killed_tuner_end_with_it(tmp_path, number):
    write(tmp_path, HEAD + ESCAPES + STAYS, "template.py")
    tuner = subprocess.Popen([sys.executable, "-c", TUNER], cwd=tmp_path, env=environment(),
                             stdout=subprocess.PIPE, text=True)  # fmt: skip
    guard = int(tuner.stdout.readline())
    escaped = escaped_of(tmp_path)
    tuner.send_signal(number)
    assert tuner.wait(DEADLINE_S) == -number
    wait_until(lambda: is_gone(guard) and is_gone(escaped))
    tuner.stdout.close()


def test_exit_codes_and_signals_of_a_program_are_its_own(tmp_path):
    for project, end, code in (("a", "sys.exit(5)", 5), ("b", "os.kill(os.getpid(), signal.SIGSEGV)", -signal.SIGSEGV)):
        template = write(tmp_path, f'{HEAD}if __name__ == "__main__":\n    {end}\n', "template.py")
        with run_scheduler_local(str(template), project, workdir=str(tmp_path)) as scheduler:
            with pytest.raises(TrialFailed) as failed:
                scheduler.submit({}).result(DEADLINE_S)
        assert failed.value.exit_code == code


def test_an_interpreter_that_is_not_there(tmp_path):
    with local(tmp_path, WRITES, python="/no/such/python", missing="ok") as scheduler:
        with pytest.raises(TrialFailed) as failed:
            scheduler.submit(start_of(0.5)).result(DEADLINE_S)
    assert failed.value.exit_code == 127 and "/no/such/python: No such file or directory" in failed.value.log_tail
