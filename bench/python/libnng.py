"""The few calls of nng that peer.py makes, over Debian's library: an alternative to pynng, whose nng is years newer.

The two lose and deliver quite differently in a burst, so ours is measured beside both.
"""
import ctypes

_LIBRARY = "libnng.so.1"
_CLOSED = 7  # NNG_ECLOSED
_ALLOC = 1  # NNG_FLAG_ALLOC: the library makes the buffer
_NONBLOCK = 2  # NNG_FLAG_NONBLOCK: a dial goes on in the background


class Closed(Exception):
    """The socket was closed while a call was waiting."""


class _Socket(ctypes.Structure):
    _fields_ = [("id", ctypes.c_uint32)]


_nng = ctypes.CDLL(_LIBRARY)
_nng.nng_bus0_open.argtypes = [ctypes.POINTER(_Socket)]
_nng.nng_listen.argtypes = _nng.nng_dial.argtypes = [_Socket, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_int]
_nng.nng_send.argtypes = [_Socket, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_int]
_nng.nng_recv.argtypes = [_Socket, ctypes.POINTER(ctypes.c_void_p), ctypes.POINTER(ctypes.c_size_t), ctypes.c_int]
_nng.nng_free.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_nng.nng_free.restype = None
_nng.nng_close.argtypes = [_Socket]
_nng.nng_strerror.restype = ctypes.c_char_p


def _check(code):
    if code == _CLOSED:
        raise Closed
    if code:
        raise OSError(_nng.nng_strerror(code).decode())


class Bus0:
    """A bus socket, with the names pynng gives its methods."""

    def __init__(self):
        self._socket = _Socket()
        _check(_nng.nng_bus0_open(ctypes.byref(self._socket)))

    def listen(self, address):
        """Binds."""
        _check(_nng.nng_listen(self._socket, address.encode(), None, 0))

    def dial(self, address, block):
        """Connects, in the background unless told to block."""
        _check(_nng.nng_dial(self._socket, address.encode(), None, 0 if block else _NONBLOCK))

    def send(self, data):
        """To every neighbour; drops what does not fit."""
        _check(_nng.nng_send(self._socket, data, len(data), 0))

    def recv(self):
        """The next message, as bytes."""
        data, size = ctypes.c_void_p(), ctypes.c_size_t()
        _check(_nng.nng_recv(self._socket, ctypes.byref(data), ctypes.byref(size), _ALLOC))
        try:
            return ctypes.string_at(data, size.value)
        finally:
            _nng.nng_free(data, size)

    def close(self):
        """Ends calls that wait."""
        _nng.nng_close(self._socket)
