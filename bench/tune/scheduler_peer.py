"""scheduler_peer.py xargs|divisi|joblib|ray FOLDER TRIALS SLOTS [DIVISI]

So many commands `sh -c 'sleep 0.1; echo X'`, so many at a time: by xargs, by `divisi tune` (the program DIVISI), by Optuna's
workers under joblib with one study in its journal (SQLite locks them out on a loaded machine), by Ray Tune. Prints one JSON line; times are of the wall. The clock runs from the
start of xargs and of divisi; of the others from the beginning of the search, after imports and `ray.init`."""
import json
import os
import subprocess
import sys
import time
from pathlib import Path

SLEEP_S = 0.1


def command(x):
    return ["sh", "-c", f"sleep {SLEEP_S}; echo {x}"]


def evaluate(x):
    return float(subprocess.run(command(x), check=True, capture_output=True, text=True).stdout)


def fresh(folder, name):
    Path(folder).mkdir(parents=True, exist_ok=True)
    path = Path(folder) / name
    for file in Path(folder).glob(name + "*"):
        subprocess.run(["rm", "-rf", str(file)], check=True)
    return path


def xargs(_, trials, slots):
    words = command("{}")
    begin = time.monotonic()
    done = subprocess.run(["xargs", "-P", str(slots), "-I{}", *words], check=True, capture_output=True, text=True,
                          input="".join(f"{i / trials}\n" for i in range(trials)))
    return time.monotonic() - begin, len(done.stdout.splitlines())


def divisi(folder, trials, slots, program):
    place = fresh(folder, "divisi-trials")
    storage = fresh(folder, "divisi-trials.db")
    begin = time.monotonic()
    subprocess.run([program, "tune", "--algo", "random", "--seed", "1", "--space", "x=uniform:0,1", "--minimize", "R",
                    "--max-steps", str(trials), "--workers", str(slots), "--storage", f"sqlite:{storage}",
                    "--folder", str(place), "--", *command("{x}")], check=True, stdout=subprocess.DEVNULL,
                   stderr=subprocess.DEVNULL)
    seconds = time.monotonic() - begin
    rows = subprocess.run([program, "tune", "export", "--csv", "--storage", f"sqlite:{storage}"], check=True,
                          capture_output=True, text=True).stdout.splitlines()
    return seconds, sum(row.split(",")[1] == "ok" for row in rows)


def optuna_storage(path):
    from optuna.storages import JournalStorage, journal

    return JournalStorage(journal.JournalFileBackend(path))


def optuna_worker(path, count):
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.load_study(study_name="sleep", storage=optuna_storage(path), sampler=optuna.samplers.RandomSampler())
    study.optimize(lambda trial: evaluate(trial.suggest_float("x", 0, 1)), n_trials=count)


def joblib(folder, trials, slots):
    import optuna
    from joblib import Parallel, delayed

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    path = str(fresh(folder, "joblib.journal"))
    begin = time.monotonic()
    study = optuna.create_study(study_name="sleep", storage=optuna_storage(path))
    shares = [trials // slots + (i < trials % slots) for i in range(slots)]
    Parallel(n_jobs=slots)(delayed(optuna_worker)(path, share) for share in shares)
    seconds = time.monotonic() - begin
    return seconds, sum(trial.state.name == "COMPLETE" for trial in study.trials)


def ray(folder, trials, slots):
    import ray as ray_core
    from ray import tune

    ray_core.init(num_cpus=slots, include_dashboard=False, log_to_driver=False, logging_level="error")
    place = fresh(folder, "ray")
    begin = time.monotonic()
    results = tune.Tuner(
        lambda config: {"y": evaluate(config["x"])}, param_space={"x": tune.uniform(0, 1)},
        tune_config=tune.TuneConfig(metric="y", mode="min", num_samples=trials, max_concurrent_trials=slots,
                                    reuse_actors=True),
        run_config=tune.RunConfig(storage_path=str(place), verbose=0)).fit()
    seconds = time.monotonic() - begin
    return seconds, sum("y" in (result.metrics or {}) for result in results)


def main(side, folder, trials, slots, *program):
    trials, slots = int(trials), int(slots)
    seconds, ended = {"xargs": xargs, "divisi": divisi, "joblib": joblib, "ray": ray}[side](
        str(Path(folder).resolve()), trials, slots, *program)
    return {"seconds": seconds, "per_s": trials / seconds, "ideal": trials * SLEEP_S / slots, "sent": trials,
            "received": ended, "disordered": 0, "cores": os.cpu_count()}


if __name__ == "__main__":
    os.environ.setdefault("RAY_AIR_NEW_OUTPUT", "0")
    print(json.dumps(main(*sys.argv[1:])))
