"""Rules that end a search: what `Runner.stop_when` takes beside conditions on results."""

from __future__ import annotations

import math
import time
from typing import Any, List, NoReturn, Optional, Union

from .. import _native
from ._expressions import Expression
from ._records import OptimizeDirection, RunResult, rank_key


class StopRule:
    """Ends a search. ``a | b`` ends it when one of the two would; `b` may be an expression."""

    is_stop_rule = True
    """Expressions leave ``expression | rule`` and ``expression & rule`` to the rule."""

    def start(self, direction: OptimizeDirection) -> None:
        """A search begins; rules forget the last one."""

    def searches(self, spaces: List[_native.TuneSpace]) -> None:
        """The spaces of the search that begins."""

    def deadline(self) -> Optional[float]:
        """When the search ends even if no step ends by then, on the clock of `time.monotonic`."""
        return None

    def met(self, result: Optional[RunResult]) -> bool:
        """Called when a step has ended; None: not well. Whether the search ends."""
        raise NotImplementedError(f"{type(self).__name__} has no met")

    def __or__(self, other: Any) -> "AnyRule":
        return AnyRule([*parts_of(self), *parts_of(other)])

    def __ror__(self, other: Any) -> "AnyRule":
        return AnyRule([*parts_of(other), *parts_of(self)])

    def __and__(self, other: Any) -> NoReturn:
        raise TypeError("rules are joined by | only: any one of them ends a search")

    __rand__ = __and__


class AnyRule(StopRule):
    """Rules and expressions joined by ``|``; any one of them ends a search."""

    def __init__(self, parts: List[Union[StopRule, Expression]]):
        self.parts = parts
        """Rules and expressions."""


def parts_of(rule: Any) -> List[Union[StopRule, Expression]]:
    """What is joined by ``|``."""
    if isinstance(rule, AnyRule):
        return rule.parts
    if isinstance(rule, (StopRule, Expression)):
        return [rule]
    raise TypeError(f"a rule is combined with a rule or an expression, not {rule!r}")


class StopAfter(StopRule):
    """Ends a search after so many seconds; steps that run are finished."""

    def __init__(self, seconds: float):
        if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not seconds >= 0:
            raise ValueError(f"StopAfter takes a number of seconds, not {seconds!r}")
        self._seconds = float(seconds)
        self._deadline = math.inf

    def start(self, direction: OptimizeDirection) -> None:
        """The clock starts."""
        self._deadline = time.monotonic() + self._seconds

    def deadline(self) -> Optional[float]:
        """Its time."""
        return None if math.isinf(self._deadline) else self._deadline

    def met(self, result: Optional[RunResult]) -> bool:
        """Whether the time is over."""
        return time.monotonic() >= self._deadline


class TargetReached(StopRule):
    """Ends a search when the target is at least (maximize) or at most (minimize) this value."""

    def __init__(self, value: float):
        self._value = _number("TargetReached", value)
        self._direction = OptimizeDirection.MINIMIZE

    def start(self, direction: OptimizeDirection) -> None:
        """In this direction."""
        self._direction = direction

    def met(self, result: Optional[RunResult]) -> bool:
        """Of results only."""
        if result is None:
            return False
        return rank_key(result.value, self._direction) <= rank_key(self._value, self._direction)


class NoImprovement(StopRule):
    """Ends a search after so many finished steps without a result that is better by more than
    `min_delta`; steps that failed, were skipped or pruned count."""

    def __init__(self, steps: int, min_delta: float = 0.0):
        if isinstance(steps, bool) or not isinstance(steps, int) or steps < 1:
            raise ValueError(f"NoImprovement takes a whole number of steps from 1 on, not {steps!r}")
        self._steps = steps
        self._min_delta = _number("min_delta of NoImprovement", min_delta)
        self._direction = OptimizeDirection.MINIMIZE
        self._since = 0
        self._best = math.inf

    def start(self, direction: OptimizeDirection) -> None:
        """Nothing is known yet."""
        self._direction, self._since, self._best = direction, 0, math.inf

    def met(self, result: Optional[RunResult]) -> bool:
        """Counts."""
        self._since += 1
        if result is not None:
            is_nan, value = rank_key(result.value, self._direction)
            if not is_nan and value < self._best - (0.0 if math.isinf(self._best) else self._min_delta):
                self._best, self._since = value, 0
        return self._since >= self._steps


class RegretBelow(StopRule):
    """Ends a search when no result seems possible that is better by more than this: an upper estimate by
    a Gaussian process over the results, from five results and two per variable on. Looks again when the
    number of results has grown by a twentieth."""

    def __init__(self, eps: float):
        self._eps = _number("RegretBelow", eps)
        if self._eps <= 0:
            raise ValueError(f"RegretBelow takes a number above 0, not {eps!r}")
        self._maximize = False
        self._spaces: List[_native.TuneSpace] = []
        self._points: List[List[float]] = []
        self._values: List[float] = []
        self._next = 0.0

    def start(self, direction: OptimizeDirection) -> None:
        """Nothing is known yet."""
        self._maximize = direction == OptimizeDirection.MAXIMIZE
        self._points, self._values, self._next = [], [], 0.0

    def searches(self, spaces: List[_native.TuneSpace]) -> None:
        """Where."""
        self._spaces = spaces

    def met(self, result: Optional[RunResult]) -> bool:
        """Only new results say something new."""
        if result is None:
            return False
        if result.raw is None:
            raise TypeError("RegretBelow needs an algorithm of the engine: grid, random, bayes or the like")
        self._points.append(list(result.raw))
        self._values.append(float(result.value))
        if len(self._values) < self._next:
            return False
        self._next = len(self._values) * 1.05
        regret = _native.tune_regret(self._spaces, self._points, self._values, self._maximize)
        return regret < self._eps


def _number(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or math.isnan(value):
        raise ValueError(f"{name} takes a number, not {value!r}")
    return float(value)

