"""Search algorithms: a producer that pushes samples, and the engine's as such producers."""

from __future__ import annotations

import enum
import inspect
import math
import random as _random
import re
import threading
from typing import Any, ClassVar, Dict, List, Optional, Tuple, Union

from .. import _native
from ._pruning import RunPruned
from ._records import OptimizeDirection, RunSkipped, Task
from ._service import ServiceNoLongerAccept, ThreadService
from ._spaces import FixedSpace, Structure
from ._study import Recorder

_OK, _FAIL, _SKIP, _PRUNED = 0, 1, 2, 3  # divisi::tune::TrialState


class SessionState(enum.IntEnum):
    """The life of a session."""

    PENDING = 1
    RUNNING = 2
    DEAD = 3


class BaseAlgorithm:
    """Made from a runner's settings; gives a session for each run.

    Yours has a session class with `produce`, and goes to `hpo(f).search(MyAlgorithm)`. Options are
    the parameters of its `__init__`, or what `OPTIONS` names.
    """

    OPTIONS: ClassVar[Dict[str, Any]] = {}
    """Names of options, with their default."""
    note: str = ""
    """A line for the log, once the session is there."""

    def __init__(
        self,
        max_steps: Optional[int] = None,
        max_workers: Optional[int] = None,
        opt_direction: Optional[OptimizeDirection] = None,
        **options: Any,
    ):
        self.max_steps = max_steps
        """How many steps; None is without limit."""
        self.max_workers = max_workers
        """How many run at a time."""
        self.opt_direction = opt_direction
        """Which results are better."""
        self.options = {**self.OPTIONS, **options}
        """The other settings."""

    @classmethod
    def algorithm_name(cls) -> str:
        """The class's name as words: `grid algorithm`."""
        words = re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z0-9]+", cls.__name__)
        return " ".join(words).lower()

    def get_session(self, space: Structure, service: ThreadService) -> "BaseSession":
        """The session of one run."""
        raise NotImplementedError(f"{type(self).__name__} has no get_session")


class BaseSession:
    """One run of an algorithm, on a thread of its own."""

    def __init__(self, algorithm: BaseAlgorithm, space: Structure, service: ThreadService):
        self.algorithm = algorithm
        """What it runs."""
        self.space = space
        """The search structure."""
        self._service = service
        self._state = SessionState.PENDING
        self._lock = threading.Lock()
        self._thread: Optional[threading.Thread] = None
        self._error: Optional[BaseException] = None

    @property
    def state(self) -> SessionState:
        """Where it stands."""
        return self._state

    @property
    def error(self) -> Optional[BaseException]:
        """What `produce` raised."""
        return self._error

    def produce(self) -> None:
        """Pushes samples until there are no more."""
        raise NotImplementedError(f"{type(self).__name__} has no produce")

    def on_result(self, task: Task, result: Any) -> None:
        """A step has ended."""

    def on_success(self, task: Task, value: float) -> None:
        """It ended well, with this target."""

    def second_argument(self, task: Task) -> Any:
        """What an objective of two arguments gets beside the configuration: the number of the step."""
        return task.task_id

    def raw_of(self, task: Task) -> Optional[List[float]]:
        """What the engine drew for a step that has ended; asked once."""
        return None

    def on_targets(self, task: Task, values: List[float], violation: float) -> None:
        """The same with all targets, and with the violation of constraints (0: they hold). Unless
        overridden, the first target is all that the session gets."""
        self.on_success(task, values[0])

    def on_failure(self, task: Task, error: BaseException) -> None:
        """It failed, was skipped (`RunSkipped`) or pruned (`RunPruned`)."""

    def objectives(self) -> Optional[int]:
        """How many targets it looks for; None: any number."""
        return 1

    def push(self, config: Any) -> Task:
        """Starts a step; waits while `max_workers` steps are running."""
        if self._state != SessionState.RUNNING:
            raise RuntimeError(f"a session pushes while it runs; this one is {self._state.name}")
        return self._service.send(config)

    def start(self) -> None:
        """Starts the thread."""
        with self._lock:
            if self._state != SessionState.PENDING:
                raise RuntimeError(f"the session was started already and is {self._state.name}")
            self._state = SessionState.RUNNING
        self._thread = threading.Thread(target=self._main, name="divisi-tune-search", daemon=True)
        self._thread.start()

    def join(self, timeout: Optional[float] = None) -> None:
        """Waits for its end: samples given, steps run."""
        if self._thread is not None:
            self._thread.join(timeout)

    def ended(self) -> None:
        """Called last on the session's thread."""

    def _main(self) -> None:
        try:
            self.produce()
        except ServiceNoLongerAccept:
            pass  # the search was stopped
        except BaseException as error:
            self._error = error
        finally:
            self._service.shutdown()
            self._service.join_threads()
            self._state = SessionState.DEAD
            self.ended()


class SamplerSession(BaseSession):
    """Asks the engine for the next point when a worker is free, and reports how it went."""

    def __init__(
        self,
        algorithm: BaseAlgorithm,
        space: Structure,
        service: ThreadService,
        sampler: _native.TuneSampler,
    ):
        super().__init__(algorithm, space, service)
        self._sampler = sampler
        self._recorder: Optional[Recorder] = None
        self._raw: Dict[int, List[float]] = {}  # of running steps

    def record(self, recorder: Recorder) -> None:
        """From now on trials come from a study, and go there; the engine learns of them from it."""
        self._recorder = recorder
        recorder.sampler = self._sampler

    def raw_of(self, task: Task) -> Optional[List[float]]:
        """As it was asked for."""
        return self._raw.pop(task.task_id, None)

    def _next(self) -> Optional[Tuple[int, List[float], Any]]:
        """The number, the point and the configuration of the next step."""
        if self._recorder is not None:
            return self._recorder.ask(self._sampler)
        sample = self._sampler.ask()
        return None if sample is None else (*sample, self.space.config(sample[1]))

    def produce(self) -> None:
        """Until the engine has no more."""
        while True:
            self._service.reserve()
            try:
                step = self._next()
            except BaseException:
                self._service.give_back()
                raise
            if step is None:
                self._service.give_back()
                return
            number, self._raw[step[0]], config = step
            self._service.submit(config, number)

    def on_success(self, task: Task, value: float) -> None:
        """To the engine."""
        if self._recorder is None:
            self._sampler.tell(task.task_id, _OK, value)

    def on_targets(self, task: Task, values: List[float], violation: float) -> None:
        """To the engine."""
        if self._recorder is None:
            self._sampler.tell_values(task.task_id, _OK, values, violation)

    def objectives(self) -> Optional[int]:
        """Of the engine's search."""
        return self._sampler.objectives()

    def on_failure(self, task: Task, error: BaseException) -> None:
        """To the engine."""
        if self._recorder is not None:
            return
        if isinstance(error, RunPruned):
            last = math.nan if error.value is None else error.value
            self._sampler.tell(task.task_id, _PRUNED, last)
            return
        state = _SKIP if isinstance(error, RunSkipped) else _FAIL
        self._sampler.tell(task.task_id, state, math.nan)


class EngineAlgorithm(BaseAlgorithm):
    """One of the engine's: it has a sampler."""

    def get_session(self, space: Structure, service: ThreadService) -> BaseSession:
        """Over the engine's sampler; wrong settings are noticed here."""
        return SamplerSession(self, space, service, self.sampler(space))

    def sampler(self, space: Structure) -> _native.TuneSampler:
        """The engine's object for these settings."""
        raise NotImplementedError


def _one_of(option: str, value: Any, names: List[str]) -> int:
    if value not in names:
        raise ValueError(f"{option} is one of {', '.join(names)}: not {value!r}")
    return names.index(value)


class GridAlgorithm(EngineAlgorithm):
    """All combinations of a few points per variable."""

    OPTIONS: ClassVar[Dict[str, Any]] = {"allocation": "balanced", "strict_budget": False}

    def sampler(self, space: Structure) -> _native.TuneSampler:
        """The engine's grid."""
        by_length = _one_of("allocation", self.options["allocation"], ["balanced", "length"]) == 1
        return _native.TuneSampler.grid(
            space.search_space(), self.max_steps, by_length, bool(self.options["strict_budget"])
        )


Seed = Union[None, int, _random.Random]


def _check_seed(seed: Any) -> None:
    if seed is None or isinstance(seed, _random.Random):
        return
    if not isinstance(seed, int) or isinstance(seed, bool):
        raise TypeError(f"a seed is None, an int or a random.Random: not {seed!r}")


class RandomAlgorithm(EngineAlgorithm):
    """Independent draws; in a finite space no point twice."""

    OPTIONS: ClassVar[Dict[str, Any]] = {"seed": None}

    def sampler(self, space: Structure) -> _native.TuneSampler:
        """The engine's random search, which draws as Python does."""
        seed = self.options["seed"]
        _check_seed(seed)
        if seed is None:
            source: Any = _random.getrandbits  # the generator of the process
        elif isinstance(seed, _random.Random):
            source = seed.getrandbits
        else:
            source = _words(abs(seed))
        return _native.TuneSampler.random(space.search_space(), self.max_steps, source)


def _words(number: int) -> List[int]:
    words = [number & 0xFFFFFFFF]
    while number >> 32:
        number >>= 32
        words.append(number & 0xFFFFFFFF)
    return words


_ACQUISITIONS = {"ei": 0, "logei": 0, "ucb": 1, "poi": 2}
_LIES = ["predicted", "best", "mean", "worst"]
_GP_PARAMS = {"alpha": "noise", "n_restarts_optimizer": "restarts"}


class BayesAlgorithm(EngineAlgorithm):
    """A Gaussian process over the results says where to look next."""

    OPTIONS: ClassVar[Dict[str, Any]] = {
        "seed": None,
        "init_steps": 5,
        "engine": "default",
        "acq": None,
        "kappa": 2.576,
        "kappa_decay": 1,
        "kappa_decay_delay": 0,
        "xi": 0.0,
        "gp_params": {},
        "pending": "predicted",
        "impute_failures": False,
    }

    def sampler(self, space: Structure) -> _native.TuneSampler:
        """The engine's Bayesian search."""
        options = self.options
        reference = _one_of("engine", options["engine"], ["default", "reference"]) == 1
        acq = options["acq"] or ("ucb" if reference else "ei")
        if acq not in _ACQUISITIONS:
            known = ", ".join(_ACQUISITIONS)
            raise NotImplementedError(f"unknown acquisition function {acq!r}: there are {known}")
        if reference and any(isinstance(one.space, FixedSpace) for one in space.flatten()):
            raise TypeError(
                'engine "reference" does not know alternatives (choice): use the default engine'
            )
        native: Dict[str, Any] = {
            "max_steps": self.max_steps,
            "maximize": self.opt_direction == OptimizeDirection.MAXIMIZE,
            "reference_engine": reference,
            "acquisition": _ACQUISITIONS[acq],
            "pending": _one_of("pending", options["pending"], _LIES),
            "seed": engine_seed(options["seed"]),
            "impute_failures": bool(options["impute_failures"]),
        }
        for name in ("init_steps", "kappa_decay_delay"):
            native[name] = whole(name, options[name])
        for name in ("kappa", "kappa_decay", "xi"):
            native[name] = float(options[name])
        native.update(self._gp_params(reference))
        return _native.TuneSampler.bayes(space.search_space(), native)

    def _gp_params(self, reference: bool) -> Dict[str, Any]:
        native: Dict[str, Any] = {}
        for name, value in self.options["gp_params"].items():
            if name not in _GP_PARAMS:
                raise ValueError(f"unknown model setting {name!r}: there are {', '.join(_GP_PARAMS)}")
            if not reference:
                raise ValueError(f'{name} is a setting of engine("reference"); the default one learns it')
            native[_GP_PARAMS[name]] = value
        return native


def whole(name: str, value: Any) -> int:
    """The value of an option that is a whole number."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"{name} must be a whole number, not {value!r}")
    return value


def engine_seed(seed: Any) -> int:
    """64 bits of a seed as all algorithms take it."""
    _check_seed(seed)
    if seed is None:
        return _random.getrandbits(64)
    if isinstance(seed, _random.Random):
        return seed.getrandbits(64)
    return int(abs(seed)) & 0xFFFFFFFFFFFFFFFF


def settings_of(algorithm: type) -> List[str]:
    """The options that an algorithm declares, besides those that all have."""


    names = list(getattr(algorithm, "OPTIONS", {}))
    try:
        parameters = inspect.signature(algorithm).parameters.values()
    except (TypeError, ValueError):
        return names
    names += [p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    return names


