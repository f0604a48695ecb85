"""The queue over a Redis server: not there yet."""

from ..._missing import not_built

__getattr__ = not_built(__name__, "RedisMQ")
