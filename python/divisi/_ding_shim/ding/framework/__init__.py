"""The task, its events, and the processes it runs in."""

from .context import Context, OfflineRLContext, OnlineRLContext
from .event_loop import EventLoop
from .parallel import Parallel
from .supervisor import Supervisor

# After its module, whose name it shares: `from ding.framework import task` means the object.
from .task import Task, VoidMiddleware, task  # isort: skip
from ._init import ding_init  # isort: skip

__all__ = [
    "Context",
    "EventLoop",
    "OfflineRLContext",
    "OnlineRLContext",
    "Parallel",
    "Supervisor",
    "Task",
    "VoidMiddleware",
    "ding_init",
    "task",
]
