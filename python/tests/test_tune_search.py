"""Grid, random and Bayesian search through the fluent front of divisi.tune."""

import collections
import itertools
import random
import threading

import pytest

from divisi.tune import R, Skip, choice, hpo, quniform, randint, uniform


DEADLINE_S = 60


def product(config):
    return {"result": config["x"] * config["y"]}


def calls_of(runner_of, space, **options):
    """The configurations of a run with one worker."""
    calls = []

    def objective(config):
        calls.append(config)
        return {"result": 0}

    runner = runner_of(hpo(objective)).max_workers(1).maximize(R["result"]).spaces(space)
    for name, value in options.items():
        getattr(runner, name)(value)
    runner.run()
    return calls


def grid(wrapped):
    return wrapped.grid(silent=True)


def random_search(wrapped):
    return wrapped.random(silent=True)


def bayes(wrapped):
    return wrapped.bayes(silent=True)


Z = choice(["a", "b", "c", "d", "e"])
INTEGERS = {"x": randint(-10, 100), "y": quniform(-10, 20, 30), "z": Z}
INTERVALS = {"x": uniform(-10, 100), "y": uniform(-10, 20), "z": Z}
MIXED = {"x": uniform(-10, 100), "y": quniform(-10, 20, 30), "z": Z}
ROWS = [(INTEGERS, None, 1110), (INTEGERS, 10000, 1110), (INTERVALS, 1000, 945), (MIXED, 1000, 1000),
        (MIXED, 11, 10)]  # fmt: skip


def test_H020_points_of_an_interval():
    for steps, points in (
        (1, [1.3]), (2, [0.4, 2.2]), (3, [0.4, 1.3, 2.2]), (4, [0.4, 1.0, 1.6, 2.2]),
        (11, [0.4 + 0.18 * i for i in range(11)]),
    ):  # fmt: skip
        calls = calls_of(grid, {"x": uniform(0.4, 2.2)}, max_steps=steps)
        assert [call["x"] for call in calls] == pytest.approx(points, rel=1e-12)
        assert steps == 1 or calls[-1]["x"] == 2.2


def test_H021_points_of_a_stepped_interval():
    every = [0.4, 0.6, 0.8, 1.0, 1.2, 1.4, 1.6, 1.8, 2.0, 2.2]
    for steps, points in (
        (1, [1.2]), (3, [0.4, 1.2, 2.2]), (5, [0.4, 0.8, 1.2, 1.8, 2.2]),
        (6, [0.4, 0.8, 1.2, 1.4, 1.8, 2.2]), (7, [0.4, 0.8, 1.0, 1.2, 1.6, 2.0, 2.2]),
        (10, every), (11, every), (1000, every),
    ):  # fmt: skip
        calls = calls_of(grid, {"x": quniform(0.4, 2.2, 0.2)}, max_steps=steps)
        assert [call["x"] for call in calls] == points


@pytest.mark.parametrize("space, steps, total", ROWS)
def test_H023_totals_by_length(space, steps, total):
    calls = calls_of(grid, space, max_steps=steps, allocation="length")
    assert len(calls) == total
    assert all(-10 <= call["x"] <= 100 for call in calls)
    if space is INTEGERS:
        assert all(type(call["x"]) is int for call in calls)


@pytest.mark.parametrize("space, steps", [row[:2] for row in ROWS])
def test_H024_grid_minimum(space, steps):
    config, value, _ = (
        hpo(product).grid(silent=True).allocation("length").max_steps(steps)
        .minimize(R["result"]).spaces(space).run()
    )  # fmt: skip
    assert value["result"] <= -1000 and value["result"] == config["x"] * config["y"]


def test_H025_continuous_grid_needs_steps():
    calls = []
    with pytest.raises(ValueError, match="max_steps"):
        space = {"x": uniform(0, 1), "y": uniform(0, 1)}
        hpo(calls.append).grid(silent=True).maximize(R).spaces(space).run()
    assert calls == []


def test_H026_half_of_the_grid_fails():
    state = random.Random(5)

    def objective(config):
        if state.random() < 0.5:
            raise ValueError("this time it fails")
        return product(config)

    space = {"x": uniform(-55, 125), "y": quniform(-60, 20, 10)}
    _, value, _ = (
        hpo(objective).grid(silent=True).max_steps(1000).maximize(R["result"]).spaces(space).run()
    )
    assert value["result"] >= 3000


def test_H027_two_stop_conditions():
    space = {"x": uniform(-10, 110), "y": uniform(-10, 20)}

    def run(first, second):
        results = []

        def objective(config):
            results.append(config["x"] * config["y"])
            return {"result": results[-1]}

        _, value, _ = (
            hpo(objective).grid(silent=True).max_steps(1000).max_workers(1).maximize(R["result"])
            .stop_when(first).stop_when(second).spaces(space).run()
        )  # fmt: skip
        assert value["result"] == max(results)
        return results

    high, low, never = R["result"] >= 800, R["result"] <= -800, R["result"] > 1e9
    for first, second in ((high, low), (high, never), (never, high)):
        results = run(first, second)
        assert results[-1] >= 800 and all(-800 < result < 800 for result in results[:-1])
    for first, second in ((low, never), (never, low)):
        results = run(first, second)
        assert results[-1] <= -800 and all(result > -800 for result in results[:-1])


def test_H028_guide_structure_in_order():
    space = {"policy": {"other": {"eps": {"start": uniform(0.5, 1)}}}}
    calls = calls_of(grid, space, max_steps=5)
    starts = [call["policy"]["other"]["eps"]["start"] for call in calls]
    assert starts == [0.5, 0.625, 0.75, 0.875, 1.0]


def test_H029_balanced_allocation():
    calls = calls_of(grid, {"a": uniform(1e-4, 1e-3), "b": uniform(0.9, 0.99)}, max_steps=16)
    points = {(call["a"], call["b"]) for call in calls}
    assert len(calls) == len(points) == 16
    assert len({a for a, _ in points}) == len({b for _, b in points}) == 4


def test_H030_constants_are_passed_on():
    calls = calls_of(random_search, {"x": uniform(-2, 8), "y": 2.5}, max_steps=1000)
    assert len(calls) == 1000
    assert all(-2 <= call["x"] <= 8 and call["y"] == 2.5 for call in calls)


def test_H031_steps_and_choices_stay_on_their_points():
    space = {"x": uniform(-2, 8), "y": quniform(-1.6, 7.8, 0.2), "z": choice(["a", "b", "c"])}
    lattice = {round(-1.6 + 0.2 * i, 10) for i in range(48)}
    calls = calls_of(random_search, space, max_steps=1000)
    assert {call["y"] for call in calls} <= lattice
    assert {call["z"] for call in calls} == {"a", "b", "c"}


def test_H032_same_seed_same_best_with_many_workers():
    space = {"x": uniform(-2, 8), "y": quniform(-1.6, 7.8, 0.2)}
    bests = {
        hpo(product).random(silent=True).seed(12).max_steps(1000).max_workers(20)
        .maximize(R["result"]).spaces(space).run()[1]["result"]
        for _ in range(6)
    }  # fmt: skip
    assert len(bests) == 1


def test_H033_finite_space_is_exhausted():
    calls = []

    def objective(config):
        calls.append((config["x"], config["y"]))
        return product(config)

    space = {"x": quniform(-2.5, 2.5, 0.1), "y": quniform(-2.5, 2.5, 0.1)}
    _, value, _ = (
        hpo(objective).random(silent=True).max_steps(10000).maximize(R["result"]).spaces(space).run()
    )
    assert len(calls) == len(set(calls)) == 2601 and value["result"] == 6.25


def test_H034_no_steps_no_result():
    calls = []
    runner = hpo(calls.append).random(silent=True).max_steps(0).maximize(R)
    assert runner.spaces({"x": uniform(0, 1)}).run() is None
    assert calls == []


def test_H035_stop_condition_ends_an_endless_search():
    space = {"x": uniform(-2, 8), "y": uniform(-1.6, 7.8)}
    _, value, _ = (
        hpo(product).random(silent=True).stop_when(R["result"].abs() <= 0.5)
        .minimize(R["result"].abs()).spaces(space).run()
    )  # fmt: skip
    assert abs(value["result"]) <= 0.5


def test_H036_a_thousand_draws_come_near_the_ends():
    space = {"x": uniform(-2, 8), "y": uniform(-1.6, 7.8)}

    def best(direction):
        runner = hpo(product).random(silent=True).seed(3).max_steps(1000).spaces(space)
        return getattr(runner, direction)(R["result"]).run()[1]["result"]

    assert best("maximize") >= 55 and best("minimize") <= -12


def test_H037_seeds():
    space = {"x": uniform(0, 1)}
    generator = random.Random(7)
    given = calls_of(random_search, space, max_steps=3, seed=generator)
    again = random.Random(7)
    assert [call["x"] for call in given] == [again.random() for _ in range(3)]
    assert generator.random() == again.random()  # it was used itself
    assert calls_of(random_search, space, max_steps=3, seed=24) == calls_of(
        random_search, space, max_steps=3, seed=24
    )
    random.seed(99)
    drawn = calls_of(random_search, space, max_steps=2)
    random.seed(99)
    assert [call["x"] for call in drawn] == [random.random(), random.random()]
    for search in (random_search, bayes):
        with pytest.raises(TypeError):
            calls_of(search, space, max_steps=1, seed="234")


def test_golden_draws_of_seed_twelve():
    space = {"x": uniform(-2, 8), "y": quniform(-1.6, 7.8, 0.2)}
    calls = calls_of(random_search, space, max_steps=4, seed=12)
    assert [(call["x"], call["y"]) for call in calls] == [
        (2.7457067868854805, 6.8), (3.29130776721317, 2.8), (-0.5739964707463223, -1.6),
        (7.966222299244588, 4.4),
    ]  # fmt: skip


def test_H038_merging_values_do_not_hang():
    assert len(calls_of(random_search, {"x": choice(["a", "a"])}, max_steps=10)) == 2
    assert len(calls_of(random_search, {"x": randint(1, 6) // 10}, max_steps=10)) == 6


def test_H039_unhashable_choices():
    calls = calls_of(random_search, {"x": choice([[128, 64], [64]])}, max_steps=10)
    assert sorted(call["x"] for call in calls) == [[64], [128, 64]]


def test_H040_transform_of_a_bayes_coordinate():
    value = 2 ** (uniform(0.4, 2.2) + 2)
    assert value.trans(value.space.native.at_coordinate(1)) == 8
    assert value.trans(value.space.native.at_coordinate(4.92387)) == 121.42065073539287


def test_H042_choices_under_both_engines():
    space = {"x": uniform(0, 1), "z": choice(["a", "b"])}
    calls = []
    with pytest.raises(TypeError):
        runner = hpo(calls.append).bayes(silent=True).engine("reference").max_steps(5)
        runner.maximize(R).spaces(space).run()
    assert calls == []
    assert len(calls_of(bayes, space, max_steps=12)) == 12


def test_H043_names_of_acquisition_functions():
    space = {"x": uniform(0, 1)}
    for name in ("ucb", "ei", "poi"):
        assert len(calls_of(bayes, space, max_steps=10, acq=name)) == 10
    with pytest.raises(NotImplementedError):
        calls_of(bayes, space, max_steps=1, acq="other")


def test_H045_set_utils_is_used():
    def samples(**utils):
        calls = []

        def objective(config):
            calls.append(config["x"])
            return (config["x"] - 0.3) ** 2

        runner = hpo(objective).bayes(silent=True).seed(1).max_steps(20).max_workers(1)
        runner.set_utils(**utils).minimize(R).spaces({"x": uniform(0, 1)}).run()
        return calls

    assert samples(acq="ei", xi=0.01) == samples(acq="ei", xi=0.01)
    assert samples(acq="ei", xi=0.01) != samples(acq="ei", xi=10.0)
    assert samples(acq="ei", xi=0.01) != samples(acq="ucb", kappa=10.0)


@pytest.mark.parametrize("error", [Skip("odd"), ValueError("odd")])
def test_H046_failed_steps_use_the_budget(error):
    steps = []

    def objective(config, step):
        if step not in steps:
            steps.append(step)
        if step % 2:
            raise error
        return config["x"]

    runner = hpo(objective).bayes(silent=True).max_steps(20).max_workers(1).maximize(R)
    assert runner.spaces({"x": uniform(0, 1)}).run() is not None
    assert steps == list(range(1, 21))


@pytest.mark.parametrize("engine", ["default", "reference"])
@pytest.mark.parametrize("error", [Skip("always"), ValueError("always")])
def test_H046_failed_steps_do_not_reach_the_model(error, engine):
    def samples(failing, init_steps, steps):
        drawn = []

        def objective(config):
            drawn.append(config["x"])
            if failing:
                raise error
            return config["x"]

        runner = hpo(objective).bayes(silent=True).seed(1).max_steps(steps).max_workers(1).max_retries(1)
        if engine != "default":
            runner.engine(engine)
        runner.init_steps(init_steps).maximize(R).spaces({"x": uniform(0, 1)}).run()
        return drawn[:20]

    start = samples(False, 20, 80)  # a quarter of the steps may be the start
    assert samples(False, 5, 20) != start
    assert samples(True, 5, 20) == start  # without a success it goes on


CORNER = {"x": uniform(-55, 125), "y": quniform(-60, 20, 10)}


def flaky(seed, probability, error):
    state = random.Random(seed)

    def objective(config):
        if state.random() < probability:
            raise error
        return product(config)

    return objective


def with_reruns(found):
    """The statistical items allow three reruns."""
    return any(found(seed) for seed in range(4))


def corner_search(objective, seed):
    return hpo(objective).bayes(silent=True).seed(seed).max_steps(50).spaces(CORNER)


def test_H047_corner_is_found_despite_failures():
    def search(seed):
        objective = flaky(seed, 0.45, ValueError("bad luck"))
        return corner_search(objective, seed).max_retries(3).init_steps(10)

    assert with_reruns(lambda seed: search(seed).maximize(R["result"]).run()[1]["result"] >= 2900)
    assert with_reruns(lambda seed: search(seed).minimize(R["result"]).run()[1]["result"] <= -7000)


def test_H048_corner_is_found_without_a_start():
    def found(seed):
        objective = flaky(seed, 0.45, ValueError("bad luck"))
        runner = corner_search(objective, seed).init_steps(0).maximize(R["result"])
        return runner.run()[1]["result"] >= 2900

    assert with_reruns(found)


def test_H049_corner_is_found_despite_skips():
    def found(seed):
        runner = corner_search(flaky(seed, 0.15, Skip("not this one")), seed)
        return runner.maximize(R["result"]).run()[1]["result"] >= 2900

    assert with_reruns(found)


def test_H050_corner_ends_the_search():
    # One worker: the same steps every time. Some searches stay beside the corner for hundreds.
    runner = corner_search(flaky(1, 0.15, Skip()), 1).max_steps(None).max_workers(1)
    _, value, _ = runner.maximize(R["result"]).stop_when(R["result"] >= 2900).run()
    assert value["result"] >= 2900


def test_H054_eight_workers_have_eight_suggestions():
    together = threading.Barrier(8)  # every eight steps run at once, and end at once
    batches = collections.defaultdict(list)

    def objective(config, step):
        batches[(step - 1) // 8].append((config["x"], config["y"] / 15))
        together.wait(DEADLINE_S)
        return (config["x"] - 0.3) ** 2 + (config["y"] - 4) ** 2

    space = {"x": uniform(0, 1), "y": uniform(0, 15)}
    runner = hpo(objective).bayes(silent=True).seed(1).max_steps(64).max_workers(8)
    runner.minimize(R).spaces(space).run()
    assert [len(batch) for batch in batches.values()] == [8] * 8
    for batch in batches.values():
        for one, other in itertools.combinations(batch, 2):
            assert max(abs(a - b) for a, b in zip(one, other)) > 1e-6


def test_bad_settings_of_the_engine_are_value_errors():
    space = {"x": uniform(0, 1)}
    for options in (
        {"init_steps": -1}, {"init_steps": "5"}, {"kappa_decay": 2}, {"engine": "other"},
        {"pending": "liar"}, {"gp_params": {"kernel": None}}, {"gp_params": {"alpha": 1e-3}},
    ):  # fmt: skip
        with pytest.raises(ValueError):
            calls_of(bayes, space, max_steps=1, **options)
    with pytest.raises(ValueError):
        calls_of(grid, space, max_steps=4, allocation="even")
    engine = {"engine": "reference", "gp_params": {"alpha": 1e-4, "n_restarts_optimizer": 2}}
    assert len(calls_of(bayes, space, max_steps=8, **engine)) == 8


def test_strict_budget():
    space = {"x": uniform(0, 1), "y": uniform(0, 1)}
    assert len(calls_of(grid, space, max_steps=3, strict_budget=True)) <= 3
    with pytest.raises(ValueError, match="strict_budget"):
        calls_of(grid, {"x": choice(list(range(9)))}, max_steps=3, strict_budget=True)
