"""Trials as programs: the names of `divisi.tune.scheduler`."""

from divisi.tune.scheduler import Scheduler, Task, run_scheduler, run_scheduler_k8s, run_scheduler_local

__all__ = ["Scheduler", "Task", "run_scheduler", "run_scheduler_k8s", "run_scheduler_local"]
