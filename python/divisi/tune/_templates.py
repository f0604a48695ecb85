"""A trial's main file: the template with the configuration written in front of its main guard."""

from __future__ import annotations

import json
import logging
import math
import os
import re
import subprocess
import threading
from pathlib import Path
from typing import Any, Dict, Iterator, List, Mapping, Sequence, Tuple

_GUARD = re.compile(r"""if\s+__name__(?:\s*==\s*|\s+is\s+)(['"])__main__\1\s*:""")
_DEPTH = 64
_CHECK_S = 120.0


def literal(value: Any, depth: int = 0) -> str:
    """`value` as Python source that gives it back. Raises ValueError for what has no literal."""
    if depth > _DEPTH:
        raise ValueError("a configuration that is nested too deeply, or contains itself")
    if value is None or isinstance(value, (bool, str, bytes)):
        return _quoted(value) if isinstance(value, str) else repr(value)
    if isinstance(value, int):
        return repr(int(value))
    if isinstance(value, float):
        number = float(value)
        if math.isnan(number) or math.isinf(number):
            return f'float("{number!r}")'
        return repr(number)
    if isinstance(value, dict):
        entries = (f"{literal(k, depth + 1)}: {literal(v, depth + 1)}" for k, v in value.items())
        return "{" + ", ".join(entries) + "}"
    if isinstance(value, (list, tuple, set, frozenset)):
        return _sequence(value, [literal(item, depth + 1) for item in value])
    raise ValueError(f"a value of type {type(value).__name__} cannot be written into a program: {value!r}")


def _quoted(text: str) -> str:
    return json.dumps(text) if text.isprintable() and text.isascii() else repr(text)


def _sequence(value: Any, items: List[str]) -> str:
    inside = ", ".join(items)
    if isinstance(value, list):
        return f"[{inside}]"
    if isinstance(value, tuple):
        return f"({inside},)" if len(items) == 1 else f"({inside})"
    name = "set" if isinstance(value, set) else "frozenset"
    return f"{name}([{inside}])"


def leaves(config: Dict[Any, Any], path: Tuple[Any, ...] = ()) -> Iterator[Tuple[Tuple[Any, ...], Any]]:
    """Every leaf of nested dicts with its path, in their order."""
    if len(path) > _DEPTH:
        raise ValueError("a configuration that is nested too deeply, or contains itself")
    for key, value in config.items():
        if isinstance(value, dict) and value:
            yield from leaves(value, (*path, key))
        else:
            yield (*path, key), value


def overrides(config: Dict[Any, Any], task_name: str) -> List[str]:
    """The lines that change `main_config`."""
    lines = []
    named = dict(config) if "exp_name" in config else {**config, "exp_name": task_name}
    for path, value in leaves(named):
        place = "".join(f"[{literal(key)}]" for key in path)
        lines.append(f"main_config{place} = {literal(value)}\n")
    return lines


def guard_line(lines: Sequence[str]) -> int:
    """Where the main guard is. Raises ValueError: no guard, or no `main_config`."""
    place = next((i for i, line in enumerate(lines) if _GUARD.match(line)), None)
    if place is None:
        raise ValueError('the template has no line `if __name__ == "__main__":`')
    if not any(line.startswith("main_config") for line in lines):
        raise ValueError("the template has no line that begins with `main_config`")
    return place


def generate(template: str, config: Dict[Any, Any], task_name: str) -> List[str]:
    """The lines of the main file, each with its newline."""
    lines = [line if line.endswith("\n") else line + "\n" for line in template.splitlines(keepends=True)]
    place = guard_line(lines)
    return [*lines[:place], *overrides(config, task_name), *lines[place:]]


_CHECK = """
import json, sys
source, file, paths = json.load(sys.stdin)
scope = {"__name__": "template", "__file__": file}
exec(compile(source, file, "exec"), scope)
missing = []
for index, path in enumerate(paths):
    place = scope["main_config"]
    for key in path:
        try:
            place = place[key]
        except (KeyError, IndexError, TypeError):
            missing.append(index)
            break
print("\\n" + json.dumps(missing))
"""


class PathCheck:
    """Whether what is tuned exists in the template's `main_config`. Runs the template up to its guard
    as trials run it: with their interpreter and environment, in their folder."""

    def __init__(
        self, template: str, text: str, python: str, env: Mapping[str, str], folder: Path, missing: str
    ):
        self._template, self._python, self._env, self._folder = template, python, env, folder
        self._missing = missing
        lines = text.splitlines(keepends=True)
        self._source = "".join(lines[: guard_line(lines)])
        self._lock = threading.Lock()
        # Guarded by the lock:
        self._lost: Dict[Tuple[Any, ...], bool] = {}  # of each path that was looked for
        self._failure = ""  # why the template could not be run

    def check(self, config: Dict[Any, Any]) -> None:
        """Looks for each path once. What is not found is a warning at that time, or with
        missing="error" a ValueError, now and for each later configuration that has it."""
        if self._missing == "ok":
            return
        paths = [path for path, _ in leaves(config) if path != ("exp_name",)]
        with self._lock:
            new = [path for path in paths if path not in self._lost]
            if new and not self._failure:
                self._look_for(new)
            else:
                new = []
            lost = [path for path in paths if self._lost.get(path)]
            failure = self._failure
        names = ", ".join(".".join(map(str, path)) for path in lost)
        text = failure
        if not failure and lost:
            text = f"main_config of {self._template} has no {names}: nothing reads what is tuned"
        if text and self._missing == "error":
            raise ValueError(f"Scheduler: {text}")
        if text and new:
            logging.getLogger().warning(f"Scheduler: {text}")

    def _look_for(self, paths: List[Tuple[Any, ...]]) -> None:
        try:
            lost = set(self._run(paths))
        except (OSError, ValueError, TypeError, IndexError, subprocess.SubprocessError) as error:
            self._failure = f"{self._template} could not be checked: {error}"
            return
        self._lost.update({path: index in lost for index, path in enumerate(paths)})

    def _run(self, paths: List[Tuple[Any, ...]]) -> List[int]:
        done = subprocess.run(
            [self._python, "-c", _CHECK], cwd=self._folder, env={**os.environ, **self._env},
            input=json.dumps([self._source, str(self._folder / "template.py"), paths]),
            capture_output=True, text=True, timeout=_CHECK_S, check=False,
        )  # fmt: skip
        if done.returncode != 0:
            last = (done.stderr.strip().splitlines() or ["no message"])[-1]
            raise ValueError(f"it fails before its main guard: {last}")
        try:
            return [int(index) for index in json.loads(done.stdout.splitlines()[-1])]
        except (ValueError, IndexError):
            raise ValueError("it ends before its main guard") from None
