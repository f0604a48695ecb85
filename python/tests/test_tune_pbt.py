"""Population-based training: hpo(f).pbt()."""

import threading

import pytest

from divisi.errors import UsageError
from divisi.tune import Checkpoint, EventSet, R, hpo, uniform
from divisi.tune.scheduler import run_scheduler_local


def train(config, checkpoint):
    """Progress is the faster the nearer the rate is to 0.8; the state is what was reached."""
    reached = 0.0 if checkpoint.load is None else float(checkpoint.load.read_text())
    reached += 1 - abs(config["rate"] - 0.8)
    checkpoint.save.write_text(str(reached))
    return {"reached": reached}


def search(function, **options):
    runner = hpo(function).pbt(silent=True).maximize(R["reached"]).spaces({"rate": uniform(0, 1)})
    for name, value in options.items():
        runner.option(name, value)
    return runner


class Steps(EventSet):
    def __init__(self):
        self.ok, self.fail = [], []

    def step_ok(self, task, result):
        self.ok.append(result)

    def step_fail(self, task, failure):
        self.fail.append(task.task_id)


@pytest.mark.parametrize("workers", [1, 4])
def test_the_best_settings_spread(workers, tmp_path):
    steps = Steps()
    folder = tmp_path / "checkpoints"
    runner = search(train, population=8, generations=15, seed=1, folder=str(folder))
    best = runner.max_workers(workers).add_event_set(steps).run()
    assert len(steps.ok) == 120
    assert best[1]["reached"] > 0.9 * 15
    late = [result.config["rate"] for result in steps.ok[-30:]]
    assert abs(sum(late) / len(late) - 0.8) < 0.2
    assert len(list(folder.iterdir())) <= 16, "checkpoints that nobody needs are removed"


def test_the_objective_gets_a_checkpoint():
    seen = []

    def objective(config, checkpoint):
        assert isinstance(checkpoint, Checkpoint) and not checkpoint.save.exists()
        assert (checkpoint.load is None) == (checkpoint.generation == 0)
        seen.append((checkpoint.member, checkpoint.generation))
        return train(config, checkpoint)

    search(objective, population=3, generations=2).max_workers(1).run()
    assert sorted(seen) == [(member, generation) for member in range(3) for generation in range(2)]


def test_a_failed_segment_copies_another_member():
    failed = threading.Event()

    def objective(config, checkpoint):
        if checkpoint.member == 1 and checkpoint.generation == 1 and not failed.is_set():
            failed.set()
            raise RuntimeError("no more memory")
        return train(config, checkpoint)

    steps = Steps()
    runner = search(objective, population=3, generations=4).max_workers(1).max_tries(1)
    assert runner.add_event_set(steps).run() is not None
    assert len(steps.fail) == 1 and len(steps.ok) == 11


def test_a_checkpoint_may_be_a_folder(tmp_path):
    def objective(config, checkpoint):
        checkpoint.save.mkdir()
        (checkpoint.save / "state").write_text("1")
        if checkpoint.load is not None:
            assert (checkpoint.load / "state").read_text() == "1"
        return {"reached": config["rate"]}

    folder = tmp_path / "checkpoints"
    search(objective, population=4, generations=5, folder=str(folder)).max_workers(1).run()
    assert len(list(folder.iterdir())) <= 8


def test_an_objective_that_saves_nothing_is_told():
    with pytest.raises(FileNotFoundError, match="step 1 saved no checkpoint: the objective must write"):
        search(lambda config, checkpoint: {"reached": 1}).max_workers(1).run()


def test_wrong_settings_are_refused(tmp_path):
    (tmp_path / "old").write_text("")
    for options, message in (
        ({"population": 1}, "population must be 2 to 100000, not 1"),
        ({"population": 10**9}, "population must be 2 to 100000"),
        ({"population": 2.5}, "population must be a whole number"),
        ({"quantile": 0.9}, "at most 0.5"),
        ({"folder": str(tmp_path)}, "is not empty: choose another one"),
    ):
        with pytest.raises((ValueError, UsageError), match=message):
            search(train, **options).run()
    with pytest.raises(ValueError, match="set those, not max_steps"):
        search(train).max_steps(5).run()


PROGRAM = """
import json, os

main_config = {"exp_name": "template", "rate": 0.0}

if __name__ == "__main__":
    load, save = os.environ.get("HPO_CHECKPOINT_LOAD"), os.environ["HPO_CHECKPOINT_SAVE"]
    assert (load is None) == (os.environ["HPO_GENERATION"] == "0") and not os.path.exists(save)
    reached = float(open(load).read()) if load else 0.0
    reached += 1 - abs(main_config["rate"] - 0.8)
    open(save, "w").write(str(reached))
    once = f"failed-{os.environ['HPO_MEMBER']}"
    if os.environ["HPO_GENERATION"] == "1" and not os.path.exists(once):
        open(once, "w")
        raise SystemExit(1)  # the second try finds no checkpoint of the first
    json.dump({"reached": reached, "member": os.environ["HPO_MEMBER"]}, open(os.environ["HPO_RESULT_FILE"], "w"))
"""


def test_programs_go_on_from_checkpoints(tmp_path):
    (tmp_path / "template.py").write_text(PROGRAM)
    checkpoints, steps = tmp_path / "checkpoints", Steps()
    with run_scheduler_local(
        str(tmp_path / "template.py"), "pbt", 3, workdir=str(tmp_path), keep_files=False
    ) as scheduler:
        runner = search(
            scheduler.enable_hpo(), population=3, generations=4, seed=1, folder=str(checkpoints)
        )
        best = runner.max_workers(3).max_tries(2).add_event_set(steps).run()
    assert len(steps.ok) == 12 and steps.fail == []
    assert best[1]["reached"] > 1.0, "no segment alone reaches that"
    assert len(list(checkpoints.iterdir())) <= 6


def test_a_program_that_saves_nothing_is_told(tmp_path):
    (tmp_path / "template.py").write_text(PROGRAM.replace('open(save, "w").write(str(reached))', "pass"))
    with run_scheduler_local(str(tmp_path / "template.py"), "pbt", 1, workdir=str(tmp_path)) as scheduler:
        with pytest.raises(FileNotFoundError, match="step 1 saved no checkpoint"):
            search(scheduler.enable_hpo(), population=2).max_workers(1).run()
