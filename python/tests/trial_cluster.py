"""Shared by the tests of trials on Kubernetes: an API server in memory whose pods are folders here."""

import pickle
import subprocess
import sys
from pathlib import Path

from compat_tools import ROOT

sys.path.append(str(ROOT / "tests" / "integration"))

from fake_kubernetes import FakeKubernetes  # noqa: E402

JOBS = "/apis/diengine.opendilab.org/v2alpha1"
REMOTE = "/pod/hpo"
"""The project path of pods; no folder of this machine."""

MAIN = """
import os, pickle
main_config = {"exp_name": "template", "policy": {"other": {"eps": {"start": 0.95, "end": 0.1}}}}

if __name__ == "__main__":
    os.makedirs(main_config["exp_name"])
    with open(main_config["exp_name"] + "/result.pkl", "wb") as file:
        pickle.dump({"eval_value": 100 * main_config["policy"]["other"]["eps"]["start"]}, file)
"""

# The document's template, with the anchors of its later form.
YAML = """
var1: &path {remote}
apiVersion: diengine.opendilab.org/v2alpha1
kind: DIJob
metadata:
  name: &name cartpole-dqn-hpo-k8s
spec:
  projectPath: *path
  priority: "normal"
  backoffLimit: 0
  cleanPodPolicy: "Running"
  preemptible: false
  tasks:
  - replicas: 1
    type: none
    name: {role}
    template:
      spec:
        containers:
        - name: di-container
          image: ding:latest
          env:
          - name: JOB_NAME
            value: *name
          command: ["/bin/bash", "-c",]
          args:
          - |
            cat /etc/config/config.py
            python /etc/config/config.py
            sleep 150
          volumeMounts:
          - name: config-py
            mountPath: /etc/config
        volumes:
        - name: config-py
          configMap:
            name: config-py-
---
apiVersion: v1
kind: ConfigMap
metadata:
  name: config-py-
data:
  config.py: |

"""


def template(remote=REMOTE, role="serial"):
    return YAML.replace("{remote}", str(remote)).replace("{role}", role)


class TrialCluster(FakeKubernetes):
    """`pod()` plays the operator and the kubelet; `result()` plays the program."""

    def __init__(self, folder):
        super().__init__()
        self.folder = Path(folder)
        self.searches = 0  # commands that looked for results
        self.execute = self._execute

    def _execute(self, pod, command):
        here = [word.replace("/pod/", f"{self.folder}/") for word in command]
        done = subprocess.run(here, capture_output=True, check=False)
        with self.changed:
            self.searches += 1
            self.changed.notify_all()
        return done.stdout.replace(f"{self.folder}/".encode(), b"/pod/"), done.returncode

    def pod(self, job, phase, role="serial"):
        """The first pod of the job, in that phase."""
        with self.changed:
            owner = self.objects[(f"{JOBS}/dijobs", "default", job)]
        metadata = {"name": f"{job}-{role}-0", "namespace": "default", "labels": owner["metadata"]["labels"]}
        self.put("/api/v1", "pods", {"metadata": metadata, "status": {"phase": phase}})

    def no_pod(self, job, role="serial"):
        self.remove("/api/v1", "pods", "default", f"{job}-{role}-0")

    def job_phase(self, job, phase):
        with self.changed:
            thing = self.objects[(f"{JOBS}/dijobs", "default", job)]
            self._store((f"{JOBS}/dijobs", "default", job), {**thing, "status": {"phase": phase}})

    def result(self, task, value, name="result.pkl", root="hpo"):
        path = self.folder / root / task / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(value if isinstance(value, bytes) else pickle.dumps(value))

    def metrics(self, task, text):
        """The program appends to $HPO_METRICS_FILE."""
        path = self.folder / "hpo" / f"{task}-metrics.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path, "ab") as file:
            file.write(text if isinstance(text, bytes) else text.encode())

    def posted(self, job, **trial):
        """What di-server keeps of a trial's posts."""
        key = (f"{JOBS}/dijobs", "default", job)
        with self.changed:
            status = self.objects[key].get("status", {})
            kept = {**status.get("trial", {}), **trial}
            self._store(key, {**self.objects[key], "status": {**status, "trial": kept}})

    def wait_for_job(self, name):
        self.wait_for(lambda _: (f"{JOBS}/dijobs", "default", name) in self.objects)

    def wait_for_searches(self, more):
        with self.changed:
            before = self.searches
        self.wait_for(lambda _: self.searches >= before + more)
