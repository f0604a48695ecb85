"""What a run came to, as a file."""

import os
import pickle
from typing import Any, Callable

from ..task import task
from ._files import write_atomically


def final_ctx_saver(name: str) -> Callable:
    """A middleware that pickles the run's counters to ``<name>/result.pkl`` when the task finishes:
    ``total_step``, ``train_iter``, ``last_eval_iter``, ``eval_value`` (the last), and ``env_step``,
    ``env_episode`` or ``trained_env_step`` where the context has them.

    :param name: the folder
    """

    def _save(ctx: Any) -> None:
        if not task.finish:
            return
        result = {
            "total_step": ctx.total_step,
            "train_iter": ctx.train_iter,
            "last_eval_iter": ctx.last_eval_iter,
            "eval_value": ctx.last_eval_value,
        }
        for key in ("env_step", "env_episode", "trained_env_step"):
            if ctx.has_attr(key):
                result[key] = getattr(ctx, key)
        write_atomically(os.path.join(name, "result.pkl"), pickle.dumps(result))

    return _save
