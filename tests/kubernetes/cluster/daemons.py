"""Daemons: the processes of one instance, by name, with a record and a log each.

They run on the host or in the instance's cell. When something does not come up, the error names the daemon
that died, or the log to read.
"""

import os

from . import processes
from .cell import Cell
from .problem import Problem, wait_until
from .toolchain import last_line


class Daemons:
    def __init__(self, folder, programs):
        self.folder = folder
        self.programs = programs
        self.cell = None
        for name in ("pids", "log"):
            (folder / name).mkdir(mode=0o700)

    def make_cell(self):
        self.cell = Cell.create(self.programs["pause"], self.folder, self._record("cell"), self.log("cell"))

    def log(self, name):
        return self.folder / "log" / f"{name}.log"

    def _record(self, name):
        return self.folder / "pids" / name

    def start(self, name, *arguments, program=None, keep=()):
        environment = {"PATH": self.programs.path, "HOME": str(self.folder), "LANG": "C.UTF-8"}
        argv = [str(program or self.programs[name]), *map(str, arguments)]
        processes.spawn(argv, self._record(name), self.log(name), environment=environment, keep=keep,
                        outer=self.cell.enter if self.cell else None)

    def died(self):
        """The name of one that runs no more, or None."""
        for name, record in records(self.folder).items():
            if not record.alive():
                return name
        return None

    def check(self):
        name = self.died()
        if name:
            raise Problem(f"{name} ended: {self._last_words(name)} (all of it: {self.log(name)})")

    def wait(self, what, predicate, seconds, log):
        """Waits for the predicate while all daemons live; `log` is the daemon to look at if it stays false."""
        try:
            return wait_until(what, predicate, seconds, self.check)
        except Problem as problem:
            if self.died():
                raise
            raise Problem(f"{problem}; see {self.log(log)}") from None

    def _last_words(self, name):
        try:
            with open(self.log(name), "rb") as log:
                log.seek(max(0, os.fstat(log.fileno()).st_size - 4096))
                return last_line(log.read().decode(errors="replace"))[:300]
        except FileNotFoundError:
            return "without a word"


def records(folder):
    """Record by daemon, in the order they were started."""
    try:
        files = sorted((folder / "pids").iterdir(), key=lambda path: (path.stat().st_mtime_ns, path.name))
    except FileNotFoundError:
        return {}
    found = {path.name: processes.Record.read(path) for path in files}
    return {name: record for name, record in found.items() if record}


def stop_all(folder):
    """Ends every process of the instance, whatever state it is in. In a cell, ending the init ends all and
    the order does not matter; elsewhere the last started goes first, so that none misses another."""
    found = records(folder)
    cell = found.pop("cell", None)
    if cell:
        processes.stop(cell)
    for record in reversed(found.values()):
        processes.stop(record)
