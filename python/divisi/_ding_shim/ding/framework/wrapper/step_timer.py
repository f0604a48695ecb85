"""How long steps take."""

from divisi.step_timer import StepTimer

__all__ = ["StepTimer"]
