"""The rows of `bench/run --tune`: what a suggestion costs, what a study costs and how fast it is read, beside Optuna; how many
programs run on so many slots, beside xargs, Optuna's workers and Ray. Two tables of their own: what a suggestion costs after
so many trials; and how good suggestions are: median regrets over the seeds, and whether the difference to the better of
Optuna's two could be chance."""
import json
import math
import os
import subprocess
import sys
from pathlib import Path
from statistics import median

from python_rows import base_python
from rows import Probe, Row

HERE = Path(__file__).resolve().parent
PEER = HERE.parent / "tune" / "tune_peer.py"
STUDY_PEER = HERE.parent / "tune" / "study_peer.py"
SCHEDULER_PEER = HERE.parent / "tune" / "scheduler_peer.py"
# Optuna's GPSampler runs on Debian's torch with this scipy; that, and Ray, with these of its own.
PEERS = ["optuna==4.6.0", "scipy<1.12", "greenlet", "joblib", "ray[tune]==2.60.0", "numpy<2", "pyarrow<20", "pandas<2.3"]
TARGETS = ("bench_tune", "bench_study", "count_syncs", "divisi_program", "divisi_trial", "cartpole_dqn")
RANDOM_BAR, RANDOM_PYTHON_BAR = 50, 10
TPE_BAR, TPE_WIDE_BAR = 30, 15
GP_BAR = 10
NOOP_BAR = 20
LOAD_BAR = 1 / 20
XARGS_BAR = 1.02
SLOTS = 8
FOLDER = "FOLDER"  # in a command: where files of this kind go
WAVE_SLOTS = 16  # of H089
FUNCTIONS = ("branin", "hartmann6", "ackley5", "rosenbrock4", "mixed", "cartpole")
CARTPOLE_SEEDS = 5  # at most: each is 40 runs of the program
EFFICIENCY = "sample efficiency"  # the names that --only may match
CURVE = "cost per suggestion"
CURVE_PARAMETERS = 10
CURVE_TRIALS = (100, 300, 1000, 3000, 10000)
# How far each is affordable: minutes of one core for the whole line.
CURVES = (("ours, random", "native", "random", 10000), ("ours, tpe (auto, for more than 250 trials)", "native", "tpe", 10000),
          ("ours, bayes", "native", "bayes", 300), ("Optuna, RandomSampler", "optuna", "random", 10000),
          ("Optuna, TPESampler, multivariate", "optuna", "tpe", 10000), ("Optuna, GPSampler", "optuna", "bayes", 300))


def tune_rows(quick):
    rows = []

    def row(name, algorithm, trials, parameters, bar, side="native"):
        words = ("ask", algorithm, str(trials), str(parameters))
        rows.append(Row(name, Probe((side, *words), "per_s"), Probe(("optuna", *words), "per_s"),
                        {"random": "RandomSampler", "tpe": "TPESampler, multivariate", "bayes": "GPSampler"}[algorithm],
                        "trials/s", bar))

    few, many, gp = (200, 300, 40) if quick else (2000, 1000, 300)
    row("random, 10 parameters, from C++", "random", few, 10, RANDOM_BAR)
    row("random, 10 parameters, from Python", "random", few, 10, RANDOM_PYTHON_BAR, "ours")
    row(f"TPE, {many} trials x 10 parameters", "tpe", many, 10, TPE_BAR)
    row(f"TPE, {many} trials x 10 parameters, from Python", "tpe", many, 10, None, "ours")
    row(f"TPE, {many} trials x 40 parameters", "tpe", many, 40, TPE_WIDE_BAR)
    row(f"Gaussian process, {gp} trials x 10 parameters", "bayes", gp, 10, GP_BAR)
    return rows + list(study_rows(quick)) + list(scheduler_rows(quick))


def study_rows(quick):
    """Studies: what each trial costs in time, in waits for the disk and in memory, and how fast they are read."""
    trials, theirs, many = (1000, 30, 20000) if quick else (5000, 200, 100000)
    native, ours = (("study-native", "noop", FOLDER, str(trials)), ("study-ours", "noop", FOLDER, str(trials)))
    grouped = ("study-ours", "noop", FOLDER, str(trials // 5), "always", str(SLOTS))
    optuna = ("study-optuna", "noop", FOLDER, str(theirs))
    peer = "Optuna with SQLite"
    for where, own, bar in (("C++", native, NOOP_BAR), ("Python", ours, NOOP_BAR),
                            (f"Python, fsync='always', {SLOTS} workers", grouped, None)):
        yield Row(f"objective that does nothing, from {where}", Probe(own, "per_s"), Probe(optuna, "per_s"), peer, "trials/s", bar)
        yield Row(f"objective that does nothing, from {where}: fsyncs", Probe(own, "syncs_per_trial"),
                  Probe(optuna, "syncs_per_trial"), peer, "per trial", None, True)
    for where, side, storage in (("C++", "native", "memory"), ("C++", "native", "sqlite"), ("Python", "ours", "memory"),
                                 ("Python", "ours", "sqlite")):
        own = (f"study-{side}", "memory", storage, FOLDER, str(many))
        yield Row(f"memory of a finished trial, {storage}, from {where}, less its content", Probe(own, "beyond"),
                  Probe(own, "limit"), "1 KiB", "B", 1, True)
    yield Row("memory of a finished trial, memory, from Python, less its content, over Optuna's",
              Probe(("study-ours", "memory", "memory", FOLDER, str(many)), "beyond"),
              Probe(("study-optuna", "memory", "memory", FOLDER, str(many // 10)), "beyond"), "Optuna in memory", "B", None, True)
    for name, side, words, bar in (("from C++", "native", (), LOAD_BAR), ("from Python", "ours", (), LOAD_BAR),
                                   ("from Python, and every configuration of it", "ours", ("read",), None)):
        yield Row(f"a study of {many:,} trials is read, {name}", Probe((f"study-{side}", "load", FOLDER, str(many), *words), "seconds"),
                  Probe(("study-optuna", "load", FOLDER, str(many), *words), "seconds"), peer, "s", bar, True)


def scheduler_rows(quick):
    """Programs as trials. Ray starts a process for most trials, and so gets few."""
    def probe(side, trials, field):
        return Probe(("slots", side, FOLDER, str(trials), str(SLOTS)), field)

    trials, few = (40, 8) if quick else (1000, 40)
    name = f"trials `sleep 0.1` on {SLOTS} slots"
    yield Row(f"{trials:,} {name}", probe("divisi", trials, "seconds"), probe("xargs", trials, "seconds"), f"xargs -P {SLOTS}",
              "s", XARGS_BAR, True)
    for side, peer in (("joblib", "Optuna, joblib, its journal"), ("ray", "Ray Tune")):
        yield Row(f"{name}, beside {peer}", probe("divisi", trials, "per_s"), probe(side, few, "per_s"), peer, "trials/s")
    own = ("study-ours", "trials", FOLDER, str(WAVE_SLOTS))
    yield Row(f"H089: 64 trials of the scheduler on {WAVE_SLOTS} slots", Probe(own, "seconds"), Probe(own, "limit"),
              "5 s and 4 starts of Python", "s", 1, True)


def environment(root, say):
    """The interpreter of the virtual environment in build/ that has Optuna; made on first use."""
    folder = root / "build" / "tune-venv"
    python = folder / "bin" / "python"
    check = [str(python), "-c", "import joblib, torch, optuna, ray.tune; raise SystemExit(optuna.__version__ != '4.6.0')"]
    if python.exists() and subprocess.run(check, stderr=subprocess.DEVNULL).returncode == 0:
        return python
    say(f"adding {', '.join(PEERS)} to {folder.relative_to(root)} ...")
    make = [] if python.exists() else [[base_python(), "-m", "venv", "--system-site-packages", str(folder)]]
    for command in (*make, [str(python), "-m", "pip", "install", "--quiet", *PEERS], check):
        if subprocess.run(command, stdout=sys.stderr).returncode != 0:
            sys.exit(f"bench/run: {' '.join(command)} failed")
    return python


def program(tree, python, command):
    """The command line of a probe, and its environment: one thread for each of them."""
    variables = dict(os.environ, OMP_NUM_THREADS="1", PYTHONDONTWRITEBYTECODE="1",
                     CARTPOLE_DQN=str((tree / "bin" / "cartpole_dqn").resolve()))
    kind, *words = (str(tree.parent / "bench-tune") if word == FOLDER else word for word in command)
    if kind == "slots":
        own = [str(tree / "bin" / "divisi")] if words[0] == "divisi" else []
        return [str(python), str(SCHEDULER_PEER), *words, *own], dict(variables, RAY_USAGE_STATS_ENABLED="0")
    if kind.startswith("study-"):
        if words[0] == "noop":
            variables["LD_PRELOAD"] = str(tree / "bench" / "libcount_syncs.so")
        if kind == "study-native":
            return [str(tree / "bench" / "bench_study"), *words], variables
        if kind == "study-ours":
            variables["PYTHONPATH"] = str(tree / "python")
            python = tree.parent / "venv" / "bin" / "python"
        return [str(python), str(STUDY_PEER), kind.removeprefix("study-"), *words], variables
    if command[0] == "native":
        return [str(tree / "bench" / "bench_tune"), *command[1:]], variables
    if command[0] == "ours":
        variables["PYTHONPATH"] = str(tree / "python")
        return [str(tree.parent / "venv" / "bin" / "python"), str(PEER), *command], variables
    return [str(python), str(PEER), *command], variables


def rank_sum_p(a, b):
    """Two-sided, by the normal approximation, with ties."""
    together = sorted([(value, 0) for value in a] + [(value, 1) for value in b])
    n, ranks, ties, i = len(together), 0.0, 0, 0
    while i < n:
        j = i
        while j < n and together[j][0] == together[i][0]:
            j += 1
        ranks += (i + j + 1) / 2 * sum(1 for _, side in together[i:j] if side == 0)
        ties += (j - i) ** 3 - (j - i)
        i = j
    mean = len(a) * (n + 1) / 2
    variance = len(a) * len(b) / 12 * (n + 1 - ties / (n * (n - 1)))
    if variance == 0:
        return 1.0
    z = max(abs(ranks - mean) - 0.5, 0) / math.sqrt(variance)
    return math.erfc(z / math.sqrt(2))


def curve(tree, python, quick, run_program, say, deadline):
    """[{name, us: {trials: microseconds}}], or an error in the place of the figures."""
    entries = []
    for name, side, algorithm, most in CURVES:
        numbers = [str(n) for n in CURVE_TRIALS if n <= (300 if quick else most)]
        say(f"{CURVE}: {name}, to {numbers[-1]} trials")
        found = run_program(*program(tree, python, (side, "curve", algorithm, str(CURVE_PARAMETERS), *numbers)), deadline)
        entries.append({"name": name, "us": found if isinstance(found, str) else found["us"]})
    return entries


def curve_table(entries):
    """Markdown: microseconds of processor time for one ask and tell after so many trials."""
    lines = ["| us for ask and tell after | " + " | ".join(f"{n:,} trials" for n in CURVE_TRIALS) + " |",
             "|---|" + "---:|" * len(CURVE_TRIALS)]
    for entry in entries:
        if isinstance(entry["us"], str):
            lines.append(f"| {entry['name']} | failed: {entry['us']} |")
            continue
        costs = [entry["us"].get(str(n)) for n in CURVE_TRIALS]
        lines.append(f"| {entry['name']} | " + " | ".join("-" if one is None else f"{one:,.3g}" if one < 100 else f"{one:,.0f}"
                                                         for one in costs) + " |")
    return "\n".join(lines)


def efficiency(tree, python, seeds, run_program, say, deadline):
    """[{function, trials, name: [regrets]}], or an error in the place of a list."""
    searches = {"our bayes": ("native", "bayes"), "our tpe": ("native", "tpe"), "Optuna TPE": ("optuna", "tpe"),
                "Optuna GP": ("optuna", "bayes")}
    entries = []
    for function in FUNCTIONS:
        found = {}
        count = min(seeds, CARTPOLE_SEEDS) if function == "cartpole" else seeds
        for name, (side, algorithm) in searches.items():
            say(f"{EFFICIENCY}: {function}, {name}, {count} seeds")
            found[name] = run_program(*program(tree, python, (side, "search", algorithm, function, str(count))), deadline)
        for trials in (20, 40) if function == "cartpole" else (50, 100):
            entries.append({"function": function, "trials": trials, "regrets": {
                name: run if isinstance(run, str) else run[f"regret_{trials}"] for name, run in found.items()}})
    return entries


def efficiency_table(entries):
    """Markdown: medians, and our better one against the better one of Optuna's."""
    head = ["function", "trials", "our bayes", "our tpe", "Optuna TPE", "Optuna GP", "winner", "p"]
    lines = ["| " + " | ".join(head) + " |", "|" + "|".join(["---"] + ["---:"] * 5 + ["---", "---:"]) + "|"]
    for entry in entries:
        regrets = entry["regrets"]
        broken = [f"{name}: {run}" for name, run in regrets.items() if isinstance(run, str)]
        if broken:
            lines.append(f"| {entry['function']} | {entry['trials']} | failed: {'; '.join(broken)} |")
            continue
        medians = {name: median(runs) for name, runs in regrets.items()}
        ours = min(("our bayes", "our tpe"), key=medians.get)
        theirs = min(("Optuna TPE", "Optuna GP"), key=medians.get)
        winner = ours if medians[ours] <= medians[theirs] else theirs
        p = rank_sum_p(regrets[ours], regrets[theirs])
        cells = [entry["function"], str(entry["trials"]), *(f"{medians[name]:.3g}" for name in head[2:6]), winner, f"{p:.2g}"]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def write_table(entries, file):
    file.write_text(json.dumps(entries, indent=1) + "\n")
