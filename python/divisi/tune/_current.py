"""The trial that an objective is running, as the objective sees it."""

from __future__ import annotations

import json
import math
import os
import threading
import zlib
from typing import Any, Callable, Mapping, Optional, Union

from .. import _native

METRICS_FILE = "HPO_METRICS_FILE"
"""The environment variable that names the file of a trial's reports."""


class Pruned(Exception):
    """Raised by an objective whose trial is not worth finishing: ``if should_prune(): raise Pruned``."""


class Trial:
    """The step that an objective is running: what it reports, and whether it should go on."""

    def __init__(
        self,
        number: int,
        config: Any,
        pruner: Optional[_native.TunePruner] = None,
        metric: Optional[str] = None,
    ):
        self.id = number
        """The number of the step, from 1."""
        self.config = config
        """What the objective got."""
        self.attempt = 1
        """Which try of the step this is, from 1."""
        self.repeat = 0
        """Which repetition of the try this is, from 0 (see `Runner.repeats`)."""
        self.metric = metric
        """The key of the target in what the objective returns, if it has one."""
        self.last_report: Optional[float] = None
        """The value of the last report."""
        self.last_step: Optional[int] = None
        """The step of the last report."""
        self.on_report: Optional[Callable[[int, float], None]] = None
        """Called with step and value of each report; by the runner."""
        self._pruner = pruner

    @property
    def seed(self) -> int:
        """A number that is another one for each step and repetition, and the same in every run."""
        return zlib.crc32(f"{self.id}/{self.repeat}".encode())

    @property
    def prunes(self) -> bool:
        """Whether reports are compared with those of other trials. Repetitions after the first are
        not: their steps begin again."""
        return self._pruner is not None and self.repeat == 0

    @property
    def wants_reports(self) -> bool:
        """Whether anybody looks at reports: a pruner, or the study that they are kept in."""
        return self.prunes or self.on_report is not None

    def report(self, value: float, step: int) -> None:
        """What the trial has reached at a step of its own, from 0."""
        number = checked_step(step, "Trial.report takes (value, step)")
        self.last_report, self.last_step = checked_value(value), number
        if self._pruner is not None and self.prunes:
            self._pruner.report(self.id, number, self.last_report)
        if self.on_report is not None:
            self.on_report(number, self.last_report)

    def should_prune(self) -> bool:
        """Whether the trial should end now, by raising `Pruned`."""
        return self._pruner is not None and self.prunes and self._pruner.should_prune(self.id)

    def finish(self, state: int) -> None:
        """The end of the trial or of a try of it; by the runner."""
        if self._pruner is not None:
            self._pruner.finish(self.id, state)

    def __repr__(self) -> str:
        return f"<Trial {self.id}, attempt {self.attempt}>"


def checked_step(step: Any, hint: str) -> int:
    """A whole number from 0 on."""
    try:
        number = int(step)
    except (TypeError, ValueError, OverflowError):
        number = -1
    if isinstance(step, bool) or number < 0 or number != step or number >= 2**63:
        raise ValueError(f"the step of a report is a whole number from 0 on, not {step!r}: {hint}")
    return number


def checked_value(value: Any) -> float:
    """A number; not a number is one that is worse than all others."""
    try:
        return float(value)
    except (TypeError, ValueError):
        raise ValueError(f"the value of a report is a number, not {value!r}") from None


class _Current(threading.local):
    trial: Optional[Trial] = None


_CURRENT = _Current()


def set_current_trial(trial: Optional[Trial]) -> None:
    """Of this thread; by the runner."""
    _CURRENT.trial = trial


def current_trial() -> Optional[Trial]:
    """The trial that this thread is running; None outside of an objective."""
    return _CURRENT.trial


def report(step: int, value: Union[float, Mapping[str, float]]) -> None:
    """What the running trial has reached at a step, from 0: a number, or several by name.

    In an objective it goes to the pruner of the search. In a program that a scheduler has started it
    is appended to the file that the environment variable HPO_METRICS_FILE names. Elsewhere nothing
    happens, so that a program runs alone as it does in a search.
    """
    number = checked_step(step, "report takes (step, value)")
    values = {"value": value} if not isinstance(value, Mapping) else value
    numbers = {str(name): checked_value(one) for name, one in values.items()}
    trial = current_trial()
    if trial is not None:
        chosen = chosen_value(numbers, None, trial.metric)
        if chosen is None:
            raise ValueError(
                f"a report has {', '.join(numbers) or 'no value'}: "
                f"one of them must be called as the target is ({trial.metric!r}), or report one value"
            )
        trial.report(chosen, number)
        return
    path = os.environ.get(METRICS_FILE)
    if path:
        _append(path, json.dumps({"step": number, "values": numbers}))


def should_prune() -> bool:
    """Whether the trial of this thread should end now, by raising `Pruned`. Never in a program that a
    scheduler has started: the scheduler ends it."""
    trial = current_trial()
    return trial is not None and trial.should_prune()


def chosen_value(
    values: Mapping[str, Any], prune_on: Optional[str], metric: Optional[str]
) -> Optional[float]:
    """The value of a report that trials are compared by: the one that was named, the one that is called
    as the target is, or the only one. None: it is not there."""
    name = prune_on if prune_on is not None else metric
    if name not in values and prune_on is None and len(values) == 1:
        name = next(iter(values))
    if name is None or name not in values:
        return None
    value = values[name]
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return math.nan if value is None else None
    return float(value)


def _append(path: str, line: str) -> None:
    # One write: several processes of a trial may report.
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        os.write(file, line.encode() + b"\n")
    finally:
        os.close(file)
