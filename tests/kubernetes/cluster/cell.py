"""Cell: the namespaces that a whole cluster lives in, so that it leaves no trace outside.

  pid    its init is our `pause`; when that dies, the kernel kills everything else in the cell
  mount  /var is a folder of the instance, /run a fresh tmpfs: the programs use their usual paths; pod
         volumes, overlays and pod network namespaces are mounted in here only
  net    interfaces, routes, iptables and ports of the node; no link leads out of it
  ipc, uts

What no namespace hides, the kubelet's sysctls and the cgroups, is dealt with in _mask_tunables() and in
cgroups.py.
"""

import ctypes
import os
import pathlib

from . import processes
from .problem import Problem

_libc = ctypes.CDLL(None, use_errno=True)

# <linux/sched.h>, <sys/mount.h>
CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWIPC = 0x00020000, 0x04000000, 0x08000000
CLONE_NEWPID, CLONE_NEWNET = 0x20000000, 0x40000000
MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_BIND = 2, 4, 8, 4096
MS_REC, MS_PRIVATE, MS_SHARED = 16384, 1 << 18, 1 << 20

# Of the whole machine, and the kubelet sets them unless they are so already. In the cell they look so.
KERNEL_TUNABLES = {
    "vm/overcommit_memory": "1",
    "vm/panic_on_oom": "0",
    "kernel/panic": "10",
    "kernel/panic_on_oops": "1",
    "kernel/keys/root_maxkeys": "1000000",
    "kernel/keys/root_maxbytes": "25000000",
}


def _check(result, what):
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def _mount(source, target, kind=None, flags=0, options=None):
    encode = lambda text: None if text is None else os.fsencode(text)  # noqa: E731
    _check(_libc.mount(encode(source), encode(target), encode(kind), flags, encode(options)), f"mount {target}")


class Cell:
    """Known by its init process. enter() and call() need root, like create()."""

    def __init__(self, record):
        self.record = record

    @staticmethod
    def create(init, folder, record_path, log_path):
        if os.geteuid() != 0:
            raise Problem("a node needs root for its namespaces: use sudo, or --control-plane-only")
        var, tunables = folder / "var", folder / "tunables"
        for path in (var / "lib", var / "log", var / "tmp", tunables):
            path.mkdir(parents=True)
        (var / "run").symlink_to("/run")
        for name, value in KERNEL_TUNABLES.items():
            (tunables / name.replace("/", ".")).write_text(value + "\n")

        def leave_the_machine():
            flags = CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWUTS
            _check(_libc.unshare(flags), "unshare")
            _mount("none", "/", flags=MS_REC | MS_PRIVATE)
            _mount(var, "/var", flags=MS_BIND)
            _mount("tmpfs", "/run", "tmpfs", MS_NOSUID | MS_NODEV, "mode=755")

        def furnish():
            _mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC)
            _mask_tunables(tunables)
            # Shared among the namespaces that come from this one: a volume may ask for that.
            _mount("none", "/", flags=MS_REC | MS_SHARED)

        record = processes.spawn([init], record_path, log_path, environment={}, outer=leave_the_machine, inner=furnish)
        return Cell(record)

    def enter(self):
        """The caller changes its namespaces; of the pid namespace only its children are part."""
        if not self.record.alive():
            raise OSError(f"the cell's init, process {self.record.pid}, is gone")
        kinds = ("net", "ipc", "uts", "pid", "mnt")  # mnt last: it takes this /proc away
        descriptors = [os.open(f"/proc/{self.record.pid}/ns/{kind}", os.O_RDONLY) for kind in kinds]
        for kind, descriptor in zip(kinds, descriptors):
            _check(_libc.setns(descriptor, 0), f"setns {kind}")
            os.close(descriptor)

    def call(self, function):
        """Runs the function in a child inside the cell; true if it returned a true value. What it prints
        or raises is lost: it is for questions."""
        child = os.fork()
        if child == 0:
            code = 1
            try:
                self.enter()
                code = 0 if function() else 1
            finally:
                os._exit(code)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def _mask_tunables(folder):
    for name in KERNEL_TUNABLES:
        target = pathlib.Path("/proc/sys", name)
        if target.exists():
            _mount(folder / name.replace("/", "."), target, flags=MS_BIND)
