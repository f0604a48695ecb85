"""Collectors: play, and put what happened into the context."""

from typing import Any, Dict, List

from ..task import Role
from ._config import get
from ._environment import Environment, Step, actions_of
from ._roles import Gated


class _Rollouts:
    """Plays all environments and keeps the transitions of each, in order."""

    def __init__(self, cfg: Any, policy: Any, env: Any) -> None:
        self._policy = policy
        self._environment = Environment(env)
        self._seed = get(cfg, "seed", None)
        self._transitions: List[List[Dict[str, Any]]] = [[] for _ in range(env.num_envs)]

    def step(self, ctx: Any, is_random: bool) -> None:
        """One step of every environment."""
        environment = self._environment
        if environment.obs is None:
            environment.reset(self._seed)
        ctx.obs = environment.obs
        if is_random:
            ctx.action = environment.env.action_space.sample()
        else:
            ctx.inference_output = self._policy.forward(ctx.obs, **ctx.collect_kwargs)
            ctx.action = actions_of(ctx.inference_output, environment.count)
        steps, returns = environment.step(ctx.action)
        for step in steps:
            self._transitions[step.env].append(self._transition(ctx, step))
        ctx.env_step += len(steps)
        ctx.env_episode += len(returns)
        ctx.collect_returns = getattr(ctx, "collect_returns", []) + list(returns.values())

    @staticmethod
    def _transition(ctx: Any, step: Step) -> Dict[str, Any]:
        return {
            "obs": step.obs,
            "action": step.action,
            "reward": step.reward,
            "next_obs": step.next_obs,
            "done": step.done,
            "end": step.end,
            "collect_train_iter": ctx.train_iter,
        }

    def take_trajectories(self, ctx: Any) -> None:
        """All transitions, environment by environment, and where each one's end."""
        ctx.trajectories, ctx.trajectory_end_idx = [], []
        for transitions in self._transitions:
            ctx.trajectories += transitions
            ctx.trajectory_end_idx.append(len(ctx.trajectories) - 1)
            transitions.clear()

    def take_episodes(self, ctx: Any) -> None:
        """The episodes that ended; those under way are kept."""
        ctx.episodes = []
        for transitions in self._transitions:
            begin = 0
            for i, transition in enumerate(transitions):
                if transition["end"]:
                    ctx.episodes.append(transitions[begin : i + 1])
                    begin = i + 1
            del transitions[:begin]


class StepCollector(Gated):
    """Plays until ``cfg.policy.collect.n_sample`` steps (times ``unroll_len``, if there is one) are
    collected: ``ctx.trajectories``, a list of dicts with ``obs``, ``action``, ``reward``, ``next_obs``,
    ``done``, ``end``. Grows ``env_step`` and ``env_episode``. Active in collectors.

    :param cfg: ``seed`` and ``policy.collect.n_sample``
    :param policy: ``forward(obs, **ctx.collect_kwargs)`` gives the actions
    :param env: a Gymnasium vector environment
    :param random_collect_size: so many steps are played at random first
    """

    _roles = (Role.COLLECTOR,)

    def __init__(self, cfg: Any, policy: Any, env: Any, random_collect_size: int = 0) -> None:
        self._rollouts = _Rollouts(cfg, policy, env)
        self._random_collect_size = random_collect_size
        self._n_sample = get(cfg, "policy.collect.n_sample") * get(
            cfg, "policy.collect.unroll_len", 1
        )

    def __call__(self, ctx: Any) -> None:
        begin = ctx.env_step
        is_random = begin < self._random_collect_size
        wanted = self._random_collect_size - begin if is_random else self._n_sample
        while ctx.env_step - begin < wanted:
            self._rollouts.step(ctx, is_random)
        self._rollouts.take_trajectories(ctx)


class EpisodeCollector:
    """Plays until ``cfg.policy.collect.n_episode`` episodes have ended: ``ctx.episodes``, a list of lists
    of transitions as :class:`StepCollector` makes them. Active in every node.

    :param cfg: ``seed`` and ``policy.collect.n_episode``
    :param policy: ``forward(obs, **ctx.collect_kwargs)`` gives the actions
    :param env: a Gymnasium vector environment
    :param random_collect_size: so many episodes are played at random first
    """

    def __init__(self, cfg: Any, policy: Any, env: Any, random_collect_size: int = 0) -> None:
        self._rollouts = _Rollouts(cfg, policy, env)
        self._random_collect_size = random_collect_size
        self._n_episode = get(cfg, "policy.collect.n_episode")

    def __call__(self, ctx: Any) -> None:
        begin = ctx.env_episode
        is_random = begin < self._random_collect_size
        wanted = self._random_collect_size - begin if is_random else self._n_episode
        while ctx.env_episode - begin < wanted:
            self._rollouts.step(ctx, is_random)
        self._rollouts.take_episodes(ctx)
