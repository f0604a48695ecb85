"""The default listener: what a search logs, on the root logger."""

from __future__ import annotations

import datetime
import logging
import sys
import time
from typing import Any, Callable, Dict, Iterable, List, Optional, Tuple

from ._events import EventSet
from ._expressions import Expression, evaluate
from ._pruning import RunPruned
from ._records import RankList, RunFailed, RunResult, RunSkipped, Task, rank_table


def pairs(items: Iterable[Tuple[str, Any]]) -> str:
    """`name: 'adam', lr: 0.1`."""
    return ", ".join(f"{name}: {value!r}" for name, value in items)


def ordinal(number: int) -> str:
    """1st, 2nd, 3rd, 4th, 11th."""
    if number % 100 in (11, 12, 13):
        return f"{number}th"
    return f"{number}{ {1: 'st', 2: 'nd', 3: 'rd'}.get(number % 10, 'th') }"


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


class LogEventSet(EventSet):
    """Logs every step. Makes sure that the root logger has a handler, and leaves its level alone."""

    _ALWAYS = 100  # steps; after them a table at most once a second
    _RULE = "=" * 23

    def __init__(self, log_every: Optional[float] = None) -> None:
        self._log = logging.getLogger()
        self._algorithm = ""
        self._function: Any = None
        self._target = "target"
        self._variables: List[Tuple[str, Expression]] = []
        self._concerns: List[str] = []
        self._started = time.monotonic()
        self._steps = 0
        self._last_table = 0.0
        self._log_every = log_every
        if not self._log.handlers:
            handler = logging.StreamHandler(sys.stderr)
            handler.setFormatter(
                logging.Formatter(
                    "[%(asctime)s][%(filename)s:%(lineno)d][%(levelname)s] %(message)s",
                    "%m-%d %H:%M:%S",
                )
            )
            self._log.addHandler(handler)

    def init(self, algorithm: Any, settings: Dict[str, Any], function: Callable[..., Any]) -> None:
        """Which algorithm, with which settings."""
        name = getattr(algorithm, "algorithm_name", lambda: algorithm.__name__)
        self._algorithm = name()
        self._function = function
        self._log.info(
            _sentence(f"{self._algorithm} will be used, with {pairs(sorted(settings.items()))}")
        )

    def init_ok(
        self, target: str, variables: List[Tuple[str, Any]], concerns: List[Tuple[str, Any]]
    ) -> None:
        """Ready."""
        self._target, self._variables = target, variables
        self._concerns = [name for name, _ in concerns]
        self._log.info(_sentence(f"{self._algorithm} initialized."))

    def run_start(self) -> None:
        """The clock starts."""
        self._started = time.monotonic()
        self._log.info("Optimization will be started soon.")

    def run_complete(self, condition_met: bool) -> None:
        """Why it ended."""
        reason = "Stop condition is meet" if condition_met else "Iteration is over"
        self._log.info(f"{reason}, search will be ended...")

    def step(self, task: Task) -> None:
        """A header, and the variables."""
        self._log.info(f"{self._RULE} {ordinal(task.task_id)} step {self._RULE}")
        record = {"config": task.config, "return": None, "metrics": {}}
        values = []
        for name, place in self._variables:
            try:
                values.append((name, evaluate(place, record)))
            except (KeyError, IndexError, TypeError):  # of a branch that does not apply
                continue
        self._log.info(f"Step initialized, with variables - {pairs(values)}.")

    def try_(self, task: Task, index: int, max_try: int) -> None:
        """Which try it is."""
        self._log.info(
            f"Start the {ordinal(index + 1)} running try of function {self._function!r}..."
        )

    def try_fail(
        self, task: Task, index: int, max_try: int, error: BaseException, metrics: Dict[str, Any]
    ) -> None:
        """The error, and what follows."""
        last = index + 1 >= max_try
        outcome = "max retry limit is reached" if last else "will try again later"
        self._log.warning(f"Error has occurred - {error!r}, {outcome} ({index + 1}/{max_try})...")

    def step_ok(self, task: Task, result: RunResult) -> None:
        """Target and concerns."""
        named = [(self._target, result.value), *zip(self._concerns, result.concerns)]
        self._log.info(f"Function running completed, time cost: {_seconds(result)} seconds,")
        self._log.info(f"with concerned results - {pairs(named)}.")

    def step_fail(self, task: Task, failure: RunFailed) -> None:
        """The last error, with its traceback."""
        error = failure.error
        self._log.error(
            f"Function running failed, time cost: {_seconds(failure)} seconds, "
            "this step will be skipped and ignored due to this failure.",
            exc_info=(type(error), error, error.__traceback__),
        )

    def step_skip(self, task: Task, skip: RunSkipped) -> None:
        """The arguments of the skip."""
        self._log.info(f"Sample skipped, time cost: {_seconds(skip)} seconds,")
        self._log.info(f"with arguments: {skip.args!r}.")

    def step_prune(self, task: Task, pruned: RunPruned) -> None:
        """Where it stood."""
        self._log.info(f"Function running pruned, time cost: {_seconds(pruned)} seconds,")
        self._log.info(f"with the last report {pruned.value!r} at step {pruned.step!r}.")

    def step_final(self, task: Task, ranklist: RankList) -> None:
        """The table."""
        self._steps += 1
        now = time.monotonic()
        if not self._log.isEnabledFor(logging.INFO) or not self._table_due(now):
            return
        self._last_table = now
        count = len(ranklist)
        noun = "record" if count == 1 else "records"
        table = rank_table(list(ranklist), self._variables, self._target, self._concerns)
        self._log.info(f"Current ranklist ({count} best {noun}):\n{table}")
        if ranklist.pareto is not None:
            members = len(ranklist.pareto.results)
            noun = "result" if members == 1 else "results"
            volume = ranklist.pareto.hypervolume
            self._log.info(f"Pareto set: {members} {noun}, hypervolume {volume:.6g}.")
        lasted = datetime.timedelta(seconds=now - self._started)
        self._log.info(f"This search task has been lasted for {lasted}.")

    def _table_due(self, now: float) -> bool:
        if self._log_every is not None:
            return now - self._last_table >= self._log_every
        return self._steps <= self._ALWAYS or now - self._last_table >= 1


def _seconds(ended: Any) -> str:
    return f"{ended.metrics.get('time', 0.0):.3f}"
