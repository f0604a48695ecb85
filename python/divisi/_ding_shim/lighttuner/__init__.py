"""The import paths of LightTuner (`lighttuner.hpo`), served by divisi."""

from divisi import __version__

__all__ = ["__version__"]
