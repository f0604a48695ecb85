"""Rewards over several steps."""

from typing import Any, Callable, Dict, List

from ..task import Role, task
from ._config import get
from ._roles import plays


def nstep_reward_enhancer(cfg: Any) -> Callable:
    """A middleware that makes each transition of ``ctx.trajectories`` one over ``cfg.policy.nstep`` steps:
    ``reward`` becomes the discounted sum, ``next_obs``, ``done`` and ``end`` those of the last step, and
    ``value_gamma`` the discount of what follows. A transition near the end of its trajectory gets as many
    steps as there are. Active in learners and collectors.

    DI-engine keeps the single rewards and leaves the sum to its losses; here the sum is made at once.

    :param cfg: ``policy.nstep`` and ``policy.discount_factor``
    """
    if not plays(Role.LEARNER, Role.COLLECTOR):
        return task.void()
    nstep, gamma = get(cfg, "policy.nstep"), get(cfg, "policy.discount_factor")

    def _enhance(ctx: Any) -> None:
        if not ctx.trajectories:
            return
        begin = 0
        for end in ctx.trajectory_end_idx or [len(ctx.trajectories) - 1]:
            part = ctx.trajectories[begin : end + 1]
            ctx.trajectories[begin : end + 1] = [_joined(part[i : i + nstep], gamma) for i in range(len(part))]
            begin = end + 1

    return _enhance


def _joined(steps: List[Dict[str, Any]], gamma: float) -> Dict[str, Any]:
    reward, discount, last = 0.0, 1.0, steps[0]
    for last in steps:
        reward += discount * last["reward"]
        discount *= gamma
        if last["done"] or last.get("end", False):
            break
    return {
        **last,
        "obs": steps[0]["obs"],
        "action": steps[0]["action"],
        "reward": reward,
        "value_gamma": discount,
    }
