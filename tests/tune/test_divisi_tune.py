"""`divisi tune` over small scripts: results good and bad, interrupts, kills, resumed studies.

DIVISI_BUILD names the build to test (default: build/release of this checkout).
"""

import csv
import io
import json
import os
import pathlib
import pickle
import pty
import random
import re
import resource
import select
import signal
import subprocess
import sys
import time

import pytest

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
DIVISI = REPOSITORY / os.environ.get("DIVISI_BUILD", "build/release") / "bin" / "divisi"
LIMIT_S = 300
X = ["--space", "x=uniform:0,1", "--algo", "random", "--seed", "1"]


def tune(folder, *arguments, **options):
    return subprocess.run(
        [DIVISI, "tune", *map(str, arguments)], cwd=folder, capture_output=True, text=True, timeout=LIMIT_S, **options
    )


def script(folder, name, text):
    path = folder / name
    path.write_text(text)
    return path


def shell(text):
    return ["--", "sh", "-c", text]


def trials(folder, *arguments):
    done = tune(folder, "export", "--json", *arguments)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["trials"]


def one_line(done):
    """The complaint of a program that must complain in one line."""
    lines = done.stderr.splitlines()
    assert len(lines) == 1, done.stderr
    return lines[0]


def wait_for(condition, what):
    deadline = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.01)


def is_gone(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


# --- the ordinary way ---


def test_command_with_placeholders_is_tuned_and_stored(tmp_path):
    done = tune(tmp_path, *X, "--minimize", "R", "--max-steps", 5, "--workers", 2, *shell("echo {x}"))
    assert done.returncode == 0, done.stderr
    found = trials(tmp_path)
    assert [one["number"] for one in found] == [1, 2, 3, 4, 5]
    assert all(one["stage"] == "ok" and one["values"] == [one["config"]["x"]] for one in found)
    best = json.loads(tune(tmp_path, "best").stdout)
    assert best["values"] == [min(one["values"][0] for one in found)]
    assert len(re.findall(r"^trial \d+ ok: R = ", done.stdout, re.M)) == 5
    assert "| task_success  | [" in done.stdout


def test_seed_gives_the_same_trials_again(tmp_path):
    flags = [*X, "--minimize", "R", "--max-steps", 4, "--workers", 1]
    for name in ("a", "b"):
        assert tune(tmp_path, *flags, "--name", name, *shell("echo {x}")).returncode == 0
    configs = [[one["config"] for one in trials(tmp_path, name)] for name in ("a", "b")]
    assert configs[0] == configs[1]


def test_study_file_with_nested_space_and_json_config(tmp_path):
    script(
        tmp_path, "train.py",
        "import json, os\n"
        "config = json.load(open(os.environ['HPO_CONFIG']))\n"
        "json.dump({'reward': -abs(config['policy']['gamma'] - 0.97), 'kind': config['kind']},\n"
        "          open(os.environ['HPO_RESULT_FILE'], 'w'))\n",
    )  # fmt: skip
    (tmp_path / "study.yaml").write_text(
        f"command: [{sys.executable}, train.py]\n"
        "inject: json\n"
        "space: {policy: {gamma: {quniform: [0.9, 1, 0.01]}}, kind: dqn}\n"
        "maximize: reward\n"
        "concern: {what: \"R['kind']\"}\n"
        "algorithm: {name: bayes, seed: 3}\n"
        "max_steps: 12\nworkers: 2\nretries: 0\n"
    )
    done = tune(tmp_path, "study.yaml")
    assert done.returncode == 0, done.stderr
    best = json.loads(tune(tmp_path, "best", "study").stdout)
    assert best["config"]["policy"]["gamma"] == 0.97
    assert "| what" in done.stdout and "| dqn" in done.stdout


@pytest.mark.parametrize("inject", ["argv", "env", "yaml"])
def test_ways_to_hand_over_a_configuration(tmp_path, inject):
    script(
        tmp_path, "show.py",
        "import os, sys\n"
        "yaml = open(os.environ['HPO_CONFIG']).read() if os.environ['HPO_CONFIG'].endswith('yaml') else ''\n"
        "found = [a[6:] for a in sys.argv if a.startswith('--p.x=')] + [os.environ.get('HPO_PARAM_p__x')]\n"
        "found += [line[5:] for line in yaml.splitlines() if line.startswith('  x: ')]\n"
        "print([one for one in found if one][0])\n",
    )  # fmt: skip
    done = tune(
        tmp_path, "--space", "p.x=randint:1,9", "--inject", inject, "--minimize", "R", "--max-steps", 2,
        "--", sys.executable, "show.py",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert all(one["values"] == [one["config"]["p"]["x"]] for one in trials(tmp_path))


def test_environment_names_the_trial_and_its_files(tmp_path):
    done = tune(
        tmp_path, *X, "--name", "env", "--minimize", "R", "--max-steps", 1, "--env", "MINE=7", "--", "sh", "-c",
        "echo $HPO_TRIAL_ID $HPO_TASK_ID $HPO_TASK_NAME $HPO_PROJECT $MINE > seen; echo {x} > $HPO_RESULT_FILE",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "seen").read_text() == "1 0 env-0 env 7\n"
    assert (tmp_path / "env" / "env-0-log" / "log.txt").exists()


TEMPLATE = """\
import json, os
main_config = dict(policy=dict(lr=1.0, name="x"))
if __name__ == "__main__":
    os.makedirs(main_config["exp_name"])
    with open(main_config["exp_name"] + "/result.pkl", "wb") as file:
        import pickle
        pickle.dump({"eval_value": main_config["policy"]["lr"], "name": main_config["policy"]["name"]}, file)
"""


def test_template_of_python_is_filled_and_its_pickle_read(tmp_path):
    script(tmp_path, "main.py", TEMPLATE)
    done = tune(
        tmp_path, "--template", "main.py", "--space", "policy.lr=uniform:0,1", "--space", 'policy.name: {choice: ["a\\"b\\n"]}',
        "--maximize", "eval_value", "--max-steps", 2, "--python", sys.executable,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    for one in trials(tmp_path):
        assert one["return"] == {"eval_value": one["config"]["policy"]["lr"], "name": 'a"b\n'}


def test_gpus_are_shared_out(tmp_path):
    done = tune(
        tmp_path, *X, "--minimize", "R", "--max-steps", 4, "--gpus", 2, "--workers", 4,
        *shell('echo $CUDA_VISIBLE_DEVICES >> gpus; echo {x}'),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert set((tmp_path / "gpus").read_text().split()) <= {"0", "1"}


def test_dry_run_prints_commands_and_stores_nothing(tmp_path):
    done = tune(tmp_path, *X, "--minimize", "R", "--max-steps", 3, "--dry-run", *shell("echo {x}"))
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(r"(sh -c 'echo 0\.\d+'\n){3}", done.stdout)
    assert list(tmp_path.iterdir()) == []


def test_stop_condition_ends_the_search(tmp_path):
    done = tune(
        tmp_path, "--space", "x=randint:1,50", "--algo", "grid", "--maximize", "R", "--stop-when", "R >= 3",
        "--workers", 1, *shell("echo {x}"),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert [one["values"] for one in trials(tmp_path)] == [[1.0], [2.0], [3.0]]


def test_several_objectives_have_a_front(tmp_path):
    done = tune(
        tmp_path, *X, "--maximize", "a", "--minimize", "b", "--max-steps", 6,
        *shell("""echo '{"a": {x}, "b": {x}}'"""),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert len(json.loads(tune(tmp_path, "best").stdout)) == 6
    assert "<svg" in tune(tmp_path, "plot", "--kind", "pareto").stdout


# --- bad usage ---


@pytest.mark.parametrize(
    "arguments, words",
    [
        ([*X, "--minimize", "R", *shell("echo {y}")], "nothing fills the placeholder {y}"),
        ([*X, "--space", "y=uniform:0,1", "--minimize", "R", *shell("echo {x}")], "no placeholder uses the variable 'y'"),
        ([*X, *shell("echo {x}")], "nothing to optimize"),
        ([*X, "--minimize", "R"], "nothing to run"),
        (["--minimize", "R", *shell("echo")], "nothing to search"),
        (["--space", "x=unifrm:0,1", "--minimize", "R", *shell("echo {x}")], "did you mean 'uniform'?"),
        (["--space", "x=uniform:1,0", "--minimize", "R", *shell("echo {x}")], "x: "),
        ([*X, "--minimize", "R[", *shell("echo {x}")], "minimize: "),
        (["--space", "x=uniform:0,1", "--algo", "byes", "--minimize", "R", *shell("echo {x}")], "did you mean 'bayes'?"),
        ([*X, "--max-steps", "many", "--minimize", "R", *shell("echo {x}")], "max_steps: a whole number"),
        ([*X, "--name", "../out", "--minimize", "R", *shell("echo {x}")], "cannot name a folder"),
        (["missing.yaml"], "reading the study file missing.yaml"),
        (["lst"], "there is neither a command nor a study file 'lst', did you mean 'list'?"),
        (["--space", "a.b=uniform:0,1", "--space", "a__b=uniform:0,1", "--inject", "env", "--minimize", "R", *shell("")],
         "'a.b' and 'a__b' would both be HPO_PARAM_a__b"),
        ([*X, "--max-failures", "few", "--minimize", "R", *shell("echo {x}")], "max_failures: a whole number"),
        (["show", "--storage", "missing.db"], "missing.db"),
        (["plot", "--kind", "histroy"], "did you mean 'history'?"),
        ([*X, "--minimize", "R", "--", "no-such-program", "{x}"], "no-such-program"),
    ],
)
def test_wrong_usage_is_one_line(tmp_path, arguments, words):
    done = tune(tmp_path, *arguments)
    assert done.returncode == 2, (done.returncode, done.stderr)
    assert words in one_line(done)


def test_unknown_key_of_a_file_names_file_and_nearest(tmp_path):
    (tmp_path / "study.yaml").write_text("max_step: 3\n")
    assert "study.yaml: there is no key 'max_step', did you mean 'max_steps'?" in one_line(tune(tmp_path, "study.yaml"))
    (tmp_path / "study.yaml").write_text("a: [1\n")
    assert "study.yaml: not valid YAML at line 2" in one_line(tune(tmp_path, "study.yaml"))


def test_two_studies_of_one_name_and_other_spaces(tmp_path):
    flags = ["--minimize", "R", "--max-steps", 2]
    assert tune(tmp_path, *X, *flags, *shell("echo {x}")).returncode == 0
    before = trials(tmp_path)
    again = tune(tmp_path, *X, *flags, *shell("echo {x}"))
    assert again.returncode == 2
    assert "with 2 trials: go on with it (--resume), or give another name (--name NAME)" in one_line(again)
    other = tune(tmp_path, "--space", "x=uniform:0,2", *flags, "--resume", *shell("echo {x}"))
    assert other.returncode == 2
    assert "variable 'x' was uniform(0, 1) and is uniform(0, 2); " in one_line(other)
    assert "go on with the new ones (--allow-space-change)" in one_line(other)
    assert trials(tmp_path) == before


@pytest.mark.parametrize(
    "before, after, words",
    [
        ("loguniform:1e-5,1e-1", "loguniform:1e-4,1e-1", "was loguniform(1e-05, 0.1) and is loguniform(0.0001, 0.1)"),
        ("qloguniform:1,100,2", "qloguniform:1,200,2", "was qloguniform(1, 100, 2) and is qloguniform(1, 200, 2)"),
        ("lograndint:1,64", "lograndint:1,128", "was lograndint(1, 64) and is lograndint(1, 128)"),
        ("randint:1,4", "randint:1,5", "was randint(1, 4) and is randint(1, 5)"),
        ("choice:a,b", "choice:a,c", 'was choice(["a", "b"]) and is choice(["a", "c"])'),
        ("uniform:0,1", "quniform:0,1,0.5", "was uniform(0, 1) and is quniform(0, 1, 0.5)"),
    ],
)
def test_other_bounds_are_told_as_they_were_given(tmp_path, before, after, words):
    flags = ["--minimize", "R", "--max-steps", 1, "--resume", *shell("echo 1 {v}")]
    assert tune(tmp_path, "--space", "v=" + before, "--retries", 0, *flags).returncode == 1  # "1 0.3" is no result
    other = tune(tmp_path, "--space", "v=" + after, *flags)
    assert other.returncode == 2
    assert f"variable 'v' {words};" in one_line(other)


# --- bad trials ---


def failing(folder, command, *flags, error):
    """A study of two trials that both fail, with this in the error of each."""
    done = tune(folder, *X, "--minimize", "R", "--max-steps", 2, "--retries", 0, *flags, "--", *map(str, command))
    assert done.returncode == 1, done.stderr
    assert "no trial succeeded" in one_line(done)
    found = trials(folder)
    assert [one["stage"] for one in found] == ["fail", "fail"]
    assert all(error in one["error"] for one in found), found
    return found


@pytest.mark.parametrize(
    "text, error",
    [
        ("echo done {x}", "no result"),
        ("echo {x}; exit 3", "exit status 3"),
        ("echo {x}; kill -9 $$", "SIGKILL"),
        ("echo nan {x} >&2; echo nan", "the target R is nan"),
        ("""printf '{"a": {x}' > $HPO_RESULT_FILE""", "is no JSON"),
        (": {x}; : > $HPO_RESULT_FILE", "is empty"),
        (": {x}; ln -s /etc/hostname $HPO_RESULT_FILE", "is a link"),
        (": {x}; mkfifo $HPO_RESULT_FILE", "is not a file"),
        (""": {x}; echo '{"loss": 1}'""", "the target R is map"),
    ],
)
def test_result_that_is_missing_or_wrong_fails_the_trial(tmp_path, text, error):
    failing(tmp_path, ["sh", "-c", text], error=error)


def test_target_that_never_appears(tmp_path):
    done = tune(tmp_path, *X, "--maximize", "reward", "--max-steps", 2, *shell("""echo '{"rewrd": {x}, "n": 1}'"""))
    assert done.returncode == 1
    assert (
        "the last line of its output: R['reward']: there is no key 'reward', did you mean 'rewrd'? (there are 'rewrd', 'n')"
    ) in one_line(done)
    assert [one["tries"] for one in trials(tmp_path)] == [1, 1]  # the key would be missing again


def test_key_of_a_result_that_is_a_number(tmp_path):
    done = tune(tmp_path, *X, "--maximize", "reward", "--max-steps", 1, *shell(": {x}; echo 3 > $HPO_RESULT_FILE"))
    assert done.returncode == 1
    file = tmp_path / "study" / "study-0-log" / "result.json"
    assert (
        f"the file {file}: R['reward']: R is the number 3, which has no key 'reward'; the number itself is R"
    ) in one_line(done)
    assert trials(tmp_path)[0]["tries"] == 1


def test_program_that_always_fails_ends_the_search(tmp_path):
    flags = [*X, "--minimize", "R", "--retries", 0, "--workers", 2]
    done = tune(tmp_path, *flags, *shell(": {x}; exit 3"))
    assert done.returncode == 1
    assert "the last 20 trials have failed: the search ends (--max-failures" in done.stdout
    assert 20 <= len(trials(tmp_path)) <= 21  # one may have been running
    done = tune(tmp_path, *flags, "--name", "b", "--max-failures", 2, "--max-steps", 9, *shell(": {x}; exit 3"))
    assert "the last 2 trials have failed" in done.stdout and len(trials(tmp_path, "b")) <= 3
    done = tune(tmp_path, *flags, "--name", "c", "--max-steps", 25, *shell(": {x}; exit 3"))
    assert len(trials(tmp_path, "c")) == 25


def test_failures_between_successes_do_not_end_the_search(tmp_path):
    text = "[ $((HPO_TRIAL_ID % 3)) = 0 ] && echo {x}"
    done = tune(
        tmp_path, *X, "--minimize", "R", "--retries", 0, "--workers", 1, "--max-failures", 3, "--max-steps", 9, *shell(text)
    )
    assert done.returncode == 0, done.stderr
    assert len(trials(tmp_path)) == 9


def test_malicious_pickle_runs_nothing(tmp_path):
    class Evil:
        def __reduce__(self):
            return os.system, (f"touch {tmp_path}/hacked",)

    (tmp_path / "evil").write_bytes(pickle.dumps(Evil()))
    failing(
        tmp_path, ["sh", "-c", ": {x}; cp evil $(dirname $HPO_RESULT_FILE)/result.pkl"],
        error="system",
    )  # fmt: skip
    assert not (tmp_path / "hacked").exists()


def test_stale_result_is_not_taken(tmp_path):
    for task in (0, 1):
        (tmp_path / "study" / f"study-{task}").mkdir(parents=True)
        (tmp_path / "study" / f"study-{task}" / "result.json").write_text("1")
    os.utime(tmp_path / "study" / "study-0" / "result.json", (1, 1))
    os.utime(tmp_path / "study" / "study-1" / "result.json", (1, 1))
    failing(tmp_path, ["sh", "-c", ": {x}"], error="older than the trial")


def test_template_that_does_not_compile_starts_nothing(tmp_path):
    script(tmp_path, "main.py", "main_config = {\nif __name__ == '__main__':\n    pass\n")
    done = tune(tmp_path, "--template", "main.py", "--space", "a=uniform:0,1", "--minimize", "R", "--max-steps", 1)
    assert done.returncode == 2
    assert "main.py: the template fails before its main guard: SyntaxError" in one_line(done)


def test_template_without_the_variable_warns_or_refuses(tmp_path):
    script(tmp_path, "main.py", TEMPLATE)
    flags = ["--template", "main.py", "--space", "policy.learn.lr=uniform:0,1", "--maximize", "eval_value",
             "--max-steps", 1, "--retries", 0]  # fmt: skip
    done = tune(tmp_path, *flags, "--missing", "error")
    assert done.returncode == 2 and "has no policy.learn.lr" in one_line(done)
    assert "warning: main_config of main.py has no policy.learn.lr" in tune(tmp_path, *flags).stdout


def test_time_out_ends_children_that_left_the_group(tmp_path):
    text = ": {x}; (setsid sh -c 'echo $$ > pid; exec sleep 1000' &); while [ ! -s pid ]; do :; done; trap '' TERM; sleep 1000"
    done = tune(
        tmp_path, *X, "--minimize", "R", "--max-steps", 1, "--trial-timeout", "0.5", "--grace", "0.2", *shell(text)
    )
    assert done.returncode == 1
    assert trials(tmp_path)[0]["error"] == "time out after 0.5 s"
    assert is_gone(int((tmp_path / "pid").read_text()))


def test_failed_tries_are_repeated(tmp_path):
    text = "echo try >> tries; [ $(wc -l < tries) -ge 3 ] && echo {x}"
    done = tune(tmp_path, *X, "--minimize", "R", "--max-steps", 1, *shell(text))
    assert done.returncode == 0, done.stderr
    assert trials(tmp_path)[0]["tries"] == 3
    assert "trying again (3/3)" in done.stdout


def test_full_disk_is_one_line_and_the_study_stays(tmp_path):
    flags = [*X, "--minimize", "R", "--max-steps", 40, "--workers", 1]
    assert tune(tmp_path, *flags[:-3], 3, *flags[-2:], *shell("echo {x}")).returncode == 0
    before = trials(tmp_path)
    size = (tmp_path / "divisi-tune.db").stat().st_size

    def limit():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))

    done = tune(tmp_path, *flags, "--resume", *shell("echo {x}"), preexec_fn=limit)
    assert done.returncode in (0, 1), done.stderr
    if done.returncode == 1:
        one_line(done)
    after = trials(tmp_path)
    assert after[: len(before)] == before
    done = tune(tmp_path, *flags, "--resume", *shell("echo {x}"))
    assert done.returncode == 0, done.stderr
    assert [one["stage"] for one in trials(tmp_path)] == ["ok"] * 40


# --- interrupts, kills, several processes ---


def start(folder, *arguments):
    return subprocess.Popen(
        [DIVISI, "tune", *map(str, arguments)], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def test_first_interrupt_lets_trials_finish(tmp_path):
    os.mkfifo(tmp_path / "go")
    running = start(
        tmp_path, *X, "--minimize", "R", "--workers", 1, *shell("echo x >> started; read line < go; echo {x}")
    )
    wait_for((tmp_path / "started").exists, "no trial started")
    running.send_signal(signal.SIGINT)
    line = running.stdout.readline()
    assert line.startswith("interrupted: 1 running trials have 10 s to finish")
    (tmp_path / "go").write_text("go\n")
    running.communicate(timeout=LIMIT_S)
    assert running.returncode == 3
    assert [one["stage"] for one in trials(tmp_path)] == ["ok"]


def test_second_interrupt_ends_them_and_resume_begins_them_again(tmp_path):
    text = "echo $$ >> pids; [ -e ready ] || sleep 1000; echo {x}"
    flags = [*X, "--minimize", "R", "--workers", 2, "--max-steps", 3]
    running = start(tmp_path, *flags, *shell(text))
    wait_for(lambda: (tmp_path / "pids").exists() and len((tmp_path / "pids").read_text().split()) == 2, "not started")
    running.send_signal(signal.SIGINT)
    assert running.stdout.readline().startswith("interrupted")
    running.send_signal(signal.SIGINT)
    running.communicate(timeout=LIMIT_S)
    assert running.returncode == 1
    assert all(is_gone(int(pid)) for pid in (tmp_path / "pids").read_text().split())
    (tmp_path / "ready").touch()
    done = tune(tmp_path, *flags, "--resume", *shell(text))
    assert done.returncode == 0, done.stderr
    found = trials(tmp_path)
    assert [(one["number"], one["stage"]) for one in found] == [(1, "ok"), (2, "ok"), (3, "ok")]


def test_killed_at_random_points_nothing_is_lost_or_repeated(tmp_path):
    """Each trial leaves its number in a file when it ends; a finished one must not run again."""
    steps = 40
    flags = [*X, "--minimize", "R", "--workers", 2, "--max-steps", steps, "--resume"]
    text = "sleep 0.0$(({n} % 3)); echo {x}"
    command = ["--space", "n=randint:0,9", *shell(text)]
    numbers = random.Random(7)
    ends = {}
    for _ in range(20 if os.environ.get("DIVISI_SOAK") else 6):
        running = start(tmp_path, *flags, *command)
        try:
            running.wait(timeout=numbers.uniform(0.02, 0.4))
        except subprocess.TimeoutExpired:
            running.kill()
        running.communicate()
        if not (tmp_path / "divisi-tune.db").exists():
            continue
        listing = tune(tmp_path, "export", "--json")
        if listing.returncode != 0:  # killed before the study was made
            continue
        for one in json.loads(listing.stdout)["trials"]:
            if one["number"] in ends:
                assert one["ended"] == ends[one["number"]], "a finished trial was lost or repeated"
            elif one["stage"] == "ok":
                ends[one["number"]] = one["ended"]
    done = tune(tmp_path, *flags, *command)
    assert done.returncode == 0, done.stderr
    found = trials(tmp_path)
    assert [one["number"] for one in found] == list(range(1, steps + 1))
    assert all(one["stage"] == "ok" for one in found)
    assert all(found[number - 1]["ended"] == ended for number, ended in ends.items())


def test_children_of_a_killed_tuner_are_ended_by_the_next(tmp_path):
    flags = [*X, "--minimize", "R", "--workers", 1, "--max-steps", 1]
    running = start(tmp_path, *flags, *shell(": {x}; sleep 1000 & echo $! > pid; wait"))
    wait_for(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text().endswith("\n"), "not started")
    pid = int((tmp_path / "pid").read_text())
    running.kill()
    running.communicate()
    assert not is_gone(pid)  # nobody could end it
    done = tune(tmp_path, *flags, "--resume", *shell("echo {x}"))
    assert done.returncode == 0, done.stderr
    assert "ended 1 processes that an earlier run left behind" in done.stdout
    # It is a zombie until its new parent reaps it; that parent is not ours.
    wait_for(lambda: is_gone(pid) or "Z" in (pathlib.Path("/proc") / str(pid) / "stat").read_text().split()[2], "it runs")


def test_study_in_memory_prints_its_best(tmp_path):
    done = tune(tmp_path, *X, "--minimize", "R", "--max-steps", 2, "--storage", "memory:", "-q", *shell("echo {x}"))
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(r'best: {"x":0\.\d+}\n', done.stdout)
    flags = [*X, "--minimize", "R", "--max-steps", 2, "--storage", "memory:"]
    done = tune(tmp_path, *flags, *shell("echo {x}"))
    assert re.search(r"^\|\s+# \|\s+x \|\s+R \|\n.*\n\|\s+\d \|", done.stdout, re.M), done.stdout
    done = tune(tmp_path, *flags, "--json", *shell("echo {x}"))
    assert json.loads(done.stdout)["values"] == [json.loads(done.stdout)["config"]["x"]]


def test_two_processes_share_a_study(tmp_path):
    flags = [*X, "--minimize", "R", "--workers", 1, "--max-steps", 30, "--resume"]
    both = [start(tmp_path, *flags, *shell("echo {x}")) for _ in range(2)]
    for one in both:
        _, errors = one.communicate(timeout=LIMIT_S)
        assert one.returncode == 0, errors
    found = trials(tmp_path)
    assert [one["number"] for one in found] == list(range(1, 31))
    assert len({one["config"]["x"] for one in found}) == 30
    logs = {path.name for path in (tmp_path / "study").iterdir()}
    assert len(logs) == 30


# --- what is shown ---


class Terminal:
    """The program on a terminal, and what it wrote there."""

    def __init__(self, folder, *arguments):
        self._parent, child = pty.openpty()
        self._running = subprocess.Popen(
            [DIVISI, "tune", *map(str, arguments)], cwd=folder, stdout=child, stderr=child, stdin=subprocess.DEVNULL
        )
        os.close(child)
        self.written = ""

    def read_until(self, text):
        """Reads until the text was written; None: until the program closes its end."""
        while text is None or text not in self.written:
            ready, _, _ = select.select([self._parent], [], [], LIMIT_S)
            assert ready, f"{text!r} was not written: {self.written}"
            try:
                piece = os.read(self._parent, 65536)
            except OSError:  # the other end is closed
                piece = b""
            if not piece:
                assert text is None, f"{text!r} was not written: {self.written}"
                break
            self.written += piece.decode()

    def end(self):
        self.read_until(None)
        os.close(self._parent)
        return self._running.wait()


def test_table_is_redrawn_on_a_terminal(tmp_path):
    os.mkfifo(tmp_path / "go")
    terminal = Terminal(
        tmp_path, *X, "--minimize", "R", "--max-steps", 2, "--workers", 1, *shell("read line < go; echo {x}")
    )
    terminal.read_until("| task_running  | [0]")
    (tmp_path / "go").write_text("go\n")
    terminal.read_until("| task_running  | [1]")
    (tmp_path / "go").write_text("go\n")
    assert terminal.end() == 0
    # The table has 15 lines, and one of progress follows: the cursor goes back over exactly these.
    assert set(re.findall(r"\x1b\[(\d+)A\r\x1b\[J", terminal.written)) == {"16"}
    assert "| task_success  | [0, 1]" in terminal.written
    assert "2/2 trials" in terminal.written


def test_csv_and_show(tmp_path):
    assert tune(tmp_path, *X, "--minimize", "R", "--max-steps", 3, *shell("echo {x}")).returncode == 0
    rows = list(csv.DictReader(io.StringIO(tune(tmp_path, "export", "--csv").stdout)))
    assert [row["number"] for row in rows] == ["1", "2", "3"]
    assert all(float(row["R"]) == float(row["x"]) for row in rows)
    assert "study: minimize R" in tune(tmp_path, "show").stdout
    assert "stage: ok" in tune(tmp_path, "show", "study", 2).stdout
    assert "has no trial 9" in one_line(tune(tmp_path, "show", "study", 9))
    assert "| study" in tune(tmp_path, "list").stdout
    assert tune(tmp_path, "top", "--once").returncode == 0


@pytest.mark.parametrize("kind", ["history", "parallel", "slice", "importance"])
def test_plots_are_svg(tmp_path, kind):
    import xml.dom.minidom

    flags = ["--space", "lr=loguniform:1e-5,1", "--space", "kind=choice:a<b,c", "--maximize", "R", "--max-steps", 9]
    assert tune(tmp_path, *flags, *shell("echo {lr} '{kind}' | cut -d' ' -f1")).returncode == 0
    done = tune(tmp_path, "plot", "--kind", kind, "-o", "plot.svg")
    assert done.returncode == 0, done.stderr
    assert xml.dom.minidom.parse(str(tmp_path / "plot.svg")).documentElement.tagName == "svg"


def test_importance_names_the_variable_that_matters(tmp_path):
    flags = ["--space", "x=uniform:0,1", "--space", "y=uniform:0,1", "--minimize", "R", "--max-steps", 30, "--seed", 1]
    assert tune(tmp_path, *flags, *shell(": {y}; echo {x}")).returncode == 0
    for method in ([], ["--ped-anova"]):
        shares = json.loads(tune(tmp_path, "importance", "--json", *method).stdout)
        assert shares["x"] > 0.7 and list(shares) == ["x", "y"]
    assert "| x" in tune(tmp_path, "importance").stdout


def test_pruned_trials_are_ended_early(tmp_path):
    """The first five reach their end; the sixth is worse at its first report, and would never end."""
    text = (
        "i=$HPO_TRIAL_ID; : {x}; echo \"{\\\"step\\\": 1, \\\"value\\\": $i}\" >> $HPO_METRICS_FILE; "
        "[ $i -lt 6 ] || sleep 1000; echo $i"
    )
    done = tune(
        tmp_path, *X, "--minimize", "R", "--max-steps", 6, "--workers", 1, "--prune", "median", *shell(text)
    )
    assert done.returncode == 0, done.stderr
    found = trials(tmp_path)
    assert [one["stage"] for one in found] == ["ok"] * 5 + ["pruned"]
    assert found[5]["values"] == [6.0]
    assert "| task_pruned   | [5]" in done.stdout
    wrong = tune(tmp_path, *X, "--minimize", "R", "--prune", "medain", *shell("echo {x}"))
    assert wrong.returncode == 2 and "did you mean 'median'?" in one_line(wrong)


def test_reports_of_running_trials_are_stored(tmp_path):
    text = """echo '{"step": 1, "value": 0.5}' >> $HPO_METRICS_FILE; echo oops >> $HPO_METRICS_FILE; echo {x}"""
    done = tune(tmp_path, *X, "--minimize", "R", "--max-steps", 1, *shell(text))
    assert done.returncode == 0, done.stderr
    assert trials(tmp_path)[0]["reports"] == [[1, 0.5]]
    assert "a report was ignored" in done.stdout


def test_the_study_of_the_examples_tunes_the_cartpole_program(tmp_path):
    study = (REPOSITORY / "examples" / "hpo" / "cartpole.yaml").read_text()
    script(tmp_path, "cartpole.yaml", study)
    environment = {**os.environ, "PATH": f"{DIVISI.parent}:{os.environ['PATH']}"}
    done = tune(tmp_path, "cartpole.yaml", "--max-steps", "6", "--workers", "1", env=environment)
    assert done.returncode == 0, done.stderr
    found = trials(tmp_path)
    assert len(found) == 6 and {one["stage"] for one in found} <= {"ok", "pruned"}
    ended = [one for one in found if one["stage"] == "ok"]
    # Each evaluation was reported with both figures, and the result has what the target needs.
    assert all(one["reports"] and {"stop", "env_step", "train_iter", "eval_value"} <= set(one["return"]) for one in ended)
