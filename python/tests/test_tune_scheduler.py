"""Trials as programs: divisi.tune.scheduler."""

import concurrent.futures
import json
import logging
import os
import pickle
import re
import runpy
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from compat_tools import compat, environment, write
from divisi.tune import EventSet, R, choice, hpo, uniform
from divisi.tune import _inject, _local_trials, _pickles, _templates
from divisi.tune.scheduler import (
    SchedulerError, SchedulerFull, SchedulerStopped, Task, TrialFailed, run_scheduler,
    run_scheduler_local,
)  # fmt: skip

DEADLINE_S = 120

HEAD = """
import json, os, pickle, signal, sys, time
main_config = {"exp_name": "template", "policy": {"other": {"eps": {"start": 0.95, "end": 0.1}}}}

"""
WRITES = """
if __name__ == "__main__":
    os.makedirs(main_config["exp_name"])
    value = {"eval_value": 100 * main_config["policy"]["other"]["eps"]["start"]}
    with open(main_config["exp_name"] + "/result.pkl", "wb") as file:
        pickle.dump(value, file)
"""
SPACE = {"policy": {"other": {"eps": {"start": uniform(0.5, 1)}}}}


@pytest.fixture
def scheduler_of(tmp_path):
    """scheduler_of(body, **settings): a scheduler over a template with that body; stopped at the end."""
    made = []

    def make(body, project="cartpole", **settings):
        template = write(tmp_path, HEAD + body, "template.py")
        made.append(run_scheduler_local(str(template), project, workdir=str(tmp_path), **settings))
        return made[-1]

    yield make
    for scheduler in made:
        scheduler.stop()


def start_of(value):
    return {"policy": {"other": {"eps": {"start": value}}}}


def group_is_gone(pid):
    try:
        os.killpg(pid, 0)
    except ProcessLookupError:
        return True
    return False


def wait_until(condition):
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_H073_names_and_flags_of_a_task():
    task = Task()
    flags = "defined running waiting finish success".split()
    others = "task_id hpo_id task_name hyper_parameter_info pid process start_time emit_time".split()
    assert [getattr(task, name) for name in flags] == [False] * 5 and task.normal is True
    assert [getattr(task, name) for name in others] == [None] * 8
    task.define(100, "cartpole", {"DI-toolkit-hpo-id": 0, "p1": 1}, naming="hpo-id")
    assert task.task_name == "cartpole-hpo-id-0-task-100" and task.hpo_id == "0"
    flat = Task()
    flat.define(100, "cartpole", {"DI-toolkit-hpo-id": 0, "p1": 1})
    assert flat.task_name == "cartpole-100"
    for one in (task, flat):
        assert [getattr(one, name) for name in flags] == [True] + [False] * 4 and one.normal is True
    unnumbered = Task()
    unnumbered.define(100, "cartpole", {})
    assert unnumbered.hpo_id == "101"


def test_H074_lines_of_a_main_file(tmp_path):
    template = tmp_path / "t.py"
    template.write_text('import os\nmain_config = {}\nif __name__ == "__main__":\n    print(1)\n')
    task = Task()
    task.define(7, "cartpole", {"DI-toolkit-hpo-id": 0, "p1": 1, "p2": 2})
    task.write_config_file(str(template), str(tmp_path / "out.py"))
    assert (tmp_path / "out.py").read_text().splitlines() == [
        "import os", "main_config = {}", 'main_config["DI-toolkit-hpo-id"] = 0',
        'main_config["p1"] = 1', 'main_config["p2"] = 2', 'main_config["exp_name"] = "cartpole-7"',
        'if __name__ == "__main__":', "    print(1)",
    ]  # fmt: skip


@pytest.mark.parametrize("text", ["main_config = {}\n", 'if __name__ == "__main__":\n    pass\n'])
def test_H075_incomplete_template(text):
    with pytest.raises(ValueError):
        _templates.generate(text, {}, "a")


@pytest.mark.parametrize("guard", ["if __name__ == '__main__':", 'if __name__=="__main__":',
                                   "if __name__ is '__main__':", "if __name__ == '__main__': main()"])  # fmt: skip
def test_H076_guards(guard):
    lines = _templates.generate(f"main_config = {{}}\n{guard}\n    pass", {"a": 1}, "n")
    assert lines[1:4] == ['main_config["a"] = 1\n', 'main_config["exp_name"] = "n"\n', guard + "\n"]


@pytest.mark.parametrize("guard", ["  if __name__ == '__main__':", "if '__main__' == __name__:"])
def test_H076_what_is_not_a_guard(guard):
    with pytest.raises(ValueError):
        _templates.generate(f"main_config = {{}}\n{guard}\n    pass", {}, "n")


@pytest.mark.parametrize("value", ['a"b\n', "it's \\ \u00e9 \x00", float("inf"), float("-inf"), True, None,
                                   [1, {"a": (2,)}], {"k": {3: "x"}}, {}, b"\xff", -1.5e-9, {1, 2}])  # fmt: skip
def test_H077_values_arrive_as_they_are(value):
    lines = _templates.generate("main_config = {}\nif __name__ == '__main__':\n    pass\n", {"v": value}, "n")
    scope = {"__name__": "trial", "main_config": {"v": {"k": {}}}}
    exec("".join(lines[1:]), scope)
    assert scope["main_config"]["v"] == value


def test_values_without_a_literal_are_refused(scheduler_of):
    with pytest.raises(ValueError, match="object"):
        scheduler_of(WRITES).submit(start_of(object()))
    endless = {}
    endless["a"] = endless
    with pytest.raises(ValueError):
        _templates.literal(endless)


def test_H083_table_only_after_a_change(scheduler_of, caplog):
    scheduler = scheduler_of(WRITES)
    scheduler.task_defined_id[:] = list(range(12))
    scheduler.task_running_id[:] = [8]
    scheduler.task_waiting_id[:] = [9, 10, 11]
    scheduler.task_finished_id[:] = list(range(8))
    scheduler.task_success_id[:] = [1, 3, 4, 5, 6, 7]
    scheduler.task_abnormal_id[:] = [0, 2]
    table = """
+---------------+----------------------------------------+
| status        | instances                              |
+===============+========================================+
| task_defined  | [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11] |
+---------------+----------------------------------------+
| task_running  | [8]                                    |
+---------------+----------------------------------------+
| task_waiting  | [9, 10, 11]                            |
+---------------+----------------------------------------+
| task_finished | [0, 1, 2, 3, 4, 5, 6, 7]               |
+---------------+----------------------------------------+
| task_success  | [1, 3, 4, 5, 6, 7]                     |
+---------------+----------------------------------------+
| task_abnormal | [0, 2]                                 |
+---------------+----------------------------------------+"""
    with caplog.at_level(logging.INFO):
        scheduler.report_status()
        scheduler.report_status()
    (message,) = [record.getMessage() for record in caplog.records]
    assert re.fullmatch(r"Scheduler: report at time: \d\d:\d\d:\d\d", message.split("\n")[0])
    assert message[message.index("\n"):] == table
    scheduler.task_defined_id.extend(range(12, 60))
    caplog.clear()
    with caplog.at_level(logging.INFO):
        scheduler.report_status()
        scheduler.report_status()
    (message,) = [record.getMessage() for record in caplog.records]
    assert "| task_defined  | [0-59]" in message
    for ids in (scheduler.task_running_id, scheduler.task_waiting_id):
        ids.clear()


GUIDE = """
import os
from ditk import logging
from ditk.scheduler import run_scheduler_local
from ditk.hpo import R, randint, quniform, choice, uniform
from ditk.hpo import hpo


def demo():

    scheduler = run_scheduler_local(
        task_config_template_path=os.path.join(os.path.dirname(__file__), "template/cartpole_dqn_config.py"),
        dijob_project_name="cartpole_dqn_hpo")

    hpo_info = {'policy': {'other': {'eps': {'start': uniform(0.5, 1)}}}}

    opt = hpo(scheduler.enable_hpo())
    cfg, ret, metrics = opt.grid() \\
        .max_steps(5) \\
        .max_workers(4) \\
        .maximize(R['eval_value']) \\
        .spaces(hpo_info).run()
    print(cfg)
    print(ret)

    scheduler.stop()
    print(scheduler.task_success_id)


if __name__ == "__main__":
    logging.try_init_root(logging.INFO)
    demo()
"""


def test_H085_program_of_the_guide(tmp_path):
    write(tmp_path, HEAD + WRITES, "template/cartpole_dqn_config.py")
    out = compat(tmp_path, GUIDE).splitlines()
    assert out[0] == str({"policy": {"other": {"eps": {"start": 1.0}}}})
    assert out[1] == "{'eval_value': 100.0}"
    assert sorted(json.loads(out[2])) == [0, 1, 2, 3, 4]
    starts = set()
    for number in range(5):
        text = (tmp_path / "cartpole_dqn_hpo" / f"{number}.py").read_text()
        starts |= set(re.findall(r'^main_config\["policy"\]\["other"\]\["eps"\]\["start"\] = (.*)$', text, re.M))
        assert f'main_config["exp_name"] = "cartpole_dqn_hpo-{number}"\n' in text
        assert "DI-toolkit" not in text
    assert starts == {"0.5", "0.625", "0.75", "0.875", "1.0"}


def test_H086_trial_without_a_result(scheduler_of):
    scheduler = scheduler_of('if __name__ == "__main__":\n    print("said something")\n')
    errors = []

    class Listener(EventSet):
        def step_fail(self, task, failure):
            errors.append(failure.error)

    runner = hpo(scheduler.get_hpo_callable()).grid(silent=True).max_steps(1).maximize(R["eval_value"])
    assert runner.spaces(SPACE).add_event_set(Listener()).run() is None
    assert len(scheduler.task_list) == 3 and scheduler.task_abnormal_id == [0, 1, 2]
    assert isinstance(errors[0], TrialFailed) and str(errors[0]).endswith("current status is: fail")


def test_a_failed_trial_says_why(scheduler_of):
    body = 'if __name__ == "__main__":\n    raise KeyError("policy")\n'
    with pytest.raises(TrialFailed) as failed:
        scheduler_of(body).submit(start_of(0.5)).result(DEADLINE_S)
    assert failed.value.reason == "exit code 1: KeyError: 'policy'"
    plain = "Scheduler: hpo-id-1-task-0 is not successful, current status is: fail"
    assert str(failed.value) == f"exit code 1: KeyError: 'policy'; {plain}" and failed.value.args == (plain,)
    assert "KeyError: 'policy'" in repr(failed.value)


def test_variables_of_the_environment_have_one_name_each():
    assert _inject.env_name(["policy", "lr"]) == "HPO_PARAM_policy__lr"
    assert _inject.env_name(["a-b.c d", 0]) == "HPO_PARAM_a_b_c_d__0"
    _inject.check("env", {"a": {"b": 1}, "a_b": 2})
    with pytest.raises(ValueError, match="'a.b' and 'a__b' would both be HPO_PARAM_a__b"):
        _inject.check("env", {"a": {"b": 1}, "a__b": 2})
    with pytest.raises(ValueError, match="'exp_name' and 'exp-name' would both be HPO_PARAM_exp_name"):
        _inject.check("env", {"exp-name": 1})
    _inject.check("argv", {"a": {"b": 1}, "a__b": 2})


def test_exit_status_counts(scheduler_of):
    body = WRITES + "    sys.exit(3)\n"
    with pytest.raises(TrialFailed) as failed:
        scheduler_of(body).submit(start_of(0.5)).result(DEADLINE_S)
    assert failed.value.exit_code == 3
    tolerant = scheduler_of(body, project="other", require_exit_zero=False)
    assert tolerant.submit(start_of(0.5)).result(DEADLINE_S) == {"eval_value": 50.0}


STUBBORN = """
if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if os.fork() == 0:
        time.sleep(600)
    print("ready", flush=True)
    time.sleep(600)
"""


def test_H087_time_out_ends_the_whole_group(scheduler_of):
    scheduler = scheduler_of(STUBBORN, time_out=2.0, grace=0.2)
    with pytest.raises(TrialFailed) as failed:
        scheduler.submit(start_of(0.5)).result(DEADLINE_S)
    assert failed.value.status == "time out" and failed.value.final
    assert scheduler.task_reports[0]["result"] == {"status": "time out"}
    wait_until(lambda: group_is_gone(scheduler.task_list[0].pid))


# The first process does nothing with the signal; the one that it started cleans up.
CLEAN_SHELL = """#!/bin/sh
trap : TERM
sh -c 'trap "echo cleaned > cleaned; exit" TERM; echo $$ > ready; while :; do sleep 0.01; done' &
child=$!
while kill -0 $child 2>/dev/null; do wait $child; done
"""


def test_H087_the_whole_group_is_asked_to_end_before_it_is_killed(tmp_path):
    program = write(tmp_path, CLEAN_SHELL, "train.sh")
    program.chmod(0o755)
    settings = {"workdir": str(tmp_path), "inject": "argv", "grace": 30.0}
    with run_scheduler_local(str(program), "clean", **settings) as scheduler:
        scheduler.submit({})
        wait_until((tmp_path / "clean" / "ready").exists)
    assert (tmp_path / "clean" / "cleaned").read_text() == "cleaned\n"


STUBBORN_SHELL = """#!/bin/sh
trap '' TERM
sleep 600 &
echo $$ $! > pids
wait
"""


def process_is_gone(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def test_H087_nothing_is_left_when_the_time_out_is_told(tmp_path):
    program = write(tmp_path, STUBBORN_SHELL, "train.sh")
    program.chmod(0o755)
    settings = {"workdir": str(tmp_path), "inject": "argv", "time_out": 2.0, "grace": 0.2}
    with run_scheduler_local(str(program), "stubborn", **settings) as scheduler:
        with pytest.raises(TrialFailed, match="current status is: time out"):
            scheduler.submit({}).result(DEADLINE_S)
        started = [int(pid) for pid in (tmp_path / "stubborn" / "pids").read_text().split()]
        assert len(started) == 2 and all(map(process_is_gone, started))


LEAVES_A_NAMED_DAEMON = """
if __name__ == "__main__":
    if os.fork() == 0:
        os.setsid()
        with open("/proc/self/comm", "w") as name:
            name.write("a\\nb) S 1")
        with open("daemon.part", "w") as file:
            file.write(str(os.getpid()))
        os.rename("daemon.part", "daemon")
        time.sleep(600)
    while not os.path.exists("daemon"):
        time.sleep(0.01)
    with open(os.environ["HPO_RESULT_FILE"], "w") as file:
        file.write("{}")
"""


def test_a_newline_in_a_name_saves_no_process(scheduler_of, tmp_path):
    scheduler_of(LEAVES_A_NAMED_DAEMON).submit(start_of(0.5)).result(DEADLINE_S)
    assert process_is_gone(int((tmp_path / "cartpole" / "daemon").read_text()))


def test_H084_stop_ends_running_and_waiting_trials(scheduler_of):
    scheduler = scheduler_of(STUBBORN, grace=0.2, max_number_of_running_task=1, max_number_of_tasks=2)
    futures = [scheduler.submit(start_of(0.5)) for _ in range(2)]
    with pytest.raises(SchedulerFull):
        scheduler.submit(start_of(0.5))
    wait_until(lambda: scheduler.task_list[0].pid is not None)
    assert scheduler.task_running_id == [0] and scheduler.task_waiting_id == [1]
    scheduler.stop()
    for future in futures:
        with pytest.raises(SchedulerStopped):
            future.result(0)
    assert scheduler.task_running_id == [] and sorted(scheduler.task_abnormal_id) == [0, 1]
    wait_until(lambda: group_is_gone(scheduler.task_list[0].pid))
    with pytest.raises(SchedulerStopped):
        scheduler.submit(start_of(0.5))


ENDLESS_PROGRAM = """
import os, pathlib, sys, time
from divisi.tune.scheduler import run_scheduler_local
scheduler = run_scheduler_local("template.py", "cartpole", grace=0.2)
scheduler.submit({})
log = pathlib.Path("cartpole/cartpole-0-log/log.txt")
while not (log.exists() and "ready" in log.read_text() and scheduler.task_list[0].pid):
    time.sleep(0.01)
print(scheduler.task_list[0].pid, flush=True)
child = os.fork()
if child == 0:
    sys.exit()
os.waitpid(child, 0)
assert scheduler.task_list[0].process.poll() is None, "ended by a process that was forked"
raise RuntimeError("after the first trial began")
"""


def test_trials_end_with_the_program(tmp_path):
    write(tmp_path, HEAD + STUBBORN, "template.py")
    done = subprocess.run([sys.executable, "-c", ENDLESS_PROGRAM], cwd=tmp_path, env=environment(),
                          capture_output=True, text=True, timeout=DEADLINE_S)  # fmt: skip
    assert "after the first trial began" in done.stderr and done.returncode == 1
    try:
        wait_until(lambda: group_is_gone(int(done.stdout)))
    finally:
        if not group_is_gone(int(done.stdout)):
            os.killpg(int(done.stdout), signal.SIGKILL)


def test_cancel_of_one_search_leaves_the_others(scheduler_of):
    scheduler = scheduler_of("""
if __name__ == "__main__":
    with open(os.environ["HPO_RESULT_FILE"], "w") as file:
        json.dump(main_config["policy"]["other"]["eps"], file)
    while main_config["policy"]["other"]["eps"]["end"] > 1 and not os.path.exists("go"):
        time.sleep(0.01)
""", grace=0.2, max_number_of_running_task=2)  # fmt: skip
    slow = {"policy": {"other": {"eps": {"start": 0.5, "end": 2}}}}
    other = scheduler.submit(slow)
    cancelled, follower = scheduler.enable_hpo(), scheduler.enable_hpo()
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        futures = [pool.submit(cancelled, slow, step) for step in (1, 2)]
        wait_until(lambda: scheduler.task_running_id == [0, 1] and scheduler.task_waiting_id == [2])
        cancelled.cancel()
        for future in futures:
            with pytest.raises(SchedulerStopped):
                future.result(DEADLINE_S)
    assert not other.done() and scheduler.task_running_id == [0]
    assert follower(start_of(0.25), 3)["start"] == 0.25
    (scheduler._folder / "go").touch()
    assert other.result(DEADLINE_S)["end"] == 2
    assert sorted(scheduler.task_abnormal_id) == [1, 2]


def test_line_of_a_successful_trial(scheduler_of, caplog):
    with caplog.at_level(logging.INFO):
        scheduler_of(WRITES).enable_hpo()(start_of(0.5), 7)
    line = "Scheduler: hpo-id-7-task-0 is successful, of which the return is:\n{'eval_value': 50.0}"
    assert line in [record.getMessage() for record in caplog.records]


@pytest.mark.parametrize("side", ["'{' + ' ' * (64 << 20) + '}'", "'[' * 100000", "'no JSON'"])
def test_side_file_that_cannot_be_read_is_left_out(scheduler_of, side):
    body = WRITES + f"""
    with open(main_config["exp_name"] + "/result.txt", "w") as file:
        file.write({side})
    with open(main_config["exp_name"] + "/results.txt", "w") as file:
        json.dump({{"steps": 3}}, file)
"""
    scheduler = scheduler_of(body)
    assert scheduler.submit(start_of(0.5)).result(DEADLINE_S) == {"eval_value": 50.0}
    assert scheduler.task_reports[0]["result"] == {"status": "success", "steps": 3}


@pytest.mark.parametrize("ahead_s", [0, 60])  # of this machine's clock
@pytest.mark.parametrize("end", ["pass", "os.abort()"])
def test_H088_stale_result_is_not_taken(scheduler_of, tmp_path, end, ahead_s):
    old = tmp_path / "cartpole" / "cartpole-0"
    old.mkdir(parents=True)
    with pytest.raises(SchedulerError, match="cartpole-0"):
        scheduler_of(WRITES)
    body = f'if __name__ == "__main__":\n    {end}\n'
    scheduler = scheduler_of(body, on_exists="reuse", missing="ok", require_exit_zero=False)
    stale = tmp_path / "cartpole" / "cartpole-1"  # the name of the next trial
    stale.mkdir()
    (stale / "result.pkl").write_bytes(pickle.dumps({"eval_value": 1}))
    now = time.time()
    os.utime(stale / "result.pkl", (now + ahead_s, now + ahead_s))
    with pytest.raises(TrialFailed):
        scheduler.submit(start_of(0.5)).result(DEADLINE_S)
    assert scheduler.task_list[0].task_name == "cartpole-1"
    scheduler_of(WRITES, on_exists="new").submit(start_of(0.5)).result(DEADLINE_S)
    assert (tmp_path / "cartpole-2" / "cartpole-2-0" / "result.pkl").exists()


WAVE = """
if __name__ == "__main__":
    name = os.environ["HPO_TASK_ID"]
    open("started-" + name, "w").close()
    runs = len([n for n in os.listdir() if n.startswith("started-")]) - len(
        [n for n in os.listdir() if n.startswith("ended-")])
    deadline = time.monotonic() + 100
    while int(name) < 16 and not (
            os.path.exists("go") and len([n for n in os.listdir() if n.startswith("started-")]) >= 16):
        if time.monotonic() > deadline:
            sys.exit("the first wave is not complete")
        time.sleep(0.01)
    with open(os.environ["HPO_RESULT_FILE"], "w") as file:
        json.dump({"start": main_config["policy"]["other"]["eps"]["start"], "runs": runs}, file)
    open("ended-" + name, "w").close()
"""


def test_H089_sixteen_of_64_trials_run(scheduler_of, tmp_path):
    scheduler = scheduler_of(WAVE, max_number_of_running_task=16)
    futures = [scheduler.submit(start_of(number / 64)) for number in range(64)]
    wait_until(lambda: len(list(tmp_path.rglob("started-*"))) >= 16)
    assert scheduler.task_running_id == list(range(16))
    assert scheduler.task_waiting_id == list(range(16, 64))
    (tmp_path / "cartpole" / "go").touch()
    results = [future.result(DEADLINE_S) for future in futures]
    assert [result["start"] for result in results] == [number / 64 for number in range(64)]
    assert max(result["runs"] for result in results) <= 16
    assert sorted(scheduler.task_success_id) == list(range(64))


def test_results_as_json_and_where_they_are_looked_for(scheduler_of):
    body = """
if __name__ == "__main__":
    with open(os.environ["HPO_RESULT_FILE"], "w") as file:
        json.dump({"name": os.environ["HPO_TASK_NAME"], "cwd": os.path.basename(os.getcwd())}, file)
"""
    result = scheduler_of(body).submit(start_of(0.5)).result(DEADLINE_S)
    assert result == {"name": "cartpole-0", "cwd": "cartpole"}


def test_keys_that_do_not_exist_are_reported(scheduler_of, caplog):
    scheduler = scheduler_of(WRITES)
    with caplog.at_level(logging.WARNING):
        scheduler.submit({**start_of(0.5), "policy2": 1}).result(DEADLINE_S)
    assert any("has no policy2" in record.getMessage() for record in caplog.records)
    with pytest.raises(ValueError, match="policy2"):
        scheduler_of(WRITES, project="b", missing="error").submit({"policy2": 1})


def test_each_submit_with_a_missing_key_is_refused(scheduler_of):
    scheduler = scheduler_of(WRITES, missing="error")
    for _ in range(2):
        with pytest.raises(ValueError, match="has no policy2"):
            scheduler.submit({"policy2": 1})
    assert scheduler.task_list == []
    assert scheduler.submit(start_of(0.5)).result(DEADLINE_S) == {"eval_value": 50.0}


NEEDS_ITS_SURROUNDINGS = """
main_config[os.environ["ONLY_FOR_TRIALS"]] = os.path.dirname(__file__)
main_config[os.path.basename(sys.executable)] = os.getcwd()
""" + WRITES


def test_template_is_checked_as_trials_run(scheduler_of, tmp_path):
    (tmp_path / "own-python").symlink_to(sys.executable)
    settings = {"python": str(tmp_path / "own-python"), "env": {"ONLY_FOR_TRIALS": "place"}}
    scheduler = scheduler_of(NEEDS_ITS_SURROUNDINGS, missing="error", **settings)
    config = {**start_of(0.5), "place": 1, "own-python": 2}
    assert scheduler.submit(config).result(DEADLINE_S) == {"eval_value": 50.0}


def test_check_that_fails_is_a_warning(scheduler_of, caplog):
    body = 'if "__main__" != __name__:\n    raise RuntimeError("only a program")\n' + WRITES
    with caplog.at_level(logging.WARNING):
        scheduler = scheduler_of(body)
        for _ in range(2):
            scheduler.submit(start_of(0.5)).result(DEADLINE_S)
    (message,) = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
    assert "could not be checked" in message and "only a program" in message
    with pytest.raises(ValueError, match="only a program"):
        scheduler_of(body, project="b", missing="error").submit(start_of(0.5))


def test_bad_settings(scheduler_of, tmp_path):
    with pytest.raises(ValueError):
        scheduler_of(WRITES, project="../outside")
    with pytest.raises(ValueError, match="mode"):
        run_scheduler(str(write(tmp_path, HEAD + WRITES, "t.py")), mode="k8s")
    for settings in ({"naming": "x"}, {"max_number_of_running_task": 0}, {"on_exists": "x"}):
        with pytest.raises(ValueError):
            scheduler_of(WRITES, **settings)
    with pytest.raises(OSError):
        run_scheduler_local(str(tmp_path / "nothing.py"))
    generated = run_scheduler_local(str(tmp_path / "t.py"), workdir=str(tmp_path))
    assert re.fullmatch(r"dijob-project-\d{8}", generated._project)


NUMPY_FLOATS = [
    # pickle.dumps({"eval_value": numpy.float64(1.5)}, 4) of NumPy 1 and of NumPy 2.
    b"\x80\x04}\x8c\neval_value\x8c\x15numpy.core.multiarray\x8c\x06scalar\x93\x8c\x05numpy\x8c\x05dtype\x93"
    b"\x8c\x02f8\x89\x88\x87R(K\x03\x8c\x01<NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
    b"C\x08\x00\x00\x00\x00\x00\x00\xf8?\x86Rs.",
]
NUMPY_FLOATS.append(NUMPY_FLOATS[0].replace(b"\x8c\x15numpy.core", b"\x8c\x16numpy._core"))


@pytest.mark.parametrize("data", NUMPY_FLOATS)
def test_H099_numpy_scalars_without_numpy(data):
    assert _pickles.loads(data) == {"eval_value": 1.5}


# What else DI-engine's serial pipelines put into the dict, in front of the end of the pickle.
DI_ENGINE_REST = (
    b"\x8c\x04stop\x88s\x8c\x08env_stepM\x10\x27s\x8c\ntrain_iterK\x64s"
    b"\x8c\x0bfinish_time\x8c\x18Tue Nov 17 12:00:00 2026s."
)

WITHOUT_NUMPY = """
import sys
sys.modules["numpy"] = None  # as if it were not installed
from divisi.tune import R, hpo, uniform
from divisi.tune.scheduler import run_scheduler_local

with run_scheduler_local("template.py", "cartpole") as scheduler:
    space = {"policy": {"other": {"eps": {"start": uniform(0.5, 1)}}}}
    runner = hpo(scheduler.enable_hpo()).grid(silent=True).max_steps(1).maximize(R["eval_value"])
    _, result, _ = runner.concern(R["eval_value"] * 2, "twice").spaces(space).run(strict=True)
print(type(result["eval_value"]).__name__, result)
"""


@pytest.mark.parametrize("data", NUMPY_FLOATS)
def test_H099_result_of_di_engine_without_numpy(tmp_path, data):
    body = f"""
if __name__ == "__main__":
    os.makedirs(main_config["exp_name"])
    with open(main_config["exp_name"] + "/result.pkl", "wb") as file:
        file.write({data[:-1] + DI_ENGINE_REST!r})
"""
    write(tmp_path, HEAD + body, "template.py")
    done = subprocess.run([sys.executable, "-c", WITHOUT_NUMPY], cwd=tmp_path, env=environment(),
                          capture_output=True, text=True, timeout=DEADLINE_S)  # fmt: skip
    expected = {
        "eval_value": 1.5, "stop": True, "env_step": 10000, "train_iter": 100,
        "finish_time": "Tue Nov 17 12:00:00 2026",
    }  # fmt: skip
    assert done.stdout == f"float {expected}\n", done.stderr


def test_H099_what_numpy_writes():
    numpy = pytest.importorskip("numpy")
    for value in (numpy.float64(1.5), numpy.float32(2.5), numpy.int64(-3), numpy.bool_(True)):
        for protocol in range(2, 6):
            read = _pickles.loads(pickle.dumps({"v": value}, protocol))["v"]
            assert read == value and type(read) in (float, int, bool)


class Malicious:
    def __reduce__(self):
        return os.system, ("touch malicious",)


class Plain:
    pass


def test_H100_nothing_of_a_pickle_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for protocol in range(6):
        read = _pickles.loads(pickle.dumps({"v": Malicious(), "w": Plain()}, protocol))
        assert "system" in repr(read["v"]) and "Plain" in repr(read["w"])
        for use in (lambda: read["v"] + 1, lambda: float(read["v"]), lambda: read["v"] > 1):
            with pytest.raises(TypeError, match="system"):
                use()
        with pytest.raises(ValueError, match="system"):
            _pickles.loads(pickle.dumps(Malicious(), protocol))
    assert not Path("malicious").exists()
    for bad in (b"", b"\x80", b"garbage", pickle.dumps([1])[:-1], pickle.dumps(os.system),
                b"Nr" + (1 << 28).to_bytes(4, "little") + b".", b"Nq\xff.", b"Np268435456\n.", b"Np-1\n."):  # fmt: skip
        with pytest.raises(ValueError):
            _pickles.loads(bad)
    assert _pickles.loads(pickle.dumps({"a": [1, (2.5, None)], "b": {1}, "c": b"x"})) == {
        "a": [1, (2.5, None)], "b": {1}, "c": b"x",
    }  # fmt: skip


def test_H100_step_with_an_opaque_target_fails(scheduler_of, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    body = """
class Evil:
    def __reduce__(self):
        return os.system, ("touch malicious",)

if __name__ == "__main__":
    os.makedirs(main_config["exp_name"])
    with open(main_config["exp_name"] + "/result.pkl", "wb") as file:
        pickle.dump({"eval_value": Evil()}, file)
"""
    errors = []

    class Listener(EventSet):
        def step_fail(self, task, failure):
            errors.append(str(failure.error))

    runner = hpo(scheduler_of(body).enable_hpo()).grid(silent=True).max_steps(1).maximize(R["eval_value"])
    assert runner.spaces(SPACE).add_event_set(Listener()).run() is None
    assert "system" in errors[0]
    assert (tmp_path / "cartpole" / "cartpole-0" / "result.pkl").exists()
    assert list(tmp_path.rglob("malicious")) == []


def test_H077_choices_of_text_reach_the_trial(scheduler_of, tmp_path):
    body = """
if __name__ == "__main__":
    with open(os.environ["HPO_RESULT_FILE"], "w") as file:
        json.dump({"n": len(main_config["exp"]), "read": main_config["exp"]}, file)
"""
    scheduler = scheduler_of(body, missing="ok")
    runner = hpo(scheduler.enable_hpo()).grid(silent=True).max_workers(1).maximize(R["n"])
    config, result, _ = runner.spaces({"exp": choice(['a"b\n', "x"])}).run()
    assert config["exp"] == result["read"] == 'a"b\n'
    imported = runpy.run_path(str(tmp_path / "cartpole" / "0.py"), run_name="imported")
    assert imported["main_config"]["exp"] == 'a"b\n'


def test_trials_without_result_folders_are_not_overwritten(scheduler_of, tmp_path):
    body = (
        'main_config = {"policy": {"other": {"eps": {"start": 1}}}}\n'
        'if __name__ == "__main__":\n'
        "    import os\n"
        '    open(os.environ["HPO_RESULT_FILE"], "w").write("{}")\n'
    )
    scheduler_of(body).submit(start_of(0.5)).result(DEADLINE_S)
    assert not (tmp_path / "cartpole" / "cartpole-0").exists()
    with pytest.raises(SchedulerError, match=r"\(cartpole-0\)"):
        scheduler_of(body)
    again = scheduler_of(body, on_exists="reuse")
    again.submit(start_of(0.6)).result(DEADLINE_S)
    assert again.task_list[0].task_name == "cartpole-1"


def test_a_program_without_a_result_is_told_where_to_write(scheduler_of):
    body = 'main_config = {"policy": {"other": {"eps": {"start": 1}}}}\nif __name__ == "__main__":\n    print(1)\n'
    with pytest.raises(TrialFailed) as raised:
        scheduler_of(body).submit(start_of(0.5)).result(DEADLINE_S)
    assert "result.pkl, or JSON to the file that $HPO_RESULT_FILE names" in raised.value.log_tail


def test_a_future_cannot_be_cancelled_behind_the_schedulers_back(scheduler_of):
    scheduler = scheduler_of(STUBBORN, grace=0.2, max_number_of_running_task=1)
    futures = [scheduler.submit(start_of(0.5)) for _ in range(2)]
    wait_until(lambda: scheduler.task_list[0].pid is not None)
    assert not any(future.cancel() for future in futures)
    scheduler.stop()
    for future in futures:
        with pytest.raises(SchedulerStopped):
            future.result(0)
    wait_until(lambda: group_is_gone(scheduler.task_list[0].pid))


def test_a_time_limit_that_ends_while_a_trial_is_prepared(scheduler_of, monkeypatch):
    scheduler = scheduler_of(STUBBORN, grace=0.2)
    define = scheduler._define

    def slow_define(*args):
        time.sleep(0.3)  # as the first check of a template may take
        return define(*args)

    monkeypatch.setattr(scheduler, "_define", slow_define)
    search = hpo(scheduler.enable_hpo()).random(silent=True).max_steps(1).max_tries(1).trial_timeout(0.1)
    assert search.maximize(R).spaces(start_of(uniform(0, 1))).run() is None
    assert scheduler.task_list[0].status == "time out"


def test_how_a_program_ends_is_known_where_sigchld_is_ignored():
    command = [_local_trials.guard_program(), str(os.getpid()), "100", "sh", "-c", "exit 3"]
    ignore = lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # noqa: E731
    assert subprocess.run(command, preexec_fn=ignore, timeout=30).returncode == 3
