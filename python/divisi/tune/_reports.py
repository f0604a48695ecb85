"""What a trial that is a program reports while it runs: lines of its metrics file, and TensorBoard's."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import threading
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, Iterator, List, Mapping, Optional, Tuple

from .. import _native
from ..errors import Error
from ._current import METRICS_FILE, Trial, checked_step, chosen_value

_LOG = logging.getLogger()
_POLL_S = 0.2  # how long a report may lie in a file
_MOST_BYTES = 1 << 20  # of a file that are looked at in one go
_LONGEST_LINE = 1 << 16
EVENT_FILES = "events.out.tfevents.*"
"""The names of TensorBoard's files."""


class MetricsLines:
    """Understands lines ``{"step": n, "values": {...}}``; what is no report is left out."""

    def __init__(self, name: str):
        self._name = name  # of their file, in messages
        self.complaint = ""
        """Why the first bad line was left out."""

    def parse(self, lines: Iterable[bytes]) -> List[Dict[str, Any]]:
        """The reports of whole lines."""
        reports: List[Dict[str, Any]] = []
        for line in lines:
            if len(line) > _LONGEST_LINE:
                self.complain(f"a line has more than {_LONGEST_LINE} bytes")
            elif line.strip():
                self._parse(line, reports)
        return reports

    def _parse(self, line: bytes, reports: List[Dict[str, Any]]) -> None:
        try:
            report = json.loads(line)
            step = checked_step(report["step"], "of a report")
            values = report["values"]
            if not isinstance(values, dict):
                raise TypeError
            reports.append({"step": step, "values": values})
        except (ValueError, TypeError, KeyError, IndexError, RecursionError):
            text = line[:80].decode("utf-8", "replace")
            self.complain(f'{text!r} is not {{"step": number, "values": {{name: number}}}}')

    def complain(self, why: str) -> None:
        """Once: the others are like it."""
        self.complaint = self.complaint or f"{self._name}: {why}; further such lines are not told"


class MetricsFile(MetricsLines):
    """Reads the lines that a program appends to a file."""

    def __init__(self, path: Path):
        super().__init__(str(path))
        self._path = path
        self._place = 0
        self._rest = b""  # of a line that is not whole yet
        self._overlong = False

    def read(self) -> List[Dict[str, Any]]:
        """The lines that were added since; what is no report is left out."""
        try:
            with open(self._path, "rb") as file:
                file.seek(self._place)
                added = file.read(_MOST_BYTES)
        except FileNotFoundError:
            return []
        self._place += len(added)
        *lines, self._rest = (self._rest + added).split(b"\n")
        if lines and self._overlong:  # the end of a line of which the beginning was dropped
            self._overlong = False
            self.complain(f"a line has more than {_LONGEST_LINE} bytes")
            del lines[0]
        if len(self._rest) > _LONGEST_LINE:
            self._rest, self._overlong = b"", True
        return self.parse(lines)


class EventFolder:
    """Reads a tag of TensorBoard's files under folders that may not be there yet."""

    def __init__(self, folders: Callable[[], List[Path]], tag: str, since: float):
        self._folders = folders
        self._tag = tag
        self._since = since
        self._readers: Dict[Path, _native.ScalarReader] = {}
        self.complaint = ""
        """Why the first file could not be read further."""

    def read(self) -> List[Dict[str, Any]]:
        """The values that were added since, as reports."""
        reports = []
        for folder in self._folders():
            for path in sorted(folder.rglob(EVENT_FILES)):
                reports += self._read_file(path)
        return reports

    def _read_file(self, path: Path) -> List[Dict[str, Any]]:
        try:
            if path not in self._readers:
                if path.stat().st_mtime < self._since:  # of an earlier run
                    return []
                self._readers[path] = _native.ScalarReader(str(path))
            rows = self._readers[path].read()
        except (Error, OSError) as error:
            self.complaint = self.complaint or str(error)
            return []
        return [
            {"step": step, "values": {self._tag: value}}
            for tag, step, value, _ in rows if tag == self._tag and step >= 0
        ]  # fmt: skip


class ReportSettings:
    """Where a scheduler's programs report, and which of their values counts."""

    def __init__(
        self, prune_on: Optional[str] = None, tb_dir: Optional[str] = None, tb_tag: Optional[str] = None
    ):
        for name, value in (("prune_on", prune_on), ("tb_dir", tb_dir), ("tb_tag", tb_tag)):
            if value is not None and not isinstance(value, str):
                raise ValueError(f"{name} is a text, not {value!r}")
        if tb_dir is not None and tb_tag is None:
            raise ValueError("tb_dir says where TensorBoard's files are: tb_tag must say which value counts")
        self.prune_on, self.tb_dir, self.tb_tag = prune_on, tb_dir, tb_tag


class TrialReports:
    """Hands the reports of one program to its trial."""

    def __init__(self, trial: Trial, prune_on: Optional[str], name: str):
        self._trial, self._prune_on, self._name = trial, prune_on, name
        self._complained = False

    def take(self, reports: Iterable[Mapping[str, Any]], complaints: Iterable[str] = ()) -> bool:
        """Whether the trial should end. Steps that are not beyond the last one are left out; without
        a new one it is not judged again."""
        taken = [self._take(report["step"], report["values"]) for report in reports]
        for complaint in complaints:
            if complaint:
                self._complain(complaint)
        return any(taken) and self._trial.should_prune()

    def _take(self, step: int, values: Mapping[str, Any]) -> bool:
        """Whether the trial had to be told."""
        value = chosen_value(values, self._prune_on, self._trial.metric)
        if value is None:
            wanted = self._prune_on if self._prune_on is not None else self._trial.metric
            have = ", ".join(map(str, values)) or "nothing"
            self._complain(f"a report has {have}, and no number {wanted!r}: set prune_on to one of its names")
            return False
        if self._trial.last_step is not None and step <= self._trial.last_step:
            return False
        self._trial.report(value, step)
        return True

    def _complain(self, why: str) -> None:
        if not self._complained:
            self._complained = True
            _LOG.warning(f"Scheduler: reports of {self._name}: {why}")


class Follower:
    """Follows the reports of one running program, and ends it if it is pruned."""

    def __init__(
        self,
        trial: Trial,
        sources: List[Any],
        prune_on: Optional[str],
        name: str,
        end: Callable[[], None],
    ):
        self._sources, self._name = sources, name
        self._reports = TrialReports(trial, prune_on, name)
        self._end = end
        self._stop = threading.Event()
        self.pruned = False
        """Whether the program was ended."""

    @contextlib.contextmanager
    def following(self) -> Iterator[None]:
        """While the program runs. Its last reports are read at the end."""
        thread = threading.Thread(target=self._follow, name=f"divisi-reports-{self._name}", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._stop.set()
            thread.join()
            if not self.pruned:
                while self._read()[0]:
                    pass

    def _follow(self) -> None:
        while not self._stop.wait(_POLL_S):
            if self._read()[1]:
                self.pruned = True
                self._end()
                return

    def _read(self) -> Tuple[bool, bool]:
        """Whether there was anything new, and whether the program should end."""
        found = [report for source in self._sources for report in source.read()]
        return bool(found), self._reports.take(found, [source.complaint for source in self._sources])


def metrics_path(environment: Mapping[str, str]) -> Path:
    """Where a program with this environment reports."""
    return Path(os.path.abspath(environment[METRICS_FILE]))
