"""Population-based training: trainings side by side, in segments, that copy the best of each other."""

from __future__ import annotations

import atexit
import math
import os
import shutil
import tempfile
import threading
from pathlib import Path
from typing import Any, ClassVar, Dict, Optional

from .. import _native
from ._algorithms import BaseAlgorithm, BaseSession
from ._records import OptimizeDirection, Task
from ._service import ThreadService
from ._spaces import Structure


class Checkpoint:
    """Where a segment of a training begins and ends: the objective loads its state from `load`, unless that
    is None, and saves it to `save`, as a file or a folder."""

    def __init__(self, load: Optional[Path], save: Path, member: int, generation: int):
        self.load = load
        """What an earlier segment has saved; None: the training begins."""
        self.save = save
        """A path in a folder that is there; nothing is at it yet."""
        self.member = member
        """Which training of the population this is, from 0."""
        self.generation = generation
        """Which of its segments this is, from 0."""

    def environment(self) -> Dict[str, str]:
        """What a program gets instead: HPO_CHECKPOINT_SAVE, HPO_CHECKPOINT_LOAD unless the training begins,
        HPO_MEMBER and HPO_GENERATION."""
        load = {} if self.load is None else {"HPO_CHECKPOINT_LOAD": str(self.load)}
        return {
            "HPO_CHECKPOINT_SAVE": str(self.save), "HPO_MEMBER": str(self.member),
            "HPO_GENERATION": str(self.generation), **load,
        }  # fmt: skip

    def clear(self) -> None:
        """Removes what a try before has left at `save`."""
        _remove(self.save)

    def __repr__(self) -> str:
        return f"<Checkpoint member: {self.member}, generation: {self.generation}, load: {self.load}>"


class PbtAlgorithm(BaseAlgorithm):
    """Trains `population` configurations in `generations` segments each. After a segment, a training among
    the worst `quantile` goes on from a checkpoint of one of the best, with settings near to its."""

    OPTIONS: ClassVar[Dict[str, Any]] = {
        "population": 8, "generations": 10, "quantile": 0.25, "resample": 0.25, "seed": 0, "folder": None,
    }  # fmt: skip

    def get_session(self, space: Structure, service: ThreadService) -> BaseSession:
        """Wrong settings are noticed here."""
        options = self.options
        for name in ("population", "generations", "seed"):
            value = options[name]
            if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**63:
                raise ValueError(f"{name} must be a whole number from 0 on, not {value!r}")
        if self.max_steps is not None:
            raise ValueError("pbt runs population x generations steps: set those, not max_steps")
        native = _native.TunePbt(
            space.spaces(),
            {
                "population": options["population"], "generations": options["generations"],
                "quantile": float(options["quantile"]), "resample": float(options["resample"]),
                "seed": options["seed"], "maximize": self.opt_direction == OptimizeDirection.MAXIMIZE,
            },
        )  # fmt: skip
        return PbtSession(self, space, service, native, _opened(options["folder"]))


def _opened(folder: Any) -> Path:
    """A folder for checkpoints; a temporary one ends with the program."""
    if folder is None:
        made = Path(tempfile.mkdtemp(prefix="divisi-pbt-"))
        atexit.register(shutil.rmtree, made, True)
        return made
    path = Path(os.path.abspath(folder))
    path.mkdir(parents=True, exist_ok=True)
    if any(path.iterdir()):
        raise ValueError(f"the folder of checkpoints {str(path)!r} is not empty: choose another one")
    return path


class PbtSession(BaseSession):
    """Asks for segments as members become free."""

    def __init__(
        self,
        algorithm: BaseAlgorithm,
        space: Structure,
        service: ThreadService,
        pbt: _native.TunePbt,
        folder: Path,
    ):
        super().__init__(algorithm, space, service)
        self._pbt = pbt
        self._folder = folder
        self._told = 0  # segments that have ended
        self._guard = threading.Lock()
        # Guarded by it, the steps that run:
        self._checkpoints: Dict[int, Checkpoint] = {}

    def produce(self) -> None:
        """Until all segments were run."""
        while not self._pbt.done():
            self._service.reserve()
            told = self._told
            segment = self._pbt.ask()
            if segment is None:
                self._service.give_back()
                # All members run, or those that do not are done: something must end first.
                self._service.wait_until(lambda: self._told != told or self._pbt.done())
                continue
            number, member, generation, values, parent = segment
            load = self._path(parent) if parent else None
            with self._guard:
                self._checkpoints[number] = Checkpoint(load, self._path(number), member, generation)
            # Numbers of steps are those of the engine: nobody else submits.
            self._service.submit(self.space.config(values))

    def second_argument(self, task: Task) -> Any:
        """The objective gets (configuration, checkpoint)."""
        with self._guard:
            return self._checkpoints[task.task_id]

    def on_success(self, task: Task, value: float) -> None:
        """A segment has ended well, if it has saved its state."""
        saved = self._path(task.task_id).exists()
        self._tell(task, value if saved else math.nan)
        if not saved:
            raise FileNotFoundError(
                f"step {task.task_id} saved no checkpoint: the objective must write {self._path(task.task_id)}"
            )

    def on_failure(self, task: Task, error: BaseException) -> None:
        """The member copies another one."""
        self._tell(task, math.nan)

    def _path(self, number: int) -> Path:
        return self._folder / str(number)

    def _tell(self, task: Task, value: float) -> None:
        self._pbt.tell(task.task_id, value)
        self._told += 1  # steps end one at a time
        with self._guard:
            del self._checkpoints[task.task_id]
            loaded = {int(one.load.name) for one in self._checkpoints.values() if one.load is not None}
            needed = loaded | set(self._pbt.needed()) | set(self._checkpoints)
        for path in self._folder.iterdir():
            if path.name.isdigit() and int(path.name) not in needed:
                _remove(path)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
