"""Studies: searches that outlive their process."""

from __future__ import annotations

import json
import logging
import math
import random as _random
from typing import Any, Dict, List, Optional, Tuple

from .. import _native
from ._inverse import raw_of, values_at
from ._records import OptimizeDirection, RunFailed, RunResult, RunSkipped, Task, rank_key
from ._spaces import Structure
from ._storage import NotStorable, as_repr, decode, encode

_STATES = {"ok": 0, "fail": 1, "skip": 2, "pruned": 3}
_FSYNC = ["always", "second", "off"]
_MISSING = object()


class StudyTrial:
    """A trial as a study has it: plain values."""

    def __init__(self, record: _native.TuneTrial):
        self._record = record
        self.id = record.id
        """Its number, from 1."""
        self.state = record.stage
        """"waiting", "running", "ok", "fail", "skip" or "pruned"."""
        self.values = list(record.values)
        """The values of the objectives."""
        self.attempt = record.attempt
        """How often a worker has begun it."""
        self.tries = record.tries
        """Calls of the objective in the last attempt."""
        self.error = record.error
        """Why it failed, or was skipped."""

    @property
    def value(self) -> Optional[float]:
        """The value of the first objective."""
        return self.values[0] if self.values else None

    @property
    def config(self) -> Any:
        """What the objective got."""
        return decode(self._record.config)

    @property
    def retval(self) -> Any:
        """What it returned."""
        return decode(self._record.returned)

    @property
    def metrics(self) -> Dict[str, Any]:
        """`time`: seconds of the last try."""
        return decode(self._record.metrics) or {}

    @property
    def raw(self) -> List[float]:
        """The draw: a number per variable."""
        return list(self._record.raw)

    @property
    def reports(self) -> List[Tuple[int, float]]:
        """(step, value), as the objective reported them."""
        return list(self._record.reports)

    @property
    def started(self) -> float:
        """Seconds since 1970; 0 if it was not begun."""
        return self._record.started

    @property
    def ended(self) -> float:
        """Likewise."""
        return self._record.ended

    @property
    def violation(self) -> float:
        """How far it breaks the constraints."""
        return self._record.violation

    @property
    def by_user(self) -> bool:
        """Whether a user gave its configuration."""
        return self._record.by_user

    def __repr__(self) -> str:
        return f"<StudyTrial {self.id}: {self.state}, value: {self.value!r}>"


class Study:
    """A study: its trials, its best one, and ask and tell. `load_study` gives one that exists;
    ``hpo(f).random().spaces(...).minimize(R).storage(url).study()`` one that can be asked."""

    def __init__(
        self,
        native: _native.TuneStudy,
        sampler: Optional[_native.TuneSampler] = None,
        configs: Optional["Configs"] = None,
    ):
        self._native = native
        self._sampler = sampler
        self._configs = configs
        self._spec = native.spec()
        self._url = native.url()

    @property
    def name(self) -> str:
        """Its name."""
        return str(self._spec["name"])

    @property
    def url(self) -> str:
        """Where it is stored."""
        return self._url

    @property
    def maximize(self) -> List[bool]:
        """For each objective: whether larger values are better."""
        return list(self._spec["maximize"])

    @property
    def algorithm(self) -> str:
        """The name of the algorithm that it was begun with."""
        return str(self._spec["algorithm"])

    @property
    def options(self) -> Dict[str, Any]:
        """The settings of that algorithm, the seed among them."""
        return decode(self._spec["options"]) or {}

    @property
    def space(self) -> List[Dict[str, Any]]:
        """What is searched: a description of each variable."""
        return list(json.loads(self._spec["space"])["variables"])

    @property
    def trials(self) -> List[StudyTrial]:
        """All trials by number, those of other processes included."""
        self._native.refresh()
        return [StudyTrial(record) for record in self._native.trials()]

    @property
    def best(self) -> Optional[StudyTrial]:
        """The best trial by the first objective."""
        self._native.refresh()
        record = self._native.best()
        return None if record is None else StudyTrial(record)

    def trial(self, trial_id: int) -> Optional[StudyTrial]:
        """The trial of that number, if there is one."""
        self._native.refresh()
        record = self._native.trial(trial_id)
        return None if record is None else StudyTrial(record)

    def __len__(self) -> int:
        self._native.refresh()
        return self._native.size()

    def ask(self) -> Optional[StudyTrial]:
        """The next trial to run, or None when the search has ended."""
        if self._sampler is None or self._configs is None:
            raise RuntimeError(
                "this study has no algorithm here: hpo(f)...storage(url).study() gives one to ask"
            )
        record = self._native.ask(self._sampler, self._configs.make)
        return None if record is None else StudyTrial(record)

    def tell(
        self,
        trial_id: int,
        value: Any = None,
        state: str = "ok",
        returned: Any = None,
        error: str = "",
        violation: float = 0.0,
    ) -> None:
        """How a trial of `ask` ended: its value, or one per objective; "fail", "skip" and "pruned"
        need none."""
        if state not in _STATES:
            raise ValueError(f"state is one of {', '.join(_STATES)}: not {state!r}")
        if value is None:
            if state == "ok":
                raise ValueError("a trial that ended well has a value")
            values: List[float] = []
        else:
            values = [float(one) for one in (value if isinstance(value, (list, tuple)) else [value])]
        text = "" if returned is None else encode(returned)
        self._native.tell(trial_id, _STATES[state], values, violation, text, "", error, 1)

    def report(self, trial_id: int, step: int, value: float) -> None:
        """What a running trial has reached."""
        self._native.report(trial_id, step, float(value))

    def close(self) -> None:
        """Ends the work on it: trials that were asked for and not told may be begun by others."""
        self._native.close()

    def __enter__(self) -> "Study":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Study {self.name!r} in {self.url!r}>"


def load_study(url: str, name: str = "") -> Study:
    """The study of that name as it is; without a name the only one there. Nothing is written."""
    return Study(_native.TuneStudy.load(url, name))


def list_studies(url: str) -> List[Dict[str, Any]]:
    """The studies of a file: name, algorithm, numbers of trials, ..."""
    return _native.TuneStudy.list(url)


def remove_study(url: str, name: str) -> None:
    """Forgets a study that nobody works on."""
    _native.TuneStudy.remove(url, name)


class StudyPlan:
    """What a runner was told about its study."""

    def __init__(self) -> None:
        self.url: Optional[str] = None
        self.fsync = "second"
        self.name: Optional[str] = None
        self.resume = False
        self.allow_space_change = False
        self.enqueued: List[Any] = []
        self.added: List[Any] = []

    @property
    def wanted(self) -> bool:
        """Whether trials are recorded at all."""
        return self.url is not None or bool(self.enqueued) or bool(self.added)

    def set_storage(self, url: Any, fsync: Any) -> None:
        """Checked: a path may be an object."""
        self.url = str(url)
        if fsync not in _FSYNC:
            raise ValueError(f"fsync is one of {', '.join(_FSYNC)}: not {fsync!r}")
        self.fsync = fsync


class Configs:
    """Configurations of trials, from draws and from what users gave."""

    def __init__(self, space: Structure, structure: Any):
        self._space = space
        self._structure = structure
        self._made: Dict[int, Any] = {}

    def make(self, trial_id: int, raw: List[float]) -> str:
        """Of a new draw; kept for `take`. The text to store."""
        config = self._space.config(raw)
        self._made[trial_id] = config
        return encode(config, as_repr)

    def take(self, record: _native.TuneTrial) -> Any:
        """The configuration of a trial that begins."""
        made = self._made.pop(record.id, _MISSING)
        if made is not _MISSING:
            return made
        if record.by_user and record.config:
            try:
                return self._space.rebuild(values_at(self._structure, decode(record.config)))
            except ValueError:  # of other spaces
                pass
        return self._space.config(record.raw)

    def stored(self, record: _native.TuneTrial) -> Any:
        """The configuration of a trial that has ended: with its own types where they are known."""
        try:
            config = self._space.config(record.raw)
            if encode(config, as_repr) == record.config:
                return config
        except Exception:  # of other spaces
            pass
        return decode(record.config)

    def given(self, config: Any) -> Dict[str, Any]:
        """A configuration of the user, for `TuneStudy.add`."""
        if self._space.has_conditions():
            raise ValueError(
                "enqueue and add_trials do not know conditional spaces: which draw a configuration "
                "stands for cannot be told"
            )
        raw = raw_of(self._space, self._structure, config)
        values = values_at(self._structure, config)
        return {"raw": raw, "config": encode(self._space.rebuild(values), as_repr)}


def space_text(structure: Any) -> str:
    """What is searched, as a study stores it."""
    space = Structure(structure)
    chains = [encode(value.describe(), as_repr) for value in space.flatten()]
    return _native.tune_space_text(space.flat_names(), space.spaces(), chains)


def fixed_seed(settings: Dict[str, Any], known: List[str]) -> Dict[str, Any]:
    """The settings with a seed that can be stored."""
    if "seed" not in known:
        return settings
    seed = settings.get("seed")
    if isinstance(seed, _random.Random):
        return {**settings, "seed": seed.getrandbits(53)}
    if seed is None:
        return {**settings, "seed": _random.SystemRandom().getrandbits(53)}
    return settings


class Recorder:
    """What a run writes down, and what it finds there."""

    def __init__(
        self,
        plan: StudyPlan,
        name: str,
        structure: Any,
        direction: OptimizeDirection,
        targets: Dict[str, bool],
        algorithm: str,
        settings: Dict[str, Any],
    ):
        """`targets`: their texts, the first one first, and whether larger is better."""
        self._plan = plan
        self._direction = direction
        self._tries: Dict[int, int] = {}  # of steps that needed more than one
        self.configs = Configs(Structure(structure), structure)
        stored = {key: one for key, one in settings.items() if not key.startswith("opt_direction")}
        given = [self.configs.given(config) for config in plan.enqueued]
        given += [one for one in (_observation(self.configs, one) for one in plan.added) if one]
        spec = {
            "name": plan.name or name,
            "space": space_text(structure),
            "maximize": list(targets.values()),
            "targets": list(targets),
            "algorithm": algorithm,
            "options": encode(stored, as_repr),
        }
        options = {
            "resume": plan.resume,
            "allow_space_change": plan.allow_space_change,
            "fsync": _FSYNC.index(plan.fsync),
        }
        self.native = _native.TuneStudy.open(plan.url or "memory:", spec, options)
        self.sampler: Optional[_native.TuneSampler] = None
        # A script that is run again gives its configurations again: those that are there are enough.
        there = {(tuple(one.raw), one.config) for one in self.native.trials() if one.by_user}
        new = [one for one in given if (tuple(one["raw"]), one["config"]) not in there]
        if new:
            self.native.add(new)

    @property
    def seed(self) -> Any:
        """The seed that the study was begun with; None if there is none."""
        options = decode(self.native.spec()["options"])
        return options.get("seed") if isinstance(options, dict) else None

    def ask(self, sampler: _native.TuneSampler) -> Optional[Tuple[int, List[float], Any]]:
        """The next trial: its number, its point and its configuration."""
        record = self.native.ask(sampler, self.configs.make)
        return None if record is None else (record.id, record.raw, self.configs.take(record))

    def begin_try(self, trial_id: int, number: int) -> None:
        """A further call of the objective."""
        self._tries[trial_id] = number
        self.native.begin_try(trial_id, number)

    def report(self, trial_id: int, step: int, value: float) -> None:
        """What a running trial has reached."""
        self.native.report(trial_id, step, value)

    def tell(self, task: Task, result: Any) -> None:
        """The end of a trial: a `RunResult`, `RunFailed` or `RunSkipped`."""
        state, values, error = _end_of(result)
        retval = getattr(result, "retval", None)
        returned = "" if retval is None else self._stored(task, "return value", retval)
        metrics = self._stored(task, "metrics", result.metrics)
        violation = float(getattr(result, "violation", 0.0))
        tries = self._tries.pop(task.task_id, 1)
        self.native.tell(task.task_id, state, values, violation, returned, metrics, error, tries)

    def _stored(self, task: Task, what: str, value: Any) -> str:
        try:
            return encode(value)
        except (NotStorable, ValueError, RecursionError) as error:
            logging.error("the %s of step %d is not stored: %s", what, task.task_id, error)
            return ""

    def ranked(self, capacity: Optional[int]) -> List[RunResult]:
        """The best trials that ended well, at most so many, in the order in which they ended."""
        ended = [one for one in self.native.trials() if one.stage == "ok" and one.values]
        ended.sort(
            key=lambda one: (one.violation, *rank_key(one.values[0], self._direction), one.ended)
        )
        best = sorted(ended[:capacity], key=lambda one: one.ended)
        return [self.result_of(record) for record in best]

    def result_of(self, record: _native.TuneTrial) -> RunResult:
        """A stored trial as the runner has it."""
        config = self.configs.stored(record)
        result = RunResult(Task(record.id, config), decode(record.returned), decode(record.metrics) or {})
        result.value, result.values = record.values[0], list(record.values)
        result.violation = record.violation
        return result

    def best(self) -> Optional[RunResult]:
        """The best trial of all processes."""
        self.native.refresh()
        record = self.native.best()
        return None if record is None else self.result_of(record)

    def finished(self) -> int:
        """How many trials have ended."""
        return sum(one.stage not in ("waiting", "running") for one in self.native.trials())

    def study(self) -> Study:
        """For the user, after the run: of a file, a fresh reader."""
        if self._plan.url is None or self._plan.url == "memory:":
            return Study(self.native)
        name, url = self.native.spec()["name"], self.native.url()
        self.native.close()
        return load_study(url, str(name))


def _end_of(result: Any) -> Tuple[int, List[float], str]:
    if isinstance(result, RunResult):
        values = getattr(result, "values", None)
        return 0, [float(one) for one in values] if values else [float(result.value)], ""
    if isinstance(result, RunSkipped):
        return 2, [], ", ".join(str(one) for one in result.args)
    if isinstance(result, RunFailed):
        error = result.error
        return 1, [], f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    last = getattr(result, "value", None)  # pruned
    return 3, [] if last is None or not math.isfinite(last) else [float(last)], ""


def _observation(configs: Configs, one: Any) -> Optional[Dict[str, Any]]:
    """A finished trial for `TuneStudy.add`: of another study, or (configuration, value). None for
    one of another study that does not fit."""
    if isinstance(one, StudyTrial):
        try:
            given = configs.given(one.config)
        except ValueError as error:
            logging.warning("trial %d of the other study is left out: %s", one.id, error)
            return None
        given.update(
            state=_STATES[one.state], values=one.values, violation=one.violation, error=one.error,
            returned=one._record.returned, metrics=one._record.metrics,
        )  # fmt: skip
        return given
    config, value = one
    values = [float(item) for item in (value if isinstance(value, (list, tuple)) else [value])]
    return {**configs.given(config), "state": _STATES["ok"], "values": values}


def observations_of(source: Any) -> List[Any]:
    """What `add_trials` takes: a study (its finished trials), or a list of trials and of
    (configuration, value)."""
    trials = source.trials if isinstance(source, Study) else source
    found: List[Any] = []
    for one in trials:
        if isinstance(one, StudyTrial):
            if one.state in ("ok", "pruned", "fail"):
                found.append(one)
        elif isinstance(one, (tuple, list)) and len(one) == 2:
            found.append(tuple(one))
        else:
            raise TypeError(f"add_trials takes trials and (configuration, value), not {one!r}")
    return found


