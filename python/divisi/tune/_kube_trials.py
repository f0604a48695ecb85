"""Trials as DIJobs of a Kubernetes cluster.

What happens in the cluster is `src/trials`; this is what belongs to Python: the main files, what a
result means, and the states of the scheduler's tasks.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import re
import threading
import time
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence, Set, Tuple

from .. import _native
from ..errors import Error
from . import _templates
from ._reports import MetricsLines, TrialReports
from ._trials import (
    ResultReader, SchedulerError, Task, TrialDesk, TrialSettings, emitted_name,
)  # fmt: skip

_POLL_S = 3.0
_LONG_S = 3600.0
_ACCEPTED, _NOTHING, _BAD = 0, 1, 2
_MAP_PREFIX = "config-py-"
_LOG = logging.getLogger()


def open_cluster(
    yaml: Optional[str], remote: Optional[str], context: Optional[str], namespace: Optional[str],
    reporter: Optional[str] = None,
) -> _native.TrialCluster:
    """Reads the template and asks the cluster whether trials may run there."""
    if not yaml:
        raise ValueError('mode="k8s" needs k8s_dijob_yaml_file_path: a YAML file with a DIJob and a ConfigMap')
    text = Path(yaml).read_text(encoding="utf-8")
    try:
        return _native.TrialCluster(text, str(yaml), remote or "", context or "", namespace or "", reporter or "")
    except ValueError:
        raise
    except Error as error:
        raise SchedulerError(str(error)) from None


def _number_of(name: str, project: str) -> Optional[int]:
    match = re.fullmatch(rf"{re.escape(project)}-(?:hpo-id-.*-task-)?(\d+)", name)
    return int(match.group(1)) if match else None


def trials_in_cluster(cluster: _native.TrialCluster, project: str) -> Dict[str, int]:
    """DIJobs and ConfigMaps that have names of the project's trials, with the trial's number."""
    found = {}
    for thing in cluster.found():
        name = thing.name
        if thing.kind == "ConfigMap":
            if not name.startswith(_MAP_PREFIX):
                continue
            name = name[len(_MAP_PREFIX) :]
        number = _number_of(name, project)
        if number is not None:
            found[f"{thing.kind} {thing.name}"] = number
    return found


def jobs_on_disk(folder: Path) -> Dict[str, int]:
    """The job files of an earlier run, with the trial's number: the pods' results may still be where
    they ran."""
    found = {}
    for file in folder.glob("*.yml"):
        match = re.fullmatch(r"(?:hpo-id-.*-task-)?(\d+)", file.stem)
        if match:
            found[file.name] = int(match.group(1))
    return found


class _SharedResults(ResultReader):
    """Results on a path that this machine and the pods share. Its clock may be another's: what was
    there before the start is known by its looks alone."""

    def __init__(self, remote: Path, settings: TrialSettings):
        super().__init__(
            remote, remote / settings.project, settings.trust_pickle, settings.result_format
        )
        self._remote = remote

    def names(self) -> List[str]:
        """Of the files that may hold a result, the preferred one first."""
        return list(self._names)

    def peek(self, task: Task) -> Optional[Tuple[Any, Dict[str, Any]]]:
        """The result and the side file; None: there is none yet. Raises ValueError."""
        direct = self._remote / f"{task.task_name}-result.json"
        wanted = "result.json" in self._names and self._fresh(task, direct)
        found = direct if wanted else self._find_result(task)
        return None if found is None else (self._read_result(found), self._side_file(task))

    def _fresh(self, task: Task, path: Path) -> bool:
        return self._is_new(task, path)


class KubeTrials:
    """Runs the tasks of a scheduler; one thread hears of all of them."""

    def __init__(
        self, desk: TrialDesk, settings: TrialSettings, cluster: _native.TrialCluster,
        end_id: int, adopts: bool, poll_interval: Optional[float], lost_after: float,
    ):  # fmt: skip
        self._desk, self._settings, self._cluster = desk, settings, cluster
        longest = Task()
        longest.define(end_id - 1, settings.project, {}, settings.naming)
        cluster.check_names(settings.project, str(longest.task_name))
        self._shared = _SharedResults(Path(cluster.remote_path()), settings)
        self._template_text = Path(settings.template).read_bytes()
        cluster.watch(
            settings.project, _POLL_S if poll_interval is None else poll_interval, lost_after,
            settings.time_out or 0.0, settings.require_exit_zero, self._shared.names(),
        )  # fmt: skip
        # Guarded by the desk's lock:
        self._tasks: Dict[str, Task] = {}  # those that were started, by the name of their job
        self._closed = False
        # Of the thread:
        self._results: Dict[str, Tuple[Any, Dict[str, Any]]] = {}
        self._reports: Dict[str, Tuple[MetricsLines, TrialReports]] = {}
        self._pruned: Set[str] = set()
        self._orphans = self._find_orphans() if adopts else {}
        self._thread = threading.Thread(target=self._listen, name="divisi-kube-trials", daemon=True)
        self._thread.start()

    def start(self, task: Task) -> None:
        """Begins with it. Called with the desk's lock held."""
        self._tasks[str(task.task_name)] = task
        self._cluster.post(str(task.task_name))

    def cancel(self, tasks: Sequence[Task], wait: bool) -> None:
        """Deletes the jobs of those that run. `wait`: returns when they are gone, or after the time
        of grace."""
        with self._desk.lock:
            names = [name for name, task in self._tasks.items() if task in tasks]
            for name in names:
                self._cluster.cancel(name)
            if not wait:
                return
            self._desk.lock.wait_for(
                lambda: not any(name in self._tasks for name in names), self._settings.grace
            )
            late = [self._tasks.pop(name) for name in names if name in self._tasks]
        for task in late:
            task.status = "cancelled"
            self._desk.ended(task, None, "")

    def close(self) -> None:
        """Nothing runs any more, and nothing will."""
        with self._desk.lock:
            if self._closed:
                return
            self._closed = True
        if not self._cluster.wait_until_gone(self._settings.grace):
            _LOG.warning(
                "Scheduler: the cluster did not answer, so jobs are left there: "
                f"delete dijobs and configmaps with the label hpo/project={self._settings.project}"
            )
        if self._orphans:
            names = [name for known in self._orphans.values() for name in known]
            _LOG.warning(f"Scheduler: jobs of an earlier run were not asked for again: {', '.join(names)}")
        self._cluster.post("")
        self._thread.join()

    def _find_orphans(self) -> Dict[str, List[str]]:
        """Jobs of this project that another scheduler left, by their configuration. What it left of a
        job that it had not made yet, or had deleted already, is deleted."""
        orphans: Dict[str, List[str]] = {}
        left = [thing for thing in self._cluster.found() if thing.project == self._settings.project]
        jobs = {thing.name for thing in left if thing.kind == "DIJob"}
        for thing in left:
            if thing.kind == "DIJob" and thing.config:
                orphans.setdefault(thing.config, []).append(thing.name)
            elif thing.kind == "ConfigMap" and thing.name[len(_MAP_PREFIX) :] not in jobs:
                self._cluster.discard(thing.name[len(_MAP_PREFIX) :])
        return orphans

    # --- the thread ---

    def _listen(self) -> None:
        handlers = {
            "begin": self._begin, "started": self._started, "suspected": self._suspected,
            "back": self._back, "reports": self._report, "look": self._look, "ended": self._ended,
        }  # fmt: skip
        while True:
            event = self._cluster.next(_LONG_S)
            if event is None:
                continue
            if event.kind == "begin" and not event.name:
                return
            if event.kind == "notice":
                _LOG.warning(f"Scheduler: {event.name + ': ' if event.name else ''}{event.text}")
                continue
            with self._desk.lock:
                task = self._tasks.get(event.name)
            if task is None:
                continue
            try:
                handlers[event.kind](task, event)
            except Exception as error:  # the other trials need this thread
                _LOG.error(f"Scheduler: {event.name}: {event.kind}: {error!r}")

    def _begin(self, task: Task, _: _native.TrialEvent) -> None:
        try:
            self._submit(task)
        except Exception as error:  # a disk that is full, a main file that does not fit
            self._end(task, "fail", str(error))

    def _submit(self, task: Task) -> None:
        settings = self._settings
        text = self._digest_text(task)
        digest = hashlib.sha256(self._template_text + text.encode()).hexdigest()[:32]
        orphan = self._take_orphan(digest)
        if orphan is not None:
            return self._adopt(task, orphan)
        main = settings.folder / f"{task.short_name(settings.naming)}.py"
        task.write_config_file(settings.template, str(main))
        job = (
            str(task.task_name), str(task.hpo_id), str(task.task_id), settings.project, digest,
            main.read_text(encoding="utf-8"),
        )  # fmt: skip
        job_file = main.with_suffix(".yml")
        task.files = [main, job_file]
        job_file.write_text(self._cluster.job_file(*job), encoding="utf-8")
        self._shared.remember(task)
        with self._desk.lock:
            cancelled = task.cancelled
            if not cancelled:
                task.emit_time = time.time()
                self._cluster.run(*job)
        if cancelled:
            return self._end(task, "cancelled", "")
        pod = self._cluster.pod_name(job[0])
        _LOG.info(f"Scheduler: {emitted_name(task, settings.naming)} emited with pod [{pod}]")
        self._desk.report_status()

    def _digest_text(self, task: Task) -> str:
        assert task.hyper_parameter_info is not None
        return "".join(_templates.overrides(task.hyper_parameter_info, ""))

    def _take_orphan(self, digest: str) -> Optional[str]:
        names = self._orphans.get(digest)
        if not names:
            return None
        name = names.pop(0)
        if not names:
            del self._orphans[digest]
        return name

    def _adopt(self, task: Task, name: str) -> None:
        form = emitted_name(task, self._settings.naming)
        _LOG.info(f"Scheduler: {form} goes on with job [{name}] of an earlier run")
        with self._desk.lock:
            del self._tasks[str(task.task_name)]
            task.task_name = name
            task.emit_time = time.time()
            self._tasks[name] = task
            self._cluster.adopt(name)
            if task.cancelled:
                self._cluster.cancel(name)

    def _started(self, task: Task, _: _native.TrialEvent) -> None:
        task.start_time = time.time()
        self._desk.report_status()

    def _suspected(self, task: Task, _: _native.TrialEvent) -> None:
        self._desk.suspect(task)
        _LOG.warning(f"Scheduler: Status of k8s job: {task.task_name}, seems to meet some problem.")

    def _back(self, task: Task, _: _native.TrialEvent) -> None:
        self._desk.back(task)

    def _report(self, task: Task, event: _native.TrialEvent) -> None:
        name, trial = str(task.task_name), task.trial
        if trial is None or not trial.wants_reports or name in self._pruned:
            return
        if name not in self._reports:
            prune_on = self._settings.reports.prune_on
            self._reports[name] = MetricsLines("$HPO_METRICS_FILE"), TrialReports(trial, prune_on, name)
        lines, reports = self._reports[name]
        found = lines.parse(event.lines.split(b"\n"))
        if reports.take(found, [lines.complaint]):
            self._pruned.add(name)
            self._cluster.cancel(name)

    def _look(self, task: Task, event: _native.TrialEvent) -> None:
        name, path = str(task.task_name), self._cluster.remote_path()
        try:
            found = self._shared.peek(task)
            if found is None and event.result is not None:
                path, data = event.result
                found = self._shared.decode(Path(path), data), _side_of(event.side)
        except Exception as error:  # a trusted pickle may raise anything
            text = str(error)
            return self._cluster.judge(name, _BAD, text if path in text else f"{path}: {text}")
        if found is None:
            return self._cluster.judge(name, _NOTHING, "")
        self._results[name] = found
        self._cluster.judge(name, _ACCEPTED, "")

    def _ended(self, task: Task, event: _native.TrialEvent) -> None:
        self._end(task, event.status, event.text)

    def _end(self, task: Task, status: str, why: str) -> None:
        with self._desk.lock:
            if self._tasks.pop(str(task.task_name), None) is None:
                return  # it was given up
        if not self._settings.keep_files:
            for file in task.files:
                with contextlib.suppress(OSError):
                    file.unlink(missing_ok=True)
        name = str(task.task_name)
        data, side = self._results.pop(name, (None, {}))
        self._reports.pop(name, None)
        task.status = "pruned" if name in self._pruned and status == "cancelled" else status
        self._pruned.discard(name)
        if status == "success":
            task.side = side
        self._desk.ended(task, data if status == "success" else None, why)


def _side_of(file: Optional[Tuple[str, bytes]]) -> Dict[str, Any]:
    try:
        side = json.loads(file[1]) if file is not None else {}
    except (ValueError, RecursionError):  # only an addition to the result
        return {}
    return side if isinstance(side, dict) else {}
