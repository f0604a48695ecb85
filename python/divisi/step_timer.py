"""How long the middleware take."""

import logging
import time
from collections import deque
from typing import Any, Callable, Deque, Dict, Generator

_log = logging.getLogger("divisi")


def _name_of(fn: Any) -> str:
    return getattr(fn, "__name__", None) or type(fn).__name__


def _node_id() -> int:
    from .parallel import Parallel

    return Parallel().node_id or 0


class StepTimer:
    """A wrapper (``task.use_wrapper``) that measures each middleware: forward plus backward part.

    :param print_per_step: log every so many iterations
    :param smooth_window: the mean is over ``print_per_step * smooth_window`` samples
    """

    def __init__(self, print_per_step: int = 1, smooth_window: int = 10) -> None:
        if print_per_step < 1 or smooth_window < 1:
            raise ValueError("print_per_step and smooth_window are at least 1")
        self.print_per_step = print_per_step
        """As given."""
        self.records: Dict[str, Deque[float]] = {}
        """Milliseconds, by name of the middleware."""
        self._length = print_per_step * smooth_window
        self._count = 0

    def __call__(self, fn: Callable) -> Callable:
        name = _name_of(fn)
        # Middleware of one name (lambdas) are told apart.
        self._count += 1
        key = name if name not in self.records else f"{name}#{self._count}"
        records = self.records[key] = deque(maxlen=self._length)

        def timed(ctx: Any) -> Generator:
            from .task import advance, resume

            begin = time.perf_counter()
            suspended = advance(fn, ctx)
            cost = time.perf_counter() - begin
            try:
                if suspended is not None:
                    yield
                    begin = time.perf_counter()
                    resume(suspended)
                    suspended = None
                    cost += time.perf_counter() - begin
            finally:
                if suspended is not None:
                    suspended.close()
            records.append(cost * 1000)
            if ctx.total_step % self.print_per_step == 0:
                _log.info(
                    "[Step Timer][Node:%2d] %s: Cost: %.2fms, Mean: %.2fms",
                    _node_id(), name, cost * 1000, sum(records) / len(records),
                )

        timed.__name__ = name
        return timed


def epoch_timer(print_per: int = 1, smooth_window: int = 10) -> Callable:
    """A middleware that measures whole iterations; use it as the first one."""
    records: Deque[float] = deque(maxlen=print_per * smooth_window)

    def _epoch_timer(ctx: Any) -> Generator:
        begin = time.perf_counter()
        yield
        records.append((time.perf_counter() - begin) * 1000)
        if ctx.total_step % print_per == 0:
            _log.info(
                "[Epoch Timer][Node:%2d]: Cost: %.2fms, Mean: %.2fms",
                _node_id(), records[-1], sum(records) / len(records),
            )

    return _epoch_timer
