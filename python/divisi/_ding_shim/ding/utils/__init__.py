"""Helpers: not there yet."""

from .._missing import not_built

__getattr__ = not_built(__name__, "DistributedWriter")
