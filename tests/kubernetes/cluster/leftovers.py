"""What instances have left on this machine: processes, mounts, interfaces, cgroups, files.

Other work goes on on the same machine, so things are told by marks that only an instance has: its state
folder, its cgroup name, its namespaces. Interfaces and sysctls of the host have none, but an instance never
changes any: compare host() before and after.
"""

import os
import pathlib

from . import cgroups
from .cell import KERNEL_TUNABLES
from .paths import state_folder, state_root
from .processes import start_time


def _living():
    """No zombies: they have nothing left but a number, until the machine's init takes that."""
    for path in pathlib.Path("/proc").iterdir():
        if path.name.isdigit() and start_time(path.name) is not None:
            yield path


def _text(path):
    try:
        return path.read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:  # gone, or a kernel thread
        return ""


def _namespace(process, kind):
    try:
        return os.readlink(process / "ns" / kind)
    except OSError:
        return ""


class Namespaces(set):
    """Names of namespaces, which are held: the kernel would give the numbers of those that are gone to new ones."""

    def __init__(self):
        super().__init__()
        self._held = []

    def hold(self, path):
        try:
            self._held.append(os.open(path, os.O_RDONLY | os.O_CLOEXEC))
        except OSError:  # the process is gone
            return
        self.add(os.readlink(f"/proc/self/fd/{self._held[-1]}"))

    def __del__(self):
        for descriptor in self._held:
            os.close(descriptor)


def namespaces_of(pid):
    """Of a cell's init: what to look for when the cell is gone."""
    namespaces = Namespaces()
    for kind in ("pid", "net", "mnt"):
        namespaces.hold(pathlib.Path("/proc", str(pid), "ns", kind))
    return namespaces


def processes(name, namespaces=frozenset()):
    """Those that name the state folder, or live in one of the namespaces."""
    mark = f"{state_folder(name)}/"
    found = []
    for process in _living():
        if process.name == str(os.getpid()):
            continue
        command = _text(process / "cmdline")
        inside = any(_namespace(process, kind) in namespaces for kind in ("pid", "net", "mnt"))
        if inside or mark in command or f"HOME={mark[:-1]} " in _text(process / "environ") + " ":
            found.append(f"process {process.name}: {command[:150]}")
    return found


def mounts(name):
    """In any mount namespace that a process still holds."""
    marks = (f"{state_folder(name)}", cgroups.PREFIX + name + "/")
    found = set()
    for process in _living():
        for line in _text(process / "mountinfo").splitlines():
            if any(mark in line for mark in marks):
                found.add(f"mount {line}")
    return sorted(found)


def host():
    """What namespaces keep away from the host: interfaces that it did not have, sysctls that it had otherwise."""
    names = {f"interface {path.name}" for path in pathlib.Path("/sys/class/net").iterdir()}
    return names | {f"{name} = {_text(pathlib.Path('/proc/sys', name))}" for name in KERNEL_TUNABLES}


def of(name, namespaces=frozenset()):
    """All that is left of an instance, a line each."""
    files = [f"file {path}" for path in state_root().glob(f"{name}*") if path.name in (name, f"{name}.lock")]
    groups = [f"cgroup {path}" for path in cgroups.folders(name)]
    return processes(name, namespaces) + mounts(name) + groups + files
