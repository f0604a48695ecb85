"""Trials as processes of this machine.

Each runs under a small program of ours, `divisi-trial`, which ends with it and not before everything
that it started has ended, also what left its process group. It notices the end of this process, however
that comes, and ends the trial then.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import subprocess
import threading
from pathlib import Path
from typing import Any, List, Optional, Sequence

from . import _inject
from ._reports import EventFolder, Follower, MetricsFile, metrics_path
from ._trials import ResultReader, SchedulerError, Task, TrialDesk, TrialSettings, emitted_name

_TAIL_BYTES = 4096
_LOG = logging.getLogger()


class LocalTrials:
    """Runs the tasks of a scheduler; one thread each."""

    def __init__(self, desk: TrialDesk, settings: TrialSettings):
        self._desk = desk
        self._settings = settings
        self._results = ResultReader(
            settings.workdir, settings.folder, settings.trust_pickle, settings.result_format
        )
        self._guard = [guard_program(), str(os.getpid()), str(round(1000 * settings.grace))]

    def start(self, task: Task) -> None:
        """Begins with it. Called with the desk's lock held."""
        name = f"divisi-trial-{task.task_id}"
        threading.Thread(target=self._run, args=(task,), name=name, daemon=True).start()

    def cancel(self, tasks: Sequence[Task], wait: bool) -> None:
        """Ends those that run, with all they started. `wait`: returns when they have ended."""
        with self._desk.lock:
            started = [task.process for task in tasks if task.running and task.process is not None]
            running = [process for process in started if process.poll() is None]
        if wait:
            self._end(running)
        elif running:
            threading.Thread(target=self._end, args=(running,), daemon=True).start()

    def close(self) -> None:
        """Nothing runs any more, and nothing will."""

    # --- one task, on a thread of its own ---

    def _run(self, task: Task) -> None:
        settings = self._settings
        data: Any = None
        why = ""
        try:
            task.status = self._execute(task)
            if task.status == "success":
                data, task.side = self._results.load(task)
        except Exception as error:  # no main file, no interpreter, a result that cannot be read
            task.status, why = "fail", str(error)
        tail = why or self._log_tail(task)
        if task.status == "success" and not settings.keep_files:
            self._remove_files(task)
        self._desk.ended(task, data, tail)

    def _execute(self, task: Task) -> str:
        settings = self._settings
        assert task.hyper_parameter_info is not None
        main = settings.folder / task.short_name(settings.naming)
        start = _inject.prepare(
            settings.inject, settings.template, settings.python, main, task.hyper_parameter_info,
            str(task.task_name),
        )  # fmt: skip
        task.files = start.files
        log_folder = self._log_folder(task)
        log_folder.mkdir(exist_ok=True)
        for name in ("result.json", "metrics.jsonl"):
            (log_folder / name).unlink(missing_ok=True)
        environment = {
            **os.environ, **settings.env, **start.env, **task.environment,
            "HPO_TRIAL_ID": str(task.hpo_id), "HPO_TASK_ID": str(task.task_id),
            "HPO_TASK_NAME": str(task.task_name), "HPO_PROJECT": settings.project,
            "HPO_RESULT_FILE": str(log_folder / "result.json"),
            "HPO_METRICS_FILE": str(log_folder / "metrics.jsonl"),
            "HPO_ATTEMPT": str(1 if task.trial is None else task.trial.attempt),
        }  # fmt: skip
        if task.gpus:
            environment["CUDA_VISIBLE_DEVICES"] = ",".join(task.gpus)
        self._results.remember(task)
        with open(log_folder / "log.txt", "wb") as log:
            # The clock of the file system, so that a result can be compared with it.
            task.start_time = task.emit_time = os.fstat(log.fileno()).st_mtime
            with self._desk.lock:
                if task.cancelled:
                    return "cancelled"
                task.process = subprocess.Popen(
                    [*self._guard, *start.command], cwd=settings.folder, env=environment, stdout=log,
                    stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, start_new_session=True,
                )  # fmt: skip
                task.pid = task.process.pid
        _LOG.info(f"Scheduler: {emitted_name(task, settings.naming)} emited with pid [{task.pid}]")
        self._desk.report_status()
        follower = self._follower(task, metrics_path(environment))
        try:
            with contextlib.nullcontext() if follower is None else follower.following():
                task.exit_code = task.process.wait(None if task.manual else settings.time_out)
        except subprocess.TimeoutExpired:
            self._end([task.process])
            task.exit_code = task.process.returncode
            return "time out"
        if follower is not None and follower.pruned:
            return "pruned"
        with self._desk.lock:
            if task.cancelled:
                return "cancelled"
        if task.exit_code != 0 and settings.require_exit_zero:
            return "fail"
        return "success"

    def _follower(self, task: Task, metrics: Path) -> Optional[Follower]:
        """Of a trial that may be pruned, or whose reports are kept in a study."""
        if task.trial is None or not task.trial.wants_reports:
            return None
        assert task.process is not None and task.start_time is not None
        process, reports = task.process, self._settings.reports
        sources: List[Any] = [MetricsFile(metrics)]
        if reports.tb_tag is not None:
            folder = reports.tb_dir or "."
            sources.append(EventFolder(
                lambda: [one / folder for one in self._results.folders(task)], reports.tb_tag,
                task.start_time,
            ))  # fmt: skip
        prune_on = reports.prune_on or reports.tb_tag
        return Follower(task.trial, sources, prune_on, str(task.task_name), lambda: self._end([process]))

    def _end(self, processes: Sequence["subprocess.Popen[bytes]"]) -> None:
        """Ends trials: they are asked to, and killed after the grace, with all that they started."""
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait()

    def _log_folder(self, task: Task) -> Path:
        return self._settings.folder / f"{task.task_name}-log"

    def _remove_files(self, task: Task) -> None:
        """What was written for the trial; what it wrote itself stays."""
        for file in task.files:
            with contextlib.suppress(OSError):
                file.unlink(missing_ok=True)
        shutil.rmtree(self._log_folder(task), ignore_errors=True)

    def _log_tail(self, task: Task) -> str:
        try:
            with open(self._log_folder(task) / "log.txt", "rb") as log:
                log.seek(0, os.SEEK_END)
                log.seek(max(0, log.tell() - _TAIL_BYTES))
                return log.read().decode("utf-8", "replace").strip()
        except OSError:
            return ""


def guard_program() -> str:
    """The path of `divisi-trial`."""
    package = Path(__file__).absolute().parent.parent
    for path in (package / "_bin" / "divisi-trial", package.parent.parent / "bin" / "divisi-trial"):
        if os.access(path, os.X_OK):
            return str(path)
    raise SchedulerError(f"the program divisi-trial is missing beside {package}: install divisi again")
