"""ContextExchanger: what collectors collected goes to the learner, its progress to the others."""

import math
from typing import Any, Dict, Generator, List, Optional

from .._waiter import Waiter
from ..task import Role, task
from ._roles import Exchanger, log
from ._storage import shut_down_on_finish, is_storage

_LISTS = ("trajectories", "episodes", "trajectory_end_idx")
_COUNTERS = ("env_step", "env_episode")


class ContextExchanger(Exchanger):
    """Joins the contexts of a job: put it first into the pipeline of every node.

    Backward, a collector sends ``trajectories``, ``episodes``, ``trajectory_end_idx`` and by how much
    ``env_step`` and ``env_episode`` grew; a learner sends ``train_iter``. Forward, what came since the
    last iteration is written into the context. A learner waits until something came; the others wait
    from iteration ``skip_n_iter`` on. Every wait ends with the task.

    The event of a role is ``context_exchanger_<role>``, for example ``context_exchanger_learner``, in
    every version of Python.

    Void without a router, and (with a warning) without roles.

    :param skip_n_iter: so many iterations a node other than a learner begins without waiting
    :param storage_loader: turns a collector's payload into a handle that the learner loads: an object
        with ``save(data)``, ``load(handle, callback)`` and ``shutdown()``
    :param timeout: the longest wait in seconds; default 60, for a learner without limit
    :param shift_end_idx: count ``trajectory_end_idx`` of several payloads through, so that they are
        indices of the joined ``trajectories``; DI-engine joins them as they are
    """

    def __init__(
        self,
        skip_n_iter: int = 1,
        storage_loader: Any = None,
        timeout: Optional[float] = None,
        shift_end_idx: bool = False,
    ) -> None:
        self._skip_n_iter = skip_n_iter
        self._storage_loader = storage_loader
        self._shift_end_idx = shift_end_idx
        self._learns = task.has_role(Role.LEARNER)
        self._collects = task.has_role(Role.COLLECTOR)
        self._timeout = (math.inf if self._learns else 60.0) if timeout is None else timeout
        self._sent = dict.fromkeys(_COUNTERS, 0)  # by the iterations' thread only
        self._waiter = Waiter(task)
        self._state: Dict[str, Any] = {}  # guarded by the waiter's condition
        for role in Role:
            if not task.has_role(role):
                task.on(f"context_exchanger_{role.value}", self.put)
        if storage_loader is not None:
            shut_down_on_finish(storage_loader)

    def __call__(self, ctx: Any) -> Generator:
        self.merge(ctx)
        yield
        payload = self.fetch(ctx)
        if not payload:
            return
        if self._storage_loader is not None and self._collects:
            payload = self._storage_loader.save(payload)
        for role in task.roles:
            text = role.value if isinstance(role, Role) else str(role)
            task.emit(f"context_exchanger_{text}", payload, only_remote=True)

    def put(self, payload: Any) -> None:
        """Takes what a peer sent: a dict, or a handle of one."""
        if not is_storage(payload):
            self._add(payload)
        elif self._storage_loader is None:
            payload = payload.load()
            self._add(payload)
        else:
            self._storage_loader.load(payload, self._add)

    def _add(self, payload: Dict[str, Any]) -> None:
        with self._waiter.changed:
            self._shift(payload)
            for key, value in payload.items():
                if key in _LISTS:
                    if self._learns:
                        self._state.setdefault(key, []).extend(value)
                elif key in _COUNTERS:
                    if not self._collects:
                        self._state[key] = self._state.get(key, 0) + value
                elif key == "train_iter":
                    if not self._learns:
                        self._state[key] = value
                else:
                    log.warning("a peer's context has %s, which is not exchanged", key)
            self._waiter.wake()

    def _shift(self, payload: Dict[str, Any]) -> None:
        if self._shift_end_idx and "trajectory_end_idx" in payload:
            before = len(self._state.get("trajectories", ()))
            shifted = [before + end for end in payload["trajectory_end_idx"]]
            payload["trajectory_end_idx"] = shifted

    def fetch(self, ctx: Any) -> Dict[str, Any]:
        """What this node's roles send of the context."""
        payload: Dict[str, Any] = {}
        if self._collects:
            for key in _LISTS:
                value: Optional[List[Any]] = getattr(ctx, key, None)
                if value is not None:
                    payload[key] = value
            for key in _COUNTERS:
                if ctx.has_attr(key):
                    payload[key] = getattr(ctx, key) - self._sent[key]
                    self._sent[key] = getattr(ctx, key)
        if self._learns and ctx.has_attr("train_iter"):
            payload["train_iter"] = ctx.train_iter
        return payload

    def merge(self, ctx: Any) -> None:
        """Waits as this node's role has to, then writes what came into the context."""
        if self._learns or ctx.total_step >= self._skip_n_iter:
            came = self._waiter.wait(lambda: self._state, self._timeout)
            if not came and not self._waiter.over():
                log.warning(
                    "node %s waited %.0f s for a context of its peers: none came",
                    task.router.node_id, self._timeout,
                )
        with self._waiter.changed:
            state, self._state = self._state, {}
        for key, value in state.items():
            if key in _COUNTERS:
                value += getattr(ctx, key, 0)
            setattr(ctx, key, value)
