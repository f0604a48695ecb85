"""Evaluation by playing."""

from typing import Any, Callable, List

from ..task import Role, task
from ._config import get
from ._environment import Environment, actions_of
from ._roles import log, plays


def play(policy: Any, environment: Environment, episodes: int, **kwargs: Any) -> List[float]:
    """The returns of so many new episodes, the same number in every environment (rounded up; then the
    first ``episodes`` of them), so that short episodes do not count more often than long ones."""
    share = -(-episodes // environment.count)
    returns: List[List[float]] = [[] for _ in range(environment.count)]
    while any(len(some) < share for some in returns):
        actions = actions_of(policy.forward(environment.obs, **kwargs), environment.count)
        for env, value in environment.step(actions)[1].items():
            returns[env].append(value)
    return [returns[i % environment.count][i // environment.count] for i in range(episodes)]


def interaction_evaluator(
    cfg: Any, policy: Any, env: Any, render: bool = False, **kwargs: Any
) -> Callable:
    """A middleware that plays ``cfg.env.n_evaluator_episode`` episodes at the start, and again whenever
    ``train_iter`` has grown by ``cfg.policy.eval.evaluator.eval_freq``.

    Sets ``eval_value`` (the mean return), ``last_eval_iter``, ``last_eval_value`` and ``eval_output``; finishes
    the task when the mean is at least ``cfg.env.stop_value`` and something was trained. Active in
    evaluators.

    :param cfg: ``seed``, ``env.n_evaluator_episode``, ``env.stop_value``, ``policy.eval.evaluator.eval_freq``
    :param policy: ``forward(obs, **kwargs)`` gives the actions
    :param env: a Gymnasium vector environment
    :param render: not supported
    """
    if not plays(Role.EVALUATOR):
        return task.void()
    if render:
        log.warning("interaction_evaluator: render is not supported and ignored")
    environment = Environment(env)
    seed = get(cfg, "seed", None)
    episodes = get(cfg, "env.n_evaluator_episode")
    stop_value = get(cfg, "env.stop_value", float("inf"))
    eval_freq = get(cfg, "policy.eval.evaluator.eval_freq")

    def _evaluate(ctx: Any) -> None:
        if ctx.last_eval_iter != -1 and ctx.train_iter - ctx.last_eval_iter < eval_freq:
            return
        environment.reset(seed)
        returns = play(policy, environment, episodes, **kwargs)
        mean = sum(returns) / len(returns)
        log.info(
            "evaluation: train_iter %d, env_step %s, mean return %.1f",
            ctx.train_iter, getattr(ctx, "env_step", "-"), mean,
        )
        ctx.eval_value = ctx.last_eval_value = mean
        ctx.last_eval_iter = ctx.train_iter
        ctx.eval_output = {"episode_return": mean, "episode_returns": returns}
        if mean >= stop_value and ctx.train_iter > 0:
            task.finish = True

    return _evaluate
