"""Which variables a result depends on."""

from __future__ import annotations

import json
import math
from typing import Any, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple

from .. import _native
from ._records import Result
from ._spaces import Structure, path_name

_METHODS = {"fanova": False, "ped-anova": True}
_LOG_RANGE = 1000.0  # numbers that span more than this are compared by their logarithms
_ENDED_WELL = ("ok", "complete", "success", "0", "none")


class Importance(Dict[str, float]):
    """The share of each variable, the largest first. Prints as a table."""

    def table(self) -> str:
        """As text."""
        return _native.tune_table(["variable", "importance"], [list(one) for one in self.items()], False)

    def json(self) -> str:
        """As JSON: an object in the same order."""
        return json.dumps(self)

    def __str__(self) -> str:
        return self.table()


def importance(
    trials: Any,
    method: str = "fanova",
    maximize: Optional[bool] = None,
    trees: int = 64,
    best_share: float = 0.1,
    seed: int = 0,
    normalize: bool = True,
) -> Importance:
    """Which variables the target depends on.

    `trials`: a study, what `run` returned if it kept one, trials that have `config` and `value` (such as
    the results that listeners get), or (search structure, raw points, values). Method "fanova" gives the
    share of the variance that a variable explains alone, in a forest of `trees` trees; "ped-anova" how
    far the `best_share` of the trials is from all of them, for which `maximize` says which are the best
    (of a study it is known).
    Variables that only stand in configurations have no bounds: their range is the one seen, on a
    logarithmic scale if it spans more than three decades.
    """
    if method not in _METHODS:
        raise ValueError(f"method is one of {', '.join(_METHODS)}: not {method!r}")
    if isinstance(trials, Result) and trials.study is not None:
        trials = trials.study
    if type(trials) is tuple and len(trials) == 3 and not hasattr(trials[0], "value"):
        names, spaces, points, values = _of_points(*trials)
    else:
        names, spaces, points, values = _of_trials(_trial_list(trials))
    if maximize is None:
        maximize = _first(getattr(trials, "maximize", False))
    options = {
        "maximize": bool(maximize), "trees": trees, "best_share": float(best_share), "seed": seed,
        "normalize": bool(normalize),
    }  # fmt: skip
    shares = _native.tune_importance(spaces, points, values, _METHODS[method], options)
    return Importance(sorted(zip(names, shares), key=lambda one: -one[1]))


_Columns = Tuple[List[str], List[_native.TuneSpace], List[List[float]], List[float]]


def _first(value: Any) -> bool:
    return bool(value[0]) if isinstance(value, (list, tuple)) and value else value is True


def _of_points(structure: Any, points: Iterable[Sequence[float]], values: Iterable[float]) -> _Columns:
    space = structure if isinstance(structure, Structure) else Structure(structure)
    names = _names_in_order_of_dimensions(space)
    rows = [[float(one) for one in point] for point in points]
    return names, space.spaces(), rows, [float(value) for value in values]


def _names_in_order_of_dimensions(space: Structure) -> List[str]:
    """Paths stand in the order written, dimensions in the order of sorted keys."""
    names = [""] * len(space.spaces())
    numbered = space.rebuild(range(len(names)))
    for path in space.paths():
        place = numbered
        for part in path:
            place = place[part]
        names[place] = path_name(path)
    return names


def _trial_list(trials: Any) -> List[Any]:
    if isinstance(trials, Result):
        raise TypeError("the run kept no study, only its best result: give it a storage, such as memory:")
    held = getattr(trials, "trials", trials)
    try:
        return list(held() if callable(held) else held)
    except TypeError:
        raise TypeError(
            f"importance takes a study, trials, or (structure, points, values): not {trials!r}"
        ) from None


def _field(trial: Any, name: str) -> Any:
    return trial.get(name) if isinstance(trial, Mapping) else getattr(trial, name, None)


def _of_trials(trials: Sequence[Any]) -> _Columns:
    flat: List[Dict[str, Any]] = []
    values: List[float] = []
    for trial in trials:
        state = _field(trial, "state")
        value, config = _field(trial, "value"), _field(trial, "config")
        if value is None or str(getattr(state, "name", state)).lower() not in _ENDED_WELL:
            continue
        leaves: Dict[str, Any] = {}
        _flatten(config, (), leaves)
        flat.append(leaves)
        values.append(float(value))
    names, spaces, columns = [], [], []
    for name in dict.fromkeys(name for leaves in flat for name in leaves):
        made = _column([leaves.get(name) for leaves in flat])
        if made is not None:
            names.append(name)
            spaces.append(made[0])
            columns.append(made[1])
    points = [list(row) for row in zip(*columns)] if columns else [[] for _ in flat]
    return names, spaces, points, values


def _flatten(value: Any, path: Tuple[Any, ...], leaves: Dict[str, Any]) -> None:
    if isinstance(value, Mapping):
        for key, one in value.items():
            _flatten(one, (*path, key), leaves)
    elif isinstance(value, (list, tuple)) and any(isinstance(one, (Mapping, int, float)) for one in value):
        for index, one in enumerate(value):
            _flatten(one, (*path, index), leaves)
    else:
        leaves[path_name(path)] = value


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _column(cells: List[Any]) -> Optional[Tuple[_native.TuneSpace, List[float]]]:
    """A space that holds the values, and the values in it; None: they do not differ."""
    seen = [cell for cell in cells if cell is not None]
    if all(_is_number(cell) and math.isfinite(cell) for cell in seen):
        low, high = float(min(seen)), float(max(seen))
        if low == high:
            return None
        scale = math.log if low > 0 and high / low > _LOG_RANGE else float
        numbers = [math.nan if cell is None else scale(float(cell)) for cell in cells]
        return _native.TuneSpace.continuous(scale(low), scale(high)), numbers
    kinds = {text: float(i) for i, text in enumerate(dict.fromkeys(map(repr, seen)))}
    if len(kinds) < 2:
        return None
    codes = [math.nan if cell is None else kinds[repr(cell)] for cell in cells]
    return _native.TuneSpace.fixed(len(kinds)), codes
