"""Contexts: what the middleware of one iteration share."""

import dataclasses
from typing import Any, Dict, List, Set


@dataclasses.dataclass
class Context:
    """The data of one iteration. Subclass it with fields that have defaults::

        @dataclasses.dataclass
        class MyContext(Context):
            env_step: int = 0

            def __post_init__(self):
                self.keep("env_step")

    Any attribute may be added at run time, too. :meth:`renew` starts the next iteration with a fresh
    object, into which only kept attributes are taken over.
    """

    _kept_keys: Set[str] = dataclasses.field(default_factory=set, repr=False)
    total_step: int = 0
    """The number of the iteration, from 0."""

    def renew(self) -> "Context":
        """A new context of the same class: defaults, kept attributes, ``total_step`` plus one."""
        renewed = type(self)()
        for key in self._kept_keys:
            if self.has_attr(key):
                setattr(renewed, key, getattr(self, key))
        renewed.total_step = self.total_step + 1
        if "_task" in self.__dict__:
            renewed.__dict__["_task"] = self.__dict__["_task"]
        return renewed

    def keep(self, *keys: str) -> None:
        """Takes these attributes over into the next context (once: call it in ``__post_init__``)."""
        self._kept_keys.update(keys)

    def has_attr(self, key: str) -> bool:
        """Whether the attribute exists."""
        return hasattr(self, key)

    @property
    def finish(self) -> bool:
        """Mirrors ``task.finish`` of the task that runs with this context."""
        owner = self.__dict__.get("_task")
        return owner is not None and owner.finish

    @finish.setter
    def finish(self, value: bool) -> None:
        owner = self.__dict__.get("_task")
        if owner is not None:
            owner.finish = value

    def __getstate__(self) -> Dict[str, Any]:
        return {key: value for key, value in self.__dict__.items() if key != "_task"}


def _infinity() -> float:
    return float("-inf")


@dataclasses.dataclass
class OnlineRLContext(Context):
    """The fields that online reinforcement-learning middleware use."""

    env_step: int = 0
    """Steps of all environments so far; kept."""
    env_episode: int = 0
    """Episodes so far; kept."""
    train_iter: int = 0
    """Updates of the model so far; kept."""
    train_data: Any = None
    """The batch to train with."""
    train_output: Any = None
    """What the update returned: losses and the like."""
    collect_kwargs: Dict = dataclasses.field(default_factory=dict)
    """For the policy that collects."""
    obs: Any = None
    """Observations that wait for an action."""
    action: Any = None
    """Actions to be taken."""
    inference_output: Any = None
    """What the policy said about ``obs``."""
    trajectories: Any = None
    """Transitions that were collected."""
    episodes: Any = None
    """The same as whole episodes."""
    trajectory_end_idx: List = dataclasses.field(default_factory=list)
    """Where trajectories end in ``trajectories``."""
    eval_value: float = dataclasses.field(default_factory=_infinity)
    """The result of an evaluation in this iteration."""
    last_eval_iter: int = -1
    """``train_iter`` at the latest evaluation; kept."""
    last_eval_value: float = dataclasses.field(default_factory=_infinity)
    """``eval_value`` of the latest evaluation; kept."""
    eval_output: Dict = dataclasses.field(default_factory=dict)
    """The details of the latest evaluation."""
    info_for_logging: Dict = dataclasses.field(default_factory=dict)
    """For a logger at the end of the pipeline."""
    wandb_url: str = ""
    """The address of the run's page; kept."""

    def __post_init__(self) -> None:
        self.keep(
            "env_step", "env_episode", "train_iter", "last_eval_iter", "last_eval_value", "wandb_url"
        )


@dataclasses.dataclass
class OfflineRLContext(Context):
    """The fields that offline reinforcement-learning middleware use."""

    trained_env_step: int = 0
    """Transitions trained with so far; kept."""
    train_epoch: int = 0
    """Passes over the data so far."""
    train_iter: int = 0
    """Updates of the model so far; kept."""
    train_data: Any = None
    """The batch to train with."""
    train_output: Any = None
    """What the update returned: losses and the like."""
    eval_value: float = dataclasses.field(default_factory=_infinity)
    """The result of an evaluation in this iteration."""
    last_eval_iter: int = -1
    """``train_iter`` at the latest evaluation; kept."""
    last_eval_value: float = dataclasses.field(default_factory=_infinity)
    """``eval_value`` of the latest evaluation; kept."""
    eval_output: Dict = dataclasses.field(default_factory=dict)
    """The details of the latest evaluation."""
    info_for_logging: Dict = dataclasses.field(default_factory=dict)
    """For a logger at the end of the pipeline."""
    wandb_url: str = ""
    """The address of the run's page; kept."""

    def __post_init__(self) -> None:
        self.keep(
            "trained_env_step", "train_iter", "last_eval_iter", "last_eval_value", "wandb_url"
        )
