"""The task."""

from divisi.task import Role, Task, VoidMiddleware, task

__all__ = ["Role", "Task", "VoidMiddleware", "task"]
