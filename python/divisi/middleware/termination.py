"""When training has been enough."""

import math
import sys
from typing import Any, Callable, Dict, Optional

from .._waiter import Waiter
from ..errors import UsageError
from ..task import task
from ._roles import log


def _is_enough(ctx: Any, max_env_step: float, max_train_iter: float) -> bool:
    # Beyond the limit, not at it: a logger then has the last value.
    if getattr(ctx, "env_step", -1) > max_env_step:
        log.info("env_step %d is beyond %d: this is the end", ctx.env_step, max_env_step)
        return True
    if getattr(ctx, "train_iter", -1) > max_train_iter:
        log.info("train_iter %d is beyond %d: this is the end", ctx.train_iter, max_train_iter)
        return True
    return False


def _limit(given: Optional[int]) -> float:
    return math.inf if given is None else given


def termination_checker(
    max_env_step: Optional[int] = None, max_train_iter: Optional[int] = None
) -> Callable:
    """A middleware that sets ``task.finish`` when a counter of the context is greater than its limit.

    :param max_env_step: of ``ctx.env_step``
    :param max_train_iter: of ``ctx.train_iter``
    """

    def _check(ctx: Any) -> None:
        if not hasattr(ctx, "env_step") and not hasattr(ctx, "train_iter"):
            raise UsageError("termination_checker needs a context with env_step or train_iter")
        if _is_enough(ctx, _limit(max_env_step), _limit(max_train_iter)):
            task.finish = True

    return _check


def ddp_termination_checker(
    max_env_step: Optional[int] = None, max_train_iter: Optional[int] = None, rank: int = 0
) -> Callable:
    """As :func:`termination_checker`, for several learners in step: rank 0 decides, and all of them
    finish in the same iteration.

    The decision goes by ``torch.distributed`` if the program has initialised it, otherwise by the
    event ``ddp_termination`` to the linked nodes.

    :param rank: of this process
    """
    if _torch_distributed() is not None:
        spread = _by_torch
    elif task.router.is_active:
        spread = _ByEvents(rank)
    else:
        spread = _alone

    def _check(ctx: Any) -> None:
        finish = False
        if rank == 0:
            finish = task.finish or _is_enough(ctx, _limit(max_env_step), _limit(max_train_iter))
        task.finish = spread(finish)

    return _check


def _torch_distributed() -> Any:
    torch = sys.modules.get("torch")
    distributed = getattr(torch, "distributed", None)
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    return distributed


def _alone(finish: bool) -> bool:
    return finish


def _by_torch(finish: bool) -> bool:
    import torch

    distributed = _torch_distributed()
    device = "cuda" if distributed.get_backend() == "nccl" else "cpu"
    flag = torch.tensor([int(finish)], device=device)
    distributed.broadcast(flag, 0)
    return bool(flag.item())


class _ByEvents:
    """The n-th decision of rank 0 is for the n-th call of the others."""

    def __init__(self, rank: int) -> None:
        self._rank = rank
        self._calls = 0
        self._waiter = Waiter(task)
        self._decisions: Dict[int, bool] = {}  # guarded by the waiter's condition
        if rank != 0:
            task.on("ddp_termination", self._keep)

    def _keep(self, call: int, finish: bool) -> None:
        with self._waiter.changed:
            self._decisions[call] = finish
            self._waiter.wake()

    def __call__(self, finish: bool) -> bool:
        call = self._calls
        self._calls += 1
        if self._rank == 0:
            task.emit("ddp_termination", call, finish, only_remote=True)
            return finish
        if not self._waiter.wait(lambda: call in self._decisions):
            return True  # the task is over without a decision
        with self._waiter.changed:
            return self._decisions.pop(call)
