"""MessagePack as data: what a trial wrote into `result.msgpack`."""

from __future__ import annotations

import struct
from typing import Any, Dict, Tuple

_DEPTH = 100
_NUMBERS = {
    0xCA: ">f", 0xCB: ">d", 0xCC: ">B", 0xCD: ">H", 0xCE: ">I", 0xCF: ">Q",
    0xD0: ">b", 0xD1: ">h", 0xD2: ">i", 0xD3: ">q",
}  # fmt: skip
_LENGTHS = {0xC4: 1, 0xC5: 2, 0xC6: 4, 0xD9: 1, 0xDA: 2, 0xDB: 4, 0xDC: 2, 0xDD: 4, 0xDE: 2, 0xDF: 4}


def loads(data: bytes) -> Any:
    """The one value that the bytes are. Raises ValueError: cut off, something behind it, nested too
    deeply, or an extension type, which only its writer understands."""
    reader = _Reader(data)
    value = reader.value(0)
    if reader.at != len(data):
        raise ValueError(f"MessagePack: {len(data) - reader.at} bytes behind the value")
    return value


class _Reader:
    def __init__(self, data: bytes):
        self._data = data
        self.at = 0

    def value(self, depth: int) -> Any:
        if depth > _DEPTH:
            raise ValueError("MessagePack: nested too deeply")
        code = self._take(1)[0]
        if code <= 0x7F:
            return code
        if code >= 0xE0:
            return code - 0x100
        if code in _NUMBERS:
            form = _NUMBERS[code]
            return struct.unpack(form, self._take(struct.calcsize(form)))[0]
        if code in (0xC0, 0xC2, 0xC3):
            return {0xC0: None, 0xC2: False, 0xC3: True}[code]
        return self._sized(code, depth)

    def _sized(self, code: int, depth: int) -> Any:
        kind, length = self._head(code)
        if kind == "text":
            return self._take(length).decode("utf-8")
        if kind == "bytes":
            return self._take(length)
        if length > len(self._data) - self.at:  # an item has a byte at least
            raise ValueError("MessagePack: it is cut off")
        if kind == "list":
            return [self.value(depth + 1) for _ in range(length)]
        made: Dict[Any, Any] = {}
        for _ in range(length):
            key = self.value(depth + 1)
            if isinstance(key, (list, dict)):
                raise ValueError("MessagePack: a container is no key here")
            made[key] = self.value(depth + 1)
        return made

    def _head(self, code: int) -> Tuple[str, int]:
        if 0x80 <= code <= 0x8F:
            return "map", code & 0x0F
        if 0x90 <= code <= 0x9F:
            return "list", code & 0x0F
        if 0xA0 <= code <= 0xBF:
            return "text", code & 0x1F
        if code not in _LENGTHS:
            raise ValueError(f"MessagePack: type {code:#04x} is not read here")
        length = int.from_bytes(self._take(_LENGTHS[code]), "big")
        for last, kind in ((0xC6, "bytes"), (0xDB, "text"), (0xDD, "list")):
            if code <= last:
                return kind, length
        return "map", length

    def _take(self, count: int) -> bytes:
        if count > len(self._data) - self.at:
            raise ValueError("MessagePack: it is cut off")
        self.at += count
        return self._data[self.at - count : self.at]
