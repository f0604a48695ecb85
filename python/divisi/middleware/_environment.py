"""A vector environment, step by step, however it resets its finished episodes."""

from typing import Any, Dict, List, NamedTuple, Optional, Tuple


class Step(NamedTuple):
    """One transition of one environment. ``done``: the state is terminal; ``end``: the episode is over,
    also by a limit of time."""

    env: int
    obs: Any
    action: Any
    reward: float
    next_obs: Any
    done: bool
    end: bool


class Environment:
    """Steps a Gymnasium vector environment and gives true transitions only.

    Gymnasium resets a finished episode in one of three ways (``metadata["autoreset_mode"]``): with the
    next step, whose row then is no transition; in the same step, whose last observation then is in
    ``infos``; or not at all. Here all three look alike.
    """

    def __init__(self, env: Any) -> None:
        self.env = env
        self.count: int = env.num_envs
        self.obs: Any = None
        self._resets = [False] * self.count  # by the step to come
        self._returns = [0.0] * self.count
        mode = getattr(env, "metadata", None) or {}
        name = str(getattr(mode.get("autoreset_mode"), "name", mode.get("autoreset_mode") or ""))
        self._mode = name.upper() or "NEXT_STEP"  # what Gymnasium does by default

    def reset(self, seed: Optional[int] = None) -> None:
        """Begins new episodes everywhere."""
        self.obs = self.env.reset(seed=seed)[0]
        self._resets = [False] * self.count
        self._returns = [0.0] * self.count

    def step(self, actions: Any) -> Tuple[List[Step], Dict[int, float]]:
        """The transitions, and the returns of the episodes that ended, by environment."""
        obs = self.obs
        next_obs, rewards, terminated, truncated, infos = self.env.step(actions)
        steps: List[Step] = []
        returns: Dict[int, float] = {}
        ended = [bool(terminated[i]) or bool(truncated[i]) for i in range(self.count)]
        for i in range(self.count):
            if self._resets[i]:
                self._resets[i] = False
                continue
            last = next_obs[i]
            if ended[i] and self._mode == "SAME_STEP":
                last = infos["final_obs"][i]
            reward = float(rewards[i])
            self._returns[i] += reward
            steps.append(Step(i, obs[i], actions[i], reward, last, bool(terminated[i]), ended[i]))
            if ended[i]:
                returns[i], self._returns[i] = self._returns[i], 0.0
                self._resets[i] = self._mode == "NEXT_STEP"
        self.obs = self._reset_ended(next_obs, ended)
        return steps, returns

    def _reset_ended(self, next_obs: Any, ended: List[bool]) -> Any:
        if self._mode != "DISABLED" or not any(ended):
            return next_obs
        import numpy

        return self.env.reset(options={"reset_mask": numpy.array(ended)})[0]


def actions_of(output: Any, count: int) -> Any:
    """Of what a policy's ``forward`` gave: an array, a list, or a dict with them under ``action``."""
    actions = output["action"] if isinstance(output, dict) else output
    if hasattr(actions, "detach"):
        actions = actions.detach().cpu().numpy()
    if len(actions) != count:
        raise ValueError(f"the policy gave {len(actions)} actions for {count} environments")
    return actions
