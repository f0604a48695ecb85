"""ditask under a DIJob on a real Kubernetes: resized, killed, and learning through it."""

import os
import re
import subprocess

from dijob.installed import DITASK, Server, kill_container
from dijob.jobs import job, rank, uid
from harness import DEADLINE, wait_for


SOAK = bool(os.environ.get("DIVISI_SOAK"))


def worker(kind, main, replicas=1, labels="", **extra):
    """A pod whose shell outlives ditask, so that a test can kill that."""
    run = f"ditask --package /packages --main {main} --labels {labels or kind} --topology mesh --parallel-workers 1"
    container = {"name": "di-container", "image": DITASK, "imagePullPolicy": "Never",
                 "command": ["sh", "-c", f"{run}; exit $?"], **extra.pop("container", {})}
    spec = {"terminationGracePeriodSeconds": 5, "containers": [container], **extra.pop("pod", {})}
    return {"type": kind, "replicas": replicas, "template": {"spec": spec}, **extra}


def peers(jobs, pod):
    """Whom it says to be connected to, last."""
    path = f"{jobs.pods_path}/{pod['metadata']['name']}/log?tailLines=20"
    status, text = jobs.api.call("GET", path)
    said = re.findall(r"node (\d+) peers (\S*)", text or "") if status == 200 else []
    return {int(n) for n in said[-1][1].split(",") if n} if said else None


def everybody_sees_everybody(jobs, name, size):
    """The pods, once each of them is connected to all others and to nobody else."""

    def seen():
        pods = jobs.pods(name)
        ranks = {rank(pod) for pod in pods}
        return len(pods) == size and all(peers(jobs, pod) == ranks - {rank(pod)} for pod in pods) and pods

    try:
        return wait_for(f"the {size} pods of {name} to see each other", seen)
    except AssertionError as error:
        raise AssertionError(f"{error}: {({p['metadata']['name']: peers(jobs, p) for p in jobs.pods(name)})}")


def edit(node, name, script):
    """kubectl edit, with sed for an editor."""
    environment = {"KUBECONFIG": str(node.kubeconfig), "HOME": str(node.folder), "PATH": os.environ["PATH"],
                   "KUBE_EDITOR": f"sed -i {script}"}
    done = subprocess.run([node.program, "edit", "dijob", name], env=environment, capture_output=True, text=True,
                          timeout=DEADLINE)
    assert done.returncode == 0 and "edited" in done.stdout, done.stdout + done.stderr


def test_O079_three_a_job_is_resized_and_its_collectors_killed_while_the_learner_goes_on(node, jobs):
    jobs.submit(job("swarm", worker("learner", "peer_watch.main"), worker("collector", "peer_watch.main", 4),
                    backoffLimit=None))
    learner = uid(everybody_sees_everybody(jobs, "swarm", 5)[0])

    def resized(size):
        pods = everybody_sees_everybody(jobs, "swarm", size)
        assert uid(pods[0]) == learner and pods[0]["metadata"]["name"] == "swarm-learner-0"
        return pods

    node.kubectl("scale", "dijob", "swarm", "--replicas=16")
    before = {pod["metadata"]["name"]: uid(pod) for pod in resized(17)}
    victims = {f"swarm-collector-{i}" for i in range(10)}
    for victim in victims:
        kill_container(node, victim)
    old = {before[victim] for victim in victims}
    wait_for("all ten to be replaced", lambda: not old & set(map(uid, jobs.pods("swarm"))))
    after = {pod["metadata"]["name"]: uid(pod) for pod in resized(17)}
    assert {name for name in after if after[name] != before[name]} == victims, "survivors keep their uid"
    for i in range(90 if SOAK else 0):  # the others in turn; as their node would take them
        name = f"swarm-collector-{10 + i % 6}"
        node.kubectl("delete", "pod", name, "--grace-period=0", "--force")
        wait_for(f"another {name}", lambda: name in jobs.names("swarm"))
    resized(17)
    server, path = Server(jobs), "/v2alpha1/job/default.swarm"
    assert server.must("DELETE", f"{path}/replicas", {"replicas": 4}) is None
    resized(13)
    assert server.must("POST", "/v2alpha1/job/default/swarm/replicas", {"replicas": 2}) is None
    resized(15)

    def listed():  # the kubelet tells of an address a moment after the pod has used it
        addresses = [entry.rpartition(":")[0] for entry in server.must("GET", f"{path}/replicas") if entry]
        return len(addresses) == 15 and addresses == [pod["status"].get("podIP") for pod in jobs.pods("swarm")]

    wait_for("di-server to list every address by rank", listed)
    edit(node, "swarm", "s/replicas:.14/replicas:\\ 2/")
    resized(3)
    assert jobs.status("swarm")["scaledReplicas"] == jobs.get("swarm")["spec"]["replicas"] == 2
    jobs.delete("swarm")


def cartpole(kind, replicas=1, name=None, cpu=None, **extra):
    """One role of the example, with the checkpoints where the next one of it finds them."""
    container = {"workingDir": "/runs", "volumeMounts": [{"name": "runs", "mountPath": "/runs"}]}
    if cpu:
        container["resources"] = {"requests": {"cpu": "10m"}, "limits": {"cpu": cpu}}
    named = {"name": name} if name else {}
    return worker(kind, "cartpole_dqn.main", replicas, name or kind, container=container, **named, **extra)


def test_seven_cartpole_learns_and_survives_a_kill_of_each_role(node, jobs):
    runs = {"name": "runs", "hostPath": {"path": "/var/lib/cartpole", "type": "DirectoryOrCreate"}}
    # Slow ones: on two whole cores it has learned before the last role is killed.
    jobs.submit(job("cartpole", cartpole("learner", cpu="60m", completesJob=True), cartpole("collector", 2, cpu="60m"),
                    cartpole("evaluator"), cartpole("none", name="replay"), backoffLimit=None, volumes=[runs]))
    wait_for("all roles to run", lambda: jobs.status("cartpole").get("readyReplicas") == 5)
    before = {pod["metadata"]["name"]: uid(pod) for pod in jobs.pods("cartpole")}
    for name in ("cartpole-collector-0", "cartpole-evaluator-0", "cartpole-replay-0", "cartpole-learner-0"):
        kill_container(node, name)
        wait_for(f"another {name}", lambda: any(
            pod["metadata"]["name"] == name and uid(pod) != before[name] for pod in jobs.pods("cartpole")), 60)
    wait_for("progress in the wide table", lambda: len(progress(node, "cartpole")) == 3)
    wait_for("it to have learned", lambda: jobs.status("cartpole")["phase"] == "Succeeded")
    # Failures that follow each other within seconds are one restart.
    assert jobs.status("cartpole")["restarts"] >= 1
    # di-server writes the figures of a job every two seconds, the last ones perhaps after its end.
    wait_for("the figures of its end", lambda: float(jobs.status("cartpole")["progress"]["return"]) >= 195)
    jobs.delete("cartpole")


def progress(node, name):
    """What the wide table says about it: steps a second, return, time to go."""
    header, line = node.kubectl("get", "dijob", name, "-o", "wide").splitlines()
    assert header.split()[-3:] == ["STEPS/S", "RETURN", "ETA"]
    return line[header.index("STEPS/S"):].split()
