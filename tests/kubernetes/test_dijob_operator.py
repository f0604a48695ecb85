"""DIJobs on a real API server. The operator runs beside it; there is no kubelet: tests say what state pods are in."""

import base64
import datetime
import json
import time
import urllib.error
import urllib.request

import pytest
import yaml

from dijob.jobs import Jobs, environment, job, rank, task, template, uid
from dijob.kubelet import Kubelet
from dijob.programs import DEPLOY, FIXTURES, operator, server
from harness import wait_for

FOUR = [task("learner"), task("evaluator"), task("collector", 2)]


@pytest.fixture(scope="module")
def running(control_plane):
    with operator(control_plane, "--namespace=default") as process:
        yield process


@pytest.fixture
def jobs(control_plane, running):
    assert running.process.poll() is None, running.output.text()
    yield Jobs(control_plane)
    control_plane.kubectl("delete", "dijobs", "--all", "--wait=false")
    control_plane.kubectl("delete", "pods", "--all", "--force", "--grace-period=0")


@pytest.fixture
def kubelet(jobs):
    return Kubelet(jobs)


def start(jobs, kubelet, name, *tasks, **spec):
    """A job whose pods all run."""
    jobs.submit(job(name, *tasks, **spec))
    jobs.reaches(name, "Starting")
    kubelet.set_all(name, "Running")
    return jobs.reaches(name, "Running")


def test_O041_the_pods_of_every_task_exist_and_the_job_is_starting(jobs):
    jobs.submit(job("four", *FOUR))
    jobs.reaches("four", "Starting", replicas=4)
    pods = jobs.has_pods("four", "four-learner-0", "four-evaluator-0", "four-collector-0", "four-collector-1")
    assert [pod["metadata"]["annotations"]["diengine/rank"] for pod in pods] == ["0", "1", "2", "3"]
    assert all(pod["spec"]["restartPolicy"] == "Never" for pod in pods)


def test_O042_when_all_pods_are_ready_the_job_runs(jobs, kubelet):
    status = start(jobs, kubelet, "ready", *FOUR)
    assert status["readyReplicas"] == 4
    assert status["taskStatus"] == {"learner": {"Running": 1}, "evaluator": {"Running": 1}, "collector": {"Running": 2}}


def test_O043_when_all_have_succeeded_so_has_the_job(jobs, kubelet):
    start(jobs, kubelet, "done", *FOUR)
    kubelet.set_all("done", "Succeeded")
    status = jobs.reaches("done", "Succeeded", readyReplicas=0)
    assert status["completionTimestamp"]
    assert jobs.message("done", "Succeeded") == "job succeeded since all the replicas are succeeded."


def resize(jobs, name, by):
    def change(spec):
        for each in spec["tasks"]:
            each["replicas"] += by

    jobs.change(name, change)


def test_O056_more_replicas_leave_the_others_alone_and_get_the_next_ranks(jobs, kubelet):
    start(jobs, kubelet, "grow", *FOUR)
    before = {pod["metadata"]["name"]: (uid(pod), rank(pod)) for pod in jobs.pods("grow")}
    resize(jobs, "grow", +1)
    wait_for("three more pods", lambda: len(jobs.pods("grow")) == 7)
    kubelet.set_all("grow", "Running")
    jobs.reaches("grow", "Running", replicas=7, readyReplicas=7, reschedules=1, restarts=0)
    after = {pod["metadata"]["name"]: (uid(pod), rank(pod)) for pod in jobs.pods("grow")}
    assert {name: after[name] for name in before} == before
    assert {name: after[name][1] for name in after.keys() - before.keys()} == {
        "grow-learner-1": 4, "grow-evaluator-1": 5, "grow-collector-2": 6}
    for pod in jobs.pods("grow"):
        if rank(pod) > 3:
            nodes = environment(pod)["DI_NODES"].split(",")
            assert len(nodes) == 7 and nodes[rank(pod)].startswith(pod["metadata"]["name"] + ".")


def test_O057_fewer_replicas_take_the_last_ones_away(jobs, kubelet):
    start(jobs, kubelet, "shrink", task("learner", 2), task("collector", 3))
    before = {pod["metadata"]["name"]: uid(pod) for pod in jobs.pods("shrink")}
    resize(jobs, "shrink", -1)
    pods = jobs.has_pods("shrink", "shrink-learner-0", "shrink-collector-0", "shrink-collector-1")
    jobs.reaches("shrink", "Running", replicas=3, readyReplicas=3)
    assert all(before[pod["metadata"]["name"]] == uid(pod) for pod in pods)


@pytest.mark.parametrize("name, tasks, text", [
    ("same-name", [task("none", name="a"), task("none", name="a")], "there is more than one task named a"),
    ("two-collectors", [task("collector", name="a"), task("collector", name="b")],
     "the number of collector task is more than one"),
    ("nameless", [task("none")], "none type task has no name"),
])
def test_O058_an_invalid_job_is_accepted_and_fails_with_the_reason(jobs, name, tasks, text):
    jobs.submit(job(name, *tasks))
    jobs.reaches(name, "Failed")
    assert jobs.message(name, "Failed") == text
    assert jobs.pods(name) == []


def test_O059_typed_tasks_without_a_name_are_called_like_their_type(jobs, kubelet):
    start(jobs, kubelet, "unnamed", *FOUR)
    assert [each["name"] for each in jobs.get("unnamed")["spec"]["tasks"]] == ["learner", "evaluator", "collector"]
    kubelet.set_all("unnamed", "Succeeded")
    jobs.reaches("unnamed", "Succeeded")


def test_O060_a_group_left_over_in_the_spec_is_accepted(jobs, kubelet):
    start(jobs, kubelet, "grouped", task("learner"), group="left-over")


def test_O064_null_restarts_without_a_limit_and_absence_three_times(jobs, kubelet):
    limits = {"limit-null": {"backoffLimit": None}, "limit-absent": {}}
    for name, limit in limits.items():
        start(jobs, kubelet, name, task("collector", 5), **limit)
        assert ("backoffLimit" in jobs.get(name)["spec"]) == bool(limit), "null survives the server"
    for count in range(1, 5):  # another rank each time: the first replacement of each comes at once
        failed = {}
        for name in limits:
            pod = next(pod for pod in jobs.pods(name) if pod["metadata"]["name"].endswith(f"-{count - 1}"))
            kubelet.set(pod, "Failed")
            failed[name] = uid(pod)
        for name in limits:
            if name == "limit-absent" and count == 4:
                jobs.reaches(name, "Failed", restarts=3)
                assert jobs.message(name, "Failed") == "job failed since 1 pods failed and exceed backoff limit"
                continue
            wait_for("the replacement", lambda: failed[name] not in map(uid, jobs.pods(name)) and len(jobs.pods(name)) == 5)
            kubelet.set_all(name, "Running")
            jobs.reaches(name, "Running", restarts=count)
        for name in limits:
            if count < 4:
                wait_for("the next failure to be one of its own", lambda: wave_is_over(jobs.status(name)))


def wave_is_over(status):
    """Whether a failure is charged by itself now: those within ten seconds of a charged one belong to it."""
    began = datetime.datetime.fromisoformat(status["waveTime"].replace("Z", "+00:00"))
    return datetime.datetime.now(datetime.timezone.utc) - began > datetime.timedelta(seconds=11)


def test_O067_completed_jobs_stay_as_they_are_when_the_operator_starts_again(jobs, kubelet, running):
    for name, end in (("over-1", "Succeeded"), ("over-2", "Failed")):
        start(jobs, kubelet, name, task("learner"), task("collector", 2), backoffLimit=0, cleanPodPolicy="None")
        kubelet.set_all(name, end)
        jobs.reaches(name, end, readyReplicas=0)
        wait_for("the service to go", lambda: not services(jobs, name))

    def state():
        return [(jobs.get(name), jobs.pods(name)) for name in ("over-1", "over-2")]

    before = state()
    running.kill()
    running.start()
    jobs.submit(job("after", task("learner")))
    jobs.reaches("after", "Starting")  # so it has looked at all there is
    assert state() == before


def services(jobs, name):
    path = f"/api/v1/namespaces/{jobs.space}/services?labelSelector=diengine/job%3D{name}"
    return jobs.api.must("GET", path)["items"]


def gang(name, replicas, **spec):
    return job(name, minReplicas=replicas, template=template(), **spec)


def test_O069_a_template_makes_a_gang_that_starts_runs_and_succeeds(jobs, kubelet):
    jobs.submit(gang("gang", 3))
    jobs.reaches("gang", "Starting", replicas=3)
    jobs.has_pods("gang", "gang-0-0", "gang-0-1", "gang-0-2")
    kubelet.set_all("gang", "Running")
    jobs.reaches("gang", "Running", readyReplicas=3)
    kubelet.set_all("gang", "Succeeded")
    jobs.reaches("gang", "Succeeded", restarts=0)


def test_O074_the_minimum_of_the_guide_is_a_star_of_one_worker_each_with_what_it_asks_for(jobs):
    """With the guide's own quantities, which no node of the tests has."""
    manifest = yaml.safe_load((FIXTURES / "minimal.yaml").read_text())
    asks = {"cpu": 6, "memory": "10Gi"}
    manifest["spec"]["template"]["containers"][0]["resources"] = {"requests": asks, "limits": asks}
    jobs.submit(manifest)
    jobs.reaches("minimal", "Starting", replicas=3)
    for pod in jobs.has_pods("minimal", *(f"minimal-0-{i}" for i in range(3))):
        assert pod["spec"]["containers"][0]["resources"]["requests"] == {"cpu": "6", "memory": "10Gi"}
        given, first = environment(pod), pod["metadata"]["name"] == "minimal-0-0"
        assert given["DI_PARALLEL_WORKERS_ARG"] == "--parallel-workers=1"
        assert given["DI_ATTACHED_NODES_ARG"] == ("" if first else "--attach-to=tcp://minimal-0-0.minimal:22270")


def test_O075_a_patch_of_the_status_makes_a_gang_of_that_size(jobs, kubelet):
    jobs.submit(gang("resized", 2))
    jobs.reaches("resized", "Starting")
    kubelet.set_all("resized", "Running")
    jobs.reaches("resized", "Running")
    jobs.patch("resized", {"status": {"replicas": 4}}, "/status")
    jobs.has_pods("resized", *(f"resized-1-{i}" for i in range(4)))
    kubelet.set_all("resized", "Running")
    jobs.reaches("resized", "Running", replicas=4, generation=1, restarts=1)


@pytest.mark.parametrize("policy, phases, left", [
    ("All", ["Running", "Failed", "Succeeded"], 0), ("None", ["Running", "Failed", "Succeeded"], 3),
    ("Running", ["Running", "Failed", "Succeeded"], 2), ("Running", ["Pending", "Failed", "Running"], 1),
    ("Running", ["Succeeded", "Failed", "Succeeded"], 3)])
def test_O076_the_clean_policy_holds_for_gangs(jobs, kubelet, policy, phases, left):
    name = f"clean-{policy.lower()}-{phases[0].lower()}"
    jobs.submit(gang(name, 3, cleanPodPolicy=policy))
    jobs.reaches(name, "Starting")
    for pod, phase in sorted(zip(jobs.pods(name), phases), key=lambda pair: pair[1] == "Failed"):
        if phase != "Pending":
            kubelet.set(pod, phase)
    jobs.reaches(name, "Failed")
    wait_for("the cleaning", lambda: len(jobs.pods(name)) == left and not services(jobs, name))


def test_a_bad_job_is_warned_of_or_refused_while_that_is_wanted(jobs, control_plane):
    text = (DEPLOY / "admission.yaml").read_text()
    control_plane.kubectl("apply", "-f", "-", stdin=text)

    def submit(name, *tasks):
        return control_plane.run_kubectl("create", "-f", "-", stdin=json.dumps(job(name, *tasks)))

    try:
        twice = [task("collector", name="a"), task("collector", name="b")]
        warned = wait_for("the policy to be followed", lambda: "Warning" in (
            said := submit(f"warned-{time.monotonic_ns()}", *twice)).stderr and said)
        assert warned.returncode == 0 and "the number of collector task is more than one" in warned.stderr
        assert submit("fine", *FOUR).stderr == ""
        binding = "validatingadmissionpolicybindings/dijobs.diengine.opendilab.org"

        def action_becomes(action):
            wait_for(f"the policy to say {action}",
                     lambda: control_plane.get(*binding.split("/"))["spec"]["validationActions"] == [action])

        with operator(control_plane, "--namespace=nowhere", "--strict-admission", "--sync-period=1s") as strict:
            for _ in range(2):  # also when somebody applies the file again
                refused = wait_for("the strict policy", lambda: (
                    said := submit(f"refused-{time.monotonic_ns()}", task("none"))).returncode != 0 and said)
                assert "none type task has no name" in refused.stderr
                control_plane.kubectl("apply", "-f", "-", stdin=text)
            control_plane.kubectl("delete", "-f", "-", stdin=text)
            strict.says("there is no policy")
            control_plane.kubectl("apply", "-f", "-", stdin=text)
            action_becomes("Deny")
            first = {"apiVersion": "diengine.opendilab.org/v1alpha1", "kind": "DIJob",
                     "metadata": {"name": "first.generation-" + "x" * 60},
                     "spec": {"coordinator": {"template": template("true")}}}
            passed = control_plane.run_kubectl("create", "--dry-run=server", "-f", "-", stdin=json.dumps(first))
            assert (passed.returncode, passed.stderr) == (0, "")
        with operator(control_plane, "--namespace=nowhere"):
            action_becomes("Warn")
        account = "--as=system:serviceaccount:di-system:di-operator"
        assert control_plane.run_kubectl("auth", "can-i", "patch", binding, account).stdout.strip() == "yes"
        assert control_plane.run_kubectl("auth", "can-i", "patch", binding + "x", account).stdout.strip() == "no"
    finally:
        control_plane.kubectl("delete", "--ignore-not-found", "-f", "-", stdin=text)


def test_a_size_of_zero_is_refused_and_kubectl_scale_sets_the_collectors(jobs, kubelet, control_plane):
    start(jobs, kubelet, "scaled", *FOUR)
    assert "greater than or equal to 1" in control_plane.run_kubectl("scale", "dijob", "scaled", "--replicas=0").stderr
    control_plane.kubectl("scale", "dijob", "scaled", "--replicas=3")
    wait_for("a third collector", lambda: "scaled-collector-2" in jobs.names("scaled"))
    tasks = {each["name"]: each["replicas"] for each in jobs.get("scaled")["spec"]["tasks"]}
    assert tasks == {"learner": 1, "evaluator": 1, "collector": 3}


def ask(port, path, body=None, token=None, method="GET"):
    """(status, answer) of di-server on this machine."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", body and json.dumps(body).encode(), headers,
                                     method=method)
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, json.loads(answer.read() or b"null")
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


def test_M18_di_server_resizes_on_both_ports_and_asks_for_the_secret_of_the_job_when_told_to(jobs, kubelet, control_plane):
    start(jobs, kubelet, "served", *FOUR)
    replicas = "/v2alpha1/job/default.served/replicas"
    with server(control_plane) as process:
        ports = process.says(r"serving api=\S+:(\d+) probe=\S+:(\d+)").groups()
        for count, port in enumerate(ports, 3):
            assert ask(port, replicas, {"replicas": 1}, method="POST") == (
                200, {"success": True, "code": 0, "message": "successfully add replicas", "data": None})
            wait_for("another collector", lambda: f"served-collector-{count - 1}" in jobs.names("served"))
        assert process.end() == 0
    with server(control_plane, "--auth=job-secret") as process:
        port = process.says(r"serving api=\S+:(\d+)").group(1)
        secret = control_plane.get("secret", jobs.status("served")["secretName"])["data"]["secret"]
        assert ask(port, replicas)[0] == ask(port, replicas, token="wrong")[0] == 401
        assert ask(port, replicas, token=base64.b64decode(secret).decode())[0] == 200
