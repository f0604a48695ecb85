"""One trial as a program: its names and files, and its result."""

from __future__ import annotations

import json
import pickle
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Protocol, Sequence, Tuple, TYPE_CHECKING

from . import _msgpack, _pickles, _templates
from ._reports import ReportSettings

if TYPE_CHECKING:
    import subprocess

    from ._current import Trial

HPO_ID = "DI-toolkit-hpo-id"
"""The key of a sample that names its step."""
_RESULTS = {
    "json": ["result.json"], "msgpack": ["result.msgpack"],
    "pickle": ["result.pkl", "hpo/result.pkl", "hpo/result", "hpo/results"],
}  # fmt: skip
RESULT_FORMATS = ["auto", *_RESULTS]
"""Which files may hold a result; `auto` is all of them."""
_SIDE_FILES = ["result.txt", "results.txt"]
_TRUNCATED_S = 2.0  # a writer that does not rename may still be writing


class SchedulerError(RuntimeError):
    """The scheduler cannot take or finish a trial."""


class SchedulerFull(SchedulerError):
    """`max_number_of_tasks` were defined already."""


class SchedulerStopped(SchedulerError):
    """The scheduler was stopped before the trial ended."""


class TrialFailed(ValueError):
    """A trial that ended without a result."""

    def __init__(self, text: str, status: str, exit_code: Optional[int], log_tail: str, final: bool):
        super().__init__(text)
        self.status = status
        """`fail`, `time out` or `cancelled`."""
        self.exit_code = exit_code
        """Of the program; negative: ended by that signal. None: it did not run."""
        self.log_tail = log_tail
        """The end of its log, or why its result was refused."""
        self.final = final
        """Whether a retry is pointless."""

    @property
    def reason(self) -> str:
        """Why, in one line: the exit code or signal, and the last line of the log."""
        parts = []
        if self.exit_code is not None and self.exit_code < 0:
            parts.append(f"ended by signal {-self.exit_code}")
        elif self.exit_code:
            parts.append(f"exit code {self.exit_code}")
        lines = self.log_tail.strip().splitlines()
        if lines:
            parts.append(lines[-1].strip())
        return ": ".join(parts)

    def __str__(self) -> str:
        text = super().__str__()
        return f"{self.reason}; {text}" if self.reason else text

    def __repr__(self) -> str:
        return f"TrialFailed({str(self)!r})"


class Task:
    """One trial as a program."""

    def __init__(self) -> None:
        self.task_id: Optional[int] = None
        """Its number, from 0."""
        self.hpo_id: Optional[str] = None
        """The number of the step, as text."""
        self.task_name: Optional[str] = None
        """Names its main file, log and result folder."""
        self.defined = self.running = self.waiting = self.finish = self.success = False
        self.normal = True
        self.cancelled = False
        self.cancel_status = "cancelled"
        """The status of one that was ended before its time."""
        self.hyper_parameter_info: Optional[Dict[Any, Any]] = None
        """What the main file changes."""
        self.pid: Optional[int] = None
        """Of the program, while and after it runs."""
        self.process: Optional["subprocess.Popen[bytes]"] = None
        """The program."""
        self.start_time: Optional[float] = None
        """When it started."""
        self.emit_time: Optional[float] = None
        """The same: it starts when it is emitted."""
        self.status = ""
        """`success`, `fail`, `time out`, `pruned` or `cancelled`, at the end."""
        self.trial: Optional["Trial"] = None
        """The step of a search that it is run for; gets its reports."""
        self.exit_code: Optional[int] = None
        """Of the program."""
        self.gpus: List[str] = []
        """The devices that it may use, where the scheduler has a list of them."""
        self.environment: Dict[str, str] = {}
        """Variables of this program alone."""
        self.files: List[Path] = []
        """What was written for it, beside its log folder."""
        self.manual = False
        """Emitted by the calls that drive a scheduler tick by tick."""
        self.outcome: Optional[Tuple[Any, str]] = None
        """Its result, and the end of its log or why there is no result; once it has ended."""
        self.defined_at = self.granted_at = self.ended_at = 0.0
        """On the clock of `time.monotonic`: defined, in a slot, ended."""
        self.stale: Dict[Path, Tuple[int, ...]] = {}
        """What lay where results are looked for before it started."""
        self.side: Dict[str, Any] = {}
        """What the JSON side file said."""

    def define(
        self, task_id: int, project: str, info: Mapping[Any, Any], naming: str = "flat"
    ) -> None:
        """Gives the task its configuration and its names."""
        self.task_id = task_id
        self.hpo_id = str(info.get(HPO_ID, task_id + 1))
        self.hyper_parameter_info = dict(info)
        flat = naming == "flat"
        self.task_name = f"{project}-{task_id if flat else self.short_name('hpo-id')}"
        self.defined = True

    def short_name(self, naming: str) -> str:
        """The name of its files."""
        return str(self.task_id) if naming == "flat" else f"hpo-id-{self.hpo_id}-task-{self.task_id}"

    def generate_config_file(self, template: str) -> List[str]:
        """The lines of its main file, from the template file's path."""
        assert self.task_name is not None and self.hyper_parameter_info is not None
        text = Path(template).read_text(encoding="utf-8")
        return _templates.generate(text, self.hyper_parameter_info, self.task_name)

    def write_config_file(self, template: str, out: str) -> None:
        """Writes its main file."""
        Path(out).write_text("".join(self.generate_config_file(template)), encoding="utf-8")

    def get_report(self, return_data: Any, result: Mapping[str, Any]) -> Dict[str, Any]:
        """What is known of it at the end."""
        report = {
            "hpo_id": self.hpo_id, "task_id": self.task_id,
            "hyper_parameter_info": self.hyper_parameter_info, "result": dict(result),
        }  # fmt: skip
        return report if return_data is None else {**report, "return": return_data}


@dataclass
class TrialSettings:
    """What all trials of a scheduler share."""

    template: str
    project: str
    workdir: Path
    folder: Path  # of the project
    naming: str
    python: str
    env: Dict[str, str]
    grace: float
    time_out: Optional[float]
    require_exit_zero: bool
    trust_pickle: bool
    inject: str = "python"
    keep_files: bool = True
    result_format: str = "auto"
    reports: ReportSettings = field(default_factory=ReportSettings)


class TrialDesk(Protocol):
    """What those that run trials see of their scheduler."""

    lock: threading.Condition

    def ended(self, task: Task, data: Any, tail: str) -> None:
        """Once for each task that was started. `task.status` says how; `tail` is the end of its log,
        or why there is no result."""

    def suspect(self, task: Task) -> None:
        """It may be lost: it counts as finished until `back` or `ended`."""

    def back(self, task: Task) -> None:
        """A suspect that runs again."""

    def report_status(self) -> None:
        """Something may have changed."""


class TrialBackend(Protocol):
    """Where the trials of a scheduler run."""

    def start(self, task: Task) -> None:
        """Begins with it; called with the desk's lock held, so it must not block."""

    def cancel(self, tasks: Sequence[Task], wait: bool) -> None:
        """Ends those that run; their `cancelled` is set. `wait`: returns when they have ended."""

    def close(self) -> None:
        """Nothing runs any more, and nothing will."""


def emitted_name(task: Task, naming: str) -> str:
    """How log lines call a task that starts."""
    return f"task {task.task_id}" if naming == "flat" else task.short_name(naming)


def ranges(ids: Sequence[int]) -> List[str]:
    """Rising numbers as `4` and `7-9`."""
    parts: List[str] = []
    first = last = None
    for number in [*ids, None]:
        if number is not None and last is not None and number == last + 1:
            last = number
            continue
        if first is not None:
            parts.append(str(first) if first == last else f"{first}-{last}")
        first = last = number
    return parts


def _signature(path: Path) -> Tuple[int, ...]:
    stat = path.stat()
    return stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns


def _read_bounded(path: Path) -> bytes:
    with open(path, "rb") as file:
        data = file.read(_pickles.MAX_BYTES + 1)
    if len(data) > _pickles.MAX_BYTES:
        raise OSError(f"{path}: larger than {_pickles.MAX_BYTES} bytes")
    return data


class ResultReader:
    """Finds and reads what trials of a project wrote."""

    def __init__(
        self, workdir: Path, folder: Path, trust_pickle: bool, result_format: str = "auto"
    ):
        self._workdir = workdir
        self._folder = folder
        self._trust_pickle = trust_pickle
        chosen = _RESULTS if result_format == "auto" else [result_format]
        self._names = [name for form in chosen for name in _RESULTS[form]]

    def remember(self, task: Task) -> None:
        """To be called before the start: what is there by then is not a result. Its time alone does
        not say so: clocks of file systems are coarse, and may differ from this machine's."""
        names = [*self._names, *_SIDE_FILES]
        paths = [folder / name for folder in self._candidates(task) for name in names]
        task.stale = {path: _signature(path) for path in paths if path.is_file()}

    def load(self, task: Task) -> Tuple[Any, Dict[str, Any]]:
        """The result and the side file. Raises: there is no result, or it cannot be read."""
        deadline = time.monotonic() + _TRUNCATED_S
        while True:
            try:
                found = self._find_result(task)
                if found is None:
                    folder = self._folder / str(task.task_name)
                    names = " or ".join(name for name in self._names if "/" not in name)
                    if "result.json" in self._names:
                        names += ", or JSON to the file that $HPO_RESULT_FILE names"
                    raise FileNotFoundError(f"the program wrote no result: it should write {folder}/{names}")
                return self._read_result(found), self._side_file(task)
            except ValueError:
                if time.monotonic() >= deadline:
                    raise
                time.sleep(0.05)

    def folders(self, task: Task) -> List[Path]:
        """Where its program writes; those that are there."""
        return [folder for folder in self._candidates(task) if folder.is_dir()]

    def _candidates(self, task: Task) -> List[Path]:
        name = str(task.task_name)
        dated = [*self._folder.glob(f"{name}_*"), *self._workdir.glob(f"{name}_*")]
        return [self._folder / name, self._workdir / name, *sorted(dated)]

    def _fresh(self, task: Task, path: Path) -> bool:
        assert task.start_time is not None
        return self._is_new(task, path) and path.stat().st_mtime >= task.start_time

    def _is_new(self, task: Task, path: Path) -> bool:
        return path.is_file() and task.stale.get(path) != _signature(path)

    def _find_result(self, task: Task) -> Optional[Path]:
        paths = [folder / name for folder in self._candidates(task) for name in self._names]
        if "result.json" in self._names:
            paths.insert(0, self._folder / f"{task.task_name}-log" / "result.json")
        return next((path for path in paths if self._fresh(task, path)), None)

    def _read_result(self, path: Path) -> Any:
        return self.decode(path, _read_bounded(path))

    def decode(self, path: Path, data: bytes) -> Any:
        """The result that such a file has. Raises ValueError: it cannot be read."""
        if path.suffix == ".json":
            return json.loads(data)
        if path.suffix == ".msgpack":
            try:
                return _msgpack.loads(data)
            except ValueError as error:
                raise ValueError(f"{path}: {error}") from None
        try:
            return pickle.loads(data) if self._trust_pickle else _pickles.loads(data)
        except (EOFError, pickle.UnpicklingError) as error:
            raise ValueError(f"{path}: {error}") from None

    def _side_file(self, task: Task) -> Dict[str, Any]:
        for folder in self._candidates(task):
            for name in _SIDE_FILES:
                try:
                    if not self._fresh(task, folder / name):
                        continue
                    side = json.loads(_read_bounded(folder / name))
                except (OSError, ValueError, RecursionError):  # only an addition to the result
                    continue
                if isinstance(side, dict):
                    return side
        return {}
