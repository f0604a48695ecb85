"""Where things are: one cache for the programs, one state folder for each instance.

The state folder is always under /tmp and short: Unix sockets in it have at most 107 characters of path,
and a cell covers /var and /run with folders of its own.
"""

import contextlib
import fcntl
import os
import pathlib
import re
import stat

from .problem import Problem

HERE = pathlib.Path(__file__).resolve().parent.parent  # tests/kubernetes
NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,22}[a-z0-9])?")


def cache_root():
    base = os.environ.get("XDG_CACHE_HOME") or str(pathlib.Path.home() / ".cache")
    return pathlib.Path(base) / "divisi" / "kubernetes"


def check_name(name):
    if not NAME.fullmatch(name):
        raise Problem(f"'{name}' cannot name an instance: use up to 24 of a-z, 0-9 and -, not - at either end")
    return name


def state_root():
    """Ours alone: a folder that somebody else put there could lead our rm -r anywhere."""
    root = pathlib.Path(f"/tmp/divisi-kubernetes-{os.getuid()}")
    root.mkdir(mode=0o700, exist_ok=True)
    info = root.lstat()
    if not stat.S_ISDIR(info.st_mode) or info.st_uid != os.getuid():
        raise Problem(f"{root} is not a folder of this user: remove it and try again")
    return root


def state_folder(name):
    return state_root() / check_name(name)


def instances():
    return sorted(path.name for path in state_root().iterdir() if path.is_dir() and NAME.fullmatch(path.name))


@contextlib.contextmanager
def locked(path, wait=None, remove=False):
    """Holds an exclusive lock on a file beside what it guards. Without `wait` a held lock is a Problem;
    with it, wait() is called once and the lock is waited for. Daemons do not inherit it. `remove` takes
    the file away at the end; whoever waited for it then locks a new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    while True:
        with open(path, "w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if wait is None:
                    raise Problem(f"'{path.stem}' is in the hands of another process: wait until it is done") from None
                wait()
                fcntl.flock(file, fcntl.LOCK_EX)
            if not _same_file(file, path):
                continue
            try:
                yield
            finally:
                if remove:
                    path.unlink()
            return


def _same_file(file, path):
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False
