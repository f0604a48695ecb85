"""How often a step is tried, and how the values of several calls become one."""

from __future__ import annotations

import math
import statistics
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple, Type, Union

Errors = Union[Type[BaseException], Tuple[Type[BaseException], ...]]
Aggregate = Union[str, Callable[[List[float]], float]]

_AGGREGATES: Dict[str, Callable[[Sequence[float]], float]] = {
    "mean": statistics.fmean, "median": statistics.median, "min": min, "max": max,
}  # fmt: skip


class Retry:
    """What follows an error of certain classes: `tries` calls in total, with `wait` seconds before the
    second, and `factor` times the last wait before each further one, `max_wait` at most."""

    def __init__(
        self,
        on: Errors = Exception,
        wait: float = 0.0,
        factor: float = 2.0,
        max_wait: float = 60.0,
        tries: Optional[int] = None,
    ):
        classes = on if isinstance(on, tuple) else (on,)
        if not classes or not all(
            isinstance(one, type) and issubclass(one, BaseException) for one in classes
        ):
            raise TypeError(f"retry(on=...) takes exception classes, not {on!r}")
        for name, value, lowest in (("wait", wait, 0), ("factor", factor, 1), ("max_wait", max_wait, 0)):
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not (
                lowest <= value < math.inf
            ):
                raise ValueError(f"retry({name}=...) must be a number from {lowest} on, not {value!r}")
        if tries is not None and (isinstance(tries, bool) or not isinstance(tries, int) or tries < 1):
            raise ValueError(f"retry(tries=...) must be a whole number from 1 on, not {tries!r}")
        self.classes = classes
        """What it is for."""
        self.tries = tries
        """Calls in total; None: as many as the search allows."""
        self._wait, self._factor, self._max_wait = float(wait), float(factor), float(max_wait)

    def wait_after(self, failed: int) -> float:
        """Seconds to wait after so many failed calls."""
        try:
            return min(self._max_wait, self._wait * self._factor ** (failed - 1))
        except OverflowError:
            return self._max_wait


def retry_for(policies: Sequence[Retry], error: BaseException) -> Optional[Retry]:
    """The first policy that is for such an error."""
    return next((policy for policy in policies if isinstance(error, policy.classes)), None)


def aggregate_of(agg: Aggregate) -> Callable[[List[float]], float]:
    """A function of numbers, or one by name."""
    if callable(agg):
        return agg
    if agg not in _AGGREGATES:
        raise ValueError(f"agg is a function or one of {', '.join(_AGGREGATES)}: not {agg!r}")
    return _AGGREGATES[agg]


def combined(values: List[Any], agg: Callable[[List[float]], float]) -> Any:
    """Numbers become one number; dicts, lists and tuples of the same shape become one, item by item; of
    anything else the last one counts."""
    first = values[0]
    if all(_is_number(value) for value in values):
        return agg([float(value) for value in values])
    if isinstance(first, dict) and all(
        isinstance(value, dict) and value.keys() == first.keys() for value in values
    ):
        return {key: combined([value[key] for value in values], agg) for key in first}
    if isinstance(first, (list, tuple)) and all(
        type(value) is type(first) and len(value) == len(first) for value in values
    ):
        items = [combined(list(column), agg) for column in zip(*values)]
        return items if isinstance(first, list) else tuple(items)
    return values[-1]


def _is_number(value: Any) -> bool:
    if isinstance(value, (bool, str, bytes)):
        return False
    if isinstance(value, (int, float)):
        return True
    # NumPy's scalars, and tensors of one number.
    return hasattr(value, "__float__") and getattr(value, "ndim", None) == 0
