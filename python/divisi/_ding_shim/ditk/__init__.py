"""The import paths of DI-toolkit's tuner (`ditk.hpo`, `ditk.logging`), served by divisi."""

from divisi import __version__

__all__ = ["__version__"]
