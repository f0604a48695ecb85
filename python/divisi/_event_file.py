"""TensorBoard's event files, written by hand: frames of records, each a small protobuf message.

A record is its length (8 bytes), the checksum of the length, the data, the checksum of the data; all
little-endian. Checksums are CRC-32C, masked. The messages are ``Event`` and ``Summary`` of TensorBoard's
``event.proto`` and ``summary.proto``, of which few fields are needed.
"""

import math
import os
import socket
import struct
import time
from typing import IO, List, Optional, Sequence, Tuple

from .errors import Error


def _make_table() -> List[int]:
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = (byte >> 1) ^ (0x82F63B78 if byte & 1 else 0)
        table.append(byte)
    return table


_TABLE = _make_table()


def masked_crc32c(data: bytes) -> int:
    """The checksum of a record, as the format wants it."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = (crc >> 8) ^ _TABLE[(crc ^ byte) & 0xFF]
    crc ^= 0xFFFFFFFF
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def framed(data: bytes) -> bytes:
    """A record."""
    length = struct.pack("<Q", len(data))
    return b"".join(
        (length, struct.pack("<I", masked_crc32c(length)), data, struct.pack("<I", masked_crc32c(data)))
    )


# --- protobuf ---


def _varint(value: int) -> bytes:
    value &= 0xFFFFFFFFFFFFFFFF  # negative numbers are 64 bits in two's complement
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _integer(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _double(field: int, value: float) -> bytes:
    return _varint(field << 3 | 1) + struct.pack("<d", value)


def _float(field: int, value: float) -> bytes:
    try:
        packed = struct.pack("<f", value)
    except OverflowError:
        packed = struct.pack("<f", math.copysign(math.inf, value))
    return _varint(field << 3 | 5) + packed


def _bytes(field: int, value: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(value)) + value


def _doubles(field: int, values: Sequence[float]) -> bytes:
    return _bytes(field, struct.pack(f"<{len(values)}d", *values))


def _event(content: bytes, step: int, walltime: Optional[float]) -> bytes:
    return _double(1, time.time() if walltime is None else walltime) + _integer(2, step) + content


def scalar_event(tag: str, value: float, step: int, walltime: Optional[float] = None) -> bytes:
    """An ``Event`` with one number."""
    summary = _bytes(1, _bytes(1, tag.encode()) + _float(2, value))
    return _event(_bytes(5, summary), step, walltime)


def text_event(tag: str, text: str, step: int, walltime: Optional[float] = None) -> bytes:
    """An ``Event`` with a text: a tensor of one string, for TensorBoard's text plug-in."""
    tensor = _integer(1, 7) + _bytes(2, _bytes(2, _integer(1, 1))) + _bytes(8, text.encode())
    metadata = _bytes(1, _bytes(1, b"text"))
    value = _bytes(1, f"{tag}/text_summary".encode()) + _bytes(9, metadata) + _bytes(8, tensor)
    return _event(_bytes(5, _bytes(1, value)), step, walltime)


def histogram_event(
    tag: str, values: Sequence[float], bins: int, step: int, walltime: Optional[float] = None
) -> bytes:
    """An ``Event`` with a histogram of the values, in bins of equal width."""
    limits, counts = _histogram(values, bins)
    histogram = b"".join(
        (
            _double(1, min(values)),
            _double(2, max(values)),
            _double(3, len(values)),
            _double(4, math.fsum(values)),
            _double(5, math.fsum(value * value for value in values)),
            _doubles(6, limits),
            _doubles(7, counts),
        )
    )
    summary = _bytes(1, _bytes(1, tag.encode()) + _bytes(5, histogram))
    return _event(_bytes(5, summary), step, walltime)


def _histogram(values: Sequence[float], bins: int) -> Tuple[List[float], List[float]]:
    low, high = min(values), max(values)
    width = (high - low) / bins
    if width <= 0 or not math.isfinite(width):
        return [high], [float(len(values))]
    counts = [0.0] * bins
    for value in values:
        counts[min(int((value - low) / width), bins - 1)] += 1
    return [low + width * (i + 1) for i in range(bins)], counts


# --- the file ---


class EventFile:
    """One file of events. Every record is handed to the system at once, so that a crash of the program
    loses none. Not for several threads."""

    def __init__(self, folder: str, suffix: str = "") -> None:
        name = f"events.out.tfevents.{int(time.time()):010d}.{socket.gethostname()}.{os.getpid()}{suffix}"
        self.path = os.path.join(folder, name)
        self._file: Optional[IO[bytes]] = None
        try:
            os.makedirs(folder, exist_ok=True)
            self._open()
            self.write(_event(_bytes(3, b"brain.Event:2"), 0, None))
        except OSError as error:
            raise Error(f"could not write {self.path}: {error.strerror}") from error

    def _open(self) -> IO[bytes]:
        self._file = open(self.path, "ab", buffering=0)
        return self._file

    def write(self, event: bytes) -> None:
        """Appends a record; opens the file again if it was closed."""
        try:
            (self._file or self._open()).write(framed(event))
        except OSError as error:
            raise Error(f"could not write {self.path}: {error.strerror}") from error

    def flush(self) -> None:
        """To the disk itself."""
        if self._file is not None:
            os.fsync(self._file.fileno())

    def close(self) -> None:
        """May be written to again."""
        if self._file is not None:
            self._file.close()
            self._file = None
