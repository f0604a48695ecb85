"""Collectors."""

from divisi.middleware import EpisodeCollector, StepCollector

__all__ = ["EpisodeCollector", "StepCollector"]
