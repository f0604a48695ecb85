"""tune_peer.py ours|optuna ask ALGORITHM TRIALS PARAMETERS
tune_peer.py optuna curve ALGORITHM PARAMETERS TRIALS...
tune_peer.py optuna search ALGORITHM FUNCTION SEEDS

The same as bench_tune, in Python: our engine through the package, and Optuna with its studies in memory. Prints one
JSON line. Times are of the processor, all threads together, so that others on the machine do not count. `curve`: what an
ask and tell costs after so many trials; most of these are drawn at random and added to the study."""
import json
import math
import os
import random
import subprocess
import sys
import tempfile
import time
import warnings
from functools import partial

ALPHA = (1.0, 1.2, 3.0, 3.2)
A = ((10, 3, 17, 3.5, 1.7, 8), (0.05, 10, 17, 0.1, 8, 14), (3, 3.5, 1.7, 10, 17, 8), (17, 8, 0.05, 10, 0.1, 14))
P = ((0.1312, 0.1696, 0.5569, 0.0124, 0.8283, 0.5886), (0.2329, 0.4135, 0.8307, 0.3736, 0.1004, 0.9991),
     (0.2348, 0.1451, 0.3522, 0.2883, 0.3047, 0.6650), (0.4047, 0.8828, 0.8732, 0.5743, 0.1091, 0.0381))


def branin(x):
    a = x[1] - 5.1 / (4 * math.pi**2) * x[0] ** 2 + 5 / math.pi * x[0] - 6
    return a * a + 10 * (1 - 1 / (8 * math.pi)) * math.cos(x[0]) + 10


def hartmann6(x):
    return -sum(alpha * math.exp(-sum(a * (v - p) ** 2 for a, v, p in zip(row, x, center)))
                for alpha, row, center in zip(ALPHA, A, P))


def ackley(x):
    squares, waves = sum(v * v for v in x) / len(x), sum(math.cos(2 * math.pi * v) for v in x) / len(x)
    return -20 * math.exp(-0.2 * math.sqrt(squares)) - math.exp(waves) + 20 + math.e


def rosenbrock(x):
    return sum(100 * (b - a * a) ** 2 + (1 - a) ** 2 for a, b in zip(x, x[1:]))


def mixed(x):
    return ((0.6, 0.0, 0.3, 0.9)[x[3]] + (0.4, 0.0, 0.2)[x[4]] + 4 * (x[0] - 0.2 - 0.2 * x[3]) ** 2
            + 4 * (x[1] - 0.7 + 0.2 * x[4]) ** 2 + (x[2] - 13) ** 2 / 100)


CARTPOLE_BUDGET = 3000  # env steps of one trial


def cartpole(x, seed):
    """As in bench_tune: the env steps until $CARTPOLE_DQN has solved CartPole, or what it is short of."""
    with tempfile.TemporaryDirectory(prefix="bench-cartpole-") as folder:
        subprocess.run(
            [os.environ["CARTPOLE_DQN"], "--alone", "--no-display", "--run-folder", f"{folder}/run", f"seed={seed}",
             f"max_env_step={CARTPOLE_BUDGET}", f"policy.learn.learning_rate={10 ** x[0]:.9g}",
             f"policy.learn.batch_size={(32, 64, 128)[x[1]]}", f"policy.learn.target_update_freq={round(math.exp(x[2]))}",
             f"policy.other.eps.decay={round(math.exp(x[3]))}", f"policy.discount_factor={x[4]:.9g}"],
            check=True, stdout=subprocess.DEVNULL)
        with open(f"{folder}/run/result.json") as file:
            result = json.load(file)
    return result["env_step"] if result["eval_value"] >= 195 else CARTPOLE_BUDGET + 10 * (195 - result["eval_value"])


# Spaces: an interval, (first, last) of whole numbers with their step, or the number of alternatives.
FUNCTIONS = {
    "branin": ([(-5.0, 10.0), (0.0, 15.0)], branin, 0.39788735772973816),
    "hartmann6": ([(0.0, 1.0)] * 6, hartmann6, -3.3223680114155147),
    "ackley5": ([(-32.768, 32.768)] * 5, ackley, 0),
    "rosenbrock4": ([(-5.0, 10.0)] * 4, rosenbrock, 0),
    "mixed": ([(0.0, 1.0), (0.0, 1.0), (0, 20, 1), 4, 3], mixed, 0),
    "cartpole": ([(math.log10(3e-4), -2.0), 3, (math.log(25), math.log(400)), (math.log(500), math.log(10000)),
                  (0.95, 0.995)], cartpole, 0),
}


def parameters(count):
    return [4 if i % 5 == 4 else (0, 20, 1) if i % 3 == 2 else (0.0, 1.0) for i in range(count)]


def simple(x):
    return sum((v - 0.3) ** 2 for v in x)


def optuna_study(algorithm, spaces, seed):
    warnings.filterwarnings("ignore")
    import optuna
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    samplers = optuna.samplers
    sampler = {"random": lambda: samplers.RandomSampler(seed=seed),
               "tpe": lambda: samplers.TPESampler(multivariate=True, seed=seed),
               "bayes": lambda: samplers.GPSampler(seed=seed, deterministic_objective=True)}[algorithm]()
    distributions = {}
    for i, space in enumerate(spaces):
        if isinstance(space, int):
            made = CategoricalDistribution(list(range(space)))
        elif len(space) == 3:
            made = IntDistribution(space[0], space[1])
        else:
            made = FloatDistribution(*space)
        distributions[f"x{i:02}"] = made
    return optuna.create_study(sampler=sampler), distributions


def optuna_trials(algorithm, spaces, seed, value, count):
    study, distributions = optuna_study(algorithm, spaces, seed)
    values = []
    for _ in range(count):
        trial = study.ask(distributions)
        values.append(value([trial.params[name] for name in distributions]))
        study.tell(trial, values[-1])
    return values


CURVE_WINDOW = {"random": 100, "tpe": 20, "bayes": 5}  # what is timed at each number of trials


def optuna_curve(algorithm, count, numbers):
    import optuna

    study, distributions = optuna_study(algorithm, parameters(count), 1)
    draw, costs = random.Random(1), {}

    def drawn():
        params = {}
        for name, one in distributions.items():
            if hasattr(one, "choices"):
                params[name] = draw.choice(one.choices)
            else:
                params[name] = draw.randint(one.low, one.high) if isinstance(one.low, int) else draw.uniform(one.low, one.high)
        return optuna.trial.create_trial(params=params, distributions=distributions, value=simple(list(params.values())))

    have = 0
    for number in numbers:
        window = CURVE_WINDOW[algorithm]
        study.add_trials([drawn() for _ in range(number - window - have)])
        begin = time.process_time()
        for _ in range(window):
            trial = study.ask(distributions)
            study.tell(trial, simple([trial.params[name] for name in distributions]))
        costs[str(number)] = 1e6 * (time.process_time() - begin) / window
        have = number
    return {"us": costs}


def our_trials(algorithm, spaces, seed, value, count):
    from divisi import _native
    from divisi.tune import Structure, choice, randint, uniform

    structure = Structure([choice(list(range(space))) if isinstance(space, int) else
                           randint(*space[:2]) if len(space) == 3 else uniform(*space) for space in spaces])
    searched = structure.search_space()
    if algorithm == "random":
        sampler = _native.TuneSampler.random(searched, None, [seed])
    else:
        make = {"tpe": _native.TuneSampler.tpe, "bayes": _native.TuneSampler.bayes}[algorithm]
        sampler = make(searched, {"max_steps": count, "seed": seed})
    values = []
    for _ in range(count):
        number, raw = sampler.ask()
        values.append(value(structure.config(raw)))
        sampler.tell(number, 0, values[-1])
    return values


def main(side, what, algorithm, *words):
    if what == "curve":
        return optuna_curve(algorithm, int(words[0]), [int(word) for word in words[1:]])
    run = our_trials if side == "ours" else optuna_trials
    random.seed(1)
    if what == "ask":
        trials, count = map(int, words)
        run(algorithm, parameters(count), 1, simple, 1)  # imports
        begin = time.process_time()
        run(algorithm, parameters(count), 1, simple, trials)
        seconds = time.process_time() - begin
        return {"per_s": trials / seconds, "seconds": seconds, "us": 1e6 * seconds / trials, "sent": 1, "received": 1,
                "disordered": 0}
    spaces, function, minimum = FUNCTIONS[words[0]]
    count = 40 if function is cartpole else 100
    regrets = {f"regret_{count // 2}": [], f"regret_{count}": []}
    for seed in range(int(words[1])):
        value = partial(cartpole, seed=seed) if function is cartpole else function
        values = run(algorithm, spaces, seed, value, count)
        for trials in (count // 2, count):
            regrets[f"regret_{trials}"].append(min(values[:trials]) - minimum)
    return regrets


if __name__ == "__main__":
    print(json.dumps(main(*sys.argv[1:])))
