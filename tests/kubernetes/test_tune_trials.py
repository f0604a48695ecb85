"""The tuner's trials as DIJobs of a real Kubernetes: the document's template with image and paths adapted."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys

import pytest

from harness import DEADLINE, Output, succeed, wait_for

IMAGE = "docker.io/local/trial:1"
SOAK = bool(os.environ.get("DIVISI_SOAK"))
REMOTE = "/var/hpo"  # of the node, so that it is also below the instance's folder

MAIN = """
import os, pickle, time

main_config = dict(exp_name='cartpole_dqn_seed0', policy=dict(other=dict(eps=dict(start=0.95, end=0.1))))

if __name__ == "__main__":
    start = main_config['policy']['other']['eps']['start']
    with open('runs', 'a') as runs:
        runs.write(f'{start}\\n')
    while not os.path.exists('go'):
        time.sleep(0.05)
    os.makedirs(main_config['exp_name'])
    with open(main_config['exp_name'] + '/result.pkl', 'wb') as file:
        pickle.dump({'eval_value': 100 * start}, file)
"""

YAML = f"""
apiVersion: diengine.opendilab.org/v2alpha1
kind: DIJob
metadata:
  name: cartpole-dqn-hpo-k8s
spec:
  projectPath: {REMOTE}/
  priority: "normal"  # 表示job的优先级，保留字段，调度中或许可以用到
  backoffLimit: 0  # 重启次数，可以为nil，表示无限重启；默认为3
  cleanPodPolicy: "Running"  # 表示job运行完成之后，如何处理worker pods
  preemptible: false  # 表示job是否允许被抢占，调度中对job资源改动之后涉及到抢占操作
  tasks:
  - replicas: 1
    type: none
    name: serial
    template:
      spec:
        containers:
        - name: di-container
          image: {IMAGE}
          imagePullPolicy: Never
          env:
          - name: PYTHONUNBUFFERED
            value: "1"
          resources:
            requests:
              cpu: 10m
              memory: "32Mi"
            limits:
              cpu: 2
              memory: "1Gi"
          command: ["/bin/bash", "-c",]
          args:  # user-defined execution commands
          - |
            cat /etc/config/config.py
            python3 --version
            cd {REMOTE}/
            python3 /etc/config/config.py
            echo "Done!"
            SLEEP
          volumeMounts:
          - name: config-py
            mountPath: /etc/config
          - name: cache-volume
            mountPath: /dev/shm
          - name: lustre-volume
            mountPath: {REMOTE}
        volumes:
        - name: config-py
          configMap:
            name: config-py-
        - name: cache-volume
          emptyDir:
            medium: Memory
            sizeLimit: 128Mi
        - name: lustre-volume
          hostPath:
            path: {REMOTE}
---
apiVersion: v1
kind: ConfigMap
metadata:
  name: config-py-
data:
  config.py: |

"""

PROGRAM = """
import os, sys
from divisi.tune import R, hpo, uniform
from divisi.tune.scheduler import run_scheduler_k8s
import logging

def demo():
    scheduler = run_scheduler_k8s(
        task_config_template_path="cartpole_dqn_config.py", k8s_dijob_yaml_file_path="dijob.yml",
        poll_interval=0.2, on_exists=sys.argv[1])
    hpo_info = {'policy': {'other': {'eps': {'start': uniform(0.5, 1)}}}}
    opt = hpo(scheduler.enable_hpo())
    cfg, ret, metrics = opt.grid() \\
        .max_steps(3) \\
        .max_workers(3) \\
        .maximize(R['eval_value']) \\
        .spaces(hpo_info).run()
    print(cfg)
    print(ret)
    scheduler.stop()

if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    demo()
"""


@pytest.fixture(scope="module")
def cluster(node):
    succeed("image", "--name", node.name, IMAGE, "/bin/bash=/bin/bash", "--libraries", "--busybox", "--python")
    return node


@pytest.fixture
def shared(cluster):
    """The folder of the node in which trials run, empty."""
    wait_for("the pods of earlier tests to go", lambda: names(cluster, "pods") == [])
    folder = cluster.folder / "var" / "hpo"
    subprocess.run(["rm", "-rf", folder], check=True)
    folder.mkdir(mode=0o777)
    return folder


def names(cluster, kind):
    things = json.loads(cluster.kubectl("get", kind, "-l", "hpo/project=cartpole-dqn-hpo-k8s", "-o", "json"))
    return sorted(each["metadata"]["name"] for each in things["items"])


@contextlib.contextmanager
def tuner(cluster, folder, on_exists="fail", sleep="sleep 150"):
    """The document's program as a process."""
    (folder / "cartpole_dqn_config.py").write_text(MAIN)
    (folder / "dijob.yml").write_text(YAML.replace("SLEEP", sleep))
    (folder / "main.py").write_text(PROGRAM)
    environment = {**os.environ, "KUBECONFIG": str(cluster.kubeconfig)}
    process = subprocess.Popen([sys.executable, "main.py", on_exists], cwd=folder, env=environment, text=True,
                               stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    output = Output(process.stdout)
    try:
        yield process, output
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def ran(shared):
    """The values for which the main file was run."""
    runs = shared / "runs"
    return sorted(map(float, runs.read_text().split())) if runs.exists() else []


def check_end(process, output, shared):
    assert process.wait(DEADLINE) == 0, output.text()
    said = output.text()
    assert "{'policy': {'other': {'eps': {'start': 1.0}}}}\n{'eval_value': 100.0}" in said, said
    assert ran(shared) == [0.5, 0.75, 1.0], said
    return said


def test_the_documents_program_runs_its_trials_as_dijobs(cluster, shared, tmp_path):
    (shared / "go").touch()
    with tuner(cluster, tmp_path) as (process, output):
        said = check_end(process, output, shared)
    table = said[said.rindex("task_defined") :]
    assert re.search(r"task_defined +\| \[0, 1, 2\] +\|", table) and re.search(r"task_abnormal \| \[\] +\|", table), said
    assert sorted(re.search(r"task_success +\| \[(.*?)\]", table).group(1).split(", ")) == ["0", "1", "2"]
    assert names(cluster, "dijobs") == [] and names(cluster, "configmaps") == []


def test_results_of_pods_that_are_gone_come_from_the_shared_path(cluster, shared, tmp_path):
    """Without the sleep at the end of the template: the pod has succeeded before anybody looks into it."""
    (shared / "go").touch()
    with tuner(cluster, tmp_path, sleep="true") as (process, output):
        check_end(process, output, shared)


def test_ctrl_c_leaves_nothing_in_the_cluster(cluster, shared, tmp_path):
    with tuner(cluster, tmp_path) as (process, output):
        wait_for("the trials to run", lambda: len(ran(shared)) == 3)
        process.send_signal(signal.SIGINT)
        process.wait(DEADLINE)
    assert names(cluster, "dijobs") == [] and names(cluster, "configmaps") == [], output.text()


@pytest.mark.parametrize("point", range(10) if SOAK else [6])
def test_a_killed_tuner_goes_on_with_its_jobs(cluster, shared, tmp_path, point):
    """Killed when so many objects are there: two of a job, and its pod."""
    with tuner(cluster, tmp_path) as (process, output):
        wait_for("objects", lambda: sum(len(names(cluster, kind)) for kind in ("configmaps", "dijobs", "pods")) >= point)
        process.kill()
        process.wait()
    left = names(cluster, "dijobs")
    (shared / "go").touch()
    with tuner(cluster, tmp_path, "reuse") as (process, output):
        said = check_end(process, output, shared)  # none of them ran twice
    assert all(f"goes on with job [{name}] of an earlier run" in said for name in left), said
    assert names(cluster, "dijobs") == [] and names(cluster, "configmaps") == []
