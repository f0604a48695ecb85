"""The router and the runner."""

from divisi.parallel import Parallel

__all__ = ["Parallel"]
