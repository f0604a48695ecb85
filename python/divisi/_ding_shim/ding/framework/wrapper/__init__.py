"""Wrappers of middleware."""

from divisi.step_timer import StepTimer

__all__ = ["StepTimer"]
