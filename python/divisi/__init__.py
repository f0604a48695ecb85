"""Divisi: events and middleware between threads, processes and hosts.

>>> from divisi import task, OnlineRLContext
>>> with task.start(ctx=OnlineRLContext()):
...     task.on("greeting", lambda msg: print("Get msg: %s" % msg))
...     task.emit("greeting", "Hi")
Get msg: Hi
"""

from .context import Context, OfflineRLContext, OnlineRLContext
from .errors import Error, TimeoutError, UsageError, WorkerError
from .event_loop import EventLoop
from ._frozen import frozen
from .parallel import Parallel
from .progress import report_progress
from .step_timer import StepTimer, epoch_timer
from .supervisor import Supervisor
from .task import Role, Task, VoidMiddleware, suspend, task
from ._waiter import Waiter
from .writer import DistributedWriter
from ._native import version as __version__

__all__ = [
    "Context",
    "DistributedWriter",
    "Error",
    "EventLoop",
    "OfflineRLContext",
    "OnlineRLContext",
    "Parallel",
    "Role",
    "StepTimer",
    "Supervisor",
    "Task",
    "TimeoutError",
    "UsageError",
    "VoidMiddleware",
    "Waiter",
    "WorkerError",
    "epoch_timer",
    "frozen",
    "report_progress",
    "suspend",
    "task",
]
