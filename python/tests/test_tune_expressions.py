"""R, M and C of divisi.tune."""

import math

import pytest

from divisi.tune import C, M, R, evaluate, exp, log, parse, sqrt, text, uniform, where
from divisi.tune._expressions import as_expression


def on(expression, returned, **more):
    return evaluate(as_expression(expression), {"return": returned, "config": {}, "metrics": {}, **more})


def test_H011_root_items_and_attributes():
    thing = object()
    assert on(R, thing) is thing
    assert on(R["a"], {"a": 5}) == 5 and on(R[1], [3, 4]) == 4 and on(R[1:], [3, 4, 5]) == [4, 5]
    assert on(R.real, 3 + 4j) == 3
    with pytest.raises(AttributeError):
        on(R.a, {"a": 5})


def test_H012_identity_and_types():
    assert on(R.is_(None), None) is True and on(R.is_(None), 0) is False
    assert [on(R.isinstance_(int), x) for x in (1, 1.0, "a")] == [True, False, False]


def test_H013_abs_and_len():
    assert [on(R.abs(), x) for x in (-1, -0.5, 0)] == [1, 0.5, 0]
    assert [on(R.len(), x) for x in ([1, 2], [], "abcdefg")] == [2, 0, 7]


def test_python_abs_is_the_method():
    assert abs(R["a"]).same_as(R["a"].abs()) and text(abs(R["a"])) == "R['a'].abs()"
    assert on(abs(R["a"] - 3), {"a": 1}) == 2


def test_H014_comparisons():
    for x in (0, 1, 2):
        assert on(R == 1, x) == (x == 1) and on(R != 1, x) == (x != 1)
        assert on(R > 1, x) == (x > 1) and on(R >= 1, x) == (x >= 1)
        assert on(R < 1, x) == (x < 1) and on(R <= 1, x) == (x <= 1)


def test_H015_logic():
    for a in (1, 2):
        for b in (2, 3):
            record = {"a": a, "b": b}
            assert on((R["a"] > 1) & (R["b"] > 2), record) == (a > 1 and b > 2)
            assert on((R["a"] > 1) | (R["b"] > 2), record) == (a > 1 or b > 2)
            assert on(~(R["a"] > 1), record) == (not a > 1)
            assert on(True & (R["a"] > 1), record) == (a > 1)
            assert on(False | (R["a"] > 1), record) == (a > 1)


def test_H016_functions_get_the_whole_record():
    seen = []

    def f(record):
        seen.append(record)
        return True

    assert on((R["a"] > 1) | f, {"a": 0}) is True
    assert seen == [{"return": {"a": 0}, "config": {}, "metrics": {}}]


def test_H017_statistics():
    for values, total, mean, stdev in (
        ([1, 2, 3, 4, 5], 15, 3.0, 1.5811388300841898),
        ([2, 3, 5, 7], 17, 4.25, 2.217355782608345),
    ):
        assert on(R.sum(), values) == total
        assert on(R.mean(), values) == mean and type(on(R.mean(), values)) is float
        assert on(R.stdev(), values) == pytest.approx(stdev, rel=1e-15)


def test_H018_conversion():
    assert as_expression(R) is R
    assert on(lambda record: record["return"] + 1, 4) == 5
    assert on(233, None) == 233
    assert on(int, None) is int  # a class is a constant here


def test_H019_three_roots():
    record = {"config": {"b": [2, 3]}, "return": {"bb": [5, 6]}, "metrics": {"time": 1.5}}
    assert evaluate(C["b"][0] * R["bb"][1], record) == 12
    assert evaluate(M["time"], record) == 1.5


def test_type_operand_of_equality_is_a_constant():
    assert on(R["t"] == int, {"t": int}) is True


def test_misuse_says_what_to_write():
    for misuse in (
        lambda: bool(R["x"] > 3), lambda: 1 < R["x"] < 3, lambda: not R, lambda: list(R),
        lambda: 3 in R, lambda: hash(R), lambda: (R > 1) and (R < 3),
    ):  # fmt: skip
        with pytest.raises(TypeError):
            misuse()


def test_further_methods_and_functions():
    assert on(R.max() - R.min(), [3, 1, 2]) == 2 and on(R.last(), [3, 1, 2]) == 2
    assert on(R.median(), [3, 1, 2]) == 2.0 and on(R.std(), [1, 3]) == 1.0
    assert on(R.isnan(), math.nan) is True
    assert on(where(R > 1, R * 10, 0), 2) == 20
    assert on(log(exp(sqrt(R))), 9) == pytest.approx(3)
    assert on(R["f"](3), {"f": lambda x: x + 1}) == 4


TEXTS = [
    "R['eval_value']", "C['b'][0] * R['bb'][1]", "(R['a'] > 1) & (R['b'] > 2)", "-R ** 2",
    "(-R) ** 2", "2 ** (R + 1)", "1 - (2 - R)", "R.real.imag", "R['x'].abs() + M['time']",
    "~(R > 1) | (C['a'] == 'b')", "where(R > 1, R, 0)", "R[1:3]", "R.isinstance_(int)", "R % -1",
]  # fmt: skip


@pytest.mark.parametrize("source", TEXTS)
def test_text_and_back(source):
    assert text(parse(source)) == source
    assert parse(text(parse(source))).same_as(parse(source))
    assert not parse(source).same_as(R["other"])


@pytest.mark.parametrize(
    "source",
    ["R['a'] > 1 & R['b'] > 2", "1 < R < 3", "R and M", "__import__('os')", "R.__class__", "x",
     "lambda: 1", "R[", "R if R else M", "open('a')", "R.f(1)", "[R for R in M]", "(" * 500,
     "1" * 20000],
)  # fmt: skip
def test_what_is_not_an_expression_is_refused(source):
    with pytest.raises(ValueError):
        parse(source)


def test_parser_hints_at_parentheses():
    with pytest.raises(ValueError, match="parentheses"):
        parse("R['a'] > 1 & R['b'] > 2")


@pytest.mark.parametrize("write", [lambda x: log(x), lambda x: R["a"] > x, lambda x: where(R > 1, x, 0)])
def test_a_hyper_value_is_no_operand(write):
    with pytest.raises(TypeError, match="hyper value"):
        write(uniform(1, 2))
