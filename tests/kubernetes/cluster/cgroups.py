"""Cgroups of an instance: one folder in each hierarchy, with all pods below it.

Hybrid machines (version 1 controllers, each a hierarchy, beside a version 2 without them) and pure version 2
machines both work by folders; on version 2 the controllers must also be passed down from the root.
"""

import contextlib
import os
import pathlib

from .problem import wait_until

PREFIX = "divisi-kubernetes-"


def hierarchies():
    """(mount point, is version 2) of each."""
    found = []
    for line in pathlib.Path("/proc/self/mountinfo").read_text().splitlines():
        left, _, right = line.partition(" - ")
        kind = right.split()[0]
        if kind in ("cgroup", "cgroup2"):
            found.append((pathlib.Path(left.split()[4]), kind == "cgroup2"))
    return found


def create(name):
    """Makes them, and returns the path that the kubelet knows them by."""
    for root, version2 in hierarchies():
        if version2:
            controllers = (root / "cgroup.controllers").read_text().split()
            for controller in controllers:
                with contextlib.suppress(OSError):  # some cannot be passed on here; the kubelet says which it misses
                    (root / "cgroup.subtree_control").write_text(f"+{controller}")
        folder = root / (PREFIX + name)
        folder.mkdir(exist_ok=True)
        for file in ("cpuset.cpus", "cpuset.mems"):  # begin empty in version 1, which admits no process
            if not version2 and (root / file).exists():
                (folder / file).write_text((root / file).read_text())
    return "/" + PREFIX + name


def folders(name):
    """All that exist, children first."""
    found = []
    for root, _ in hierarchies():
        for folder, _, _ in os.walk(root / (PREFIX + name), topdown=False):
            found.append(pathlib.Path(folder))
    return found


def remove(name):
    """After the last process is gone. The kernel may need a moment until it lets go of a folder."""

    def removed():
        for folder in folders(name):
            with contextlib.suppress(OSError):
                folder.rmdir()
        return not folders(name)

    wait_until(f"the cgroups {PREFIX}{name} to be empty", removed, 20)
