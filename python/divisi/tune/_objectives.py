"""Several targets and constraints: conditions as violations, and the Pareto set."""

from __future__ import annotations

import math
import sys
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

from .. import _native
from ._expressions import Expression, Record, binary_parts, evaluate, text

_COMPARISONS = ("==", "!=", "<", "<=", ">", ">=")


class Target(NamedTuple):
    """A target behind the first one."""

    name: str
    """The column of the table."""
    expression: Expression
    """What is computed."""
    maximize: bool
    """Whether larger values are better."""


def violation_of(condition: Expression, record: Record) -> float:
    """0 if the condition holds. Otherwise, of a comparison how far its sides are apart; of `&` the
    sum, of `|` the smaller one; of a truth value 1; of a number by how much it is above 0. Raises
    ValueError for what is neither, and what the parts raise."""
    symbol, parts = binary_parts(condition)
    if symbol in _COMPARISONS:
        return _of_comparison(condition, *(evaluate(part, record) for part in parts))
    if symbol in ("&", "|"):
        violations = [violation_of(part, record) for part in parts]
        return sum(violations) if symbol == "&" else min(violations)
    value = evaluate(condition, record)
    if _is_truth_value(value):
        return 0.0 if value else 1.0
    number = _number(value)
    if number is None:
        raise ValueError(
            f"the constraint {text(condition)} is {value!r}, neither a condition nor a number"
        )
    return max(0.0, _checked(condition, number))


def _of_comparison(condition: Expression, left: Any, right: Any) -> float:
    symbol = binary_parts(condition)[0]
    a, b = _number(left), _number(right)
    if a is not None and b is not None:
        _checked(condition, a), _checked(condition, b)
    made = Expression("binary", symbol, (Expression("constant", left), Expression("constant", right)))
    if evaluate(made, {}):
        return 0.0
    if a is None or b is None or symbol == "!=":
        return 1.0
    apart = abs(a - b)
    # Of a strict comparison whose sides are equal, and of two infinite ones.
    return apart if apart > sys.float_info.epsilon else sys.float_info.epsilon


def _checked(condition: Expression, number: float) -> float:
    if math.isnan(number):
        raise ValueError(f"the constraint {text(condition)} is not a number")
    return number


def _is_truth_value(value: Any) -> bool:
    """True and False, also those of NumPy."""
    return isinstance(value, bool) or getattr(getattr(value, "dtype", None), "kind", "") == "b"


def _number(value: Any) -> Optional[float]:
    if isinstance(value, (str, bytes)) or not hasattr(value, "__float__"):
        return None
    try:
        return float(value)
    except (TypeError, ValueError):
        return None


class ParetoSet:
    """The results that no other one dominates: better in one target and nowhere worse. Only results
    that meet the constraints, with numbers that are finite."""

    def __init__(self, maximize: Sequence[bool], reference: Optional[Sequence[float]] = None):
        self._maximize = list(maximize)
        self._front = _native.TuneParetoFront(self._maximize)
        self._reference = None if reference is None else list(reference)
        self._results: Dict[int, Any] = {}
        self._worst: List[float] = []

    def insert(self, result: Any) -> bool:
        """Adds a result; whether it is a member now."""
        values: List[float] = result.values
        if not result.feasible or not all(math.isfinite(value) for value in values):
            return False
        worst = self._worst or values
        pairs: List[Tuple[bool, float, float]] = list(zip(self._maximize, worst, values))
        self._worst = [min(a, b) if larger else max(a, b) for larger, a, b in pairs]
        if not self._front.insert(result.task_id, values):
            return False
        self._results[result.task_id] = result
        self._results = {id: self._results[id] for id in self._front.ids()}
        return True

    @property
    def results(self) -> List[Any]:
        """The members, in the order in which they ended."""
        return list(self._results.values())

    @property
    def hypervolume(self) -> float:
        """What the members cover, up to the reference point, or up to the worst value of each target
        so far."""
        reference = self._reference or self._worst
        return self._front.hypervolume(reference) if self._results else 0.0
