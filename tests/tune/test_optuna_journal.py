"""Studies as journals of Optuna, against a real Optuna: out, in, and there and back.

DIVISI_BUILD names the build to test (default: build/release of this checkout).
"""

import json
import os
import pathlib
import subprocess

import optuna
import pytest
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
DIVISI = REPOSITORY / os.environ.get("DIVISI_BUILD", "build/release") / "bin" / "divisi"


def tune(folder, *arguments):
    done = subprocess.run(
        [DIVISI, "tune", *map(str, arguments)], cwd=folder, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def trials(folder, *arguments):
    return json.loads(tune(folder, "export", "--json", *arguments))["trials"]


@pytest.fixture(autouse=True)
def quiet():
    optuna.logging.set_verbosity(optuna.logging.ERROR)


def test_optuna_reads_what_we_export(tmp_path):
    tune(
        tmp_path, "--name", "ours", "--space", "lr=loguniform:1e-5,1e-1", "--space", "n=randint:1,4",
        "--space", "p.kind=choice:relu,tanh", "--space", "q=quniform:0,1,0.25", "--maximize", "R", "--max-steps", 8,
        "--seed", 1, "--retries", 0,
        "--", "sh", "-c", "echo {n} {lr} {p.kind} {q} > /dev/null; [ $HPO_TRIAL_ID != 3 ] && echo {n}",
    )  # fmt: skip
    tune(tmp_path, "export", "--optuna-journal", "journal.log")
    study = optuna.load_study(
        study_name="ours", storage=JournalStorage(JournalFileBackend(str(tmp_path / "journal.log")))
    )
    ours = trials(tmp_path)
    assert study.direction == optuna.study.StudyDirection.MAXIMIZE
    assert len(study.trials) == 8
    for mine, theirs in zip(ours, study.trials):
        config = mine["config"]
        assert theirs.params == pytest.approx(
            {"lr": config["lr"], "n": config["n"], "p.kind": config["p"]["kind"], "q": config["q"]}
        )
        assert isinstance(theirs.params["n"], int)
        assert theirs.state.name == ("FAIL" if mine["number"] == 3 else "COMPLETE")
        if mine["number"] != 3:
            assert theirs.value == mine["values"][0]
    assert study.best_value == max(one["values"][0] for one in ours if one["values"])
    distributions = study.trials[0].distributions
    assert distributions["lr"].log and distributions["q"].step == 0.25
    # Optuna goes on with it.
    study.optimize(lambda trial: trial.suggest_float("lr", 1e-5, 1e-1, log=True), n_trials=2)
    assert len(study.trials) == 10


def test_ours_there_and_back_is_the_same(tmp_path):
    tune(
        tmp_path, "--name", "ours", "--space", "p.lr=loguniform:1e-5,1e-1", "--space", "n: {choice: [[64, 64], [32]]}",
        "--minimize", "loss", "--max-steps", 5, "--retries", 0, "--seed", 2, "--inject", "env",
        "--", "sh", "-c", """[ $HPO_TRIAL_ID != 2 ] && echo "{\\"loss\\": $HPO_PARAM_p__lr}" """,
    )  # fmt: skip
    tune(tmp_path, "export", "--optuna-journal", "journal.log")
    assert tune(tmp_path, "import", "journal.log", "--storage", "other.db") == "ours: 5 trials\n"
    keys = ("number", "stage", "values", "config", "return", "metrics", "error")
    before = [{key: one.get(key) for key in keys} for one in trials(tmp_path)]
    after = [{key: one.get(key) for key in keys} for one in trials(tmp_path, "--storage", "other.db")]
    assert after == before


def objective(trial):
    x = trial.suggest_float("x", 1e-3, 10, log=True)
    n = trial.suggest_int("n", 1, 9, step=2)
    kind = trial.suggest_categorical("kind", ["a", None, 2.5])
    step = trial.suggest_float("step", 0, 1, step=0.25)
    trial.report(x, 1)
    if trial.number == 2:
        raise optuna.TrialPruned()
    if trial.number == 3:
        raise RuntimeError("boom")
    return x + n + step + (1 if kind == "a" else 0)


def test_we_import_what_optuna_wrote(tmp_path):
    storage = JournalStorage(JournalFileBackend(str(tmp_path / "journal.log")))
    study = optuna.create_study(study_name="theirs", storage=storage, sampler=optuna.samplers.RandomSampler(seed=1))
    study.optimize(objective, n_trials=6, catch=(RuntimeError,))
    study.enqueue_trial({"x": 0.5, "n": 3, "kind": "a", "step": 0.5})
    optuna.create_study(study_name="other", storage=storage)
    assert tune(tmp_path, "import", "journal.log", "--study", "theirs") == "theirs: 7 trials\n"
    found = trials(tmp_path)
    stages = {"COMPLETE": "ok", "PRUNED": "pruned", "FAIL": "fail", "WAITING": "waiting"}
    for mine, theirs in zip(found, study.trials):
        assert mine["stage"] == stages[theirs.state.name]
        params = theirs.params or {"x": 0.5, "n": 3, "kind": "a", "step": 0.5}
        assert mine["config"] == pytest.approx(params)
        if theirs.values:
            assert mine["values"] == pytest.approx(theirs.values)
    best = json.loads(tune(tmp_path, "best"))
    assert best["number"] == study.best_trial.number + 1
    # The waiting trial is the first that runs here.
    tune(
        tmp_path, "--name", "theirs", "--space", "x=loguniform:1e-3,10", "--space", "n=qrandint:1,9,2",
        "--space", "kind: {choice: [a, null, 2.5]}", "--space", "step=quniform:0,1,0.25", "--minimize", "R",
        "--resume", "--max-steps", 7, "--", "sh", "-c", ": {x} {n} {kind} {step}; echo 1",
    )  # fmt: skip
    assert trials(tmp_path)[6]["stage"] == "ok"
    assert trials(tmp_path)[6]["config"] == pytest.approx({"x": 0.5, "n": 3, "kind": "a", "step": 0.5})


def test_journal_that_is_none_says_the_line(tmp_path):
    (tmp_path / "journal.log").write_text('{"op_code":0,"study_name":"a","directions":[1]}\n{"op_code":4,"study_id":5}\n')
    done = subprocess.run([DIVISI, "tune", "import", "journal.log"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 2
    assert "journal.log, line 2: a study_id that was not created before" in done.stderr
