"""Spaces, hyper values and search structures of divisi.tune."""

import collections
import math
import operator

import pytest

from divisi.tune import (
    ContinuousSpace, FixedSpace, SeparateSpace, Structure, choice, fixed, lograndint, loguniform,
    normal, qloguniform, quniform, randint, randn, uniform,
)  # fmt: skip
from divisi.tune._spaces import l2normal


def test_H001_uniform_keeps_its_bounds():
    value = uniform(-10, 20.2)
    assert (value.space.lbound, value.space.ubound) == (-10.0, 20.2)
    assert value.trans(3.25) == 3.25


@pytest.mark.parametrize("bounds", [(-10, -10), (-10, -10.1)])
def test_H002_uniform_refuses_an_empty_interval(bounds):
    with pytest.raises(ValueError):
        uniform(*bounds)


def test_H003_quniform_keeps_start_end_and_step():
    space = quniform(-10, 20.2, 0.2).space
    assert (space.start, space.step) == (-10, 0.2)
    assert space.end == pytest.approx(20.2)


@pytest.mark.parametrize("arguments", [(-10, 20.2, -0.2), (-10, -20.2, 0.2), (-10, -20.2, -0.2)])
def test_H004_quniform_refuses_bad_steps(arguments):
    with pytest.raises(ValueError):
        quniform(*arguments)


def test_H005_choice_maps_indices_to_elements():
    value = choice(["a", "b", "c"])
    assert value.space.count == value.space.length == 3
    assert [value.trans(i) for i in range(3)] == ["a", "b", "c"]
    with pytest.raises(ValueError):
        choice([])
    with pytest.raises(TypeError):
        choice({"a"})


def test_H006_randint_rounds_its_bounds_inwards():
    value = randint(10.1, 20.2)
    assert (value.space.start, value.space.end, value.space.step) == (11, 20, 1)
    assert value.trans(11.9) == 11
    assert randint(-10, 100).space.count == 111
    with pytest.raises(ValueError):
        randint(1.2, 1.8)


def test_H007_lengths_and_counts():
    continuous = ContinuousSpace(0.4, 2.2)
    assert continuous.length == pytest.approx(1.8) and continuous.count is None
    separate = SeparateSpace(0.4, 2.2, 0.4)
    assert separate.end == 2.0 and separate.length == pytest.approx(1.6) and separate.count == 5
    assert FixedSpace(5).length == FixedSpace(5).count == 5


@pytest.mark.parametrize("name", "add sub mul truediv floordiv mod pow".split())
def test_H008_operators_follow_python(name):
    apply = getattr(operator, name)
    value = uniform(0.4, 7)
    for x in (1, 5):
        assert apply(value, 2).trans(x) == apply(x, 2)
        assert apply(22, value).trans(x) == apply(22, x)
    assert apply(value, 2).space is value.space and apply(22, value).space is value.space


def test_H008_signs_functions_and_golden_values():
    value = uniform(0.4, 2.2)
    for made, by_hand in (
        (-value, operator.neg), (+value, operator.pos), (value >> (lambda x: x * 10), lambda x: x * 10),
    ):  # fmt: skip
        assert [made.trans(x) for x in (1, 5)] == [by_hand(x) for x in (1, 5)]
        assert made.space is value.space
    chain = 2 ** (value + 2)
    assert chain.trans(1) == 8 and chain.trans(2.2) == 18.37917367995256
    assert (22 % value).trans(5) == 2 and (2 // value).trans(5) == 0
    assert type((value + 1).trans(5)) is int


def test_H009_flatten_and_rebuild():
    s1, s2, s3, s4 = choice(["a"]), uniform(0, 5), uniform(0, 5), uniform(-9, 5)
    structure = Structure({"values": {"a": s2, "b": (s3, s4), "e": 12.7}, "need": s1})
    assert structure.flatten() == [s1, s2, s3, s4]
    rebuilt = structure.rebuild(("a", 2.0, 3.5, -4.75))
    assert rebuilt == {"values": {"a": 2.0, "b": (3.5, -4.75), "e": 12.7}, "need": "a"}
    assert isinstance(rebuilt["values"]["b"], tuple)


def test_H010_normal_quantiles():
    assert l2normal(0) == -math.inf and l2normal(1) == math.inf and l2normal(0.5) == 0
    assert l2normal(0.2) == pytest.approx(-0.8416212335729143, rel=1e-14)
    assert l2normal(0.8) == pytest.approx(0.8416212335729143, rel=1e-14)
    assert math.isnan(l2normal(1.5))
    assert randn(10, 2).trans(0.8) == pytest.approx(10 + 2 * 0.8416212335729143)


def test_combining_two_hyper_values_is_refused():
    with pytest.raises(TypeError, match="two hyper values"):
        uniform(0, 1) + uniform(0, 1)
    with pytest.raises(TypeError, match="truth value"):
        bool(uniform(0, 1))


def test_containers_keep_their_types_and_constants_are_copied():
    Pair = collections.namedtuple("Pair", "left right")

    class Config(dict):
        pass

    shared = {"deep": [1]}
    structure = Structure(Config(b=[uniform(0, 1), shared], a=Pair(uniform(0, 1), 7)))
    built = structure.rebuild([0.25, 0.5])
    assert type(built) is Config and list(built) == ["a", "b"]
    assert built["a"] == Pair(0.25, 7) and type(built["a"]) is Pair
    assert built["b"] == [0.5, {"deep": [1]}]
    built["b"][1]["deep"].append(2)
    assert shared == {"deep": [1]}
    assert structure.rebuild([0, 0])["b"][1] == {"deep": [1]}
    constant = Structure({"tags": {1}})
    constant.rebuild([])["tags"].add(2)
    assert constant.rebuild([]) == {"tags": {1}}


def test_chosen_lists_are_copies():
    layers = [128, 64]
    structure = Structure(choice([layers]))
    structure.config([0]).append(1)
    assert layers == [128, 64] and structure.config([0]) == [128, 64]


def test_mixed_keys_are_a_type_error():
    with pytest.raises(TypeError, match="order"):
        Structure({1: uniform(0, 1), "a": 2})


def test_display_order_is_the_order_written():
    structure = Structure({"z": uniform(0, 1), "b": [uniform(0, 1)], "c": 3})
    assert structure.paths() == [("z",), ("b", 0)]


def test_logarithmic_spaces_stay_inside():
    value = loguniform(1e-5, 1e-1)
    low, high = value.space.lbound, value.space.ubound
    assert value.trans(low) == 1e-5 and value.trans(high) == 1e-1
    assert value.trans((low + high) / 2) == pytest.approx(1e-3)
    stepped = qloguniform(0.1, 10, 0.1)
    assert stepped.trans(stepped.space.lbound) == 0.1 and stepped.trans(math.log(0.337)) == 0.3
    whole = lograndint(1, 1000)
    assert whole.trans(whole.space.lbound) == 1 and whole.trans(whole.space.ubound) == 1000
    assert type(whole.trans(2.0)) is int
    assert fixed([1, 2]).trans(0) == [1, 2]
    clipped = normal(0, 1, clip=(-1, 2))
    assert -1 <= clipped.trans(clipped.space.lbound) and clipped.trans(clipped.space.ubound) <= 2
    for bad in (lambda: loguniform(0, 1), lambda: qloguniform(1, 2, 0), lambda: lograndint(0, 5),
                lambda: normal(0, 0), lambda: normal(0, 1, clip=(2, 1)), lambda: uniform(0, math.inf),
                lambda: uniform(math.nan, 1)):  # fmt: skip
        with pytest.raises(ValueError):
            bad()
    with pytest.raises(TypeError):
        uniform("0", 1)


def test_transforms_are_data():
    assert (2 * uniform(0, 1) + 3).describe() == [["r*", 2], ["+", 3]]
    assert (uniform(0, 1) >> abs).describe() == [["opaque", None]]
