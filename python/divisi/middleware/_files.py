"""Files that are whole or not there."""

import io
import os
import pickle
import sys
from typing import Any

from ..errors import Error


def write_atomically(path: str, data: bytes) -> None:
    """Replaces the file, or leaves the old one and raises one clear Error."""
    folder = os.path.dirname(path) or "."
    temporary = f"{path}.{os.getpid()}.part"
    try:
        os.makedirs(folder, exist_ok=True)
        with open(temporary, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        _sync_folder(folder)
    except OSError as error:
        try:
            os.unlink(temporary)
        except OSError:
            pass
        raise Error(f"could not save {path}: {error.strerror or error}") from error


def _sync_folder(folder: str) -> None:
    # So that the new name survives a power cut as well.
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def packed(state: Any) -> bytes:
    """By torch if the program uses it, else by pickle. In memory first: a disk that is full then
    shows as an OSError, whatever the library would have made of it."""
    torch = sys.modules.get("torch")
    if torch is None:
        return pickle.dumps(state)
    buffer = io.BytesIO()
    torch.save(state, buffer)
    return buffer.getvalue()


def unpacked(path: str) -> Any:
    """What :func:`packed` made, by either way."""
    with open(path, "rb") as file:
        is_torch = file.read(2) == b"PK"  # a zip, which is how torch stores
        file.seek(0)
        if not is_torch:
            return pickle.load(file)
        import torch

        return torch.load(file, map_location="cpu")
