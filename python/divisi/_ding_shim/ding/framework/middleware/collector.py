"""Collectors."""

from divisi.middleware import EpisodeCollector, StepCollector

from ..._missing import not_built

__all__ = ["EpisodeCollector", "StepCollector"]
__getattr__ = not_built(__name__, "PPOFStepCollector")
