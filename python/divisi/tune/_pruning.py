"""Pruners: what `Runner.prune` takes."""

from __future__ import annotations

from typing import Any, Dict, Optional, Type, Union

from .. import _native
from ._records import Task


class Pruner:
    """What decides which trials are not worth finishing. Larger or smaller is better as the search says."""

    def __init__(self, **settings: Any):
        self._settings = settings
        self.native()  # wrong settings are noticed here

    def native(self) -> _native.TunePruner:
        """The engine's object, which knows of no trial."""
        raise NotImplementedError("use one of the pruners, such as MedianPruner()")

    def __repr__(self) -> str:
        given = ", ".join(f"{name}={value!r}" for name, value in self._settings.items())
        return f"{type(self).__name__}({given})"


class NopPruner(Pruner):
    """Prunes nothing."""

    def native(self) -> _native.TunePruner:
        """The engine's object."""
        return _native.TunePruner.none()


class PercentilePruner(Pruner):
    """Prunes a trial whose best value is not among the best `percentile` percent of what the trials that
    ended well had at the same step. With `count_ended`, those that ended before that step count there with their
    last value: for trials that end as soon as they have reached something."""

    def __init__(
        self,
        percentile: float,
        n_startup_trials: int = 5,
        n_warmup_steps: int = 0,
        interval_steps: int = 1,
        n_min_trials: int = 1,
        count_ended: bool = False,
    ):
        super().__init__(
            percentile=percentile, n_startup_trials=n_startup_trials, n_warmup_steps=n_warmup_steps,
            interval_steps=interval_steps, n_min_trials=n_min_trials, count_ended=count_ended,
        )  # fmt: skip

    def native(self) -> _native.TunePruner:
        """The engine's object."""
        given = self._settings
        return _native.TunePruner.percentile(
            _number("percentile", given["percentile"]),
            {
                "startup_trials": _whole("n_startup_trials", given["n_startup_trials"]),
                "warmup_steps": _whole("n_warmup_steps", given["n_warmup_steps"]),
                "interval_steps": _whole("interval_steps", given["interval_steps"]),
                "min_trials": _whole("n_min_trials", given["n_min_trials"]),
                "count_ended": bool(given["count_ended"]),
            },
        )


class MedianPruner(PercentilePruner):
    """Prunes a trial whose best value is worse than the median of the others at the same step."""

    def __init__(
        self,
        n_startup_trials: int = 5,
        n_warmup_steps: int = 0,
        interval_steps: int = 1,
        n_min_trials: int = 1,
        count_ended: bool = False,
    ):
        super().__init__(50.0, n_startup_trials, n_warmup_steps, interval_steps, n_min_trials, count_ended)


class SuccessiveHalvingPruner(Pruner):
    """Asynchronous successive halving (ASHA): at the steps `min_resource` times powers of the reduction
    factor, one of so many trials goes on. "auto" takes a hundredth of the first whole trial."""

    def __init__(
        self,
        min_resource: Union[int, str] = 1,
        reduction_factor: int = 4,
        min_early_stopping_rate: int = 0,
        bootstrap_count: int = 0,
    ):
        super().__init__(
            min_resource=min_resource, reduction_factor=reduction_factor,
            min_early_stopping_rate=min_early_stopping_rate, bootstrap_count=bootstrap_count,
        )  # fmt: skip

    def native(self) -> _native.TunePruner:
        """The engine's object."""
        return _native.TunePruner.halving(_resources(self._settings))


class HyperbandPruner(Pruner):
    """Several successive halvings, some of which begin their checks later; the number of a trial says
    which one it is in. `max_resource` are the steps of a whole trial; "auto" learns it from the first."""

    def __init__(
        self,
        min_resource: int = 1,
        max_resource: Union[int, str] = "auto",
        reduction_factor: int = 3,
        bootstrap_count: int = 0,
    ):
        super().__init__(
            min_resource=min_resource, max_resource=max_resource, reduction_factor=reduction_factor,
            bootstrap_count=bootstrap_count,
        )  # fmt: skip

    def native(self) -> _native.TunePruner:
        """The engine's object."""
        return _native.TunePruner.hyperband(_resources(self._settings))


class ThresholdPruner(Pruner):
    """Prunes values below `lower`, above `upper`, and what is not a number."""

    def __init__(
        self,
        lower: Optional[float] = None,
        upper: Optional[float] = None,
        n_warmup_steps: int = 0,
        interval_steps: int = 1,
    ):
        super().__init__(
            lower=lower, upper=upper, n_warmup_steps=n_warmup_steps, interval_steps=interval_steps
        )

    def native(self) -> _native.TunePruner:
        """The engine's object."""
        given = self._settings
        options: Dict[str, Any] = {
            "warmup_steps": _whole("n_warmup_steps", given["n_warmup_steps"]),
            "interval_steps": _whole("interval_steps", given["interval_steps"]),
        }
        for name in ("lower", "upper"):
            if given[name] is not None:
                options[name] = _number(name, given[name])
        return _native.TunePruner.threshold(options)


class PatientPruner(Pruner):
    """Prunes a trial that has not become better by `min_delta` for `patience` reports; with another
    pruner, asks that one then."""

    def __init__(self, wrapped_pruner: Optional[Pruner], patience: int, min_delta: float = 0.0):
        if wrapped_pruner is not None:
            wrapped_pruner = pruner_of(wrapped_pruner)
        super().__init__(wrapped_pruner=wrapped_pruner, patience=patience, min_delta=min_delta)

    def native(self) -> _native.TunePruner:
        """The engine's object."""
        given = self._settings
        wrapped = given["wrapped_pruner"]
        options = {
            "patience": _whole("patience", given["patience"]),
            "min_delta": _number("min_delta", given["min_delta"]),
        }
        return _native.TunePruner.patience(options, None if wrapped is None else wrapped.native())


_NAMES: Dict[str, Type[Any]] = {
    "none": NopPruner, "median": MedianPruner, "asha": SuccessiveHalvingPruner,
    "successive_halving": SuccessiveHalvingPruner, "hyperband": HyperbandPruner,
}  # fmt: skip


def pruner_of(pruner: Union[Pruner, str]) -> Pruner:
    """A pruner, or one with its default settings by name."""
    if isinstance(pruner, Pruner):
        return pruner
    if isinstance(pruner, str) and pruner in _NAMES:
        made: Pruner = _NAMES[pruner]()
        return made
    raise ValueError(f"prune takes a pruner or one of {', '.join(_NAMES)}: not {pruner!r}")


class RunPruned(Exception):
    """A step that ended early because its reports were worse than those of others."""

    def __init__(self, task: Task, step: Optional[int], value: Optional[float], metrics: Dict[str, Any]):
        super().__init__(f"pruned at step {step}" if step is not None else "pruned")
        self.task_id = task.task_id
        """The number of the step."""
        self.step = step
        """The step of its last report; None: it has reported nothing."""
        self.value = value
        """The value of its last report."""
        self.metrics = metrics
        """Of the try."""


def _whole(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) >= 2**63:
        raise ValueError(f"{name} must be a whole number, not {value!r}")
    return value


def _number(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError(f"{name} must be a number, not {value!r}")
    return float(value)


def _resources(given: Dict[str, Any]) -> Dict[str, Optional[int]]:
    """Whole numbers; "auto" is None."""
    return {name: None if value == "auto" and _may_be_auto(given, name) else _whole(name, value)
            for name, value in given.items()}  # fmt: skip


def _may_be_auto(given: Dict[str, Any], name: str) -> bool:
    # Of Hyperband the largest resource, of successive halving the smallest.
    return name == ("max_resource" if "max_resource" in given else "min_resource")
