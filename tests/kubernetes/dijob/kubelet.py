"""A kubelet without containers: pods are in the state that a test says.

  Kubelet(jobs).set(pod, "Running")
  with Obedient(jobs, lambda pod: ["Running", "Succeeded"]): ...      # every pod goes through these by itself
"""

import datetime
import http.client
import threading

from .api import Api, Refused

MERGE = "application/strategic-merge-patch+json"


def now():
    return datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def _state(phase, code, time):
    if phase == "Running":
        return {"running": {"startedAt": time}}
    if phase == "Pending":
        return {"waiting": {"reason": "ContainerCreating"}}
    return {"terminated": {"exitCode": code, "startedAt": time, "finishedAt": time}}


def status_of(pod, phase, *, ready=None, code=None, reason=None):
    time, ready = now(), phase == "Running" if ready is None else ready
    code = code if code is not None else 1 if phase == "Failed" else 0
    conditions = [{"type": "PodScheduled", "status": "True", "lastTransitionTime": time},
                  {"type": "Ready", "status": "True" if ready else "False", "lastTransitionTime": time}]
    containers = [{"name": each["name"], "image": each["image"], "imageID": "", "ready": ready, "restartCount": 0,
                   "state": _state(phase, code, time)} for each in pod["spec"]["containers"]]
    status = {"phase": phase, "conditions": conditions, "startTime": time, "containerStatuses": containers}
    return {**status, "reason": reason} if reason else status


class Kubelet:
    def __init__(self, jobs):
        self.jobs = jobs

    def set(self, pod, phase, **how):
        path = f"{self.jobs.pods_path}/{pod['metadata']['name']}/status"
        self.jobs.api.must("PATCH", path, {"metadata": {"uid": pod["metadata"]["uid"]},
                                           "status": status_of(pod, phase, **how)}, MERGE)

    def set_all(self, name, phase, **how):
        for pod in self.jobs.pods(name):
            self.set(pod, phase, **how)

    def remove(self, pod):
        self.jobs.api.must("DELETE", f"{self.jobs.pods_path}/{pod['metadata']['name']}?gracePeriodSeconds=0")


class Obedient:
    """Walks every new pod through the phases that `script` gives it, and remembers every pod that ever was."""

    def __init__(self, jobs, script):
        self.jobs, self.script = jobs, script
        self.api = Api(jobs.instance)  # of its thread
        self.seen = {}                 # uid to pod, as first seen
        self.stopped = False
        self.thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.stopped = True

    def _run(self):
        while not self.stopped:
            try:
                self._follow()
            except (OSError, http.client.HTTPException):  # a stream that was silent for long
                continue

    def _follow(self):
        listed = self.api.must("GET", self.jobs.pods_path)
        for pod in listed["items"]:
            self._walk(pod)
        version = listed["metadata"]["resourceVersion"]
        for event in self.api.watch(f"{self.jobs.pods_path}?resourceVersion={version}"):
            if self.stopped:
                return
            if event["type"] == "ADDED":
                self._walk(event["object"])

    def _walk(self, pod):
        if pod["metadata"]["uid"] in self.seen:
            return
        self.seen[pod["metadata"]["uid"]] = pod
        for phase in self.script(pod):
            body = {"metadata": {"uid": pod["metadata"]["uid"]}, "status": status_of(pod, phase)}
            try:
                self.api.must("PATCH", f"{self.jobs.pods_path}/{pod['metadata']['name']}/status", body, MERGE)
            except Refused as refused:
                if refused.status not in (404, 409):  # deleted meanwhile, or replaced by its namesake
                    raise
