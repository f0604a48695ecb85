"""The rows of `bench/run --rl`, and what it takes to run them: environments, learning, workers, and how a job grows."""
import os
import subprocess
import sys
from pathlib import Path

import python_rows
from rows import Probe, Row

HERE = Path(__file__).resolve().parent
PROGRAM = "rl_bench.py"
# numpy and torch are Debian's: the environment sees them, and pip leaves them alone.
PEERS = ["gymnasium==1.4.0", "envpool==1.2.5", "ray==2.60.0", "numpy<2"]

ENVS = (8, 64, 1024)
BAR_ENVS = 1024  # where Gymnasium is at its best
GYMNASIUM_BAR = 50
ENVPOOL_BAR = 1
SOLVE_BAR = 0.2
CALLS_BAR = 20
START_BAR = 0.2
JOB_BAR = 0.9
BROADCAST_BAR = 0.01

WORKERS = 8
FIVE = "replay,learner,collector,collector,evaluator"
COLLECTORS = (1, 2, 4, 8, 16)
# By the name in the table: how often, on average, a transition may be drawn.
LIMITS = {"no limit": "policy.other.replay_buffer.samples_per_insert=0", "24 samples an insert": None}
GROWTH = "env steps, collectors: {}, {}"

SEED = "{seed}"  # of a command: the number of the repeat
# Fewer repeats for what takes long; others as often as asked.
MOST_REPEATS = {"env": 3, "workers": 3, "rate": 3}
MOST_ENDLESS = 3
MOST_LONG = 3
ENDLESS = "env.stop_value=1e9"  # a return that is never reached
LONG = "475"


def rl_rows(quick):
    """The list; with `quick` each measures less."""
    return [*_environments("0.2" if quick else "0.5"), *_learning(quick), *_workers("0.3" if quick else "1.5"),
            *_jobs(4000 if quick else 30_000), *_growth(("1", "2") if quick else COLLECTORS, "2" if quick else "4")]


def _probe(field, *words):
    return Probe((PROGRAM, *map(str, words)), field)


def _environments(seconds):
    for envs in ENVS:
        ours = Probe(("bench_env", str(envs), seconds), "steps_per_s")
        for side, name, bar in (("gymnasium-vector", "Gymnasium, numpy", GYMNASIUM_BAR),
                                ("gymnasium-sync", "Gymnasium, sync", None), ("envpool", "EnvPool", ENVPOOL_BAR)):
            yield Row(f"CartPole steps, {envs} environments, over {name}", ours,
                      _probe("steps_per_s", "env", side, envs, seconds), name, "steps/s",
                      bar if envs == BAR_ENVS else None)


def _learning(quick):
    for stop in ("195",) if quick else ("195", LONG):
        for field, name, unit, lower in (("seconds", "time", "s", True), ("cpu_s", "CPU time", "s", True),
                                         ("env_step", "env steps", "steps", True),
                                         ("env_steps_per_s", "env steps a second", "steps/s", False),
                                         ("updates_per_s", "updates a second", "updates/s", False)):
            yield Row(f"DQN to {stop}: {name}",
                      _probe(field, "run", "bin/cartpole_dqn", SEED, "alone", f"env.stop_value={stop}"),
                      _probe(field, "torch", SEED, stop), "PyTorch, Gymnasium", unit,
                      SOLVE_BAR if (stop, field) == ("195", "seconds") else None, lower)


def _workers(seconds):
    def both(field):
        return [_probe(field, "workers", side, WORKERS, seconds) for side in ("ours", "ray")]

    yield Row("Python calls, one at a time", *both("serial_per_s"), "Ray actor", "calls/s", CALLS_BAR)
    yield Row("Python calls, 1000 in flight", *both("many_per_s"), "Ray actor", "calls/s", CALLS_BAR)
    yield Row(f"Python start of {WORKERS} workers, all answered", *both("start_ms"), "Ray actors, after ray.init", "ms",
              START_BAR, True)
    yield Row(f"Python start of {WORKERS} workers, from nothing", *both("start_with_runtime_ms"),
              "Ray actors with ray.init", "ms", None, True)


def _jobs(steps):
    def run(field, roles, *keys):
        return _probe(field, "run", "bench/bench_dqn", SEED, roles, ENDLESS, f"max_env_step={steps}", *keys)

    never = "policy.eval.evaluator.eval_freq=1000000"
    yield Row("DQN in five processes: env steps a second", run("env_steps_per_s", FIVE),
              run("env_steps_per_s", "alone"), "one process", "steps/s", JOB_BAR)
    yield Row("DQN in five processes: updates a second", run("updates_per_s", FIVE), run("updates_per_s", "alone"),
              "one process", "updates/s")
    yield Row("DQN in five processes: evaluations", run("evaluations", FIVE), run("evaluations", "alone"),
              "one process", "evaluations")
    yield Row("DQN in five processes: CPU time of all", run("cpu_s", FIVE), run("cpu_s", "alone"), "one process", "s",
              None, True)
    yield Row("DQN in five processes, no evaluations: env steps a second", run("env_steps_per_s", FIVE, never),
              run("env_steps_per_s", "alone", never), "one process", "steps/s")
    yield Row("broadcast of the weights, of the learner's time", run("exchanger_s", FIVE), run("wall_s", FIVE),
              "the whole run", "s", BROADCAST_BAR, True)
    yield Row("broadcast of the weights, CPU time of the learner's thread", run("exchanger_cpu_s", FIVE),
              run("pipeline_cpu_s", FIVE), "the whole run", "s", None, True)


def _growth(collectors, seconds):
    for limit, key in LIMITS.items():
        def rate(count, key=key):
            return _probe("env_steps_per_s", "rate", "bin/cartpole_dqn", count, seconds, *([key] if key else []))

        for count in collectors:
            yield Row(GROWTH.format(count, limit), rate(count), rate(collectors[0]), "1 collector", "steps/s")


def growth(entries):
    """{limit: [(collectors, env steps a second)]} of what was measured."""
    rates = {entry["name"]: entry["ours"] for entry in entries}
    found = {limit: [(count, rates.get(GROWTH.format(count, limit))) for count in COLLECTORS] for limit in LIMITS}
    return {limit: [point for point in points if point[1]] for limit, points in found.items()}


def environment(root, say):
    """The interpreter of build/bench-venv with these peers as well."""
    python = python_rows.environment(root, say)
    wanted = "\n".join(PEERS)
    stamp = root / "build" / "bench-venv" / "rl-packages"
    if stamp.exists() and stamp.read_text() == wanted:
        return python
    say(f"adding {', '.join(PEERS)} to build/bench-venv ...")
    if subprocess.run([str(python), "-m", "pip", "install", "--quiet", *PEERS], stdout=sys.stderr).returncode != 0:
        sys.exit(f"bench/run: pip could not install {', '.join(PEERS)}")
    stamp.write_text(wanted)
    return python


def program(tree, python, command, repeat):
    """The command line and the environment of one probe; None when it was measured often enough."""
    if repeat >= _most_repeats(command):
        return None
    words = [str(repeat) if word == SEED else word for word in command]
    if words[0] != PROGRAM:
        return [str(tree / "bench" / words[0]), *words[1:]], None
    if words[1] in ("run", "rate"):
        words[2] = str(tree / words[2])
    variables = dict(os.environ, PYTHONPATH=str(tree / "python"), PYTHONDONTWRITEBYTECODE="1",
                     OPENBLAS_NUM_THREADS="1")  # at these sizes more threads are slower
    return [str(python), str(HERE / words[0]), *words[1:]], variables


def _most_repeats(command):
    if ENDLESS in command:
        return MOST_ENDLESS
    if LONG in command or f"env.stop_value={LONG}" in command:
        return MOST_LONG
    measure = "env" if command[0] == "bench_env" else command[1]
    return MOST_REPEATS.get(measure, 1000)
