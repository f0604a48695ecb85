"""study_peer.py ours|optuna noop FOLDER TRIALS [FSYNC WORKERS]
study_peer.py ours|optuna memory memory|sqlite FOLDER TRIALS
study_peer.py ours|optuna load FOLDER TRIALS [read]
study_peer.py ours trials FOLDER SLOTS

The same as bench_study, in Python: `hpo(f)` with a study, and Optuna with its SQLite storage. `noop`: trials per second of
an objective that does nothing, and how often the disk was waited for for each (when count_syncs is preloaded). `memory`:
bytes for each finished trial, less its content. `load`: the time in which a study is read, with `read` also every
configuration of it. `trials`: 64 programs that do next to nothing, on so many slots. Prints one JSON line; times are of
the wall, those of `load` of the processor."""
import ctypes
import datetime
import gc
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

TRIAL_BYTES = 1024  # what a finished trial may take beyond its content
WAVE = 64  # trials of H089
OVERHEAD_S = 5  # what they may take together beyond the start of their interpreters


def syncs():
    """How often this process has waited for the disk; 0 without the preloaded counter."""
    try:
        return ctypes.CDLL(None).bench_syncs()
    except AttributeError:
        return 0


def resident_bytes():
    """What is in use, without what the allocator merely keeps."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


def line(sent, received, **figures):
    return {**figures, "sent": sent, "received": received, "disordered": 0}


def fresh_file(folder, name):
    Path(folder).mkdir(parents=True, exist_ok=True)
    path = Path(folder) / name
    for file in Path(folder).glob(name + "*"):
        file.unlink()
    return path


class Ours:
    name = "ours"

    def __init__(self):
        from divisi import tune

        self._tune = tune

    def _search(self, url, trials, fsync="second", workers=1):
        tune = self._tune
        return (tune.hpo(lambda config: 0.0).random(silent=True).seed(1).max_steps(trials).max_workers(workers)
                .minimize(tune.R).spaces({"lr": tune.uniform(0, 1), "layers": tune.choice([1, 2, 4])})
                .storage(url, fsync=fsync).study_name("noop"))

    def noop(self, path, trials, fsync="second", workers="1"):
        study = self._search(f"sqlite:{path}", trials, fsync, int(workers)).run().study
        return lambda: len(study)

    def make(self, path, trials):
        self._search(f"sqlite:{path}", trials).run()

    def load(self, path, read):
        trials = self._tune.load_study(f"sqlite:{path}").trials
        if read:
            for trial in trials:
                trial.config, trial.value, trial.state  # noqa: B018
        return trials

    def kept(self, storage, path, trials):
        """Something that keeps a study of so many trials, and what each consists of."""
        study = self._search("memory:" if storage == "memory" else f"sqlite:{path}", trials).run().study
        first = study.trial(1)._record
        content = 8 * (len(first.raw) + len(first.values)) + sum(
            len(text) for text in (first.config, first.returned, first.metrics, first.error))
        return study, content


class Optuna:
    name = "optuna"

    def __init__(self):
        import optuna

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self._optuna = optuna

    def _study(self, storage):
        return self._optuna.create_study(storage=storage, sampler=self._optuna.samplers.RandomSampler(seed=1))

    @staticmethod
    def objective(trial):
        trial.suggest_float("lr", 0, 1)
        trial.suggest_categorical("layers", [1, 2, 4])
        return 0.0

    def noop(self, path, trials):
        study = self._study(f"sqlite:///{path}")
        study.optimize(self.objective, n_trials=trials)
        return lambda: len(study.get_trials(deepcopy=False))

    def make(self, path, trials):
        """By its own tables, at once: one by one they would take an hour."""
        from optuna.distributions import CategoricalDistribution, FloatDistribution, distribution_to_json
        from optuna.storages._rdb import models
        from optuna.trial import TrialState

        study = self._study(f"sqlite:///{path}")
        storage = self._optuna.storages.RDBStorage(f"sqlite:///{path}")
        now = datetime.datetime.now()
        spaces = {"lr": distribution_to_json(FloatDistribution(0, 1)),
                  "layers": distribution_to_json(CategoricalDistribution([1, 2, 4]))}
        draw = random.Random(1)
        tables = (
            (models.TrialModel, [dict(trial_id=i + 1, number=i, study_id=study._study_id, state=TrialState.COMPLETE,
                                      datetime_start=now, datetime_complete=now) for i in range(trials)]),
            (models.TrialParamModel, [dict(trial_id=i + 1, param_name=name, distribution_json=text,
                                           param_value=draw.random() if name == "lr" else draw.randrange(3))
                                      for i in range(trials) for name, text in spaces.items()]),
            (models.TrialValueModel, [dict(trial_id=i + 1, objective=0, value=0.0,
                                           value_type=models.TrialValueModel.TrialValueType.FINITE)
                                      for i in range(trials)]))
        with storage.scoped_session() as session:
            for table, rows in tables:
                session.bulk_insert_mappings(table, rows)
            session.commit()

    def load(self, path, read):
        trials = self._optuna.load_study(study_name=None, storage=f"sqlite:///{path}").trials
        if read:
            for trial in trials:
                trial.params, trial.value, trial.state  # noqa: B018
        return trials

    def kept(self, storage, path, trials):
        study = self._study(None if storage == "memory" else f"sqlite:///{path}")
        study.optimize(self.objective, n_trials=trials)
        return study, 8 * 2 + 8 + len("lr") + len("layers")


def noop(side, folder, trials, *words):
    path = fresh_file(folder, f"{side.name}-noop.db")
    trials = int(trials)
    before, begin = syncs(), time.monotonic()
    stored = side.noop(path, trials, *words)
    seconds = time.monotonic() - begin
    waits = syncs() - before
    return line(trials, stored(), per_s=trials / seconds, syncs_per_trial=waits / trials)


def memory(side, storage, folder, trials):
    path = fresh_file(folder, f"{side.name}-memory.db")
    trials = int(trials)
    side.kept(storage, fresh_file(folder, f"{side.name}-warm.db"), 100)  # imports, threads, pools
    before = resident_bytes()
    study, content = side.kept(storage, path, trials)  # kept while it is measured
    each = (resident_bytes() - before) / trials
    del study
    return line(1, 1, bytes=each, payload=content, beyond=each - content, limit=TRIAL_BYTES)


def load(side, folder, trials, read=""):
    path = Path(folder) / f"{side.name}-{trials}.db"
    if not path.exists():
        part = fresh_file(folder, f"{side.name}-part.db")
        side.make(part, int(trials))
        part.rename(path)
    begin = time.process_time()
    found = side.load(path, read == "read")
    seconds = time.process_time() - begin
    return line(int(trials), len(found), seconds=seconds)


TEMPLATE = """import json, os
main_config = {"x": 0}
if __name__ == "__main__":
    with open(os.environ["HPO_RESULT_FILE"], "w") as file:
        json.dump(main_config, file)
"""


def trials(_, folder, slots):
    """H089: 64 trials, as many slots, and the start of as many interpreters one after another as share a slot."""
    from divisi.tune.scheduler import run_scheduler_local

    slots = int(slots)
    Path(folder).mkdir(parents=True, exist_ok=True)
    starts = []
    for _ in range(5):
        begin = time.monotonic()
        subprocess.run([sys.executable, "-c", "pass"], check=True)
        starts.append(time.monotonic() - begin)
    with tempfile.TemporaryDirectory(dir=folder) as place:
        os.chdir(place)
        Path("template.py").write_text(TEMPLATE)
        begin = time.monotonic()
        with run_scheduler_local("template.py", "wave", max_number_of_running_task=slots) as scheduler:
            futures = [scheduler.submit({"x": number}) for number in range(WAVE)]
            found = [future.result()["x"] for future in futures]
        seconds = time.monotonic() - begin
        os.chdir("/")
    limit = OVERHEAD_S + WAVE / slots * sorted(starts)[2]
    right = sum(a == b for a, b in zip(found, range(WAVE)))
    return line(WAVE, right, seconds=seconds, limit=limit)


def main(side, what, *words):
    made = Ours() if side == "ours" else Optuna()
    return {"noop": noop, "memory": memory, "load": load, "trials": trials}[what](made, *words)


if __name__ == "__main__":
    print(json.dumps(main(*sys.argv[1:])))
