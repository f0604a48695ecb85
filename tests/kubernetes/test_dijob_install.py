"""Divisi installed on a real Kubernetes with one command, and the jobs of the field on it."""

import re

import yaml

from cluster import container
from dijob.installed import IN_ORCHESTRATOR, ORCHESTRATOR, install, log
from dijob.jobs import job, task, template
from dijob.programs import DEPLOY, FIXTURES
from harness import wait_for

OBJECTS = [each for each in yaml.safe_load_all((DEPLOY / "divisi.yaml").read_text())]


def submit(node, name, *how):
    node.kubectl("create", "-f", str(FIXTURES / f"{name}.yaml"), *how)


def withdraw(node, jobs, name, job):
    """Everything that the job was goes with it."""
    node.kubectl("delete", "-f", str(FIXTURES / f"{name}.yaml"))

    def left():
        kinds = "pods,services,secrets,dijobs"
        return node.kubectl("get", kinds, "-l", f"diengine/job={job}", "-o", "name", "--ignore-not-found")

    wait_for(f"nothing to be left of {job}", lambda: left() == "")


def test_OD27_one_file_has_everything_and_client_side_apply_takes_it_again(node):
    again = node.kubectl("apply", "-f", str(DEPLOY / "divisi.yaml"))
    assert [line for line in again.splitlines() if not line.endswith(("unchanged", "configured"))] == []
    assert node.kubectl("get", "deployments", "-n", "di-system", "-o", "name").split() == [
        "deployment.apps/di-operator", "deployment.apps/di-server"]
    assert node.kubectl("get", "crd", "-o", "name").split() == [
        "customresourcedefinition.apiextensions.k8s.io/dijobs.diengine.opendilab.org"]
    assert any(each["kind"] == "Namespace" for each in OBJECTS)
    holder = ["-n", "di-system", "-o", "jsonpath={.spec.holderIdentity}"]
    assert node.kubectl("get", "lease", "12841a5d.opendilab.org", *holder).startswith("di-operator-")


def test_both_programs_run_from_the_image_of_the_Containerfile(node):
    for name, main in (("di-operator", "manager"), ("di-server", "server")):
        deployment = f"deployment/{name}"
        image = "jsonpath={.spec.template.spec.containers[0].image}"
        assert node.kubectl("get", "-n", "di-system", deployment, "-o", image) == ORCHESTRATOR
        inside = ["exec", "-n", "di-system", deployment, "-c", main, "--"]
        assert node.kubectl(*inside, "cat", "/etc/debian_version").startswith("12.")
        assert node.kubectl(*inside, "readlink", "/di-operator", "/di-server", "/di-webhook").split() == [
            "di-orchestrator"] * 3
        assert node.kubectl(*inside, "readlink", "/proc/1/exe") == "/di-orchestrator\n"
        assert node.kubectl(*inside, "id", "-u") == "65532\n"
    archive = container.image(ORCHESTRATOR, DEPLOY / "Containerfile", IN_ORCHESTRATOR)  # made already
    assert len(archive) < 150_000_000, "deploy/README.md says how large it is"


def test_the_account_of_the_operator_may_make_secrets_and_not_read_them(node):
    who = "--as=system:serviceaccount:di-system:di-operator"
    assert node.kubectl("auth", "can-i", "create", "secrets", who) == "yes\n"
    for what in ("get secrets", "list secrets", "delete secrets", "update pods", "create pods --subresource=exec",
                 "delete nodes", "create dijobs", "get secrets -n di-system"):
        assert node.run_kubectl("auth", "can-i", *what.split(), who).stdout == "no\n", what
    key = ("get", "secrets/di-operator-secret-key", "-n", "di-system")
    assert node.kubectl("auth", "can-i", *key, who) == "yes\n"
    assert node.kubectl(*key, "-o", "name") == "secret/di-operator-secret-key\n"


def test_the_account_of_the_server_reads_jobs_and_pods_and_patches_jobs(node):
    who = "--as=system:serviceaccount:di-system:di-server"
    for what in ("list dijobs", "patch dijobs", "patch dijobs --subresource=status", "list pods"):
        assert node.run_kubectl("auth", "can-i", *what.split(), who).stdout == "yes\n", what
    for what in ("get secrets", "create secrets", "create pods", "delete pods", "delete dijobs", "list nodes"):
        assert node.run_kubectl("auth", "can-i", *what.split(), who).stdout == "no\n", what


def test_O055_a_distributed_job_of_v1_1_runs_to_its_end(node, jobs):
    submit(node, "distributed")
    jobs.reaches("distributed", "Succeeded")
    hosts = [f"distributed-{each}.di-distributed.default.svc.cluster.local"
             for each in ("learner-0", "evaluator-0", "collector-0", "collector-1")]
    for rank, name in enumerate(["learner-0", "evaluator-0", "collector-0", "collector-1"]):
        said = log(node, f"distributed-{name}")
        assert "good morning" in said, "the job's ConfigMap volume"
        assert f"nodes={','.join(hosts)} learner={hosts[0]} collector={','.join(hosts[2:])} rank={rank}" in said
        heard = ",".join(str(other) for other in range(4) if other != rank)
        assert f"node {rank} heard {heard}" in said
    pod = node.get("pod", "distributed-learner-0")
    assert pod["metadata"]["labels"]["team"] == "vision", "labels of the template are kept"
    told = node.kubectl("describe", "dijob", "distributed")
    for reason in ("JobPending", "JobStarting", "JobRunning", "JobSucceeded", "SuccessfulCreate"):
        assert reason in told, reason
    table = node.kubectl("get", "dijob", "distributed").splitlines()
    assert table[0].split() == ["NAME", "PHASE", "READYREPLICAS", "REPLICAS", "RESTARTS", "RESCHEDULES", "AGE"]
    assert table[1].split()[:6] == ["distributed", "Succeeded", "0", "4", "0", "0"]
    withdraw(node, jobs, "distributed", "distributed")


def test_a_gobigger_job_of_v1_0_runs_to_its_end(node, jobs):
    submit(node, "gobigger")
    jobs.reaches("gobigger-test", "Succeeded")
    for rank in range(2):
        said = log(node, f"gobigger-test-0-{rank}")
        assert {int(n) for n in re.findall(r"node (\d+) heard \d", said)} == {2 * rank, 2 * rank + 1}, said
    withdraw(node, jobs, "gobigger", "gobigger-test")


def test_the_minimal_job_of_the_guide_runs_to_its_end_though_its_template_is_malformed(node, jobs):
    submit(node, "minimal", "--validate=false")
    jobs.reaches("minimal", "Succeeded", replicas=3)
    said = "".join(log(node, f"minimal-0-{rank}") for rank in range(3))
    heard = dict(re.findall(r"node (\d) heard (.+)", said))
    assert heard == {str(n): ",".join(str(other) for other in range(6) if other != n) for n in range(6)}
    assert "template.containers" in node.kubectl("describe", "dijob", "minimal"), "an event says what was understood"
    withdraw(node, jobs, "minimal", "minimal")


def test_a_serial_job_runs_to_its_end(node, jobs):
    submit(node, "serial")
    jobs.reaches("serial", "Succeeded")
    assert log(node, "serial-serial-0") == "rank 0 of serial-serial-0.di-serial.default.svc.cluster.local\n"
    withdraw(node, jobs, "serial", "serial")


def test_the_job_of_the_end_to_end_tests_runs_and_its_invalid_variants_fail(node, jobs):
    submit(node, "e2e")
    for variant, text in (("duplicate", "there is more than one task named worker"),
                          ("collectors", "the number of collector task is more than one"),
                          ("nameless", "none type task has no name")):
        submit(node, f"invalid-{variant}")
        jobs.reaches(f"invalid-{variant}", "Failed")
        assert jobs.message(f"invalid-{variant}", "Failed") == text
        assert "JobFailed" in node.kubectl("describe", "dijob", f"invalid-{variant}")
        withdraw(node, jobs, f"invalid-{variant}", f"invalid-{variant}")
    jobs.reaches("e2e", "Succeeded", restarts=0)
    withdraw(node, jobs, "e2e", "e2e")


def test_O068_the_flow_of_LightTuner(node, jobs):
    """Create without validation, poll, exec, copy the result, delete."""
    submit(node, "lighttuner", "--validate=false")
    jobs.reaches("cartpole-hpo-0", "Running")
    pod = "cartpole-hpo-0-serial-0"
    assert node.kubectl("get", "pod", pod, "-o", "jsonpath={.status.phase}") == "Running"
    wait_for("its script to end", lambda: "Done!" in log(node, pod))
    result = "/mnt/project/cartpole-hpo-0/result"
    assert node.kubectl("exec", pod, "--", "cat", result) == "195\n"
    copied = node.folder / "result"
    node.kubectl("cp", f"{pod}:{result}", str(copied))
    assert copied.read_text() == "195\n"
    withdraw(node, jobs, "lighttuner", "cartpole-hpo-0")


def test_the_allocator_places_a_preemptible_job_or_says_what_is_missing(node, jobs):
    def two(cpu):
        ask = {"resources": {"requests": {"cpu": cpu, "memory": "8Mi"}}}
        return {**task("collector", 2), "template": template("true", container=ask)}

    jobs.submit(job("fits", two("20m"), preemptible=True), job("large", two("1000"), preemptible=True))
    jobs.reaches("fits", "Succeeded")
    only = node.kubectl("get", "nodes", "-o", "jsonpath={.items[0].metadata.name}")
    assert jobs.status("fits")["allocation"] == [only, only]
    jobs.reaches("large", "Pending")
    why = wait_for("the reason", lambda: next(
        (c["message"] for c in jobs.status("large")["conditions"] if c["type"] == "Allocated"), None))
    assert why.startswith("asked: 2 replicas with cpu 2k, memory 16Mi, pods 2; free: cpu "), why
    assert why.endswith(" on 1 of 1 nodes; ahead of it: 0 jobs"), why
    jobs.delete("fits")
    jobs.delete("large")


def test_uninstalling_leaves_nothing(node, jobs):
    """A job is still there and goes with its type."""
    submit(node, "lighttuner", "--validate=false")
    jobs.reaches("cartpole-hpo-0", "Running")
    node.kubectl("delete", "-f", str(DEPLOY / "divisi.yaml"), "--timeout=90s")
    try:
        for each in OBJECTS:
            kind, name = each["kind"], each["metadata"]["name"]
            space = ["-n", each["metadata"]["namespace"]] if "namespace" in each["metadata"] else []
            assert "NotFound" in node.run_kubectl("get", kind, name, *space).stderr, (kind, name)
        wait_for("the pods of the job to go",
                 lambda: node.kubectl("get", "pods,secrets", "-A", "-l", "diengine/job", "-o", "name") == "")
    finally:
        install(node)  # other files share it
