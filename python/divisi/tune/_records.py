"""What a search hands to its listeners: tasks, results, the rank list."""

from __future__ import annotations

import bisect
import enum
import math
from typing import Any, Dict, Iterator, List, Optional, Sequence, Tuple

from .. import _native
from ._expressions import Expression, as_expression, evaluate
from ._objectives import ParetoSet


class Skip(Exception):
    """Raised by an objective to leave this step out: no retry, no result."""


class NoSuccessfulTrial(RuntimeError):
    """`run(strict=True)` found no result; the last error of a step is its cause."""


class OptimizeDirection(enum.IntEnum):
    """Which results are better."""

    MINIMIZE = 1
    MAXIMIZE = 2

    @classmethod
    def loads(cls, value: Any) -> "OptimizeDirection":
        """From a member, a number, or a name in any case."""
        if isinstance(value, str):
            try:
                return cls[value.upper()]
            except KeyError:
                raise ValueError(f"unknown direction {value!r}: minimize or maximize") from None
        return cls(value)


class Task:
    """One step: a configuration and its number, from 1."""

    def __init__(self, task_id: int, config: Any):
        self.task_id = task_id
        """The number of the step."""
        self.config = config
        """What the objective gets."""

    def __repr__(self) -> str:
        return f"<Task task_id: {self.task_id!r}, config: {self.config!r}>"


class RunResult:
    """A step that ended well."""

    def __init__(self, task: Task, retval: Any, metrics: Dict[str, Any]):
        self.task_id = task.task_id
        """The number of the step."""
        self.config = task.config
        """What the objective got."""
        self.retval = retval
        """What it returned."""
        self.metrics = metrics
        """`time`: seconds of the last try."""
        self.value: Any = None
        """The target."""
        self.concerns: List[Any] = []
        """The values of further targets and of the concerns."""
        self.values: List[float] = []
        """All targets, in their order."""
        self.violation = 0.0
        """By how much constraints are exceeded, in all."""
        self.raw: Optional[Sequence[float]] = None
        """What the engine drew for it, a number per variable; None if it did not."""

    @property
    def feasible(self) -> bool:
        """Whether all constraints hold."""
        return self.violation == 0

    @property
    def record(self) -> Dict[str, Any]:
        """What expressions are computed from."""
        return {"config": self.config, "return": self.retval, "metrics": self.metrics}

    def get(self, expression: Any) -> Any:
        """The value of an expression, or of a function of the record, for this result."""
        return evaluate(as_expression(expression), self.record)

    def __repr__(self) -> str:
        return f"<RunResult task_id: {self.task_id!r}, value: {self.value!r}>"


class RunFailed(Exception):
    """A step whose last try failed. `args` are the error's type and arguments."""

    def __init__(self, task: Task, error: BaseException, metrics: Dict[str, Any]):
        super().__init__(type(error), *error.args)
        self.task_id = task.task_id
        """The number of the step."""
        self.error = error
        """What the last try raised."""
        self.metrics = metrics
        """Of the last try."""


class RunSkipped(Exception):
    """A step that its objective left out. `args` are those of `Skip`."""

    def __init__(self, task: Task, arguments: Tuple[Any, ...], metrics: Dict[str, Any]):
        super().__init__(*arguments)
        self.task_id = task.task_id
        """The number of the step."""
        self.metrics = metrics
        """Of the try."""


class Result(Tuple[Any, Any, Dict[str, Any]]):
    """What `run()` returns: (configuration, return value, metrics) of the best step."""

    trial_id: int
    """The number of that step."""
    interrupted: bool
    """Whether a signal ended the search early."""
    study: Any
    """The `Study` that holds all trials; None if the run kept none."""

    pareto: List[RunResult]
    """The results that no other one dominates; with one target the best one."""
    hypervolume: Optional[float]
    """Of the Pareto set, if there are several targets."""

    def __new__(
        cls,
        best: RunResult,
        interrupted: bool,
        study: Any = None,
        pareto: Optional[List[RunResult]] = None,
        hypervolume: Optional[float] = None,
    ) -> "Result":
        """Of the best result."""
        made = super().__new__(cls, (best.config, best.retval, best.metrics))
        made.trial_id = best.task_id
        made.interrupted = interrupted
        made.study = study
        made.pareto = [best] if pareto is None else pareto
        made.hypervolume = hypervolume
        return made


def rank_key(value: Any, direction: OptimizeDirection) -> Tuple[bool, float]:
    """Smaller is better; what is not a number comes last in both directions."""
    number = float(value)
    if math.isnan(number):
        return True, 0.0
    return False, -number if direction == OptimizeDirection.MAXIMIZE else number


class RankList:
    """The best results so far, at most `capacity`; of equal ones the earlier comes first. Results
    that violate constraints come last, the smaller violation first. With `further` targets the first
    one counts, then the next, and so on; then `pareto` holds the results that none dominates."""

    def __init__(
        self,
        capacity: int,
        direction: OptimizeDirection,
        further: Sequence[OptimizeDirection] = (),
        reference: Optional[Sequence[float]] = None,
    ):
        self._capacity = capacity
        self._directions = [direction, *further]
        maximize = [one == OptimizeDirection.MAXIMIZE for one in self._directions]
        self.pareto = ParetoSet(maximize, reference) if further else None
        """The Pareto set, if there are several targets."""
        self._keys: List[Tuple[Any, ...]] = []
        self._results: List[RunResult] = []
        self._arrived = 0

    def insert(self, result: RunResult) -> bool:
        """Adds a result; whether it is the best now, or with several targets, whether no other one
        dominates it."""
        self._arrived += 1
        key = (*self._key(result), self._arrived)
        place = bisect.bisect(self._keys, key)
        self._keys.insert(place, key)
        self._results.insert(place, result)
        del self._keys[self._capacity :], self._results[self._capacity :]
        if self.pareto is None or not result.feasible:
            return place == 0
        return self.pareto.insert(result)

    def _key(self, result: RunResult) -> Tuple[Any, ...]:
        values = [result.value, *result.values[1:]]
        keys = [rank_key(value, one) for value, one in zip(values, self._directions)]
        return any(nan for nan, _ in keys), result.violation, *keys

    def __len__(self) -> int:
        return len(self._results)

    def __getitem__(self, index: int) -> RunResult:
        return self._results[index]

    def __iter__(self) -> Iterator[RunResult]:
        return iter(list(self._results))


def rank_table(
    results: Sequence[RunResult],
    variables: Sequence[Tuple[str, Expression]],
    target: str,
    concerns: Sequence[str],
) -> str:
    """The table of a rank list: number of the step, variables, target, concerns."""
    headers = ["#", *(name for name, _ in variables), target, *concerns]
    rows = []
    for result in results:
        values = [result.task_id, *(_value(result, place) for _, place in variables)]
        rows.append([_cell(value) for value in [*values, result.value, *result.concerns]])
    return _native.tune_table(headers, rows, False)


def _value(result: RunResult, place: Expression) -> Any:
    try:
        return evaluate(place, result.record)
    except (KeyError, IndexError, TypeError):  # the objective has changed its configuration
        return None


def _cell(value: Any) -> Any:
    if value is None or type(value) is float or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return str(value)
    if isinstance(value, int):
        return value if abs(value) < 2**63 else str(value)
    return str(value) if _as_float(value) is None else _as_float(value)


def _as_float(value: Any) -> Optional[float]:
    """Of numbers that are not Python's own."""
    if isinstance(value, (list, tuple, dict, set)) or not hasattr(value, "__float__"):
        return None
    try:
        return float(value)
    except (TypeError, ValueError):
        return None
