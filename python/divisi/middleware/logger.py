"""Loggers: at the end of the pipeline."""

import json
import math
import os
import sys
import time
from typing import Any, Callable, Dict, Optional, TextIO

from ..errors import Error, UsageError
from ..task import Role, task
from ..writer import DistributedWriter
from ._roles import plays

_SKIPPED = ("priority", "td_error_priority")


def _latest(train_output: Any) -> Dict[str, Any]:
    if isinstance(train_output, list):
        train_output = train_output[-1] if train_output else None
    return train_output if isinstance(train_output, dict) else {}


def online_logger(record_train_iter: bool = False, train_show_freq: int = 100) -> Callable:
    """A middleware that records evaluations and training outputs with the experiment's
    :class:`divisi.DistributedWriter`, under DI-engine's tags (``basic/eval_episode_return_mean``,
    ``basic/train_<key>``). Active in learners.

    :param record_train_iter: one curve over ``env_step`` and one over ``train_iter``, with these in the tags
    :param train_show_freq: training outputs every so many training iterations
    """
    if not plays(Role.LEARNER):
        return task.void()
    writer = DistributedWriter.get_instance()
    if writer is None:
        raise UsageError(
            "online_logger needs a writer: call DistributedWriter.get_instance(folder), or ding_init(cfg)"
        )
    shown = -math.inf

    def record(tag: str, value: Any, ctx: Any, add: Callable) -> None:
        if record_train_iter:
            add(f"{tag}-env_step", value, ctx.env_step)
            add(f"{tag}-train_iter", value, ctx.train_iter)
        else:
            add(tag, value, ctx.env_step)

    def _logger(ctx: Any) -> None:
        nonlocal shown
        if not math.isinf(ctx.eval_value):
            record("basic/eval_episode_return_mean", ctx.eval_value, ctx, writer.add_scalar)
        output = _latest(ctx.train_output)
        if output and ctx.train_iter - shown >= train_show_freq:
            shown = ctx.train_iter
            for key, value in output.items():
                if key in _SKIPPED:
                    continue
                if key.startswith("[histogram]"):
                    name = key[len("[histogram]") :]
                    record(f"basic/train_{name}", value, ctx, writer.add_histogram)
                else:
                    record(f"basic/train_{key}", value, ctx, writer.add_scalar)
        if task.finish:
            writer.close()

    return _logger


def _row(ctx: Any) -> Dict[str, Any]:
    row: Dict[str, Any] = {}
    for key in ("env_step", "env_episode", "train_iter"):
        if hasattr(ctx, key):
            row[key] = getattr(ctx, key)
    if not math.isinf(ctx.eval_value):
        row["eval_value"] = float(ctx.eval_value)
    for key, value in {**_latest(ctx.train_output), **ctx.info_for_logging}.items():
        try:
            row[key] = float(value)
        except (TypeError, ValueError):
            pass  # only numbers make a line
    return row


def _row_logger(train_show_freq: int, write: Callable[[Dict[str, Any]], None]) -> Callable:
    if not plays(Role.LEARNER, Role.EVALUATOR):
        return task.void()
    shown = 0

    def _logger(ctx: Any) -> None:
        nonlocal shown
        is_shown = bool(train_show_freq) and ctx.train_iter - shown >= train_show_freq
        if not is_shown and math.isinf(ctx.eval_value):
            return
        if is_shown:
            shown = ctx.train_iter
        write(_row(ctx))

    return _logger


def console_logger(train_show_freq: int = 100, stream: Optional[TextIO] = None) -> Callable:
    """A middleware that prints one line for each evaluation, and one every ``train_show_freq`` training
    iterations. Active in learners and evaluators.

    :param train_show_freq: in training iterations; 0: evaluations only
    :param stream: default the standard output
    """

    def write(row: Dict[str, Any]) -> None:
        texts = [
            f"{key}={value:.4g}" if isinstance(value, float) else f"{key}={value}"
            for key, value in row.items()
        ]
        print(" ".join(texts), file=stream or sys.stdout, flush=True)

    return _row_logger(train_show_freq, write)


def jsonl_logger(path: str, train_show_freq: int = 100) -> Callable:
    """As :func:`console_logger`, into a file: one JSON object a line, with ``time`` (seconds since 1970).
    Lines are appended, so a resumed run goes on in the same file.

    :param path: of the file; its folder is made
    :param train_show_freq: in training iterations; 0: evaluations only
    """

    def write(row: Dict[str, Any]) -> None:
        try:
            os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
            with open(path, "a", encoding="utf-8") as file:
                file.write(json.dumps({"time": time.time(), **row}) + "\n")
        except OSError as error:
            raise Error(f"could not write {path}: {error.strerror}") from error

    return _row_logger(train_show_freq, write)
