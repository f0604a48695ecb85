"""First-generation DIJobs on a real Kubernetes: the documents' manifests from kubectl create to the end."""

import json
import os
import re

import pytest
import yaml

from dijob.first import FirstJobs
from dijob.jobs import environment, uid
from dijob.programs import BUILD, DEPLOY, FIXTURES
from harness import succeed, wait_for

DING = "docker.io/local/ding:1"
LONG = 600  # seconds; a job that trains on a busy machine


@pytest.fixture(scope="module")
def first(node):
    """The node, with what first-generation jobs need."""
    for name in ("first-generation.yaml", "alias.yaml"):
        node.kubectl("apply", "-f", str(DEPLOY / name))
    node.kubectl("wait", "--for=condition=Established", "crd/aggregatorconfigs.diengine.opendilab.org", "--timeout=60s")
    succeed("image", "--name", node.name, DING, f"{BUILD}/bin/ding=/usr/bin/ding", "/bin/bash=/bin/bash", "--busybox",
            "--python", "--libraries")
    node.kubectl("apply", "-f", str(FIXTURES / "first-agconfig.yaml"))
    return node


@pytest.fixture
def jobs(first):
    jobs = FirstJobs(first)
    yield jobs
    first.kubectl("delete", "dijobs", "--all", "--timeout=60s")


def manifest(name, file, **spec):
    """The fixture as a job of another name, with another shared folder."""
    job = yaml.safe_load((FIXTURES / file).read_text())
    job["metadata"]["name"] = name
    job["spec"].update(spec)
    for volume in job["spec"].get("volumes", []):
        if "hostPath" in volume:
            volume["hostPath"]["path"] = f"/var/lib/ding/{name}"
    return job


def edit_config(job, *pairs):
    args = job["spec"]["coordinator"]["template"]["spec"]["containers"][0]["args"]
    for old, new in pairs:
        assert old in args[0], old
        args[0] = args[0].replace(old, new)
    return job


def log(node, pod):
    """What it has said so far; nothing before it has started."""
    return node.run_kubectl("logs", pod).stdout


def roles(jobs, name):
    """How many live pods of each role."""
    found = [pod["metadata"]["labels"]["replica-type"] for pod in jobs.pods(name)]
    return {role: found.count(role) for role in sorted(set(found))}


def ends(jobs, node, name, phase):
    """Waits for it; a failure shows what the coordinator said."""
    try:
        wait_for(f"{name} to end", lambda: jobs.status(name).get("phase") in ("Succeeded", "Failed"), LONG)
        assert jobs.status(name)["phase"] == phase
    except AssertionError as error:
        said = node.run_kubectl("logs", f"{name}-coordinator", "--tail=40").stdout
        raise AssertionError(f"{error}: {jobs.status(name)}\n{said}") from None


def in_order(text, *patterns):
    """Each pattern is found, and first appears behind the first appearance of the one before it."""
    where = 0
    for pattern in patterns:
        found = re.search(pattern, text, re.MULTILINE)
        assert found, f"'{pattern}' is not in the log:\n{text[:6000]}"
        assert found.start() >= where, f"'{pattern}' comes too early:\n{text[:6000]}"
        where = found.start()


def test_O088_the_qbert_manifest_trains_to_its_end(first, jobs):
    created = first.kubectl("create", "-f", str(FIXTURES / "first-qbert.yaml"))
    assert created.strip() == "dijob.diengine.opendilab.org/qbert-dqn created"
    wait_for("the coordinator", lambda: "qbert-dqn-coordinator" in jobs.names("qbert-dqn"))
    wait_for("its workers", lambda: roles(jobs, "qbert-dqn") == {"collector": 2, "coordinator": 1, "learner": 1}, LONG)
    for pod in jobs.names("qbert-dqn"):
        assert re.fullmatch(r"qbert-dqn-(coordinator|(collector|learner)-[bcdfghjklmnpqrstvwxz2456789]{5})", pod)
    wait_for("a running job", lambda: jobs.status("qbert-dqn")["phase"] == "Running", LONG)
    ends(jobs, first, "qbert-dqn", "Succeeded")
    assert log(first, "qbert-dqn-coordinator")
    table = first.kubectl("get", "dijobs.v1alpha1.diengine.opendilab.org", "qbert-dqn").splitlines()
    assert table[0].split() == ["NAME", "PHASE", "AGE"] and table[1].split()[:2] == ["qbert-dqn", "Succeeded"]
    described = first.kubectl("describe", "dijob", "qbert-dqn")
    shown = described[described.index("Replica Status:"):].split("Events:")[0]
    for role, count in (("Collector", 2), ("Coordinator", 1), ("Learner", 1)):
        assert re.search(rf"{role}:\s+Succeeded:\s+{count}", shown), described
    assert re.search(r"Aggregator:\s+Collector:", shown), described
    assert re.search(r"^\s+Phase:\s+Succeeded$", described, re.MULTILINE)
    # cleanPodPolicy Running: the coordinator has ended and stays, the workers ran and go.
    wait_for("the workers to go", lambda: jobs.names("qbert-dqn") == ["qbert-dqn-coordinator"])
    wait_for("the services to go", lambda: not jobs.services("qbert-dqn"))
    first.kubectl("delete", "dijob", "qbert-dqn")
    wait_for("everything to go", lambda: not jobs.pods("qbert-dqn", live=False))


@pytest.mark.long
def test_O088_the_cartpole_manifest_of_the_examples_trains_to_its_end(first, jobs):
    """The shape of v0.2: main containers called di-container, one port for all roles, di-server by its own name."""
    text = (DEPLOY.parent / "examples" / "dijob" / "cartpole.yaml").read_text()
    job = yaml.safe_load(text.replace("divisi:latest", DING))
    for volume in job["spec"]["volumes"]:
        if "hostPath" in volume:
            volume["hostPath"]["path"] = "/var/lib/ding/cartpole"
    first.kubectl("create", "-f", "-", stdin=json.dumps(job))
    name = job["metadata"]["name"]
    ends(jobs, first, name, "Succeeded")
    assert log(first, f"{name}-coordinator")


@pytest.mark.long
def test_an_environment_that_we_do_not_have_is_refused_by_name(first, jobs):
    job = edit_config(manifest("atari", "first-qbert.yaml"), ("CartPole-v1", "QbertNoFrameskip-v4"))
    first.kubectl("create", "-f", "-", stdin=json.dumps(job))
    ends(jobs, first, "atari", "Failed")
    assert "QbertNoFrameskip-v4" in log(first, "atari-coordinator")


def test_the_mock_job_logs_what_the_document_shows(first, jobs):
    name = "dijob-example-1"
    first.kubectl("create", "-f", str(FIXTURES / "first-mock.yaml"))
    wait_for("coordinator and aggregator", lambda: {f"{name}-aggregator", f"{name}-coordinator"} <= set(jobs.names(name)))
    wait_for("collectors and learners", lambda: roles(jobs, name).keys() >= {"collector", "learner"}, LONG)
    ends(jobs, first, name, "Succeeded")
    said = log(first, f"{name}-coordinator")
    own = r"\[Coordinator\(PID\d+UUID[0-9a-f-]+_[\d.]+\)\]: "
    task = r"_task_PID\d+UUID[0-9a-f-]+_[\d.]+"
    worker = rf"{name}-(collector|learner)-\w{{5}}\.default:80"
    collector = rf"{name}-collector-\w{{5}}\.default:80"
    lists = rf"\['{worker}'.*\] \['{worker}'.*\]"
    buffer = r"buffer_PID\d+UUID[0-9a-f-]+_[\d.]+"
    # Every form of the document, in the order of first appearance.
    in_order(said, rf"^try to connect to {name}-aggregator\.default:80$",
             rf"^Successed to connect to {name}-aggregator\.default:80$",
             r"^have connected to aggregator$",
             rf"^Recevied replicas response from server \{{'namespace': 'default', 'coordinator': '{name}-coordinator', "
             rf"'collectors': \['{worker}', '{worker}'\], 'learners': \['{worker}', '{worker}'\]\}}$",
             rf"^try to connect to {collector}$",
             r"^Only can connect \d+ collectors, 1 learners\.$",
             rf"^Successed to connect to {collector}$",
             r"^Have connected 1 collectors, 1 learners, match limit requests\.$",
             r"^Start\.\.\.$",
             rf"^{own}learner task\(learner{task}\) put into queue$",
             rf"^{own}collector task\(collector{task}\) put into queue$",
             rf"^{own}collector_task\(collector{task}\) can't find proper buffer_id\({buffer}\)$",
             r"^send delete and received \{'namespace': 'default', .*'learners': \[\]\}$",
             rf"^{own}collector task\(collector{task}\) reput into queue$",
             rf"^{own}replay_buffer\({buffer}\) is created$",
             rf"^{own}learner_task\(learner{task}\) is successful to be assigned$",
             rf"^collector task\(collector{task}\) is assigned to collector\({collector}\)$",
             rf"^{own}collector_task\(collector{task}\) is successful to be assigned$",
             rf"^{own}collector task\(collector{task}\) send data\([0-9a-f-]{{36}}\)$")
    in_order(said, r"^Recevied replicas", r"^failed list: \[\] \[\]$", rf"^currnet list: {lists}$", r"^Have connected")
    in_order(said, rf"^{own}learner task\(learner{task}\) put into queue$",
             rf"^{own}learner task\(learner{task}\) reput into queue$", rf"^{own}replay_buffer\({buffer}\) is created$")
    # Only when the learner's task is accepted late; tests/dist has a run where it is.
    if re.search(r"timeout: \[", said):
        in_order(said, rf"^{own}collector task\(collector{task}\) reput into queue$",
                 rf"^{own}collector task\(collector{task}\) timeout: \[[\d.]+, [\d.]+, [\d.]+/5\]$", r"send data\(")
    # Only when the aggregator is not there yet.
    if re.search(r"can't acquire resource for learner", said):
        in_order(said, r"^try to connect to", rf"^can't acquire resource for learner\({name}-aggregator\.default:80\)$",
                 rf"^Successed to connect to {name}-aggregator")
    assert "Traceback" not in said


def kill(node, pod):
    """The process of its main container. Its shell, which is process 1, then ends with 137."""
    done = node.run_kubectl("exec", pod, "--", "sh", "-c", "kill -9 $(pidof ding)")
    assert done.returncode in (0, 137), done.stderr  # 137: it ended with the container


def endless_cartpole(name):
    """Two collectors and two learners, with a stop value that no policy reaches."""
    job = edit_config(manifest(name, "first-qbert.yaml"), ('"replicas": 1,', '"replicas": 2,'),
                      ("learner_target_num=1", "learner_target_num=2"), ("stop_value=195", "stop_value=501"))
    for role in ("coordinator", "collector", "learner"):
        container = job["spec"][role]["template"]["spec"]["containers"][0]
        container["args"][0] += "exit $?\n"  # otherwise the shell becomes the last program
        container["resources"]["limits"]["cpu"] = "300m"
    return job


def trains(node, name, beyond=0):
    """The iteration of its last evaluation, once that is beyond another one."""

    def found():
        seen = [int(number) for number in re.findall(r"evaluation train_iter=(\d+)", log(node, f"{name}-coordinator"))]
        return seen and seen[-1] > beyond and seen[-1]

    return wait_for(f"an evaluation of {name} beyond iteration {beyond}", found, LONG)


@pytest.mark.long
def test_O015_to_O017_cartpole_survives_what_is_killed_and_deleted(first, jobs):
    name = "survivor"
    job = endless_cartpole(name)
    first.kubectl("create", "-f", "-", stdin=json.dumps(job))
    wait_for("its workers", lambda: roles(jobs, name) == {"collector": 2, "coordinator": 1, "learner": 2}, LONG)
    reached = trains(first, name)

    # O015: a service is created again, for each role.
    for role in ("coordinator", "collector", "learner"):
        victim = jobs.pods(name, role=role)[0]["metadata"]["name"]
        before = uid(jobs.api.must("GET", f"{jobs.services_path}/{victim}"))
        first.kubectl("delete", "service", victim)
        wait_for(f"the service {victim} again", lambda: victim in jobs.services(name) and uid(
            jobs.api.must("GET", f"{jobs.services_path}/{victim}")) != before)

    # O017: a killed process of a worker does not end the job. Both learners: one of them trains.
    for role in ("collector", "learner"):
        for pod in jobs.pods(name, role=role):
            kill(first, pod["metadata"]["name"])
    reached = trains(first, name, reached)

    # O016: a deleted pod is replaced by di-server on the coordinator's report, that of the coordinator by the operator.
    for role in ("collector", "learner"):
        victim = jobs.pods(name, role=role)[0]
        first.kubectl("delete", "pod", victim["metadata"]["name"], "--wait=false")
        wait_for(f"another {role}", lambda: len(jobs.pods(name, role=role)) == 2 and
                 uid(victim) not in map(uid, jobs.pods(name, role=role)), LONG)
    reached = trains(first, name, reached)
    assert jobs.status(name)["phase"] == "Running"

    # The next coordinator has the configuration of now, and goes on from the last checkpoint.
    edit_config(job, ("stop_value=501", "stop_value=195"))
    jobs.patch(name, {"spec": {"coordinator": job["spec"]["coordinator"]}})
    victim = jobs.pod(f"{name}-coordinator")
    first.kubectl("delete", "pod", f"{name}-coordinator", "--wait=false")
    wait_for("another coordinator", lambda: [uid(pod) for pod in jobs.pods(name, role="coordinator")] not in (
        [], [uid(victim)]), LONG)
    ends(jobs, first, name, "Succeeded")
    assert trains(first, name) >= reached
    assert jobs.counts(name)["Coordinator"] == {"succeeded": 1}


@pytest.mark.long
def test_O017_a_killed_coordinator_fails_the_job(first, jobs):
    first.kubectl("create", "-f", "-", stdin=json.dumps(endless_cartpole("beheaded")))
    wait_for("a start", lambda: "Start..." in log(first, "beheaded-coordinator"), LONG)
    kill(first, "beheaded-coordinator")
    ends(jobs, first, "beheaded", "Failed")
    assert jobs.counts("beheaded")["Coordinator"] == {"failed": 1}


@pytest.mark.long
def test_ddp_ranks_listen_where_they_are_advertised(first, jobs):
    """10 GPUs over nodes of 8: two pods, 8 and 2 ranks. The only node that runs pods claims 16 GPUs."""
    real = json.loads(first.kubectl("get", "nodes", "-o", "json"))["items"][0]["metadata"]["name"]

    def gpus(node, count):
        body = {"status": {key: {"nvidia.com/gpu": str(count), **more} for key, more in (
            ("capacity", {}), ("allocatable", {}))}}
        first.kubectl("patch", "node", node, "--subresource=status", "--type=merge", "-p", json.dumps(body))

    fakes = ["fake-0", "fake-1"]
    for fake in fakes:
        first.apply({"apiVersion": "v1", "kind": "Node", "metadata": {"name": fake}, "spec": {"unschedulable": True}})
        gpus(fake, 8)
    gpus(real, 16)
    try:
        job = edit_config(manifest("ddp", "first-qbert.yaml"), ('"gpus": "0"', '"gpus": "10"'),
                          ("stop_value=195", "stop_value=501"))
        first.kubectl("create", "-f", "-", stdin=json.dumps(job))
        wait_for("the group", lambda: len(jobs.pods("ddp", role="ddp-learner")) == 2, LONG)
        group = sorted(jobs.pods("ddp", role="ddp-learner"), key=lambda pod: int(environment(pod)["START_RANK"]))
        given = [environment(pod) for pod in group]
        master = group[0]["metadata"]["name"]
        assert [(each["WORLD_SIZE"], each["LOCAL_WORLD_SIZE"], each["START_RANK"], each["MASTER_ADDR"], each["MASTER_PORT"])
                for each in given] == [("10", "8", "0", "localhost", "10314"), ("10", "2", "8", master, "10314")]
        ports = [[port["containerPort"] for port in pod["spec"]["containers"][0]["ports"] if port["name"] != "master-port"]
                 for pod in group]
        assert ports == [list(range(22271, 22279)), [22279, 22280]]
        assert [pod["metadata"]["labels"]["ddp-learner-type"] for pod in group] == [
            "ddp-learner-master", "ddp-learner-worker"]
        for pod, numbers in zip(group, ports):
            for number in numbers:  # each rank answers at its name and port, from another pod
                target = f"{pod['metadata']['name']}.default {number}"
                wait_for(f"{target} to listen", lambda: first.run_kubectl(
                    "exec", "ddp-coordinator", "--", "sh", "-c", f"nc {target} < /dev/null").returncode == 0, LONG)
        head = jobs.pods("ddp", role="aggregator")[0]["metadata"]["name"]
        wait_for("the coordinator to use the aggregator", lambda: re.search(
            rf"Successed to connect to {head}\.default:", log(first, "ddp-coordinator")), LONG)
        # O015, O016: services and pods of a group that somebody deletes come back.
        for role in ("aggregator", "ddp-learner"):
            victim = jobs.pods("ddp", role=role)[0]["metadata"]["name"]
            first.kubectl("delete", "service", victim)
            wait_for(f"the service {victim} again", lambda: victim in jobs.services("ddp"))
        for role in ("ddp-learner", "aggregator"):
            victim = jobs.pods("ddp", role=role)[0]
            first.kubectl("delete", "pod", victim["metadata"]["name"], "--wait=false")

            def whole():
                heads, ranks = (jobs.pods("ddp", role=each) for each in ("aggregator", "ddp-learner"))
                owners = {owner["uid"] for pod in ranks for owner in pod["metadata"]["ownerReferences"]}
                return len(heads) == 1 and len(ranks) == 2 and uid(heads[0]) in owners and uid(
                    victim) not in map(uid, heads + ranks)

            try:
                wait_for(f"a whole group after the end of a {role}", whole, LONG)
            except AssertionError as error:
                said = "".join(first.run_kubectl("-n", space, "logs", pod, "--tail=30").stdout for space, pod in (
                    ("default", "ddp-coordinator"), ("di-system", "deployment/di-server")))
                raise AssertionError(f"{error}: {first.kubectl('get', 'pods', '-o', 'wide')}\n{said}") from None
        # D23: the group goes as a whole.
        first.kubectl("exec", "ddp-coordinator", "--", "ding", "-m", "dist", "--delete", "learner", "-cdn",
                      "ddp-coordinator", "-ns", "default", "-rs", "1")
        wait_for("the group to go", lambda: not jobs.pods("ddp", role="ddp-learner") and not jobs.pods("ddp", role="aggregator"))
    finally:
        first.kubectl("delete", "nodes", *fakes)
        first.kubectl("patch", "node", real, "--subresource=status", "--type=json", "-p", json.dumps(
            [{"op": "remove", "path": f"/status/{key}/nvidia.com~1gpu"} for key in ("capacity", "allocatable")]))


@pytest.mark.long
def test_O090_the_job_ends_while_di_server_is_restarted(first, jobs):
    job = manifest("steady", "first-qbert.yaml")
    first.kubectl("create", "-f", "-", stdin=json.dumps(job))
    wait_for("a start", lambda: "try to connect to" in log(first, "steady-coordinator"), LONG)
    for _ in range(5 if os.environ.get("DIVISI_SOAK") else 2):
        first.kubectl("-n", "di-system", "delete", "pod", "-l", "control-plane=di-server", "--grace-period=0", "--force")
        first.kubectl("-n", "di-system", "rollout", "status", "deployment/di-server", "--timeout=100s")
    ends(jobs, first, "steady", "Succeeded")
    assert "HTTP 404" not in log(first, "steady-coordinator")
