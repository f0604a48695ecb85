"""Exploration by chance."""

import math
from typing import Any, Callable, Generator

from ..errors import UsageError
from ..task import Role, task
from ._config import get
from ._roles import plays


def _schedule(start: float, end: float, decay: float, kind: str) -> Callable[[int], float]:
    if kind == "exp":
        return lambda step: end + (start - end) * math.exp(-step / decay)
    if kind == "linear":
        return lambda step: end + (start - end) * max(0.0, 1 - step / decay)
    raise UsageError(f"policy.other.eps.type is 'exp' or 'linear', not {kind!r}")


def eps_greedy_handler(cfg: Any) -> Callable:
    """A middleware that gives the policy its ``eps`` (in ``ctx.collect_kwargs``), by ``ctx.env_step``.
    Active in collectors.

    :param cfg: ``policy.other.eps`` with ``start``, ``end``, ``decay`` and ``type`` (exp or linear)
    """
    if not plays(Role.COLLECTOR):
        return task.void()
    eps = _schedule(
        get(cfg, "policy.other.eps.start"),
        get(cfg, "policy.other.eps.end"),
        get(cfg, "policy.other.eps.decay"),
        get(cfg, "policy.other.eps.type", "exp"),
    )

    def _eps_greedy(ctx: Any) -> Generator:
        ctx.collect_kwargs["eps"] = eps(ctx.env_step)
        yield
        ctx.collect_kwargs.pop("eps", None)

    return _eps_greedy


def eps_greedy_masker() -> Callable:
    """A middleware that turns exploration off: ``eps`` is -1."""

    def _masker(ctx: Any) -> None:
        ctx.collect_kwargs["eps"] = -1

    return _masker
