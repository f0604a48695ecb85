"""TPE, Sobol points, the automatic choice, and conditional spaces, through `divisi.tune`."""

import logging
import math
import threading

import pytest

from divisi.tune import (
    R, Structure, choice, conditional, hpo, loguniform, quniform, randint, uniform,
)  # fmt: skip


def bowl(config):
    return (config["x"] - 0.3) ** 2 + (config["y"] - 0.7) ** 2


PLANE = {"x": uniform(0, 1), "y": uniform(0, 1)}


def configs_of(runner, steps=20):
    seen = []

    def objective(config):
        seen.append(config)
        return 0.0

    runner(hpo(objective)).max_steps(steps).max_workers(1).minimize(R).spaces(SPACE).run()
    return seen


def test_tpe_finds_the_minimum_and_keeps_its_seed():
    def values():
        seen = []

        def objective(config):
            seen.append(bowl(config))
            return seen[-1]

        hpo(objective).tpe(True).seed(1).max_steps(80).max_workers(1).minimize(R).spaces(PLANE).run()
        return seen

    first = values()
    assert len(first) == 80 and min(first) < 1e-3
    assert sum(first[40:]) < 0.8 * sum(first[:40])
    assert values() == first


def test_tpe_maximizes_with_several_workers():
    best = (
        hpo(lambda config: -bowl(config)).tpe(True).seed(2).max_steps(80).max_workers(4)
        .maximize(R).spaces(PLANE).run()
    )  # fmt: skip
    assert best[1] > -0.01


@pytest.mark.parametrize(
    ("name", "value"),
    [("n_startup", -1), ("n_startup", 1.5), ("n_candidates", 0), ("gamma", 0), ("gamma", 1),
     ("max_good", 0), ("prior_weight", 0), ("prior_weight", math.nan)],
)  # fmt: skip
def test_wrong_options_of_tpe_are_refused(name, value):
    runner = hpo(bowl).tpe(True).option(name, value).max_steps(3).minimize(R).spaces(PLANE)
    with pytest.raises(ValueError, match=name):
        runner.run()


def test_failed_steps_are_not_in_the_model():
    def objective(config):
        if config["x"] > 0.5:
            raise RuntimeError("no")
        return config["x"]

    best = hpo(objective).tpe(True).seed(0).max_steps(60).max_tries(1).minimize(R).spaces(PLANE).run()
    assert best[1] < 0.05


def test_qmc_spreads_evenly():
    xs = []
    hpo(lambda config: xs.append(config["x"]) or 0.0).qmc(True).seed(3).max_steps(64).max_workers(
        1
    ).minimize(R).spaces(PLANE).run()
    assert sorted(int(x * 64) for x in xs) == list(range(64))  # one in each part


# --- auto ---


def chosen(space, steps, caplog):
    caplog.set_level(logging.INFO)
    stopped = hpo(lambda config: 0.0).auto().max_steps(steps).max_workers(1).minimize(R).spaces(space)
    stopped.stop_when(R == 0).run()
    return next(text for text in caplog.messages if text.startswith("Auto algorithm chose"))


def test_auto_takes_the_grid_where_it_fits(caplog):
    space = {"a": choice([1, 2, 3]), "b": randint(1, 4)}
    assert "grid algorithm: all 12 points fit into 12 steps" in chosen(space, 12, caplog)


def test_auto_takes_the_model_for_few_steps(caplog):
    assert "bayes algorithm: 50 steps and 2 variables" in chosen(PLANE, 50, caplog)


@pytest.mark.parametrize(
    ("space", "steps", "reason"),
    [
        (PLANE, 1000, "1000 steps are more than the 250"),
        (PLANE, None, "there is no limit of steps"),
        ({str(i): uniform(0, 1) for i in range(30)}, 100, "30 variables"),
        ({"x": uniform(0, 1), "c": choice(list(range(40)))}, 100, "40 alternatives"),
    ],
)
def test_auto_takes_tpe_for_the_rest(space, steps, reason, caplog):
    text = chosen(space, steps, caplog)
    assert "tpe algorithm" in text and reason in text


def test_auto_is_silent_when_asked(caplog):
    caplog.set_level(logging.INFO)
    hpo(bowl).auto(silent=True).seed(1).max_steps(3).max_workers(1).minimize(R).spaces(PLANE).run()
    assert caplog.messages == []


# --- conditional spaces ---

KIND = choice(["sgd", "adam", "none"])
SPACE = {
    "kind": KIND,
    "momentum": conditional(KIND, {"sgd": uniform(0, 1)}),
    "lr": conditional(KIND, {"sgd": loguniform(1e-3, 1e-1), "adam": uniform(0.2, 0.3)}),
    "net": conditional(
        choice([1, 2]), {1: {"width": randint(1, 3)}, 2: {"deep": {"widths": [randint(4, 6), 7]}}}, key="layers"
    ),
}  # fmt: skip


def check(config):
    kind = config["kind"]
    assert set(config) == {"kind", "net"} | {"sgd": {"momentum", "lr"}, "adam": {"lr"}, "none": set()}[kind]
    if kind == "sgd":
        assert 0 <= config["momentum"] <= 1 and 1e-3 <= config["lr"] <= 1e-1
    if kind == "adam":
        assert 0.2 <= config["lr"] <= 0.3
    net = config["net"]
    if net["layers"] == 1:
        assert set(net) == {"layers", "width"} and net["width"] in (1, 2, 3)
    else:
        assert net["layers"] == 2 and set(net) == {"layers", "deep"}
        assert net["deep"]["widths"][0] in (4, 5, 6) and net["deep"]["widths"][1] == 7


@pytest.mark.parametrize(
    "algorithm",
    [
        lambda f: f.random(True).seed(1),
        lambda f: f.tpe(True).seed(1),
        lambda f: f.qmc(True).seed(1),
        lambda f: f.bayes(True).seed(1),
        lambda f: f.grid(True),
        lambda f: f.auto(True).seed(1),
    ],
    ids=["random", "tpe", "qmc", "bayes", "grid", "auto"],
)
def test_inactive_variables_are_absent(algorithm):
    configs = configs_of(algorithm, 30)
    for config in configs:
        check(config)
    assert {config["kind"] for config in configs} == {"sgd", "adam", "none"}
    assert {config["net"]["layers"] for config in configs} == {1, 2}


def test_a_grid_has_each_branch_once():
    kind = choice(["a", "b"])
    seen = []
    space = {"kind": kind, "n": conditional(kind, {"a": randint(1, 3)})}
    hpo(lambda c: seen.append(c) or 0).grid(True).max_workers(1).minimize(R).spaces(space).run()
    assert seen == [{"kind": "a", "n": 1}, {"kind": "a", "n": 2}, {"kind": "a", "n": 3}, {"kind": "b"}]


def test_a_choice_may_come_after_what_depends_on_it():
    inner = choice([10, 20])
    outer = choice([False, True])
    space = {
        "z": outer,
        "inner": conditional(outer, {True: inner}),
        "a": conditional(inner, {20: quniform(0, 1, 0.5)}),
    }
    seen = []
    hpo(lambda c: seen.append(c) or 0).grid(True).max_workers(1).minimize(R).spaces(space).run()
    key = lambda c: sorted(c.items())  # noqa: E731
    assert sorted(seen, key=key) == sorted(
        [{"z": False}, {"z": True, "inner": 10}, *({"z": True, "inner": 20, "a": a} for a in (0.0, 0.5, 1.0))],
        key=key,
    )
    # An algorithm of the user's that draws every space.
    structure = Structure(space)
    assert structure.config([1.0, 1.0, 0.0]) == {"z": False}
    assert structure.rebuild([0.5, 20, True]) == {"z": True, "inner": 20, "a": 0.5}


def test_names_and_table_of_conditional_variables(caplog):
    caplog.set_level(logging.INFO)
    assert Structure(SPACE).paths() == [
        ("kind",), ("momentum",), ("lr",), ("net", "layers"), ("net", "width"),
        ("net", "deep", "widths", 0),
    ]  # fmt: skip
    lock = threading.Lock()
    count = iter(range(100))

    def objective(config):
        with lock:
            return next(count)

    kind = choice(["a", "b"])
    space = {"kind": kind, "n": conditional(kind, {"a": fixed_int()})}
    hpo(objective).grid().max_workers(1).minimize(R).spaces(space).run()
    table = [text for text in caplog.messages if "ranklist" in text][-1]
    assert "| a      |   4 |" in table and "| b      |     |" in table
    assert "Step initialized, with variables - kind: 'b'." in caplog.messages


def fixed_int():
    return randint(4, 4)


def test_wrong_conditionals_are_refused():
    kind = choice(["a", "b"])
    with pytest.raises(TypeError, match="depends on a choice"):
        conditional(uniform(0, 1), {1: 2})
    with pytest.raises(TypeError, match="a dict from values"):
        conditional(kind, [1])
    with pytest.raises(ValueError, match="no branch"):
        conditional(kind, {})
    with pytest.raises(ValueError, match="'c' is not one of the choice's values: 'a', 'b'"):
        conditional(kind, {"c": 1})
    with pytest.raises(TypeError, match="must be a dict"):
        Structure({"x": conditional(kind, {"a": uniform(0, 1)})})
    with pytest.raises(ValueError, match="another one with key="):
        Structure(conditional(kind, {"a": {"name": 1}}))
    with pytest.raises(ValueError, match="several conditionals"):
        Structure([conditional(kind, {"a": {}}), conditional(kind, {"b": {}})])
    with pytest.raises(ValueError, match="more than once"):
        Structure({"x": kind, "y": kind, "z": conditional(kind, {"a": 1})})
    with pytest.raises(ValueError, match="item of a list"):
        Structure({"x": kind, "z": [conditional(kind, {"a": 1})]})
    circle = {"x": conditional(kind, {"a": {"y": kind}})}
    with pytest.raises(ValueError, match="depends on itself"):
        hpo(bowl).random(True).max_steps(1).minimize(R).spaces(circle).run()
