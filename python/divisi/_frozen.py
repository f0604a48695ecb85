"""Arrays that are sent without a copy."""

from typing import Any

from . import _native


def frozen(array: Any) -> Any:
    """A read-only view of a NumPy array that cannot be made writable again, so an emit sends its memory
    as it is, without a copy.

    With it you promise that nobody writes to ``array`` itself any more: what arrives is what the memory
    holds when it is sent. ``array.setflags(write=False)`` is no such promise, since it can be taken
    back; such an array is copied. One that is not C-contiguous is copied here, once.
    """
    import numpy

    array = numpy.ascontiguousarray(array).reshape(numpy.shape(array))
    if array.dtype.hasobject:
        raise TypeError(f"an array of {array.dtype} holds objects, which cannot be frozen")
    memory = _native.frozen_bytes(array.reshape(-1).view(numpy.uint8))
    return numpy.ndarray(array.shape, array.dtype, buffer=memory)
