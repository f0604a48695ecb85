"""Several targets, constraints, CMA-ES and NSGA-II through the fluent front of divisi.tune."""

import logging
import math

import numpy
import pytest

from divisi.tune import (
    BaseAlgorithm, BaseSession, C, EventSet, NoSuccessfulTrial, R, choice, hpo, quniform, randint,
    uniform,
)  # fmt: skip
from divisi.tune._objectives import violation_of


def square(config):
    x = config["x"]
    return {"gain": x, "cost": (x - 2) ** 2}


def points(runner):
    return runner.max_workers(1).spaces({"x": randint(0, 5)})


def record(value):
    return {"config": {}, "return": value, "metrics": {}}


@pytest.mark.parametrize(
    "condition, value, expected",
    [
        (R <= 3, 3, 0), (R <= 3, 5, 2), (R >= 3, 1, 2), (2 > R, 0, 0), (R == 3, 7, 4), (R != 3, 3, 1),
        (R == "adam", "sgd", 1), (R == "adam", "adam", 0), (R - 3, 5, 2), (R - 3, 1, 0), (R, True, 0),
        (R, False, 1), (~(R > 3), 5, 1), ((R <= 3) & (R <= 4), 6, 5), ((R <= 3) | (R >= 10), 6, 3),
        (R.len() <= 2, [1, 2, 3, 4], 2), (R < math.inf, math.inf, 2.220446049250313e-16),
    ],
)  # fmt: skip
def test_violations(condition, value, expected):
    assert violation_of(condition, record(value)) == expected


def test_strict_comparison_of_equal_sides_is_violated():
    assert 0 < violation_of(R < 3, record(3)) < 1e-10


@pytest.mark.parametrize("condition, value", [(R, "text"), (R - 1, math.nan), (R <= 1, math.nan)])
def test_conditions_without_a_value(condition, value):
    with pytest.raises(ValueError, match="constraint"):
        violation_of(condition, record(value))


def test_truth_values_of_numpy():
    assert violation_of(R, record(numpy.bool_(True))) == 0
    assert violation_of(R, record(numpy.bool_(False))) == 1
    assert violation_of(R <= 3, record(numpy.float32(5))) == 2


def test_best_by_the_first_target_and_the_pareto_set():
    runner = hpo(square).grid(silent=True).maximize(R["gain"]).also_minimize(R["cost"])
    result = points(runner).run()
    config, figures, _ = result
    assert config == {"x": 5} and figures["cost"] == 9
    assert [one.task_id for one in result.pareto] == [3, 4, 5, 6]
    assert [one.values for one in result.pareto] == [[2, 0], [3, 1], [4, 4], [5, 9]]
    # Up to (0, 9), the worst values.
    assert result.hypervolume == 2 * 9 + 1 * 8 + 1 * 5


def test_hypervolume_up_to_a_reference_point():
    runner = hpo(square).grid(silent=True).maximize(R["gain"]).also_minimize(R["cost"])
    assert points(runner.reference_point(2, 4)).run().hypervolume == 3
    with pytest.raises(SyntaxError, match="1 values for 2 targets"):
        runner.reference_point(1).run()
    with pytest.raises(ValueError, match="reference_point"):
        runner.reference_point(1, math.inf)


def test_one_target_has_a_pareto_set_of_one():
    result = points(hpo(square).grid(silent=True).minimize(R["cost"])).run()
    assert [one.task_id for one in result.pareto] == [3] and result.hypervolume is None


def test_of_equal_first_targets_the_second_decides():
    runner = hpo(square).grid(silent=True).maximize(1).also_minimize(R["cost"])
    result = points(runner).run()
    assert result.trial_id == 3 and [one.task_id for one in result.pareto] == [3]


def test_three_targets():
    runner = (
        hpo(square).grid(silent=True).maximize(R["gain"]).also_minimize(R["cost"])
        .also_maximize(-R["gain"], "less")
    )  # fmt: skip
    assert len(points(runner).run().pareto) == 6


class Columns(EventSet):
    def __init__(self):
        self.columns, self.rows, self.sizes = [], [], []

    def init_ok(self, target, variables, concerns):
        self.columns = [target, *(name for name, _ in concerns)]

    def step_ok(self, task, result):
        self.rows.append([result.value, *result.concerns])

    def step_final(self, task, ranklist):
        self.sizes.append(len(ranklist.pareto.results))


def test_columns_of_targets_and_constraints(caplog):
    caplog.set_level(logging.INFO)
    seen = Columns()
    runner = (
        hpo(square).grid().maximize(R["gain"], "gain").also_minimize(R["cost"], "cost")
        .also_minimize(R["gain"]).subject_to(R["cost"] <= 1).concern(C["x"] * 2, "twice")
        .add_event_set(seen)
    )  # fmt: skip
    points(runner).run()
    assert seen.columns == ["gain", "cost", "target_3", "violation", "twice"]
    assert seen.rows[0] == [0, 4, 0, 3, 0] and seen.rows[3] == [3, 1, 3, 0, 6]
    assert seen.sizes == [0, 1, 2, 3, 3, 3]
    assert "|   # |   x |   gain |   cost |   target_3 |   violation |   twice |" in caplog.text
    assert "Pareto set: 3 results, hypervolume " in caplog.text


def test_feasible_results_come_first():
    ranks = []

    class Ranks(EventSet):
        def step_final(self, task, ranklist):
            ranks.append([result.task_id for result in ranklist])

    runner = (
        hpo(square).grid(silent=True).maximize(R["gain"]).subject_to(R["cost"] <= 1)
        .subject_to(lambda record: record["config"]["x"] != 3).add_event_set(Ranks()).rank(6)
    )  # fmt: skip
    result = points(runner).run()
    assert result[0] == {"x": 2} and result.pareto[0].feasible
    # Feasible: 2 and 1. Violations: 3 of 0, 1 of 3, 3 of 4, 8 of 5; the larger gain first.
    assert ranks[-1] == [3, 2, 4, 5, 1, 6]


def test_no_feasible_result():
    runner = hpo(square).grid(silent=True).maximize(R["gain"]).subject_to(R["cost"] <= -1)
    assert points(runner).run() is None
    with pytest.raises(NoSuccessfulTrial, match="step 3 came nearest, with a violation of 1"):
        runner.run(strict=True)


def test_a_constraint_without_a_value_fails_the_step():
    runner = hpo(square).grid(silent=True).maximize(R["gain"]).subject_to(R["memory"] <= 1)
    with pytest.raises(NoSuccessfulTrial) as raised:
        points(runner).run(strict=True)
    assert isinstance(raised.value.__cause__, KeyError)
    with pytest.raises(KeyError):
        runner.on_target_error("raise").run()


def test_results_that_are_not_numbers_are_no_members():
    def objective(config):
        return {"a": config["x"], "b": math.nan if config["x"] < 5 else 1}

    for first in ("a", "b"):
        runner = hpo(objective).nsga2(silent=True).seed(1).max_steps(30)
        runner.minimize(R[first]).also_minimize(R["a" if first == "b" else "b"])
        result = points(runner).run()
        assert result[0] == {"x": 5} and {one.config["x"] for one in result.pareto} == {5}


def test_wrong_calls():
    wrapped = hpo(square)
    with pytest.raises(SyntaxError, match="maximize or minimize before"):
        wrapped.grid(silent=True).also_minimize(R)
    with pytest.raises(SyntaxError, match="also_minimize"):
        wrapped.grid(silent=True).minimize(R).minimize(R)
    with pytest.raises(TypeError, match="subject_to"):
        wrapped.grid(silent=True).subject_to(True)


@pytest.mark.parametrize("name", ["bayes", "cmaes"])
def test_algorithms_for_one_target_refuse_several(name):
    calls = []
    runner = getattr(hpo(calls.append), name)(silent=True).max_steps(5)
    with pytest.raises(ValueError, match="2 targets, and .* knows 1: nsga2, random, qmc and grid"):
        points(runner.maximize(R).also_minimize(R)).run()
    assert calls == []


def test_an_algorithm_of_ones_own_may_take_several_targets():
    told = []

    class Session(BaseSession):
        def produce(self):
            for x in (1, 2):
                self.push({"x": x})

        def objectives(self):
            return None

        def on_targets(self, task, values, violation):
            told.append((task.task_id, values, violation))

    class Own(BaseAlgorithm):
        def get_session(self, space, service):
            return Session(self, space, service)

    runner = hpo(square).search(Own, silent=True).maximize(R["gain"]).also_minimize(R["cost"])
    points(runner.subject_to(R["gain"] <= 1)).run()
    assert told == [(1, [1, 1], 0), (2, [2, 0], 1)]


def test_nsga2_finds_the_front():
    def objective(config):
        x, y = config["x"], config["y"]
        return x * x + y * y, (x - 2) ** 2 + y * y

    result = (
        hpo(objective).nsga2(silent=True).population_size(20).seed(1).max_steps(600).max_workers(1)
        .minimize(R[0]).also_minimize(R[1]).subject_to(C["x"] >= 0.5)
        .spaces({"x": uniform(-5, 5), "y": uniform(-5, 5)}).run()
    )  # fmt: skip
    assert 0.25 <= result[1][0] < 0.3
    assert len(result.pareto) > 15 and all(one.config["x"] >= 0.5 for one in result.pareto)


def test_cmaes_with_numbers_steps_and_alternatives():
    def objective(config):
        kind = {"a": 2, "b": 0, "c": 1}[config["kind"]]
        return abs(config["n"] - 13) + kind + (config["x"] - 0.3) ** 2

    space = {"x": uniform(-5, 5), "n": randint(0, 20), "kind": choice(["a", "b", "c"])}
    result = (
        hpo(objective).cmaes(silent=True).seed(3).max_steps(800).max_workers(1).minimize(R)
        .spaces(space).run()
    )  # fmt: skip
    assert result[0]["n"] == 13 and result[0]["kind"] == "b" and result[1] < 1e-3


def test_same_seed_same_search():
    for name in ("cmaes", "nsga2"):
        runs = []
        for seed in (1, 1, 2):
            calls = []

            def objective(config):
                calls.append(config["x"])
                return config["x"] ** 2

            runner = getattr(hpo(objective), name)(silent=True).population_size(8).seed(seed)
            runner.max_steps(40).max_workers(1).maximize(R).spaces({"x": quniform(-1, 1, 0.01)}).run()
            runs.append(calls)
        assert runs[0] == runs[1] != runs[2]


def test_wrong_options():
    def run(runner):
        runner.max_steps(1).minimize(R).spaces({"x": uniform(0, 1)}).run()

    wrapped = hpo(square)
    with pytest.raises(ValueError, match="population size of cmaes"):
        run(wrapped.cmaes(silent=True).population_size(2))
    with pytest.raises(ValueError, match="sigma0"):
        run(wrapped.cmaes(silent=True).sigma0(2))
    with pytest.raises(ValueError, match="sigma0 must be a number"):
        run(wrapped.cmaes(silent=True).sigma0("wide"))
    with pytest.raises(ValueError, match="probabilities of nsga2"):
        run(wrapped.nsga2(silent=True).crossover_probability(1.5))
    with pytest.raises(ValueError, match="population_size must be a whole number"):
        run(wrapped.nsga2(silent=True).population_size(1.5))
    with pytest.raises(AttributeError, match="did you mean 'population_size'"):
        wrapped.nsga2(silent=True).populationsize(3)


@pytest.mark.parametrize("name", ["bayes", "cmaes"])
def test_searches_stay_within_constraints(name):
    inside = []

    def objective(config):
        inside.append(config["x"] <= 0.5)
        return config["x"]

    result = (
        getattr(hpo(objective), name)(silent=True).seed(3).max_steps(60).max_workers(1).maximize(R)
        .subject_to(R <= 0.5).spaces({"x": uniform(0, 1), "y": uniform(0, 1)}).run()
    )  # fmt: skip
    assert 0.4 < result[1] <= 0.5
    assert sum(inside[-30:]) > 8
