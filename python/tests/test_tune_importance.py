"""Which variables a result depends on: divisi.tune.importance."""

import json
import random

import pytest

from divisi.errors import UsageError
from divisi.tune import EventSet, R, choice, hpo, importance, loguniform, uniform

SPACE = {"z": uniform(0, 1), "a": {"lr": loguniform(1e-6, 1), "opt": choice(["adam", "sgd"])}}


class Results(EventSet):
    def __init__(self):
        self.results = []

    def step_ok(self, task, result):
        self.results.append(result)


def results_of(objective, steps=150):
    kept = Results()
    runner = hpo(objective).random(silent=True).seed(1).max_workers(1).max_steps(steps)
    runner.spaces(SPACE).minimize(R).add_event_set(kept).run()
    return kept.results


def by_opt(config):
    return (5.0 if config["a"]["opt"] == "sgd" else 0.0) + config["z"]


@pytest.mark.parametrize("method", ["fanova", "ped-anova"])
def test_the_variable_that_matters_is_first(method):
    shares = importance(results_of(lambda config: config["z"]), method)
    assert list(shares)[0] == "z" and shares["z"] > 0.8 and sum(shares.values()) == pytest.approx(1)
    assert set(shares) == {"a.opt", "a.lr", "z"}


def test_the_whole_range_or_the_best_trials():
    """The optimizer decides on the whole; among the best trials, which all have one, z does."""
    results = results_of(by_opt)
    assert list(importance(results))[0] == "a.opt"
    assert list(importance(results, "ped-anova"))[0] == "z"


def test_raw_points_of_a_structure():
    """Dimensions are in the order of sorted keys: lr, opt, z."""
    generator = random.Random(2)
    points = [[generator.uniform(-13, 0), generator.randrange(2), generator.random()] for _ in range(200)]
    shares = importance((SPACE, points, [point[0] for point in points]))
    assert shares["a.lr"] > 0.95


def test_numbers_that_span_decades_are_compared_by_their_logarithms():
    generator = random.Random(2)
    exponents = [generator.uniform(-6, 0) for _ in range(200)]
    trials = [{"config": {"lr": 10**e, "z": generator.random()}, "value": e} for e in exponents]
    shares = importance(trials, normalize=False)
    assert shares["lr"] > 0.95


def test_only_trials_that_ended_well_count():
    class Study:
        maximize = [True]
        trials = [
            {"config": {"x": i / 50, "y": i % 2}, "value": float(i), "state": "ok"} for i in range(50)
        ] + [{"config": {"x": 0, "y": 1}, "value": 1e9, "state": "pruned"}]  # fmt: skip

    assert importance(Study())["x"] > 0.9
    assert importance(Study(), "ped-anova")["x"] > 0.9


def test_text_and_json():
    shares = importance(results_of(by_opt))
    assert json.loads(shares.json()) == shares
    assert str(shares).splitlines()[1] == "| variable   |   importance |"
    assert "a.opt" in str(shares).splitlines()[3]


def test_wrong_input_is_named():
    with pytest.raises(ValueError, match="method is one of fanova, ped-anova"):
        importance([], "anova")
    with pytest.raises(TypeError, match="importance takes a study, trials, or"):
        importance(3)
    with pytest.raises(UsageError, match="importance needs two trials that ended well, and there are 0"):
        importance([])
    with pytest.raises(UsageError, match="2 points and 1 values"):
        importance(({"x": uniform(0, 1)}, [[0.5], [0.6]], [1]))


def test_the_result_of_a_run_stands_for_its_study():
    runner = hpo(by_opt).random(silent=True).seed(1).max_workers(1).max_steps(20).spaces(SPACE).minimize(R)
    with pytest.raises(TypeError, match="kept no study"):
        importance(runner.run())
    result = runner.storage("memory:").run()
    assert importance(result) == importance(result.study)
