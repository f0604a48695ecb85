"""Priorities of fresh data."""

from typing import Any, Callable

from ..task import Role, task
from ._roles import plays


def priority_calculator(priority_calculation_fn: Callable) -> Callable:
    """A middleware that gives each transition of ``ctx.trajectories`` its ``priority``. Active in
    collectors.

    :param priority_calculation_fn: from the list of transitions to a list of priorities
    """
    if not plays(Role.COLLECTOR):
        return task.void()

    def _priority_calculator(ctx: Any) -> None:
        priorities = priority_calculation_fn(ctx.trajectories)
        for transition, priority in zip(ctx.trajectories, priorities):
            transition["priority"] = priority

    return _priority_calculator
