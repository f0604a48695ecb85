"""Reads a pickle without running anything of it.

Whatever a pickle wants to import becomes an inert `Opaque` that only keeps its name; calling one, as
a pickle may ask for, gives another. Containers, numbers, text, dates, and NumPy's scalars are read as
values.
"""

from __future__ import annotations

import collections
import datetime
import io
import pickle
import pickletools
import struct
from typing import Any, Dict, List, Tuple, cast

MAX_BYTES = 64 << 20


class Opaque:
    """A value of a type that is not known here; any use of it fails with the type's name."""

    def __init__(self, type_name: str):
        self.__dict__["_type_name"] = type_name

    def __repr__(self) -> str:
        return f"<opaque {self.__dict__.get('_type_name')}>"

    def _refuse(self, *_: Any) -> Any:
        raise TypeError(f"{self!r} has no value: its type is not read from a pickle")

    __float__ = __int__ = __bool__ = __len__ = __iter__ = __getitem__ = __add__ = __radd__ = _refuse
    __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = __neg__ = __abs__ = _refuse
    __lt__ = __le__ = __gt__ = __ge__ = _refuse

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self._refuse()


class _Made(Opaque):
    """What a pickle makes of a type that is not known; the pickle may still try to fill it."""

    def __new__(cls, *_: Any, **__: Any) -> "_Made":
        """Takes any arguments; a pickle may leave out `__init__`."""
        made = object.__new__(cls)
        made.__dict__["_type_name"] = cls._name
        return made

    def __init__(self, *_: Any, **__: Any):
        pass

    _name = "unknown type"

    def __setstate__(self, state: Any) -> None:
        pass

    def append(self, item: Any) -> None:
        """Dropped."""

    def extend(self, items: Any) -> None:
        """Dropped."""

    def __setitem__(self, key: Any, value: Any) -> None:
        pass

    def __hash__(self) -> int:
        return id(self)


def _made(name: str) -> Opaque:
    return cast(Opaque, _named(name)())


def _named(name: str) -> type:
    return type("Opaque", (_Made,), {"_name": name})


def _bytearray(data: Any = b"", *_: Any) -> Any:
    # Not of a number: that would be so much memory.
    return bytearray(data if isinstance(data, bytes) else b"")


class _Dtype:
    """numpy.dtype of a plain number."""

    def __init__(self, code: str, *_: Any):
        self.code = code
        self.order = "<"

    def __setstate__(self, state: Tuple[Any, ...]) -> None:
        if len(state) > 1 and state[1] in ("<", ">"):
            self.order = state[1]


_FORMATS = {
    "f8": "d", "f4": "f", "i8": "q", "i4": "i", "i2": "h", "i1": "b", "u8": "Q", "u4": "I",
    "u2": "H", "u1": "B", "b1": "?",
}  # fmt: skip


def _scalar(dtype: Any, data: Any = b"") -> Any:
    if isinstance(data, str):  # protocols before 3 write bytes as text
        data = data.encode("latin-1")
    code = getattr(dtype, "code", "")
    if code not in _FORMATS or len(data) != struct.calcsize("<" + _FORMATS[code]):
        return _made(f"numpy scalar of {code or dtype!r}")
    return struct.unpack(dtype.order + _FORMATS[code], data)[0]


def _codec(text: str, encoding: str = "latin-1") -> bytes:
    return text.encode("latin-1") if encoding in ("latin1", "latin-1") else b""


def _reconstruct(kind: Any, *_: Any) -> Any:
    """How protocols 0 and 1 make an object."""
    known = isinstance(kind, type) and issubclass(kind, (_Made, _EasyDict))
    return kind() if known else _made(repr(kind))


class _EasyDict(Dict[Any, Any]):
    """EasyDict as a dict."""

    def __setstate__(self, state: Any) -> None:
        if isinstance(state, dict):
            self.update(state)


_KNOWN: Dict[Tuple[str, str], Any] = {
    ("builtins", "set"): set,
    ("builtins", "frozenset"): frozenset,
    ("builtins", "bytearray"): _bytearray,
    ("builtins", "complex"): complex,
    ("__builtin__", "set"): set,
    ("collections", "OrderedDict"): collections.OrderedDict,
    ("easydict", "EasyDict"): _EasyDict,
    ("datetime", "datetime"): datetime.datetime,
    ("datetime", "date"): datetime.date,
    ("datetime", "timedelta"): datetime.timedelta,
    ("_codecs", "encode"): _codec,
    ("copyreg", "_reconstructor"): _reconstruct,
    ("copy_reg", "_reconstructor"): _reconstruct,
    ("numpy", "dtype"): _Dtype,
    ("numpy.core.multiarray", "scalar"): _scalar,
    ("numpy._core.multiarray", "scalar"): _scalar,
}


class _Reader(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        """Never imports. Gives a new object each time: a pickle may set attributes on it."""
        known = _KNOWN.get((module, name))
        if known is None:
            return _named(f"{module}.{name}")
        if known in (_EasyDict, _Dtype):
            return type(known.__name__, (known,), {})
        return known if isinstance(known, type) else lambda *args: known(*args)

    def persistent_load(self, pid: Any) -> Any:
        """Of torch files, for one."""
        return _made("persistent id")


def _check_memo(data: bytes) -> None:
    """Python's reader makes its memo as large as the largest index in the data. A writer counts from
    0, and each entry takes more than a byte."""
    for code, argument, _ in pickletools.genops(data):
        if code.name in ("PUT", "BINPUT", "LONG_BINPUT") and not 0 <= int(argument or 0) < len(data):
            raise ValueError(f"memo index {argument} in {len(data)} bytes")


def loads(data: bytes) -> Any:
    """The value. Raises ValueError for what is not a pickle."""
    if len(data) > MAX_BYTES:
        raise ValueError(f"a pickle of {len(data)} bytes; {MAX_BYTES} are the limit")
    try:
        _check_memo(data)
        value = _Reader(io.BytesIO(data)).load()
    except Exception as error:  # whatever malformed input leads to
        raise ValueError(f"not a pickle that can be read: {error}") from None
    if isinstance(value, type) or callable(value):
        raise ValueError("the result is a type or a function, which is not read from a pickle")
    if isinstance(value, Opaque):
        raise ValueError(f"the result is a {value!r}, which is not read from a pickle")
    return value


__all__: List[str] = ["MAX_BYTES", "Opaque", "loads"]
