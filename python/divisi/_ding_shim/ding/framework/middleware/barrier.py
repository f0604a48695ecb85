"""The barrier."""

from divisi.middleware import Barrier, BarrierRuntime

__all__ = ["Barrier", "BarrierRuntime"]
