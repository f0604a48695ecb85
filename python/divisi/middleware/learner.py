"""The learner's part: from the context into a buffer, and from there into the policy."""

from typing import Any, Callable, List

from ..task import Role, task
from ._config import get
from ._roles import Gated, log, plays


def data_pusher(cfg: Any, buffer_: Any, group_by_env: Any = None) -> Callable:
    """A middleware that moves ``ctx.trajectories`` (each transition) or ``ctx.episodes`` (each episode)
    into the buffer. Active in learners.

    :param cfg: not used; DI-engine has it
    :param buffer_: ``push(item)``
    :param group_by_env: push with ``{"env": item["env_data_id"]}``
    """
    if not plays(Role.LEARNER):
        return task.void()

    def _push(ctx: Any) -> None:
        if ctx.trajectories is not None:
            for one in ctx.trajectories:
                if group_by_env:
                    buffer_.push(one, {"env": one["env_data_id"]})
                else:
                    buffer_.push(one)
            ctx.trajectories = None
        elif ctx.episodes is not None:
            for one in ctx.episodes:
                buffer_.push(one)
            ctx.episodes = None
        elif not task.finish:  # the wait for data ends with the task
            raise RuntimeError("data_pusher: the context has neither trajectories nor episodes")

    return _push


def offpolicy_data_fetcher(cfg: Any, buffer_: Any, data_shortage_warning: bool = False) -> Callable:
    """A middleware that samples ``cfg.policy.learn.batch_size`` items into ``ctx.train_data``; None while
    the buffer has too few. Active in learners.

    :param buffer_: ``sample(n)``: a list of items (or of objects with the item in ``data``), or whatever
        the policy learns from
    :param data_shortage_warning: say so when there are too few
    """
    if not plays(Role.LEARNER):
        return task.void()
    batch_size = get(cfg, "policy.learn.batch_size")

    def _fetch(ctx: Any) -> None:
        try:
            sampled = buffer_.sample(batch_size)
        except (ValueError, AssertionError) as error:
            if data_shortage_warning:
                log.warning("no training in this iteration: %s", error)
            ctx.train_data = None
            return
        is_list = isinstance(sampled, list)
        ctx.train_data = [getattr(one, "data", one) for one in sampled] if is_list else sampled

    return _fetch


def trainer(cfg: Any, policy: Any, log_freq: int = 100) -> Callable:
    """A middleware that trains with ``ctx.train_data``: ``ctx.train_output`` is what the policy said, and
    ``train_iter`` grows by one. Nothing without data. Active in learners.

    :param cfg: not used; DI-engine has it
    :param policy: ``learn(batch)``, or without that ``forward(batch)``
    :param log_freq: log the loss every so many iterations
    """
    if not plays(Role.LEARNER):
        return task.void()
    learn = getattr(policy, "learn", None) or policy.forward

    def _train(ctx: Any) -> None:
        if ctx.train_data is None:
            return
        ctx.train_output = learn(ctx.train_data)
        if ctx.train_iter % log_freq == 0:
            log.info(
                "training: train_iter %d, env_step %s, loss %.4f",
                ctx.train_iter, getattr(ctx, "env_step", "-"), _loss(ctx.train_output),
            )
        ctx.train_iter += 1

    return _train


def _loss(output: Any) -> float:
    outputs = output if isinstance(output, list) else [output]
    losses = [float(one["total_loss"]) for one in outputs if "total_loss" in one]
    return sum(losses) / len(losses) if losses else float("nan")


class OffPolicyLearner(Gated):
    """Samples and trains ``cfg.policy.learn.update_per_collect`` times; ``ctx.train_output`` is the list of
    outputs. Stops early while the buffer has too few. Active in learners.

    :param cfg: ``policy.learn.batch_size`` and ``policy.learn.update_per_collect``
    :param policy: as for :func:`trainer`
    :param buffer_: as for :func:`offpolicy_data_fetcher`
    :param reward_model: its ``estimate(batch)`` changes each batch first
    :param log_freq: as for :func:`trainer`
    """

    def __init__(
        self, cfg: Any, policy: Any, buffer_: Any, reward_model: Any = None, log_freq: int = 100
    ) -> None:
        self._updates = get(cfg, "policy.learn.update_per_collect")
        self._fetch = offpolicy_data_fetcher(cfg, buffer_)
        self._train = trainer(cfg, policy, log_freq)
        self._reward_model = reward_model

    def __call__(self, ctx: Any) -> None:
        outputs: List[Any] = []
        for _ in range(self._updates):
            self._fetch(ctx)
            if ctx.train_data is None:
                break
            if self._reward_model is not None:
                self._reward_model.estimate(ctx.train_data)
            self._train(ctx)
            outputs.append(ctx.train_output)
        ctx.train_output = outputs
