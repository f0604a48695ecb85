"""Helpers: the writer of curves."""

from divisi.writer import DistributedWriter

__all__ = ["DistributedWriter"]
