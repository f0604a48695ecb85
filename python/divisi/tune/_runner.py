"""The fluent front of a search, and its run."""

from __future__ import annotations

import difflib
import functools
import inspect
import logging
import math
import os
import threading
import time
from typing import Any, Callable, Dict, List, Optional, Tuple, Type, Union

from ._algorithms import (
    BaseAlgorithm, BaseSession, BayesAlgorithm, GridAlgorithm, RandomAlgorithm, SamplerSession,
    settings_of,
)  # fmt: skip
from ._current import Pruned, Trial, set_current_trial
from ._evolution import CmaesAlgorithm, Nsga2Algorithm
from ._events import EventRegistry, EventSet, HpoEvent
from ._expressions import C, Expression, as_expression, evaluate, target_key, text
from ._inbox import Inbox
from ._log import LogEventSet
from ._objectives import ParetoSet, Target, violation_of
from ._pbt import PbtAlgorithm
from ._pruning import Pruner, RunPruned, pruner_of
from ._records import (
    NoSuccessfulTrial, OptimizeDirection, RankList, Result, RunFailed, RunResult, RunSkipped, Skip,
    Task,
)  # fmt: skip
from ._retries import Aggregate, Errors, Retry, aggregate_of, combined, retry_for
from ._samplers import AutoAlgorithm, QmcAlgorithm, TpeAlgorithm
from ._service import Cancelled, ThreadService
from ._spaces import Structure, path_name
from ._stopping import StopRule, parts_of
from ._study import Recorder, Study, StudyPlan, fixed_seed, observations_of

_MISSING = object()
_OK, _FAIL, _SKIP, _PRUNED = 0, 1, 2, 3  # divisi::tune::TrialState


class _Plan:
    """All settings of a run."""

    def __init__(self) -> None:
        self.max_steps: Optional[int] = None
        self.max_workers = os.cpu_count() or 1
        self.max_tries = 3
        self.rank = 5
        self.space: Any = _MISSING
        self.direction: Optional[OptimizeDirection] = None
        self.target: Expression = as_expression(None)
        self.target_name = "target"
        self.further: List[Target] = []
        self.constraints: List[Expression] = []
        self.reference: Optional[List[float]] = None
        self.stops: List[Expression] = []
        self.concerns: List[Tuple[str, Expression]] = []
        self.options: Dict[str, Any] = {}
        self.events: List[EventSet] = []
        self.timeout: Optional[float] = None
        self.trial_timeout: Optional[float] = None
        self.patience: Optional[int] = None
        self.max_failures: Optional[int] = None
        self.grace = 10.0
        self.target_error = "fail_step"
        self.on_failure = "skip"
        self.cancel_on_stop = False
        self.log_every: Optional[float] = None
        self.study = StudyPlan()
        self.pruner: Optional[Pruner] = None
        self.rules: List[StopRule] = []
        self.retries: List[Retry] = []
        self.repeats = 1
        self.aggregate = aggregate_of("mean")


class Runner:
    """A search that is being described; `run()` carries it out. Every method but `run` returns the
    runner. What is not a method is an option of the algorithm: ``.init_steps(10)``."""

    def __init__(self, algorithm: Type[BaseAlgorithm], function: Callable[..., Any], silent: bool):
        self._algorithm = algorithm
        self._function = function
        self._silent = silent
        self._plan = _Plan()

    def max_steps(self, n: Optional[int]) -> "Runner":
        """How many steps; None is without limit. Steers a grid, limits the others."""
        if n is not None and (isinstance(n, bool) or not isinstance(n, int) or n < 0):
            raise ValueError(f"max_steps must be None or a number from 0 on, not {n!r}")
        self._plan.max_steps = n
        return self

    def max_workers(self, n: int) -> "Runner":
        """How many steps run at a time, from 1 on."""
        self._plan.max_workers = _positive("max_workers", n)
        return self

    def max_tries(self, n: int) -> "Runner":
        """How often the objective is called for a step until it does not fail; from 1 on."""
        self._plan.max_tries = _positive("max_tries", n)
        return self

    def max_retries(self, n: int) -> "Runner":
        """The older name of `max_tries`: it counts all tries."""
        self._plan.max_tries = _positive("max_retries", n)
        return self

    def rank(self, n: int) -> "Runner":
        """How many results the table shows."""
        self._plan.rank = _positive("rank", n)
        return self

    def maximize(self, condition: Any, name: str = "target") -> "Runner":
        """The target: an expression or a function of the record. The larger, the better."""
        return self._optimize(condition, name, OptimizeDirection.MAXIMIZE)

    def minimize(self, condition: Any, name: str = "target") -> "Runner":
        """The target: an expression or a function of the record. The smaller, the better."""
        return self._optimize(condition, name, OptimizeDirection.MINIMIZE)

    def also_maximize(self, condition: Any, name: Optional[str] = None) -> "Runner":
        """A further target; the larger, the better. `run` returns the best by the first target, and
        `pareto` of its result holds all that no other one dominates. `nsga2` looks for them; `random`
        and `grid` do not look at results; other searches know one target. Without a name the column
        is `target_2` and so on."""
        return self._also(condition, name, True)

    def also_minimize(self, condition: Any, name: Optional[str] = None) -> "Runner":
        """A further target; the smaller, the better. See `also_maximize`."""
        return self._also(condition, name, False)

    def subject_to(self, condition: Any) -> "Runner":
        """A constraint, which `run` returns no result without: ``R['memory'] <= 8``, a truth value, or
        a number that must not be above 0. Of several, all must hold. Results that violate one come
        behind those that do not, and searches lead away from them."""
        constraint = as_expression(condition)
        if not isinstance(condition, Expression) and not callable(condition):
            raise TypeError(
                f"subject_to takes an expression or a function of the record, not {condition!r}"
            )
        self._plan.constraints.append(constraint)
        return self

    def reference_point(self, *values: float) -> "Runner":
        """Up to where the hypervolume is measured: a value of each target that is worse than what is
        hoped for. Without it, the worst values so far."""
        if not all(isinstance(one, (int, float)) and math.isfinite(one) for one in values):
            raise ValueError(f"reference_point takes a finite number per target, not {values!r}")
        self._plan.reference = [float(one) for one in values]
        return self

    def stop_when(self, condition: Any) -> "Runner":
        """Ends the search when a successful step meets the condition; of several, any one. Also takes
        rules such as `StopAfter(600) | NoImprovement(20)`."""
        if not isinstance(condition, StopRule):
            self._plan.stops.append(_condition("stop_when", condition))
            return self
        for part in parts_of(condition):
            if isinstance(part, StopRule):
                self._plan.rules.append(part)
            else:
                self._plan.stops.append(part)
        return self

    def prune(self, pruner: Union[Pruner, str]) -> "Runner":
        """Ends steps early whose reports are worse than those of others: a pruner such as
        `MedianPruner()`, or "median", "asha" or "hyperband"."""
        self._plan.pruner = pruner_of(pruner)
        return self

    def retry(
        self,
        on: Errors = Exception,
        wait: float = 0.0,
        factor: float = 2.0,
        max_wait: float = 60.0,
        tries: Optional[int] = None,
    ) -> "Runner":
        """How tries that raise one of these classes are repeated: `tries` in total (default
        `max_tries`), after `wait` seconds, then `factor` times as long, `max_wait` at most. Of several
        calls the first one that fits an error counts."""
        self._plan.retries.append(Retry(on, wait, factor, max_wait, tries))
        return self

    def repeats(self, k: int, agg: Aggregate = "mean") -> "Runner":
        """Calls the objective `k` times for a try, each with another `current_trial().seed`, and makes
        one return value of the numbers in theirs: "mean", "median", "min", "max" or a function."""
        self._plan.repeats = _positive("repeats", k)
        self._plan.aggregate = aggregate_of(agg)
        return self

    def no_improvement(self, steps: int) -> "Runner":
        """Ends the search after so many finished steps without a better result."""
        self._plan.patience = _positive("no_improvement", steps)
        return self

    def max_failures(self, n: Optional[int]) -> "Runner":
        """Ends the search when so many steps in a row have failed; None (default): any number may."""
        self._plan.max_failures = None if n is None else _positive("max_failures", n)
        return self

    def timeout(self, seconds: float) -> "Runner":
        """Ends the search after this time; steps that run are finished."""
        self._plan.timeout = _seconds("timeout", seconds)
        return self

    def trial_timeout(self, seconds: Optional[float]) -> "Runner":
        """How long one try may take; then `Cancelled` is raised in the objective, the program of a
        trial is ended, and the step has failed with `TrialTimeout`. None is without limit."""
        self._plan.trial_timeout = None if seconds is None else _seconds("trial_timeout", seconds)
        return self

    def concern(self, condition: Any, name: str) -> "Runner":
        """A further column of the table."""
        self._plan.concerns.append((name, _condition("concern", condition)))
        return self

    def spaces(self, structure: Any) -> "Runner":
        """What is searched: nested dicts, lists and tuples with hyper values at their leaves."""
        if structure is None:
            raise TypeError(
                "spaces takes what is searched, as in spaces({'lr': loguniform(1e-5, 1e-1)}), not None"
            )
        self._plan.space = structure
        return self

    def add_event_set(self, events: EventSet) -> "Runner":
        """A listener to all events."""
        if not isinstance(events, EventSet):
            raise TypeError(f"a listener is an EventSet, not {events!r}")
        self._plan.events.append(events)
        return self

    def on_target_error(self, policy: str) -> "Runner":
        """"fail_step" (default): a step whose target cannot be computed has failed; "raise": the
        error ends the search."""
        self._plan.target_error = _choice("on_target_error", policy, ["fail_step", "raise"])
        return self

    def on_failure(self, policy: str) -> "Runner":
        """"skip" (default): a failed step is left out; "raise": its error ends the search;
        "impute": the Bayesian search takes it for the worst value seen."""
        self._plan.on_failure = _choice("on_failure", policy, ["skip", "raise", "impute"])
        if policy == "impute":
            self.option("impute_failures", True)
        return self

    def cancel_on_stop(self, cancel: bool = True) -> "Runner":
        """Whether running steps are cancelled when a stop condition is met."""
        self._plan.cancel_on_stop = bool(cancel)
        return self

    def grace(self, seconds: float) -> "Runner":
        """How long running steps may go on after a signal."""
        self._plan.grace = _seconds("grace", seconds)
        return self

    def log_every(self, seconds: float) -> "Runner":
        """The table is logged at most so often."""
        self._plan.log_every = _seconds("log_every", seconds)
        return self

    def storage(self, url: Any, fsync: str = "second") -> "Runner":
        """Where the study is kept: ``sqlite:study.db``, ``file:study.jsonl`` (JSON lines) or
        ``memory:``; a path with such an end is enough. `fsync` says when changes are forced to the
        disk: "always", "second" or "off"; a killed process loses nothing in any case."""
        self._plan.study.set_storage(url, fsync)
        return self

    def study_name(self, name: str) -> "Runner":
        """The name of the study within its file; the name of the function unless it is called."""
        if not isinstance(name, str) or not name:
            raise ValueError(f"the name of a study is a text, not {name!r}")
        self._plan.study.name = name
        return self

    def resume(self, resume: bool = True) -> "Runner":
        """Goes on with the study if it exists: finished steps are not run again, unfinished ones are.
        Several processes that do this share the work."""
        self._plan.study.resume = bool(resume)
        return self

    def allow_space_change(self, allow: bool = True) -> "Runner":
        """Lets `resume` go on with other spaces; steps outside of them are kept for the ranking."""
        self._plan.study.allow_space_change = bool(allow)
        return self

    def enqueue(self, *configs: Any) -> "Runner":
        """Configurations that are run first."""
        self._plan.study.enqueued.extend(configs)
        return self

    def add_trials(self, source: Any) -> "Runner":
        """Results that are known already: the trials of another study, or (configuration, value)
        pairs. The algorithm learns of them, and they count as steps."""
        self._plan.study.added.extend(observations_of(source))
        return self

    def study(self) -> Study:
        """The study of this search for ask and tell, without a run: in memory unless `storage` says
        where."""
        plan, direction = self._plan, self._checked()
        settings = _settings(plan, direction)
        recorder, settings = _open_recorder(plan, self._algorithm, self._function, settings, direction)
        try:
            session = self._algorithm(**settings).get_session(Structure(plan.space), ThreadService(1))
            session.record(recorder)  # type: ignore[attr-defined]
        except BaseException:
            recorder.native.close()
            raise
        return Study(recorder.native, recorder.sampler, recorder.configs)

    def set_utils(
        self,
        acq: Optional[str] = None,
        kappa: Optional[float] = None,
        kappa_decay: Optional[float] = None,
        kappa_decay_delay: Optional[int] = None,
        xi: Optional[float] = None,
    ) -> "Runner":
        """Several settings of the Bayesian search at once."""
        given = {
            "acq": acq, "kappa": kappa, "kappa_decay": kappa_decay,
            "kappa_decay_delay": kappa_decay_delay, "xi": xi,
        }  # fmt: skip
        for name, value in given.items():
            if value is not None:
                self.option(name, value)
        return self

    def set_gp_params(self, **params: Any) -> "Runner":
        """Settings of the reference engine's model, over those of earlier calls."""
        return self.option("gp_params", {**self._plan.options.get("gp_params", {}), **params})

    def option(self, name: str, value: Any) -> "Runner":
        """An option of the algorithm, by name."""
        known = settings_of(self._algorithm)
        if name not in known:
            raise AttributeError(self._unknown(name, known))
        self._plan.options[name] = value
        return self

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        known = settings_of(self._algorithm)
        if name not in known:
            raise AttributeError(self._unknown(name, known))
        return functools.partial(self.option, name)

    def run(self, strict: bool = False) -> Optional[Result]:
        """Searches. Returns (configuration, return value, metrics) of the best step, or None when no
        step ended well; `strict` raises `NoSuccessfulTrial` instead."""
        direction = self._checked()
        if self._plan.study.name is not None and not self._plan.study.wanted:
            raise ValueError(
                f"study_name({self._plan.study.name!r}) names a study that is not kept: call storage, as "
                "in storage('study.db')"
            )
        run = _Run(self._algorithm, self._function, self._silent, self._plan, direction)
        best = run.search()
        if best is not None and best.feasible:
            front = run.pareto
            if front is None:
                return Result(best, run.interrupted, run.study)
            return Result(best, run.interrupted, run.study, front.results, front.hypervolume)
        if strict:
            reason = "no step ended well"
            if run.last_error is not None:
                reason += f"; the last one that failed: {run.last_error!r}"
            if best is not None:
                reason = (
                    f"no step met all constraints: step {best.task_id} came nearest, with a violation "
                    f"of {best.violation:.6g}"
                )
            raise NoSuccessfulTrial(reason) from run.last_error
        return None

    def _checked(self) -> OptimizeDirection:
        """The direction, when the search is described."""
        if self._plan.direction is None:
            raise SyntaxError("nothing to optimize: call maximize or minimize before run")
        if self._plan.space is _MISSING:
            raise SyntaxError("nothing to search: call spaces before run")
        if self._plan.study.resume and self._plan.study.url is None:
            raise ValueError("resume needs a study that was kept: call storage, as in storage('study.db')")
        reference, targets = self._plan.reference, 1 + len(self._plan.further)
        if reference is not None and len(reference) != targets:
            raise SyntaxError(f"reference_point has {len(reference)} values for {targets} targets")
        return self._plan.direction

    def _optimize(self, condition: Any, name: str, direction: OptimizeDirection) -> "Runner":
        if self._plan.direction is not None:
            raise SyntaxError(
                "maximize or minimize was called already: there is one target; "
                "also_maximize and also_minimize add further ones"
            )
        self._plan.target = _condition("the target", condition)
        self._plan.direction = direction
        self._plan.target_name = name
        return self

    def _also(self, condition: Any, name: Optional[str], maximize: bool) -> "Runner":
        if self._plan.direction is None:
            raise SyntaxError("a further target needs a first one: call maximize or minimize before")
        column = f"target_{len(self._plan.further) + 2}" if name is None else name
        self._plan.further.append(Target(column, _condition("the target", condition), maximize))
        return self

    def _unknown(self, name: str, known: List[str]) -> str:
        methods = [method for method in dir(type(self)) if not method.startswith("_")]
        near = difflib.get_close_matches(name, [*known, *methods], 1)
        hint = f": did you mean {near[0]!r}?" if near else ""
        return f"{self._algorithm.__name__} has no option {name!r}{hint}"


def _condition(place: str, condition: Any) -> Expression:
    """As an expression. Text would be a constant, which nobody means."""
    if isinstance(condition, str):
        raise TypeError(
            f"{place} takes an expression or a function of the record, not the text {condition!r}: "
            f"write R[{condition!r}] for a field of what the objective returns, or parse(text)"
        )
    return as_expression(condition)


def _direction(target: Target) -> OptimizeDirection:
    return OptimizeDirection.MAXIMIZE if target.maximize else OptimizeDirection.MINIMIZE


def _settings(plan: _Plan, direction: OptimizeDirection) -> Dict[str, Any]:
    settings = {
        "max_steps": plan.max_steps,
        "max_workers": plan.max_workers,
        "opt_direction": direction,
        **plan.options,
    }
    if plan.further:
        settings["opt_directions"] = [direction, *map(_direction, plan.further)]
    return settings


def _open_recorder(
    plan: _Plan,
    algorithm: Type[BaseAlgorithm],
    function: Callable[..., Any],
    settings: Dict[str, Any],
    direction: OptimizeDirection,
) -> Tuple[Recorder, Dict[str, Any]]:
    """The study of a search, and the settings with its seed. Wrong settings are noticed before the
    study is made."""
    known = settings_of(algorithm)
    seeded = fixed_seed(settings, known)
    tried = algorithm(**seeded).get_session(Structure(plan.space), ThreadService(1))
    if not isinstance(tried, SamplerSession):
        raise TypeError(
            f"storage and enqueue need an algorithm of the engine; {algorithm.__name__} gives out "
            "configurations of its own"
        )
    _check_targets(plan, algorithm, tried)
    recorder = Recorder(
        plan.study,
        getattr(function, "__name__", "") or "study",
        plan.space,
        direction,
        {
            text(plan.target): direction == OptimizeDirection.MAXIMIZE,
            **{text(target.expression): target.maximize for target in plan.further},
        },
        algorithm.algorithm_name(),
        seeded,
    )
    if "seed" in known and settings.get("seed") is None and recorder.seed is not None:
        seeded["seed"] = recorder.seed
    return recorder, seeded


def _check_targets(plan: _Plan, algorithm: Type[BaseAlgorithm], session: BaseSession) -> None:
    targets = 1 + len(plan.further)
    known = session.objectives() if targets > 1 else None
    if known is not None and known != targets:
        raise ValueError(
            f"there are {targets} targets, and {algorithm.__name__} knows {known}: nsga2, random, qmc "
            "and grid take several"
        )


def _positive(name: str, n: Any) -> int:
    if isinstance(n, bool) or not isinstance(n, int) or n < 1:
        raise ValueError(f"{name} must be a whole number from 1 on, not {n!r}")
    return n


def _seconds(name: str, seconds: Any) -> float:
    if not isinstance(seconds, (int, float)) or not seconds >= 0:
        raise ValueError(f"{name} must be a number of seconds, not {seconds!r}")
    return float(seconds)


def _choice(name: str, value: Any, known: List[str]) -> str:
    if value not in known:
        raise ValueError(f"{name} is one of {', '.join(known)}: not {value!r}")
    return str(value)


def _or_none(expression: Expression, result: RunResult) -> Any:
    try:
        return evaluate(expression, result.record)
    except Exception:  # what is stored may lack what the return value had
        return None


def positional_parameters(function: Callable[..., Any]) -> int:
    """How many of (configuration, number of the step) a function takes."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # a builtin without a signature
        return 1
    if any(parameter.kind == parameter.VAR_POSITIONAL for parameter in parameters):
        return 2
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return min(2, sum(parameter.kind in positional for parameter in parameters))


class _Run(ThreadService):
    """One run: the service that carries out steps, and the order of what follows a step."""

    def __init__(
        self,
        algorithm: Type[BaseAlgorithm],
        function: Callable[..., Any],
        silent: bool,
        plan: _Plan,
        direction: OptimizeDirection,
    ):
        super().__init__(plan.max_workers)
        self._algorithm = algorithm
        self._function = function
        self._silent = silent
        self._arguments = positional_parameters(function)
        self._plan = plan
        self._direction = direction
        self._space = Structure(plan.space)
        self._session: Optional[BaseSession] = None
        self._events = EventRegistry(HpoEvent)
        self._finishing = threading.RLock()  # one step's end at a time, one event at a time
        self._ranking = self._empty_ranking()
        self._columns = self._further_columns()
        self._best: Optional[RunResult] = None
        self._since_best = 0
        self._failures_in_row = 0
        self._condition_met = False
        self._inbox = Inbox()
        self._recorder: Optional[Recorder] = None
        self.study: Optional[Study] = None
        self.interrupted = False
        self.last_error: Optional[BaseException] = None
        maximize = direction == OptimizeDirection.MAXIMIZE
        self._pruner = None if plan.pruner is None else plan.pruner.native().anew(maximize)
        self._hurry = threading.Event()  # no more waits between tries
        listeners: List[EventSet] = [] if silent else [LogEventSet(plan.log_every)]
        self._listeners = listeners + plan.events
        for number, listener in enumerate(self._listeners):
            for event in HpoEvent:
                name = f"{number}.{event.handler}"
                self._events.bind(event, getattr(listener, event.handler), name)

    def search(self) -> Optional[RunResult]:
        """The whole run; the best result."""
        settings = _settings(self._plan, self._direction)
        if not self._plan.study.wanted:
            return self._search(settings)
        self._recorder, settings = _open_recorder(
            self._plan, self._algorithm, self._function, settings, self._direction
        )
        try:
            self._rank_stored(self._recorder)
            self._search(settings)
            best = self._recorder.best()  # of all processes
            if best is not None and (self._best is None or best.task_id != self._best.task_id):
                self._best = best
            if self._plan.further:
                self._ranking = self._empty_ranking()
                self._rank_stored(self._recorder)
            self.study = self._recorder.study()
            return self._best
        except BaseException:
            self._recorder.native.close()  # others may go on
            raise

    def _empty_ranking(self) -> RankList:
        further = [_direction(target) for target in self._plan.further]
        return RankList(self._plan.rank, self._direction, further, self._plan.reference)

    def _rank_stored(self, recorder: Recorder) -> None:
        """The results of earlier runs; of several targets all, as any may be in the Pareto set."""
        for result in recorder.ranked(None if self._plan.further else self._plan.rank):
            result.concerns = [_or_none(column, result) for _, column in self._columns]
            self._rank(result)
        self._since_best = 0

    def _search(self, settings: Dict[str, Any]) -> Optional[RunResult]:
        plan = self._plan
        self._trigger(HpoEvent.INIT, self._algorithm, settings, self._function)
        session = self._algorithm(**settings).get_session(self._space, self)
        _check_targets(plan, self._algorithm, session)
        if self._recorder is not None:
            session.record(self._recorder)  # type: ignore[attr-defined]
        session.ended = self._inbox.ended  # type: ignore[method-assign]
        self._session = session
        note = getattr(getattr(session, "algorithm", None), "note", "")
        if note and not self._silent:
            logging.getLogger().info(note)
        if isinstance(session, SamplerSession) and not self._space.flatten() and not self._silent:
            logging.getLogger().warning("The spaces have no variable: there is one configuration to try.")
        self._trigger(HpoEvent.INIT_OK, plan.target_name, self._variables(), list(self._columns))
        self.start()
        with self._inbox:
            for rule in plan.rules:
                rule.start(self._direction)
                rule.searches(self._space.spaces())
            self._trigger(HpoEvent.RUN_START)
            session.start()
            self._wait()
        session.join(0.5 if self.interrupted else None)
        error = session.error or self.error
        if error is not None:
            raise error
        self._trigger(HpoEvent.RUN_COMPLETE, self._condition_met)
        return self._best

    @property
    def pareto(self) -> Optional[ParetoSet]:
        """The Pareto set, if there are several targets."""
        return self._ranking.pareto

    def _further_columns(self) -> List[Tuple[str, Expression]]:
        """What the table and the log show behind the first target."""
        columns = [(target.name, target.expression) for target in self._plan.further]
        if self._plan.constraints:
            columns.append(("violation", as_expression(self._violation)))
        return columns + self._plan.concerns

    def _violation(self, record: Any) -> float:
        return sum((violation_of(one, record) for one in self._plan.constraints), 0.0)

    def _variables(self) -> List[Tuple[str, Expression]]:
        variables = []
        for path in self._space.paths():
            place = C
            for part in path:
                place = place[part]
            variables.append((path_name(path), place))
        return variables

    # --- the main thread ---

    def _wait(self) -> None:
        """Until the session has ended, or a signal or the time limit ends it."""
        times = [rule.deadline() for rule in self._plan.rules]
        if self._plan.timeout is not None:
            times.append(time.monotonic() + self._plan.timeout)
        deadline = min((one for one in times if one is not None), default=None)
        while True:
            message = self._inbox.wait(deadline)
            if message == "ended":
                return
            self.close()
            if message == "signal":
                self.interrupted = True
                self._end_within(self._plan.grace)
                return
            deadline = None

    def _end_within(self, grace: float) -> None:
        """Lets running steps finish; cancels them afterwards. A second signal cancels at once."""
        message = self._inbox.wait(time.monotonic() + grace)
        if message == "ended":
            return
        self._cancel_all()
        if message == "signal":
            raise KeyboardInterrupt
        # Threads that notice the cancellation end at once; one inside of a system call is left alone.
        self.join_threads(0.5)

    def _cancel_all(self) -> None:
        self.cancel()
        self._hurry.set()
        cancel_function = getattr(self._function, "cancel", None)
        if callable(cancel_function):  # process-backed objectives have one
            cancel_function()

    # --- workers ---

    def execute(self, task: Task) -> Any:
        """One step: tries until one does not fail."""
        self._trigger(HpoEvent.STEP, task)
        trial = Trial(task.task_id, task.config, self._pruner, target_key(self._plan.target))
        if self._recorder is not None:
            trial.on_report = functools.partial(self._recorder.report, task.task_id)
        assert self._session is not None
        arguments = (task.config, self._session.second_argument(task))[: self._arguments]
        index, tries = 0, self._plan.max_tries
        while True:
            self._trigger(HpoEvent.TRY, task, index, tries)
            if self._recorder is not None and index > 0:
                self._recorder.begin_try(task.task_id, index + 1)
            started = time.perf_counter()
            error: Optional[BaseException] = None
            retval: Any = None
            trial.attempt = index + 1
            try:
                retval = self.call(
                    self._call_objective, trial, arguments, limit=self._plan.trial_timeout,
                    cancel=getattr(self._function, "cancel_call", None),
                )  # fmt: skip
            except BaseException as raised:  # whatever an objective raises is a failed try
                error = raised
            metrics = {
                "time": time.perf_counter() - started, "attempt": index + 1, **self._more_metrics(),
            }  # fmt: skip
            self._trigger(HpoEvent.TRY_COMPLETE, task, index, tries, metrics)
            if error is None:
                self._trigger(HpoEvent.TRY_OK, task, index, tries, retval, metrics)
                trial.finish(_OK)
                return RunResult(task, retval, metrics)
            if isinstance(error, Skip):
                self._trigger(HpoEvent.TRY_SKIP, task, index, tries, error.args, metrics)
                trial.finish(_SKIP)
                return RunSkipped(task, error.args, metrics)
            if isinstance(error, Pruned):
                trial.finish(_PRUNED)
                return RunPruned(task, trial.last_step, trial.last_report, metrics)
            trial.finish(_FAIL)
            policy = retry_for(self._plan.retries, error)
            tries = (policy and policy.tries) or self._plan.max_tries
            self._trigger(HpoEvent.TRY_FAIL, task, index, tries, error, metrics)
            index += 1
            if index >= tries or isinstance(error, Cancelled) or getattr(error, "final", False):
                return RunFailed(task, error, metrics)
            self._hurry.wait(policy.wait_after(index) if policy else 0.0)

    def _call_objective(self, trial: Trial, arguments: Tuple[Any, ...]) -> Any:
        """As often as `repeats` says, with the trial as the current one."""
        set_current_trial(trial)
        try:
            values = []
            for trial.repeat in range(self._plan.repeats):
                values.append(self._function(*arguments))
            return values[0] if len(values) == 1 else combined(values, self._plan.aggregate)
        finally:
            trial.repeat = 0
            set_current_trial(None)

    def _more_metrics(self) -> Dict[str, Any]:
        """What the objective itself measured of the last call on this thread, if it does."""
        measured = getattr(self._function, "last_metrics", None)
        return dict(measured()) if callable(measured) else {}

    def callback(self, task: Task, result: Any) -> None:
        """What follows a step, in its fixed order; nothing of another step comes between."""
        with self._finishing:
            stop = False
            if isinstance(result, RunResult):
                result, stop = self._judge(task, result)
            self._notify_algorithm(task, result)
            if isinstance(result, RunResult):
                self._trigger(HpoEvent.STEP_OK, task, result)
            elif isinstance(result, RunSkipped):
                self._trigger(HpoEvent.STEP_SKIP, task, result)
            elif isinstance(result, RunPruned):
                for listener in self._listeners:
                    listener.step_prune(task, result)
            else:
                self.last_error = result.error
                self._trigger(HpoEvent.STEP_FAIL, task, result)
            self._rank(result)
            self._trigger(HpoEvent.STEP_FINAL, task, self._ranking)
            if isinstance(result, RunFailed) and self._plan.on_failure == "raise":
                raise result.error
            ended_well = result if isinstance(result, RunResult) else None
            stop = any([rule.met(ended_well) for rule in self._plan.rules]) or stop
            stop = self._too_many_failures(result) or stop
            if stop or self._since_best >= (self._plan.patience or math.inf):
                self._stop()

    def _too_many_failures(self, result: Any) -> bool:
        self._failures_in_row = self._failures_in_row + 1 if isinstance(result, RunFailed) else 0
        limit = self._plan.max_failures
        if limit is None or self._failures_in_row != limit:
            return False
        if not self._silent:
            logging.getLogger().error("The last %d steps have failed: the search ends.", limit)
        return True

    def _judge(self, task: Task, result: RunResult) -> Tuple[Any, bool]:
        """Target, concerns and stop conditions of a result; a step without them has failed."""
        try:
            record = result.record
            result.value = evaluate(self._plan.target, record)
            targets = [evaluate(target.expression, record) for target in self._plan.further]
            result.values = [float(value) for value in [result.value, *targets]]
            result.violation = self._violation(record)
            result.concerns = [evaluate(column, record) for _, column in self._columns]
            return result, any([bool(evaluate(stop, record)) for stop in self._plan.stops])
        except Exception as error:
            if self._plan.target_error == "raise":
                raise
            return RunFailed(task, error, result.metrics), False

    def _notify_algorithm(self, task: Task, result: Any) -> None:
        session = self._session
        assert session is not None
        raw = session.raw_of(task)
        if isinstance(result, RunResult):
            result.raw = raw
        if self._recorder is not None:
            if isinstance(getattr(result, "error", None), Cancelled):
                return  # it has not ended: whoever resumes the study begins it anew
            self._recorder.tell(task, result)
        session.on_result(task, result)
        if not isinstance(result, RunResult):
            session.on_failure(task, result)
        elif any(math.isnan(value) for value in result.values):
            session.on_failure(task, ValueError("the target is not a number"))
        else:
            session.on_targets(task, result.values, result.violation)

    def _rank(self, result: Any) -> None:
        self._since_best += 1
        if isinstance(result, RunResult) and self._ranking.insert(result):
            self._best = self._ranking[0]
            self._since_best = 0

    def _stop(self) -> None:
        self._condition_met = True
        self.close()
        if self._plan.cancel_on_stop:
            self._cancel_all()

    def _trigger(self, event: HpoEvent, *args: Any) -> None:
        with self._finishing:
            self._events.trigger(event, *args)


class HpoFunc:
    """A function that can be searched over; still callable as the function it was."""

    def __init__(self, function: Callable[..., Any]):
        self._function = function
        functools.update_wrapper(self, function)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<HpoFunc of {self._function!r}>"

    def __getattr__(self, name: str) -> Any:
        text = f"{type(self).__name__!r} object has no attribute {name!r}"
        if hasattr(Runner, name) and not name.startswith("_"):
            text += f": choose an algorithm first, as in hpo(f).auto().{name}(...)"
        raise AttributeError(text)

    def grid(self, silent: bool = False) -> Runner:
        """All combinations of a few points per variable."""
        return self.search(GridAlgorithm, silent)

    def random(self, silent: bool = False) -> Runner:
        """Independent draws."""
        return self.search(RandomAlgorithm, silent)

    def bayes(self, silent: bool = False) -> Runner:
        """A model of the results says where to look next."""
        return self.search(BayesAlgorithm, silent)

    def tpe(self, silent: bool = False) -> Runner:
        """Where good results are dense and bad ones are not; cheap also after thousands of steps."""
        return self.search(TpeAlgorithm, silent)

    def qmc(self, silent: bool = False) -> Runner:
        """Evenly spread points."""
        return self.search(QmcAlgorithm, silent)

    def auto(self, silent: bool = False) -> Runner:
        """The grid, `bayes` or `tpe`, by the budget and the variables; the log says which, and why."""
        return self.search(AutoAlgorithm, silent)

    def cmaes(self, silent: bool = False) -> Runner:
        """CMA-ES: a distribution that follows the better half of the results."""
        return self.search(CmaesAlgorithm, silent)

    def nsga2(self, silent: bool = False) -> Runner:
        """NSGA-II: children of the best results so far, for one target or several."""
        return self.search(Nsga2Algorithm, silent)

    def pbt(self, silent: bool = False) -> Runner:
        """Population-based training: the function gets a configuration and a `Checkpoint`, trains a
        segment from ``checkpoint.load`` on and saves to ``checkpoint.save``. See `PbtAlgorithm`."""
        return self.search(PbtAlgorithm, silent)

    def search(self, algorithm: Type[BaseAlgorithm], silent: bool = False) -> Runner:
        """An algorithm of your own; `silent` leaves out the log, not other listeners."""
        if not isinstance(algorithm, type):
            raise TypeError(f"search takes the class of an algorithm, not {algorithm!r}")
        return Runner(algorithm, self._function, silent)


def hpo(function: Callable[..., Any]) -> HpoFunc:
    """Makes a function searchable: ``hpo(f).grid()...run()``. Also a decorator. The function gets a
    configuration and, if it takes two arguments, the number of the step."""
    if isinstance(function, HpoFunc):
        return function
    if not callable(function):
        raise TypeError(f"hpo takes a function, not {function!r}")
    return HpoFunc(function)
