"""Values as JSON text, for studies. What JSON has no form for is tagged: an object with one key that
begins with `$`."""

from __future__ import annotations

import base64
import json
import math
from typing import Any, Callable, Dict, List, Optional, Tuple

_FLOATS = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}
_MAX_DEPTH = 60  # what the journal's reader accepts


class NotStorable(TypeError):
    """A value that has no form in a study: the text names it and its place."""


def encode(value: Any, opaque: Optional[Callable[[Any], Any]] = None) -> str:
    """The value as one line of JSON. What cannot be stored raises `NotStorable`, or is what `opaque`
    makes of it."""
    return json.dumps(
        _plain(value, (), opaque), allow_nan=False, separators=(",", ":"), ensure_ascii=False
    )


def as_repr(value: Any) -> Any:
    """For `encode`: the printed form of a value that cannot be stored."""
    return {"$repr": repr(value)[:200]}


def decode(text: str) -> Any:
    """The value of such a text; None for an empty one."""
    return _value(json.loads(text)) if text else None


def _place(path: Tuple[Any, ...]) -> str:
    return "".join(f"[{part!r}]" for part in path)


def _plain(value: Any, path: Tuple[Any, ...], opaque: Optional[Callable[[Any], Any]]) -> Any:
    if value is None or isinstance(value, bool):
        return value
    kind = type(value)
    if kind is str:
        return _text(value)
    if kind is int:
        return value if -(2**63) <= value < 2**63 else {"$int": str(value)}
    if kind is float:
        return value if math.isfinite(value) else {"$float": repr(value)}
    if len(path) >= _MAX_DEPTH:
        raise NotStorable(f"{_place(path[:3])}... is nested too deeply")
    if isinstance(value, dict):
        return _plain_dict(value, path, opaque)
    if isinstance(value, (list, tuple, set, frozenset)):
        items = [_plain(item, (*path, index), opaque) for index, item in enumerate(value)]
        if isinstance(value, list):
            return items
        return {"$tuple" if isinstance(value, tuple) else "$set": items}
    if isinstance(value, (bytes, bytearray)):
        return {"$bytes": base64.b64encode(bytes(value)).decode()}
    return _plain_other(value, path, opaque)


def _text(value: str) -> Any:
    try:
        value.encode()
        return value
    except UnicodeEncodeError:  # half of a surrogate pair, as file names may have
        return {"$text": base64.b64encode(value.encode("utf-8", "surrogatepass")).decode()}


def _plain_dict(
    value: Dict[Any, Any], path: Tuple[Any, ...], opaque: Optional[Callable[[Any], Any]]
) -> Any:
    if all(type(key) is str and not key.startswith("$") for key in value):
        return {key: _plain(item, (*path, key), opaque) for key, item in value.items()}
    pairs = []
    for key, item in value.items():
        pairs.append([_plain(key, path, opaque), _plain(item, (*path, key), opaque)])
    return {"$dict": pairs}


def _plain_other(value: Any, path: Tuple[Any, ...], opaque: Optional[Callable[[Any], Any]]) -> Any:
    """Numbers and arrays of other libraries, by what they offer."""
    if isinstance(value, (str, int, float)):  # subclasses
        for base in (str, int, float):
            if isinstance(value, base):
                return _plain(base(value), path, opaque)
    shape = getattr(value, "shape", None)
    if shape is not None and callable(getattr(value, "tolist", None)):
        try:
            items = value.tolist()
            if shape == ():
                return _plain(items, path, opaque)
            dtype = str(getattr(value, "dtype", ""))
            return {"$array": [_plain(items, path, opaque), dtype]}
        except (TypeError, ValueError, NotStorable):
            pass
    if opaque is not None:
        return opaque(value)
    where = _place(path) or "it"
    raise NotStorable(f"{where} is a {type(value).__name__}, which has no form in JSON")


def _value(plain: Any) -> Any:
    if isinstance(plain, list):
        return [_value(item) for item in plain]
    if not isinstance(plain, dict):
        return plain
    if len(plain) == 1:
        ((key, data),) = plain.items()
        if key in _TAGS:
            return _TAGS[key](data)
    return {key: _value(item) for key, item in plain.items()}


def _array(data: List[Any]) -> Any:
    items, dtype = _value(data[0]), data[1]
    try:
        import numpy

        return numpy.array(items, dtype=dtype)
    except (ImportError, TypeError, ValueError):  # a tensor's type, or no numpy here
        return items


_TAGS: Dict[str, Callable[[Any], Any]] = {
    "$int": int,
    "$float": lambda data: _FLOATS[data],
    "$tuple": lambda data: tuple(_value(item) for item in data),
    "$set": lambda data: {_value(item) for item in data},
    "$bytes": base64.b64decode,
    "$text": lambda data: base64.b64decode(data).decode("utf-8", "surrogatepass"),
    "$dict": lambda data: {_value(key): _value(item) for key, item in data},
    "$array": _array,
    "$repr": lambda data: data,
}
