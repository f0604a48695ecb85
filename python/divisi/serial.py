"""DQN in one process, from a configuration in DI-engine's layout: `ding.entry.serial_pipeline`.

    from divisi.serial import serial_pipeline
    result = serial_pipeline((main_config, create_config), seed=0)

The training is divisi's C++ DQN; there are CartPole and what a DQN can be told of. A key of the
configuration that is not known here is refused by name. docs/tuner.md has the list.
"""

from __future__ import annotations

import itertools
import json
import os
import pickle
import pprint
import runpy
import time
from pathlib import Path
from typing import Any, Dict, IO, List, Mapping, Optional, Sequence, Tuple, Union

from . import _native
from ._event_file import EventFile, scalar_event
from .errors import UsageError

__all__ = ["serial_pipeline"]

_UNLIMITED = int(1e10)  # as in DI-engine
_DEPTH = 80


def serial_pipeline(
    input_cfg: Union[str, Sequence[Mapping[str, Any]]],
    seed: int = 0,
    env_setting: Optional[Sequence[Any]] = None,
    model: Optional[Any] = None,
    max_train_iter: Optional[int] = _UNLIMITED,
    max_env_step: Optional[int] = _UNLIMITED,
    dynamic_seed: Optional[bool] = True,
) -> Dict[str, Any]:
    """Trains until an evaluation reaches `env.stop_value`, or a limit.

    `input_cfg` is `(main_config, create_config)`, or the path of a Python file that defines both.
    Everything is written under `exp_name`; where that exists, under the name with the date and time
    behind it. Returns what it wrote into `result.pkl` there: `stop`, `env_step`, `train_iter`,
    `eval_value`, `eval_value_raw`, `finish_time`.

    Raises `UsageError`, before anything is written, for what is not known here. Ctrl-C ends the
    training; then there is no result.
    """
    for name, given in (("env_setting", env_setting), ("model", model)):
        if given is not None:
            raise UsageError(f"serial_pipeline: {name} is not known here: the environment and the network "
                             "are those of the configuration")  # fmt: skip
    if dynamic_seed is not True and dynamic_seed is not None:
        raise UsageError("serial_pipeline: dynamic_seed=False is not known here: each episode has its own seed")
    main, create = _configurations(input_cfg)
    config = json.loads(_native.serial_config(json.dumps({"main": main, "create": create})))
    config["seed"] = _whole("seed", seed, 0)
    limit = _whole("max_env_step", _UNLIMITED if max_env_step is None else max_env_step, 1)
    config["max_env_step"] = min(config["max_env_step"], limit)
    updates = _whole("max_train_iter", _UNLIMITED if max_train_iter is None else max_train_iter, 1)

    folder = _experiment_folder(str(config["exp_name"]))
    total = {"main": {**main, "exp_name": str(folder), "seed": seed}, "create": create}
    text = f"exp_config = {pprint.pformat(total, sort_dicts=False)}\n"
    (folder / "total_config.py").write_text(text, encoding="utf-8")
    checkpoints = folder / "ckpt"
    checkpoints.mkdir()
    with _Log(folder) as log:
        stop, env_step, train_iter, returns = _native.serial_dqn(
            json.dumps(config), updates, str(checkpoints / "ckpt_best.divisi"),
            str(checkpoints / "ckpt_final.divisi"), log.evaluation,
        )  # fmt: skip
    result = {
        "stop": stop, "env_step": env_step, "train_iter": train_iter,
        "eval_value": sum(returns) / len(returns), "eval_value_raw": returns,
        "finish_time": time.ctime(),
    }  # fmt: skip
    _write_result(folder / "result.pkl", result)
    return result


def _whole(name: str, value: Any, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value < 2**62:
        raise UsageError(f"serial_pipeline: {name} must be a whole number from {least} on, not {value!r}")
    return value


def _configurations(given: Union[str, Sequence[Mapping[str, Any]]]) -> Tuple[Dict[str, Any], Dict[str, Any]]:
    if isinstance(given, (str, os.PathLike)):
        scope = runpy.run_path(os.fspath(given), run_name="<configuration>")
        lost = [name for name in ("main_config", "create_config") if name not in scope]
        if lost:
            raise UsageError(f"{given}: it defines no {' and no '.join(lost)}")
        given = (scope["main_config"], scope["create_config"])
    if not isinstance(given, (tuple, list)) or len(given) != 2:
        raise UsageError("serial_pipeline takes (main_config, create_config), or the path of a file that has both")
    main, create = (_plain(part, name, 0) for part, name in zip(given, ("main_config", "create_config")))
    for part, name in ((main, "main_config"), (create, "create_config")):
        if not isinstance(part, dict):
            raise UsageError(f"{name} is a dict, not {type(part).__name__}")
    return main, create


def _plain(value: Any, place: str, depth: int) -> Any:
    """The value as JSON has it."""
    if depth > _DEPTH:
        raise UsageError(f"{place} contains itself, or is nested too deeply")
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, (int, float)):
        if isinstance(value, float) and not abs(value) < float("inf"):
            raise UsageError(f"{place}={value!r}: expected a finite number")
        return int(value) if isinstance(value, int) else float(value)
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise UsageError(f"{place} has the key {key!r}: keys are text")
        return {key: _plain(item, f"{place}.{key}", depth + 1) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item, f"{place}[{i}]", depth + 1) for i, item in enumerate(value)]
    if type(value).__module__ == "numpy" and getattr(value, "shape", None) == ():
        return _plain(value.item(), place, depth + 1)
    raise UsageError(
        f"{place} is of type {type(value).__name__}: a configuration holds numbers, texts, lists and dicts"
    )


def _experiment_folder(name: str) -> Path:
    """A new folder: the name, or the name with the time behind it, or with a number behind that."""
    dated = f"{name}_{time.strftime('%y%m%d_%H%M%S')}"
    for path in itertools.chain([name, dated], (f"{dated}_{number}" for number in itertools.count(2))):
        try:
            Path(path).mkdir(parents=True)
            return Path(path)
        except FileExistsError:
            continue
        except OSError as error:
            raise UsageError(f"exp_name={name}: {path}: {error.strerror}") from None
    raise AssertionError("there is always a further number")


def _write_result(path: Path, result: Dict[str, Any]) -> None:
    unfinished = path.with_suffix(".pkl.tmp")
    unfinished.write_bytes(pickle.dumps(result, protocol=4))
    os.replace(unfinished, path)


class _Log:
    """What is told of each evaluation: a line on the terminal and in a file, TensorBoard's scalars, and
    the metrics of a tuner that started this program."""

    def __init__(self, folder: Path):
        place = folder / "log" / "evaluator"
        place.mkdir(parents=True)
        self._lines: IO[str] = open(place / "evaluator_logger.txt", "w", encoding="utf-8")
        self._scalars = EventFile(str(folder / "log" / "serial"))
        self._metrics = os.environ.get("HPO_METRICS_FILE", "")

    def __enter__(self) -> "_Log":
        return self

    def __exit__(self, *_: Any) -> None:
        self._lines.close()
        self._scalars.close()

    def evaluation(self, env_step: int, train_iter: int, returns: List[float]) -> None:
        """Called by the training."""
        mean = sum(returns) / len(returns)
        line = f"env_step {env_step}, train_iter {train_iter}: mean return {mean:g} of {len(returns)} episodes"
        print(line, flush=True)
        self._lines.write(line + "\n")
        self._lines.flush()
        self._scalars.write(scalar_event("evaluator_step/eval_episode_return_mean", mean, env_step))
        self._scalars.write(scalar_event("evaluator_iter/eval_episode_return_mean", mean, train_iter))
        if self._metrics:
            with open(self._metrics, "a", encoding="utf-8") as metrics:
                metrics.write(json.dumps({"step": env_step, "values": {"eval_value": mean}}) + "\n")
