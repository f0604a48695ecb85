"""Our side of the Python benchmark: the public API, in the shape that workload.py drives."""
import functools

from divisi import EventLoop, Parallel, task

__all__ = ["EventLoop", "Node", "run"]


class Node:
    """The task of this worker."""

    def __enter__(self):
        task.start(async_mode=False).__enter__()
        self.local_id = task.router.local_id
        self.on = task.on
        self.emit = functools.partial(task.emit, only_remote=True)
        return self

    def __exit__(self, *error):
        task.__exit__(*error)


def run(main, workers, args=(), interval=0):
    """Runs main(*args) in that many workers; returns when all have ended."""
    Parallel.runner(n_parallel_workers=workers, startup_interval=interval)(main, *args)
