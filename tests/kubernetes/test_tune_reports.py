"""Trials whose pods leave nothing behind: reports and results by way of di-server, on a real Kubernetes."""

import contextlib
import json
import os
import subprocess
import sys

import pytest

from dijob.programs import BUILD
from harness import DEADLINE, Output, succeed, wait_for

IMAGE = "docker.io/local/reporting:1"
PROJECT = "reporting"

# A script that knows nothing of Divisi. The one with the worst value waits to be pruned; others for
# the test, if it asks for that.
MAIN = """
import json, os, time

main_config = dict(exp_name='template', level=0.0)

if __name__ == "__main__":
    level = main_config['level']
    with open(os.environ['HPO_METRICS_FILE'], 'a') as file:
        print(json.dumps({'step': 0, 'values': {'loss': level}}), file=file, flush=True)
    while level > 0.8 or os.path.exists('/gate/wait'):
        time.sleep(0.05)
    with open(os.environ['HPO_RESULT_FILE'], 'w') as file:
        json.dump({'loss': level}, file)
"""

# The project path is of the pod alone, and the pods go with the end of the job.
YAML = f"""
apiVersion: diengine.opendilab.org/v2alpha1
kind: DIJob
metadata:
  name: {PROJECT}
spec:
  projectPath: /results
  backoffLimit: 0
  cleanPodPolicy: All
  tasks:
  - replicas: 1
    type: learner
    name: learner
    completesJob: true
    template:
      spec:
        terminationGracePeriodSeconds: 5
        containers:
        - name: di-container
          image: {IMAGE}
          imagePullPolicy: Never
          command: ["python3", "/etc/config/config.py"]
          volumeMounts:
          - {{name: config-py, mountPath: /etc/config}}
          - {{name: results, mountPath: /results}}
          - {{name: gate, mountPath: /gate}}
        volumes:
        - {{name: config-py, configMap: {{name: config-py-}}}}
        - {{name: results, emptyDir: {{}}}}
        - {{name: gate, hostPath: {{path: /var/gate, type: DirectoryOrCreate}}}}
COLLECTORS
---
apiVersion: v1
kind: ConfigMap
metadata:
  name: config-py-
data:
  config.py: |

"""

COLLECTORS = f"""
  - replicas: 2
    type: collector
    name: collector
    template:
      spec:
        terminationGracePeriodSeconds: 5
        containers:
        - name: di-container
          image: {IMAGE}
          imagePullPolicy: Never
          command: ["sh", "-c", "sleep 1000"]
"""

PROGRAM = """
import logging, sys
from divisi.tune import MedianPruner, R, choice, hpo
from divisi.tune.scheduler import run_scheduler_k8s

if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    on_exists, reporter, levels, poll = sys.argv[1], sys.argv[2] or None, eval(sys.argv[3]), float(sys.argv[4])
    scheduler = run_scheduler_k8s("main_config.py", "dijob.yml", on_exists=on_exists, reporter=reporter,
                                  poll_interval=poll)
    search = hpo(scheduler.enable_hpo()).grid().max_workers(1).max_tries(1).minimize(R['loss'])
    config, result, metrics = search.prune(MedianPruner(2)).spaces({'level': choice(levels)}).run()
    print('best', config, result)
    print('pruned', scheduler.task_pruned_id, 'abnormal', scheduler.task_abnormal_id)
    scheduler.stop()
"""


@pytest.fixture(scope="module")
def cluster(node):
    """Divisi as it is installed, whose di-server wants the secret of the job."""
    succeed("image", "--name", node.name, IMAGE, f"{BUILD}/bin/divisi-report=/usr/bin/divisi-report", "--libraries",
            "--busybox", "--python")
    arguments = "/spec/template/spec/containers/0/args"
    change_server(node, [{"op": "add", "path": f"{arguments}/-", "value": "--auth=job-secret"}])
    yield node
    before = json.loads(node.kubectl("-n", "di-system", "get", "deployment", "di-server", "-o", "json"))
    given = before["spec"]["template"]["spec"]["containers"][0]["args"]
    kept = [one for one in given if one != "--auth=job-secret"]
    change_server(node, [{"op": "replace", "path": arguments, "value": kept}])


def change_server(node, patch):
    node.kubectl("-n", "di-system", "patch", "deployment", "di-server", "--type=json", "-p", json.dumps(patch))
    node.kubectl("-n", "di-system", "rollout", "status", "deployment/di-server", "--timeout=100s")


def scale_server(node, replicas):
    node.kubectl("-n", "di-system", "scale", "deployment", "di-server", f"--replicas={replicas}")


@pytest.fixture
def gate(cluster):
    """While this file is there, trials wait at their end."""
    wait_for("the pods of earlier tests to go", lambda: names(cluster, "pods") == [])
    folder = cluster.folder / "var" / "gate"
    subprocess.run(["rm", "-rf", folder], check=True)
    folder.mkdir(mode=0o777)
    return folder / "wait"


def names(cluster, kind):
    things = json.loads(cluster.kubectl("get", kind, "-l", f"hpo/project={PROJECT}", "-o", "json"))
    return sorted(each["metadata"]["name"] for each in things["items"])


def posted(cluster, job):
    """What di-server keeps of the trial."""
    return json.loads(cluster.kubectl("get", "dijob", job, "-o", "json")).get("status", {}).get("trial", {})


@contextlib.contextmanager
def tuner(cluster, folder, levels, on_exists="fail", reporter="/usr/bin/divisi-report", collectors="", poll=3600, end=""):
    (folder / "main_config.py").write_text(f"{MAIN}    {end}\n")
    (folder / "dijob.yml").write_text(YAML.replace("COLLECTORS\n", collectors.lstrip("\n")))
    (folder / "main.py").write_text(PROGRAM)
    environment = {**os.environ, "KUBECONFIG": str(cluster.kubeconfig)}
    command = [sys.executable, "main.py", on_exists, reporter, repr(levels), str(poll)]
    process = subprocess.Popen(command, cwd=folder, env=environment, text=True, stdin=subprocess.DEVNULL,
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    output = Output(process.stdout)
    try:
        yield process, output
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def check_end(cluster, process, output, *expected):
    assert process.wait(DEADLINE) == 0, output.text()
    for text in expected:
        assert text in output.text(), output.text()
    assert names(cluster, "dijobs") == [] and names(cluster, "configmaps") == []


def test_a_learner_with_collectors_is_pruned_by_what_it_posts(cluster, gate, tmp_path):
    with tuner(cluster, tmp_path, [0.1, 0.2, 0.9], collectors=COLLECTORS) as (process, output):
        check_end(cluster, process, output, "best {'level': 0.1} {'loss': 0.1}", "pruned [2] abnormal []")


def test_a_single_pod_without_a_reporter_is_pruned_by_its_metrics_file(cluster, gate, tmp_path):
    """Its file is read in the pod, which lives until its result was fetched."""
    with tuner(cluster, tmp_path, [0.1, 0.2, 0.9], reporter="", poll=0.2, end="while True: time.sleep(1)") as (process, output):
        check_end(cluster, process, output, "best {'level': 0.1} {'loss': 0.1}", "pruned [2] abnormal []")


def test_a_killed_tuner_finds_the_results_of_pods_that_are_gone(cluster, gate, tmp_path):
    gate.touch()
    with tuner(cluster, tmp_path, [0.1]) as (process, output):
        wait_for("the report", lambda: names(cluster, "dijobs") and posted(cluster, f"{PROJECT}-0"))
        process.kill()
        process.wait()
    gate.unlink()
    wait_for("the pod to go", lambda: names(cluster, "pods") == [])
    with tuner(cluster, tmp_path, [0.1], "reuse") as (process, output):
        check_end(cluster, process, output, "best {'level': 0.1} {'loss': 0.1}",
                  f"goes on with job [{PROJECT}-0] of an earlier run")


def test_a_result_waits_for_a_di_server_that_is_away(cluster, gate, tmp_path):
    gate.touch()
    with tuner(cluster, tmp_path, [0.1]) as (process, output):
        wait_for("the report", lambda: names(cluster, "dijobs") and posted(cluster, f"{PROJECT}-0"))
        try:
            scale_server(cluster, 0)
            wait_for("di-server to go", lambda: "di-server" not in cluster.kubectl("-n", "di-system", "get", "pods"))
            gate.unlink()
            said = "di-server does not answer"
            wait_for("the reporter to notice", lambda: said in cluster.kubectl("logs", f"{PROJECT}-0-learner-0"))
        finally:  # the cluster is of other tests, too
            scale_server(cluster, 1)
        check_end(cluster, process, output, "best {'level': 0.1} {'loss': 0.1}", "abnormal []")
