"""Trials as programs: each configuration becomes a main file that runs in a process of its own.

    scheduler = run_scheduler_local("template.py", "my_project", max_number_of_running_task=4)
    config, result, metrics = (
        hpo(scheduler.enable_hpo()).grid().max_steps(5).max_workers(4).maximize(R["value"])
        .spaces({"policy": {"lr": uniform(0.1, 1)}}).run()
    )
    scheduler.stop()

A program reports by writing `result.json` or `result.pkl` into the folder that its `exp_name` names,
or JSON into the file that the environment variable HPO_RESULT_FILE names. docs/tuner.md.
"""

from __future__ import annotations

import atexit
import collections
import concurrent.futures
import copy
import logging
import multiprocessing
import os
import queue
import random
import re
import sys
import threading
import time
import weakref
from pathlib import Path
from typing import Any, Deque, Dict, List, Mapping, Optional, Sequence, Tuple, Union

from .. import _native
from . import _inject, _templates
from ._current import Pruned, Trial, current_trial
from ._gpus import GpuSlots
from ._kube_trials import KubeTrials, jobs_on_disk, open_cluster, trials_in_cluster
from ._local_trials import LocalTrials
from ._pbt import Checkpoint
from ._reports import ReportSettings
from ._trials import (
    HPO_ID, RESULT_FORMATS, ResultReader, SchedulerError, SchedulerFull, SchedulerStopped, Task,
    TrialBackend, TrialFailed, TrialSettings, ranges,
)  # fmt: skip

__all__ = [
    "Scheduler", "SchedulerError", "SchedulerFull", "SchedulerStopped", "Task", "TrialFailed",
    "run_scheduler", "run_scheduler_k8s", "run_scheduler_local",
]  # fmt: skip

_LOG = logging.getLogger()


class Scheduler:
    """Runs trials, at most `max_number_of_running_task` at a time. Use `run_scheduler_local`.

    Any thread may submit. As a context manager it stops at the end.

    It fills its slots by itself with what `submit` and `enable_hpo` bring. What comes through
    `define_rl_task`, or through the input queue to `run`, starts with `emit_task` and is finished by
    `check_running_tasks`, as LightTuner does it.
    """

    def __init__(self) -> None:
        self.lock = threading.Condition()
        """Held while the lists below change."""
        # Guarded by the lock:
        self.task_list: List[Task] = []
        """All tasks, by number."""
        self.task_defined_id: List[int] = []
        """Numbers of all tasks."""
        self.task_running_id: List[int] = []
        """Of those that run."""
        self.task_waiting_id: List[int] = []
        """Of those that wait for a slot."""
        self.task_finished_id: List[int] = []
        """Of those that have ended."""
        self.task_success_id: List[int] = []
        """Of those that ended with a result."""
        self.task_abnormal_id: List[int] = []
        """Of those that ended without one."""
        self.task_pruned_id: List[int] = []
        """Of those that were ended because their reports were worse than those of others."""
        self._pruning = False  # whether a trial could be pruned so far
        self.task_reports: List[Dict[str, Any]] = []
        """One for each that has ended."""
        self.finish = False
        """Whether `run` has come to its end."""
        self._futures: Dict[int, "concurrent.futures.Future[Any]"] = {}
        self._queue: Deque[int] = collections.deque()
        self._held: Deque[int] = collections.deque()  # those that wait for `emit_task`
        self._gpus: Optional[GpuSlots] = None
        self._reported = 0  # of task_reports, put on the output queue
        self._closed = False  # takes no new trials
        self._first_id = 0
        self._printed: Optional[List[Tuple[int, ...]]] = None

    def config(
        self,
        task_config_template_path: str,
        dijob_project_name: Optional[str] = None,
        max_number_of_running_task: int = 2,
        max_number_of_tasks: int = 10,
        mode: str = "local",
        time_out: Optional[float] = None,
        naming: str = "flat",
        python: str = sys.executable,
        workdir: str = ".",
        env: Optional[Mapping[str, str]] = None,
        trust_pickle: bool = False,
        grace: float = 10.0,
        on_exists: str = "fail",
        missing: str = "warn",
        require_exit_zero: bool = True,
        retry_on_timeout: bool = False,
        table: str = "lists",
        legacy_ids: bool = False,
        k8s_dijob_yaml_file_path: Optional[str] = None,
        k8s_remote_project_path: Optional[str] = None,
        namespace: Optional[str] = None,
        context: Optional[str] = None,
        kubectl: str = "kubectl",
        lost_after: float = 180.0,
        poll_interval: Optional[float] = None,
        inject: str = "python",
        gpus: Optional[Sequence[Any]] = None,
        slots_per_task: Optional[float] = None,
        keep_files: bool = True,
        result_format: str = "auto",
        mp_queue_input: Any = None,
        mp_queue_output: Any = None,
        prune_on: Optional[str] = None,
        tb_dir: Optional[str] = None,
        tb_tag: Optional[str] = None,
        reporter: Optional[str] = None,
    ) -> "Scheduler":
        """All settings, checked."""
        self._reports = ReportSettings(prune_on, tb_dir, tb_tag)
        for name, value, known in (
            ("mode", mode, ["local", "k8s"]), ("naming", naming, ["flat", "hpo-id"]),
            ("on_exists", on_exists, ["fail", "new", "reuse"]),
            ("missing", missing, ["warn", "error", "ok"]), ("table", table, ["lists", "full", "ids"]),
            ("inject", inject, _inject.WAYS), ("result_format", result_format, RESULT_FORMATS),
        ):  # fmt: skip
            if value not in known:
                raise ValueError(f"{name} is one of {', '.join(known)}: not {value!r}")
        for name, number in (("max_number_of_running_task", max_number_of_running_task),
                             ("max_number_of_tasks", max_number_of_tasks)):  # fmt: skip
            if isinstance(number, bool) or not isinstance(number, int) or number < 1:
                raise ValueError(f"{name} must be a whole number from 1 on, not {number!r}")
        cluster = None
        if reporter is not None and (mode != "k8s" or not isinstance(reporter, str) or not reporter):
            raise ValueError('reporter is the path of divisi-report in the image of a job (mode="k8s"), '
                             f"not {reporter!r} in the mode {mode!r}")  # fmt: skip
        if mode == "k8s":
            if inject != "python" or gpus is not None:
                raise ValueError('inject and gpus are for mode="local": a job gets its main file as a '
                                 "ConfigMap, and its devices from the manifest")  # fmt: skip
            cluster = open_cluster(
                k8s_dijob_yaml_file_path, k8s_remote_project_path, context, namespace, reporter
            )
            dijob_project_name = dijob_project_name or cluster.name()
        project = dijob_project_name or f"dijob-project-{random.SystemRandom().randrange(10**8):08d}"
        if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]*", project):
            raise ValueError(f"{project!r} does not name a project: letters, digits, _, - and . only")
        self._template = os.path.abspath(task_config_template_path)
        if inject == "python":
            template_text = Path(self._template).read_text(encoding="utf-8")
            _templates.guard_line(template_text.splitlines())
        else:
            os.stat(self._template)
            _inject.check_program(self._template)
        if slots_per_task is not None and gpus is None:
            raise ValueError("slots_per_task is a number of gpus: say which ones there are, as gpus=[0, 1]")
        if gpus is not None:
            self._gpus = GpuSlots(gpus, 1 if slots_per_task is None else slots_per_task)
        if poll_interval is not None and (isinstance(poll_interval, bool) or not poll_interval > 0):
            raise ValueError(f"poll_interval must be a number of seconds above 0, not {poll_interval!r}")
        self._poll_interval = 0.2 if poll_interval is None else float(poll_interval)
        self._inject, self._time_out = inject, time_out or None
        self._mode, self._mp_queues = mode, (mp_queue_input, mp_queue_output)
        self._max_running, self._max_tasks = max_number_of_running_task, max_number_of_tasks
        self._naming = naming
        self._retry_on_timeout, self._table = retry_on_timeout, table
        self._legacy_ids = legacy_ids
        self._workdir = Path(workdir).absolute()
        self._open_project(project, on_exists, cluster)
        settings = TrialSettings(
            self._template, self._project, self._workdir, self._folder, naming, python,
            dict(env or {}), grace, time_out or None, require_exit_zero, trust_pickle, inject,
            keep_files, result_format, self._reports,
        )  # fmt: skip
        self._results = ResultReader(self._workdir, self._folder, trust_pickle, result_format)
        self._paths: Optional[_templates.PathCheck] = None
        if inject == "python":
            self._paths = _templates.PathCheck(
                self._template, template_text, python, settings.env, self._folder, missing
            )
        self._backend: TrialBackend = (
            LocalTrials(self, settings)
            if cluster is None
            else KubeTrials(self, settings, cluster, self._first_id + max_number_of_tasks,
                            on_exists == "reuse", poll_interval, lost_after)
        )  # fmt: skip
        atexit.register(_stop_at_exit, weakref.ref(self), os.getpid())
        return self

    def _open_project(
        self, project: str, on_exists: str, cluster: Optional[_native.TrialCluster]
    ) -> None:
        self._project, number = project, 2
        while True:
            self._folder = self._workdir / self._project
            old, place = self._old_trials(), str(self._folder)
            if cluster is not None:
                there = trials_in_cluster(cluster, self._project)
                old, place = {**old, **there}, "the cluster" if there else place
            if cluster is not None and on_exists == "reuse":
                old.update(jobs_on_disk(self._folder))
            if not old or on_exists == "reuse":
                break
            if on_exists == "fail":
                raise SchedulerError(
                    f"{place} holds trials of an earlier run ({', '.join(sorted(old)[:5])}): "
                    'remove them, choose another project name, or set on_exists="new" or "reuse"'
                )
            self._project, number = f"{project}-{number}", number + 1
        self._first_id = max((number + 1 for number in old.values()), default=0)
        self._folder.mkdir(parents=True, exist_ok=True)

    def _old_trials(self) -> Dict[str, int]:
        pattern = re.compile(rf"{re.escape(self._project)}-(?:hpo-id-.*-task-)?(\d+)(?:_.*|-log)?$")
        found = {}
        for place in (self._folder, self._workdir):
            for entry in place.iterdir() if place.is_dir() else []:
                match = pattern.match(entry.name)
                if match and entry.is_dir():
                    found[entry.name.removesuffix("-log")] = int(match.group(1))
        return found

    # --- submitting ---

    def submit(
        self, config: Mapping[Any, Any], hpo_id: Optional[int] = None
    ) -> "concurrent.futures.Future[Any]":
        """Runs a configuration; the future has its result, or raises `TrialFailed` or
        `SchedulerStopped`. Raises `SchedulerFull` and `ValueError`: not a configuration."""
        return self._define(config, hpo_id)[1]

    def _define(
        self, config: Mapping[Any, Any], hpo_id: Optional[int], trial: Optional[Trial] = None,
        environment: Optional[Mapping[str, str]] = None,
    ) -> Tuple[Task, "concurrent.futures.Future[Any]"]:
        info = self._checked(config)
        if self._legacy_ids and hpo_id is not None:
            info[HPO_ID] = hpo_id
        with self.lock:
            task = self._new_task(info, hpo_id)
            task.trial = trial
            task.environment = dict(environment or {})
            self._pruning = self._pruning or (trial is not None and trial.prunes)
            number = self._number(task)
            task.waiting = True
            self.task_waiting_id.append(number)
            self._queue.append(number)
            future = self._futures[number] = _new_future()
            self._fill_slots()
        self.report_status()
        return task, future

    def _checked(self, config: Mapping[Any, Any]) -> Dict[Any, Any]:
        """A copy of a configuration that can be handed to a program."""
        if not isinstance(config, Mapping):
            raise ValueError(f"a configuration is a dict, not {type(config).__name__}")
        info = copy.deepcopy(dict(config))
        _inject.check(self._inject, info)
        if self._paths is not None:
            marks = (HPO_ID, "DI-toolkit-scheduler-hpo-id")
            self._paths.check({key: value for key, value in info.items() if key not in marks})
        return info

    def _new_task(self, info: Dict[Any, Any], hpo_id: Optional[int]) -> Task:
        if self._closed:
            raise SchedulerStopped("the scheduler was stopped")
        if len(self.task_list) >= self._max_tasks:
            raise SchedulerFull(f"max_number_of_tasks ({self._max_tasks}) is reached")
        task = Task()
        named = info if hpo_id is None else {**info, HPO_ID: hpo_id}
        task.define(self._first_id + len(self.task_list), self._project, named, self._naming)
        task.hyper_parameter_info = info
        task.defined_at = time.monotonic()
        self.task_list.append(task)
        number = self._number(task)
        self.task_defined_id.append(number)
        return task

    def _number(self, task: Task) -> int:
        assert task.task_id is not None
        return task.task_id

    def _fill_slots(self) -> None:
        while self._queue and len(self.task_running_id) < self._max_running:
            if not self._start(self._task(self._queue[0])):
                return
            self._queue.popleft()

    def _task(self, number: int) -> Task:
        return self.task_list[number - self._first_id]

    def _start(self, task: Task) -> bool:
        """Begins with a task that waits; whether there was a GPU for it, where it needs one."""
        if self._gpus is not None:
            taken = self._gpus.take()
            if taken is None:
                return False
            task.gpus = taken
        number = self._number(task)
        task.waiting, task.running = False, True
        self.task_waiting_id.remove(number)
        self.task_running_id.append(number)
        task.granted_at = time.monotonic()
        self._backend.start(task)
        return True

    # --- for those that run the trials ---

    def ended(self, task: Task, data: Any, tail: str) -> None:
        """For those that run the trials: it has ended, as `task.status` says."""
        with self.lock:
            if task.status != "success" and task.cancelled:
                task.status = task.cancel_status
            task.outcome, task.ended_at = (data, tail), time.monotonic()
            if self._gpus is not None:
                self._gpus.give_back(task.gpus)
            held = task.manual and not self._closed  # until `check_running_tasks`
            if held:
                self._fill_slots()
                self.lock.notify_all()
        if not held:
            self._settle(task)

    def _settle(self, task: Task) -> None:
        """The task goes from the running to the finished ones; its future is told."""
        number = self._number(task)
        assert task.outcome is not None
        data, tail = task.outcome
        with self.lock:
            if number not in self._futures:
                return
            ok, pruned = task.status == "success", task.status == "pruned"
            task.running, task.finish, task.success, task.normal = False, True, ok, ok or pruned
            if number in self.task_running_id:
                self.task_running_id.remove(number)
                self.task_finished_id.append(number)
            ended = self.task_pruned_id if pruned else self.task_abnormal_id
            (self.task_success_id if ok else ended).append(number)
            result = {"status": task.status, **task.side}
            self.task_reports.append(task.get_report(data, result))
            future = self._futures.pop(number)
            self._fill_slots()
            self.lock.notify_all()
        self.report_status()
        if ok:
            future.set_result(data)
        elif task.status == "cancelled":
            future.set_exception(SchedulerStopped("the trial was cancelled"))
        elif task.status == "pruned":
            future.set_exception(Pruned(f"{task.task_name} was pruned"))
        else:
            future.set_exception(self._failed(task, tail))

    def suspect(self, task: Task) -> None:
        """For those that run the trials: it may be lost."""
        with self.lock:
            if self._number(task) not in self.task_running_id:
                return  # it was given up
            task.running, task.finish = False, True
            self.task_running_id.remove(self._number(task))
            self.task_finished_id.append(self._number(task))
        self.report_status()

    def back(self, task: Task) -> None:
        """For those that run the trials: a suspect runs again."""
        with self.lock:
            if self._number(task) not in self._futures:
                return  # likewise
            task.running, task.finish = True, False
            self.task_finished_id.remove(self._number(task))
            self.task_running_id.append(self._number(task))
        self.report_status()

    def _failed(self, task: Task, tail: str) -> TrialFailed:
        name = f"hpo-id-{task.hpo_id}-task-{task.task_id}"
        if tail:
            how = "failed" if task.exit_code is None else f"ended with exit code {task.exit_code}"
            _LOG.warning(f"Scheduler: {name} {how}: {tail}")
        text = f"Scheduler: {name} is not successful, current status is: {task.status}"
        final = task.status == "time out" and not self._retry_on_timeout
        return TrialFailed(text, task.status, task.exit_code, tail, final)

    # --- what is known ---

    def count_running_tasks(self) -> int:
        """How many run."""
        return len(self.task_running_id)

    def monitor_resource(self) -> bool:
        """Whether another task may start: always, unless there are `gpus` and all of them are taken."""
        with self.lock:
            return self._gpus is None or self._gpus.fits()

    def check_finish(self) -> bool:
        """Whether the limit of tasks is reached and all of them ended with a result."""
        with self.lock:
            full = len(self.task_list) >= self._max_tasks
            return full and all(task.success for task in self.task_list)

    def status_table(self) -> str:
        """The states of all tasks, as a table."""
        with self.lock:
            rows = [[f"task_{state}", self._shown(ids)] for state, ids in self._states()]
        return _native.tune_table(["status", "instances"], rows, True)

    def report_status(self) -> None:
        """Logs the table if anything changed since the last time."""
        with self.lock:
            now = [tuple(ids) for _, ids in self._states()]
            if now == self._printed:
                return
            self._printed = now
            self._send_reports()
            table = self.status_table() if _LOG.isEnabledFor(logging.INFO) else ""
            if table:
                _LOG.info(f"Scheduler: report at time: {time.strftime('%H:%M:%S')}\n{table}")

    def _states(self) -> List[Tuple[str, List[int]]]:
        pruned = [("pruned", self.task_pruned_id)] if self._pruning else []
        return [
            ("defined", self.task_defined_id), ("running", self.task_running_id),
            ("waiting", self.task_waiting_id), ("finished", self.task_finished_id),
            ("success", self.task_success_id), ("abnormal", self.task_abnormal_id), *pruned,
        ]  # fmt: skip

    def _shown(self, ids: Sequence[int]) -> str:
        if self._table == "ids":
            return ",".join(str(self.task_list[number - self._first_id].hpo_id) for number in ids)
        if self._table == "full" or len(ids) <= 24:
            return str(list(ids))
        return f"[{', '.join(ranges(sorted(ids)))}]"

    # --- tick by tick ---

    def get_mp_queues(self) -> Tuple[Any, Any]:
        """The queues of `run`: lists of samples, or {"stop_scheduler": True}, go in; lists of all
        reports come out after a change. Made at the first call, unless `config` was given others."""
        with self.lock:
            taken, given = self._mp_queues
            if taken is None or given is None:
                made: List[Any] = [multiprocessing.Queue() for _ in range(2)]
                made[1].cancel_join_thread()  # reports that nobody reads must not keep the program alive
                self._mp_queues = (made[0] if taken is None else taken, made[1] if given is None else given)
            return self._mp_queues

    def define_rl_task(self, new_samples: Sequence[Mapping[Any, Any]]) -> None:
        """Makes tasks of configurations; they do not wait for a slot yet. Raises `SchedulerFull`."""
        for sample in new_samples:
            info = self._checked(sample)
            with self.lock:
                self._new_task(info, None).manual = True
        self.report_status()

    def add_defined_rl_tasks_into_waiting_list(self) -> None:
        """All tasks of `define_rl_task` that have not begun wait, in their order."""
        with self.lock:
            for task in self.task_list:
                begun = task.waiting or task.running or task.finish
                if task.manual and task.defined and not begun:
                    task.waiting = True
                    self.task_waiting_id.append(self._number(task))
                    self._held.append(self._number(task))
                    self._futures[self._number(task)] = _new_future()
        self.report_status()

    def emit_task(self, task_id: int) -> None:
        """Starts a task that waits, whatever the number of running ones."""
        with self.lock:
            if self._closed:
                raise SchedulerStopped("the scheduler was stopped")
            if task_id not in self._held:
                raise SchedulerError(f"task {task_id} does not wait to be emitted")
            if not self._start(self._task(task_id)):
                raise SchedulerError(f"task {task_id}: all gpus are taken")
            self._held.remove(task_id)
        self.report_status()

    def cancel_task(self, task_id: int) -> None:
        """Ends a task with all that it started; returns when that is done."""
        with self.lock:
            if task_id not in self.task_defined_id:
                raise SchedulerError(f"there is no task {task_id}")
            task = self._task(task_id)
        self._cancel([task], wait=True)
        with self.lock:
            self.lock.wait_for(lambda: not task.running or task.outcome is not None)

    def check_task_start(self, rl_task: Task) -> None:
        """Notes when a task began, if that is not known. One on a cluster has not while it is pending."""
        if rl_task.start_time is None and rl_task.running and self._mode == "local":
            rl_task.start_time = time.time()

    def check_task_alive(self, rl_task: Task) -> bool:
        """Whether its program runs, or is about to."""
        with self.lock:
            return rl_task.running and rl_task.outcome is None and not rl_task.cancelled

    def check_task_timeout(self, rl_task: Task) -> bool:
        """Whether it has taken, or took, longer than `time_out`: from its start until now."""
        if self._time_out is None or rl_task.start_time is None:
            return False
        return time.time() - rl_task.start_time > self._time_out

    def check_running_tasks(self) -> None:
        """Finishes the emitted tasks that have ended, and ends those that took too long."""
        with self.lock:
            tasks = [task for task in self.task_list if task.manual and self._is_open(task)]
        for task in tasks:
            self.check_task_start(task)
            if self.check_task_alive(task) and self.check_task_timeout(task):
                task.cancel_status = "time out"
                self.cancel_task(self._number(task))
            if task.outcome is not None:
                self._settle(task)
        self.report_status()

    def _is_open(self, task: Task) -> bool:
        """Whether it runs, or has ended and nobody has been told."""
        told = self._number(task) not in self._futures
        return not told and (task.running or task.outcome is not None)

    def load_task_result(self, rl_task: Task) -> Tuple[Any, Optional[Dict[str, Any]]]:
        """What a task has written so far: its result, or None, and the JSON side file, or None."""
        if rl_task.outcome is not None and rl_task.success:
            return rl_task.outcome[0], rl_task.side or None
        if rl_task.start_time is None:
            return None, None
        try:
            data, side = self._results.load(rl_task)
        except (OSError, ValueError):
            return None, None
        return data, side or None

    def monitor_real_tasks(self) -> None:
        """Finishes what has ended, defines what the input queue brought, and says in `finish` whether
        the end is reached: a stop message, or all tasks that there may be have succeeded."""
        self.check_running_tasks()
        while not self.finish:
            message = self._next_message()
            if message is None:
                break
            self._take_message(message)
        if not self.finish:
            self.finish = self.check_finish()

    def _next_message(self) -> Any:
        if self._mp_queues[0] is None:
            return None
        try:
            return self._mp_queues[0].get(block=False)
        except queue.Empty:
            return None

    def _take_message(self, message: Any) -> None:
        if isinstance(message, Mapping) and "stop_scheduler" in message or message == "stop_scheduler":
            _LOG.info("Stopping scheduler.")
            self.stop()
            return
        try:
            self.define_rl_task(message)
        except (SchedulerError, TypeError, ValueError) as error:
            _LOG.error(f"Scheduler: {message!r} of the input queue was not taken: {error}")
        self.add_defined_rl_tasks_into_waiting_list()

    def run(self) -> None:
        """Runs what the input queue brings until `finish`; see `monitor_real_tasks`. The queue is looked
        at every `poll_interval` seconds, an ended task is noticed at once."""
        self.get_mp_queues()
        while not self.finish:
            self.monitor_real_tasks()
            with self.lock:
                while self._held and len(self.task_running_id) < self._max_running and not self.finish:
                    if not self._start(self._task(self._held[0])):
                        break
                    self._held.popleft()
            self.report_status()
            with self.lock:
                self.lock.wait_for(self._has_news, self._poll_interval)
        self.report_status()
        _LOG.info("Scheduler: exit.")

    def _has_news(self) -> bool:
        running = (self._task(number) for number in self.task_running_id)
        return self.finish or any(task.manual and task.outcome is not None for task in running)

    def _send_reports(self) -> None:
        """All reports onto the output queue, if there is one and there are new ones."""
        if self._mp_queues[1] is not None and len(self.task_reports) > self._reported:
            self._reported = len(self.task_reports)
            self._mp_queues[1].put(list(self.task_reports))

    # --- the objective, and the end ---

    def get_hpo_callable(self) -> "_TrialFunction":
        """The function for `hpo()`: runs a configuration as a trial and waits for its result."""
        return _TrialFunction(self)

    enable_hpo = get_hpo_callable

    def stop(self, cancel: bool = True, wait: bool = True) -> None:
        """No new trials. `cancel`: those that run are ended, those that wait are given up; otherwise
        all of them are let finish. `wait`: returns when nothing runs any more."""
        with self.lock:
            self._closed = self.finish = True
            self.lock.notify_all()
            tasks = list(self.task_list) if cancel else [self._task(number) for number in self._held]
            ended = [task for task in self.task_list if self._is_open(task) and task.outcome is not None]
        for task in ended:
            self._settle(task)
        self._cancel(tasks, wait)
        if wait:
            with self.lock:
                self.lock.wait_for(lambda: not self._futures)
            self._backend.close()
        self.report_status()

    def _cancel(self, tasks: Sequence[Task], wait: bool) -> None:
        """Ends those of the tasks that run and gives up those that wait. `wait`: returns when the
        programs have ended."""
        given_up = []
        with self.lock:
            for task in tasks:
                number = self._number(task)
                task.cancelled = task.cancelled or number in self._futures
                if task.waiting:
                    (self._queue if number in self._queue else self._held).remove(number)
                    self.task_waiting_id.remove(number)
                    task.waiting, task.normal, task.finish, task.status = False, False, True, "cancelled"
                    self.task_finished_id.append(number)
                    self.task_abnormal_id.append(number)
                    given_up.append(self._futures.pop(number))
        for future in given_up:
            future.set_exception(SchedulerStopped("the trial was cancelled"))
        self._backend.cancel(tasks, wait)

    def __enter__(self) -> "Scheduler":
        return self

    def __exit__(self, *_: Any) -> None:
        self.stop()


def _new_future() -> "concurrent.futures.Future[Any]":
    """Of a task. Its `cancel` does nothing: a trial is ended by `cancel_task`, and then it is told."""
    future: "concurrent.futures.Future[Any]" = concurrent.futures.Future()
    future.set_running_or_notify_cancel()
    return future


def _stop_at_exit(reference: "weakref.ref[Scheduler]", pid: int) -> None:
    """No trial outlives the program. A process that it forked has no say in them."""
    scheduler = reference()
    if scheduler is not None and os.getpid() == pid:
        scheduler.stop()


class _TrialFunction:
    """The objective over a scheduler."""

    def __init__(self, scheduler: Scheduler):
        self._scheduler = scheduler
        self.lock = threading.Lock()
        # Guarded by the lock:
        self._tasks: Dict[int, Task] = {}  # those that are waited for, by thread
        self._cancels = 0
        self._last = threading.local()  # the task of the last call

    def __call__(
        self, config: Dict[Any, Any], step_id: Union[None, int, Checkpoint] = None
    ) -> Any:
        """`step_id`: the number of the step, or under population-based training the checkpoint, which
        the program finds in its environment."""
        trial, environment = current_trial(), None
        if isinstance(step_id, Checkpoint):
            if self._scheduler._mode != "local":
                raise ValueError("population-based training needs mode=\"local\": jobs do not share its checkpoints")
            step_id.clear()
            environment = step_id.environment()
            step_id = None if trial is None else trial.id
        _LOG.info(f"Scheduler: Add new sample [{step_id}]: {config}")
        before = self._cancels
        task, future = self._scheduler._define(config, step_id, trial, environment)
        self._last.task = task
        with self.lock:
            self._tasks[threading.get_ident()] = task
            late = self._cancels != before
        try:
            if late:
                self._scheduler._cancel([task], wait=False)
            data = future.result()
        finally:
            with self.lock:
                del self._tasks[threading.get_ident()]
        name = f"hpo-id-{task.hpo_id}-task-{task.task_id}"
        _LOG.info(f"Scheduler: {name} is successful, of which the return is:\n{data}")
        return data

    def cancel(self) -> None:
        """Ends the trials of this function; the scheduler goes on."""
        with self.lock:
            self._cancels += 1
            tasks = list(self._tasks.values())
        self._scheduler._cancel(tasks, wait=False)

    def cancel_call(self, thread: int) -> bool:
        """Ends the trial that a thread waits for: it took too long. False: there is none yet."""
        with self.lock:
            task = self._tasks.get(thread)
        if task is None:
            return False
        task.cancel_status = "time out"
        self._scheduler._cancel([task], wait=False)
        return True

    def last_metrics(self) -> Dict[str, Any]:
        """Of the last call on this thread: seconds in the queue and in a slot, and the exit code."""
        task: Optional[Task] = getattr(self._last, "task", None)
        if task is None:
            return {}
        granted = task.granted_at or task.ended_at or time.monotonic()
        return {
            "queue_time": granted - task.defined_at,
            "run_time": max(0.0, (task.ended_at or granted) - granted),
            "exit_code": task.exit_code,
        }


def run_scheduler_local(
    task_config_template_path: str,
    dijob_project_name: Optional[str] = None,
    max_number_of_running_task: int = 2,
    max_number_of_tasks: int = 100000,
    time_out: Optional[float] = None,
    **more: Any,
) -> Scheduler:
    """A scheduler that runs trials as processes of this machine. `more`: see `Scheduler.config`."""
    return Scheduler().config(
        task_config_template_path, dijob_project_name, max_number_of_running_task,
        max_number_of_tasks, time_out=time_out, **more,
    )  # fmt: skip


def run_scheduler_k8s(
    task_config_template_path: str,
    k8s_dijob_yaml_file_path: str,
    dijob_project_name: Optional[str] = None,
    k8s_remote_project_path: Optional[str] = None,
    time_out: Optional[float] = None,
    **more: Any,
) -> Scheduler:
    """A scheduler that runs trials as DIJobs of a Kubernetes cluster. What is not given, the YAML
    file says: the project is its `metadata.name`, the path in the pod its `projectPath`. `more`: see
    `Scheduler.config`."""
    return Scheduler().config(
        task_config_template_path, dijob_project_name, 10000, 100000, "k8s", time_out,
        k8s_dijob_yaml_file_path=k8s_dijob_yaml_file_path,
        k8s_remote_project_path=k8s_remote_project_path, **more,
    )  # fmt: skip


def run_scheduler(
    task_config_template_path: str,
    dijob_project_name: Optional[str] = None,
    max_number_of_running_task: int = 10,
    max_number_of_tasks: int = 100000,
    mode: str = "local",
    time_out: Optional[float] = None,
    **more: Any,
) -> Scheduler:
    """A scheduler in the given mode: "local", or "k8s", which needs `k8s_dijob_yaml_file_path`.
    `more`: see `Scheduler.config`."""
    return Scheduler().config(
        task_config_template_path, dijob_project_name, max_number_of_running_task,
        max_number_of_tasks, mode, time_out, **more,
    )  # fmt: skip
