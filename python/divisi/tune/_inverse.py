"""From a configuration back to the draw that it is made of, for configurations that users give."""

from __future__ import annotations

import math
from typing import Any, Callable, Iterator, List, Optional, Tuple

from ._spaces import FixedSpace, HyperValue, SeparateSpace, Structure, _sorted_keys, path_name

_PROBES = 65
_SCANNED = 4096


def flat_paths(structure: Any, path: Tuple[Any, ...] = ()) -> Iterator[Tuple[Any, ...]]:
    """Where the hyper values are, in the order of `Structure.flatten`."""
    if isinstance(structure, HyperValue):
        yield path
    elif isinstance(structure, dict):
        for key in _sorted_keys(structure):
            yield from flat_paths(structure[key], (*path, key))
    elif isinstance(structure, (list, tuple)):
        for index, item in enumerate(structure):
            yield from flat_paths(item, (*path, index))


def values_at(structure: Any, config: Any) -> List[Any]:
    """The values of the hyper values in a configuration. Raises ValueError: one is missing, or the
    configuration has a key that the structure has not."""
    _check_keys(structure, config, ())
    values = []
    for path in flat_paths(structure):
        place = config
        for part in path:
            try:
                place = place[part]
            except (KeyError, IndexError, TypeError):
                raise ValueError(f"the configuration has no value for '{path_name(path)}'") from None
        values.append(place)
    return values


def _check_keys(structure: Any, config: Any, path: Tuple[Any, ...]) -> None:
    if not isinstance(structure, dict) or not isinstance(config, dict):
        return
    for key, item in config.items():
        if key not in structure:
            raise ValueError(
                f"the configuration has '{path_name((*path, key))}', which is not searched here"
            )
        _check_keys(structure[key], item, (*path, key))


def raw_of(space: Structure, structure: Any, config: Any) -> List[float]:
    """The draw that a configuration is made of. Raises ValueError, which names the variable."""
    raw = []
    values = values_at(structure, config)
    for path, hyper, value in zip(flat_paths(structure), space.flatten(), values):
        try:
            raw.append(invert(hyper, value))
        except ValueError as error:
            raise ValueError(f"'{path_name(path)}': {error}") from None
    return raw


def invert(hyper: HyperValue, value: Any) -> float:
    """The draw whose value this is. Raises ValueError: there is none, or it cannot be found."""
    space = hyper.space
    if isinstance(space, FixedSpace):
        return _scan(hyper, value, range(int(space.length)), "is none of the alternatives")
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value != value:
        found = None if not isinstance(space, SeparateSpace) else _try_all(hyper, value)
        if found is not None:
            return found
        raise ValueError(f"{value!r} is not a number of its range")
    if isinstance(space, SeparateSpace):
        count = space.count or 1

        def at(index: float) -> Any:
            return hyper.value_of(space.native.at(int(index)))

        found = _try_all(hyper, value) if count <= _SCANNED else None
        if found is not None:
            return found
        index = _search(at, 0, count - 1, float(value), whole=True)
        return space.native.at(int(index))
    return _search(hyper.value_of, space.native.lower(), space.native.upper(), float(value), False)


def _try_all(hyper: HyperValue, value: Any) -> Optional[float]:
    space = hyper.space.native
    count = space.count() or 0
    if count > _SCANNED:
        return None
    for index in range(count):
        if _same(hyper.value_of(space.at(index)), value):
            return space.at(index)
    return None


def _scan(hyper: HyperValue, value: Any, indices: range, problem: str) -> float:
    for index in indices:
        if _same(hyper.value_of(float(index)), value):
            return float(index)
    raise ValueError(f"{value!r} {problem}")


def _same(a: Any, b: Any) -> bool:
    try:
        if isinstance(a, bool) != isinstance(b, bool):
            return False
        if isinstance(a, float) and isinstance(b, (int, float)):
            return a == b or math.isclose(a, b, rel_tol=1e-12)
        if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
            return len(a) == len(b) and all(_same(x, y) for x, y in zip(a, b))
        return bool(a == b)
    except Exception:  # values that cannot be compared are not the same
        return False


def _number_at(function: Callable[[float], Any], x: float) -> float:
    try:
        number = function(x)
        if isinstance(number, bool) or not isinstance(number, (int, float)):
            raise TypeError
        return float(number)
    except Exception:
        raise ValueError("its transforms do not give numbers, so that the draw cannot be found") from None


def _search(
    function: Callable[[float], Any], low: float, high: float, value: float, whole: bool
) -> float:
    """The place in [low, high] where a monotone function has this value, by halving."""
    probes = [low + (high - low) * i / (_PROBES - 1) for i in range(_PROBES)]
    if whole:
        probes = sorted({float(round(x)) for x in probes})
    numbers = [_number_at(function, x) for x in probes]
    rising = all(a <= b for a, b in zip(numbers, numbers[1:]))
    if not rising and not all(a >= b for a, b in zip(numbers, numbers[1:])):
        raise ValueError("its transforms are not monotone, so that the draw cannot be found")
    sign = 1.0 if rising else -1.0
    left, right = low, high
    for _ in range(200):
        middle = (left + right) / 2
        if whole:
            middle = float(math.floor(middle))
        if not left < middle < right:
            break
        if sign * _number_at(function, middle) >= sign * value:
            right = middle
        else:
            left = middle
    for x in (right, left):
        if math.isclose(_number_at(function, x), value, rel_tol=1e-9, abs_tol=1e-12):
            return x
    ends = sorted((numbers[0], numbers[-1]))
    if not ends[0] <= value <= ends[1]:
        raise ValueError(f"{value!r} is not from {ends[0]!r} to {ends[1]!r}")
    raise ValueError(f"{value!r} is none of its values")
