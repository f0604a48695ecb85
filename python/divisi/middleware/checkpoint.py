"""Checkpoints: saved whole or not at all, and found again."""

import os
import pickle
import re
from typing import Any, Optional, Tuple

from ..errors import Error
from ..task import Role, task
from ._files import packed, unpacked, write_atomically
from ._roles import Gated


class CkptSaver(Gated):
    """Saves a policy's state into ``<save_dir>/ckpt`` (``save_dir`` itself if it is called ``ckpt``).

    - ``iteration_<train_iter>.pth.tar``: with ``train_freq``, at the start and then whenever
      ``train_iter`` has grown by it;
    - ``eval.pth.tar``: when ``eval_value`` is the best so far;
    - ``final.pth.tar``: when the task finishes.

    A file is written beside its place, synced, and renamed: a crash leaves the old one. A disk that is
    full or read-only is an :class:`divisi.Error` that names the file. With torch in the program the
    format is torch's, else pickle's. Active in learners and evaluators.

    :param policy: has ``state_dict()``, itself or its ``learn_mode``
    :param train_freq: in training iterations; None: none of these files
    :param save_finish: whether to save ``final.pth.tar``
    """

    _roles = (Role.LEARNER, Role.EVALUATOR)

    def __init__(
        self,
        policy: Any,
        save_dir: str,
        train_freq: Optional[int] = None,
        save_finish: bool = True,
    ) -> None:
        self.policy = policy
        """As given."""
        self.train_freq = train_freq
        """As given."""
        self.save_finish = save_finish
        """As given."""
        self.prefix = _folder(save_dir)
        """The folder of the files."""
        self.last_save_iter = 0
        """``train_iter`` of the latest file of that kind."""
        self.max_eval_value = float("-inf")
        """The best ``eval_value`` so far."""
        try:
            os.makedirs(self.prefix, exist_ok=True)
        except OSError as error:
            raise Error(f"could not make the folder {self.prefix}: {error.strerror}") from error

    def __call__(self, ctx: Any) -> None:
        if self.train_freq:
            if ctx.train_iter == 0 or ctx.train_iter - self.last_save_iter >= self.train_freq:
                self._save(f"iteration_{ctx.train_iter}")
                self.last_save_iter = ctx.train_iter
        if ctx.eval_value is not None and ctx.eval_value > self.max_eval_value:
            self._save("eval")
            self.max_eval_value = ctx.eval_value
        if task.finish and self.save_finish:
            self._save("final")

    def _save(self, name: str) -> None:
        holder = getattr(self.policy, "learn_mode", self.policy)
        write_atomically(os.path.join(self.prefix, f"{name}.pth.tar"), packed(holder.state_dict()))


def load_ckpt(policy: Any, path: str) -> Any:
    """Loads a checkpoint into the policy and returns its state.

    :param policy: has ``load_state_dict()``, itself or its ``learn_mode``; None: only return it
    :param path: a file, or a folder of :class:`CkptSaver`: then the latest of its files (which is the
        one of the last training iteration, or ``final``; ``eval`` only if there is no other)
    """
    path = os.fspath(path)
    if os.path.isdir(path):
        path = _latest(path)
    try:
        state = unpacked(path)
    except OSError as error:
        raise Error(f"could not load {path}: {error.strerror or error}") from error
    except (pickle.UnpicklingError, EOFError, RuntimeError, ValueError) as error:
        raise Error(f"{path} is not a checkpoint: {error}") from error
    if policy is not None:
        getattr(policy, "learn_mode", policy).load_state_dict(state)
    return state


def _folder(save_dir: str) -> str:
    folder = os.path.normpath(save_dir)
    return folder if os.path.basename(folder) == "ckpt" else os.path.join(folder, "ckpt")


def _latest(folder: str) -> str:
    inside = _folder(folder)
    if not os.path.isdir(inside):
        inside = folder

    def age(name: str) -> Tuple[bool, int]:
        return name != "eval.pth.tar", os.stat(os.path.join(inside, name)).st_mtime_ns

    names = [
        name
        for name in os.listdir(inside)
        if re.fullmatch(r"(iteration_\d+|eval|final)\.pth\.tar", name)
    ]
    if not names:
        raise Error(f"there is no checkpoint in {inside}")
    return os.path.join(inside, max(names, key=age))
