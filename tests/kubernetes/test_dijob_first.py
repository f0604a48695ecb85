"""First-generation DIJobs on a real API server. Operator and di-server run beside it; tests set the states of pods."""

import http.client
import json
import threading

import pytest
from ports import free_port

from dijob.api import MERGE
from dijob.first import V1, Client, FirstJobs, first_job, pod_of, template
from dijob.jobs import environment, uid
from dijob.kubelet import Kubelet
from dijob.programs import DEPLOY, Program, operator, server
from harness import wait_for

GPUS = {"nvidia.com/gpu": 8}, {"nvidia.com/gpu": 8}, {}, {"nvidia.com/gpu": 4}


@pytest.fixture(scope="module")
def running(control_plane):
    control_plane.kubectl("apply", "-f", str(DEPLOY / "first-generation.yaml"))
    control_plane.kubectl("wait", "--for=condition=Established", "crd/aggregatorconfigs.diengine.opendilab.org",
                          "--timeout=60s")
    if control_plane.run_kubectl("get", "namespace", "di-system").returncode:
        control_plane.kubectl("create", "namespace", "di-system")
    with operator(control_plane, "--namespace=default") as process:
        yield process


@pytest.fixture(scope="module")
def serving(control_plane, running):
    with server(control_plane) as process:
        process.port = process.says(r"serving api=\S+:(\d+) probe=\S+:(\d+)").group(2)
        yield process


@pytest.fixture
def client(serving):
    return Client(serving.port)


@pytest.fixture
def jobs(control_plane, running):
    assert running.process.poll() is None, running.output.text()
    yield FirstJobs(control_plane)
    control_plane.kubectl("delete", "dijobs", "--all", "--wait=false")
    control_plane.kubectl("delete", "pods", "--all", "--force", "--grace-period=0")


@pytest.fixture
def kubelet(jobs):
    return Kubelet(jobs)


@pytest.fixture
def aggregator_config(control_plane, running):
    config = {"apiVersion": V1, "kind": "AggregatorConfig",
              "metadata": {"name": "aggregator-config", "namespace": "di-system"},
              "spec": {"aggregator": template("aggregator")}}
    control_plane.apply(config)
    yield
    control_plane.kubectl("delete", "agconfig", "aggregator-config", "-n", "di-system")


@pytest.fixture
def gpu_nodes(control_plane):
    for index, gpus in enumerate(GPUS):
        amounts = {"cpu": "8", "memory": "8Gi", "pods": "100", **{key: str(value) for key, value in gpus.items()}}
        control_plane.apply({"apiVersion": "v1", "kind": "Node", "metadata": {"name": f"gpu-{index}"},
                             "spec": {"unschedulable": True}})
        control_plane.kubectl("patch", "node", f"gpu-{index}", "--subresource=status", "--type=merge", "-p",
                              json.dumps({"status": {"capacity": amounts, "allocatable": amounts}}))
    yield
    control_plane.kubectl("delete", "nodes", *(f"gpu-{index}" for index in range(len(GPUS))))


def start(jobs, kubelet, name, **spec):
    """A job whose coordinator runs."""
    jobs.submit(first_job(name, **spec))
    jobs.has_pods(name, f"{name}-coordinator")
    kubelet.set(jobs.pod(f"{name}-coordinator"), "Running")
    jobs.reaches(name, "Running")


def has_services(jobs, name, *names):
    wait_for(f"the services {names}", lambda: sorted(jobs.services(name)) == sorted(names), 60)


def phase_message(jobs, name, kind):
    return next(each["message"] for each in jobs.status(name)["conditions"] if each["type"] == kind)


def test_O001_a_new_job_has_its_coordinator_and_service(jobs):
    jobs.submit(first_job("one"))
    status = jobs.reaches("one", "Created")
    pod, = jobs.has_pods("one", "one-coordinator")
    has_services(jobs, "one", "one-coordinator")
    assert status["conditions"][0]["reason"] == "DIJobCreated"
    assert phase_message(jobs, "one", "Created") == "DIJob one created"
    labels = {"group-name": "diengine.opendilab.org", "dijob-name": "one", "controller-name": "di-operator",
              "replica-type": "coordinator", "pod-name": "one-coordinator"}
    assert pod["metadata"]["labels"] == labels
    service = jobs.api.must("GET", f"{jobs.services_path}/one-coordinator")
    assert service["spec"]["clusterIP"] == "None" and service["spec"]["selector"] == labels
    assert [(port["name"], port["port"]) for port in service["spec"]["ports"]] == [("di-port", 22273)]
    given = environment(pod)
    assert given["KUBERNETES_COORDINATOR_URL"] == "one-coordinator.default:22273"
    assert given["COORDINATOR_PORT"] == "22273"
    assert given["KUBERNETES_SERVER_URL"].removeprefix("http://") == "di-server.di-system:8080"
    assert pod["spec"]["restartPolicy"] == "Never"


def test_O002_a_running_coordinator_is_a_running_job(jobs, kubelet, control_plane):
    start(jobs, kubelet, "two")
    jobs.counts_become("two", Coordinator={"active": 1}, Collector={}, Learner={}, Aggregator={})
    assert phase_message(jobs, "two", "Running") == "coordinator and aggregator of DIJob two are running"
    table = control_plane.kubectl("get", "dijobs.v1alpha1.diengine.opendilab.org", "two").splitlines()
    assert table[0].split() == ["NAME", "PHASE", "AGE"] and table[1].split()[:2] == ["two", "Running"]


def test_O003_a_failed_coordinator_is_a_failed_job(jobs, kubelet):
    start(jobs, kubelet, "three")
    kubelet.set(jobs.pod("three-coordinator"), "Failed")
    jobs.reaches("three", "Failed")
    jobs.counts_become("three", Coordinator={"failed": 1})
    assert phase_message(jobs, "three", "Failed") == "DIJob three failed because coordinator failed"


def test_O004_a_succeeded_coordinator_is_a_succeeded_job(jobs, kubelet):
    start(jobs, kubelet, "four")
    kubelet.set(jobs.pod("four-coordinator"), "Succeeded")
    jobs.reaches("four", "Succeeded")
    jobs.counts_become("four", Coordinator={"succeeded": 1})
    assert phase_message(jobs, "four", "Succeeded") == "DIJob four succeeded because coordinator succeeded"


def test_O005_a_coordinator_that_cannot_be_created_leaves_the_job_created(jobs, control_plane):
    broken = template(container={"resources": {"limits": {"nvidia.com/gpu": "0.5"}}})
    jobs.submit(first_job("five", coordinator=broken))
    jobs.reaches("five", "Created")

    def warned():
        events = json.loads(control_plane.kubectl("get", "events", "-o", "json"))["items"]
        return [each for each in events if each["involvedObject"]["name"] == "five" and each["reason"] == "FailedCreate"]

    event = wait_for("the refusal", warned)[0]
    assert event["message"].startswith("Failed to create pod: five-coordinator error: ")
    assert jobs.pods("five") == [] and jobs.status("five")["phase"] == "Created"


def worker(name, role, index, phase_uid):
    """A pod of a job as somebody else made it, with the labels and the owner."""
    pod = f"{name}-{role}-{index}"
    labels = {"group-name": "diengine.opendilab.org", "dijob-name": name, "controller-name": "di-operator",
              "replica-type": role, "pod-name": pod}
    owner = {"apiVersion": V1, "kind": "DIJob", "name": name, "uid": phase_uid, "controller": True}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": pod, "labels": labels, "ownerReferences": [owner]},
            "spec": template()["template"]["spec"]}


def with_workers(jobs, kubelet, name, collectors, learners, **spec):
    """A running job with workers in these phases."""
    start(jobs, kubelet, name, **spec)
    owner = uid(jobs.get(name))
    for role, phases in (("collector", collectors), ("learner", learners)):
        for index, phase in enumerate(phases):
            pod = jobs.api.must("POST", jobs.pods_path, worker(name, role, index, owner))
            kubelet.set(pod, phase)


def test_O006_workers_are_counted_by_role_and_outcome(jobs, kubelet):
    with_workers(jobs, kubelet, "six", ["Running", "Running", "Failed"], ["Running", "Succeeded"])
    jobs.counts_become("six", Coordinator={"active": 1}, Collector={"active": 2, "failed": 1},
                       Learner={"active": 1, "succeeded": 1}, Aggregator={})
    assert jobs.status("six")["phase"] == "Running"


def test_O007_every_replica_has_a_service(jobs, kubelet):
    with_workers(jobs, kubelet, "seven", ["Running", "Failed"], ["Running", "Succeeded", "Running"])
    wait_for("six services", lambda: len(jobs.services("seven")) == 6)
    assert sorted(jobs.services("seven")) == sorted(pod["metadata"]["name"] for pod in jobs.pods("seven"))


def test_O008_success_moves_active_to_succeeded(jobs, kubelet):
    with_workers(jobs, kubelet, "eight", ["Running", "Running", "Failed"], ["Running", "Succeeded"])
    jobs.counts_become("eight", Collector={"active": 2, "failed": 1}, Learner={"active": 1, "succeeded": 1})
    kubelet.set(jobs.pod("eight-coordinator"), "Succeeded")
    jobs.reaches("eight", "Succeeded")
    jobs.counts_become("eight", Coordinator={"succeeded": 1}, Collector={"succeeded": 2, "failed": 1},
                       Learner={"succeeded": 2})


@pytest.mark.parametrize("kind, gpus, ports", [("master", 4, 5), ("worker", 6, 6), ("master", 1, 2), ("master", 0, 2),
                                               ("worker", 0, 1)])
def test_O009_the_service_of_a_ddp_learner_has_a_port_for_each_gpu(jobs, kubelet, kind, gpus, ports):
    name = f"nine-{kind}-{gpus}"
    start(jobs, kubelet, name)
    pod = worker(name, "ddp-learner", 0, uid(jobs.get(name)))
    pod["metadata"]["labels"]["ddp-learner-type"] = f"ddp-learner-{kind}"
    if gpus:
        pod["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": gpus}}
    jobs.api.must("POST", jobs.pods_path, pod)
    wait_for("its service", lambda: len(jobs.services(name)) == 2)
    service = jobs.api.must("GET", f"{jobs.services_path}/{name}-ddp-learner-0")
    assert len(service["spec"]["ports"]) == ports


@pytest.mark.parametrize("policy, left", [("All", 0), ("None", 6), ("Running", 2)])
def test_O010_the_clean_policy_decides_which_pods_stay(jobs, kubelet, policy, left):
    name = f"ten-{policy.lower()}"
    with_workers(jobs, kubelet, name, ["Running", "Running", "Failed"], ["Running", "Running"], cleanPodPolicy=policy)
    jobs.counts_become(name, Collector={"active": 2, "failed": 1}, Learner={"active": 2})
    kubelet.set(jobs.pod(f"{name}-coordinator"), "Succeeded")
    jobs.reaches(name, "Succeeded")
    wait_for(f"{left} pods and no service", lambda: len(jobs.pods(name)) == left and not jobs.services(name))


def test_O011_an_empty_clean_policy_is_stored_as_running(jobs):
    jobs.submit(first_job("eleven", cleanPodPolicy=""), first_job("absent"))
    for name in ("eleven", "absent"):
        wait_for("the default", lambda: jobs.get(name)["spec"].get("cleanPodPolicy") == "Running")
    jobs.change("eleven", lambda spec: spec.update(cleanPodPolicy=""))
    wait_for("the default again", lambda: jobs.get("eleven")["spec"].get("cleanPodPolicy") == "Running")


@pytest.mark.parametrize("policy", ["Running", "All", "None"])
def test_O012_a_known_clean_policy_is_kept(jobs, policy):
    name = f"twelve-{policy.lower()}"
    jobs.submit(first_job(name, cleanPodPolicy=policy))
    jobs.reaches(name, "Created")
    assert jobs.get(name)["spec"]["cleanPodPolicy"] == policy


def test_O013_an_unknown_clean_policy_is_refused(jobs, control_plane):
    def create(policy):
        manifest = json.dumps(first_job("thirteen", cleanPodPolicy=policy))
        return control_plane.run_kubectl("create", "--dry-run=server", "-f", "-", stdin=manifest)

    text = "Invalid CleanPodPolicy hello, expected in [None, Running, All]"
    wait_for("the policy to be in force", lambda: text in create("hello").stderr)
    assert create("hello").returncode != 0
    jobs.submit(first_job("thirteen", cleanPodPolicy="All"))
    edit = control_plane.run_kubectl("patch", "dijobs.v1alpha1.diengine.opendilab.org", "thirteen", "--type=merge", "-p",
                                     '{"spec": {"cleanPodPolicy": "hello"}}')
    assert edit.returncode != 0 and "Invalid CleanPodPolicy" in edit.stderr


def test_O014_a_job_with_only_a_coordinator_runs_to_its_end(jobs, kubelet):
    start(jobs, kubelet, "serial", workers=False)
    kubelet.set(jobs.pod("serial-coordinator"), "Succeeded")
    jobs.reaches("serial", "Succeeded")


def test_O018_deleting_the_job_removes_its_pods_and_services(jobs, kubelet):
    with_workers(jobs, kubelet, "gone", ["Running"], ["Running"])
    has_services(jobs, "gone", "gone-coordinator", "gone-collector-0", "gone-learner-0")
    jobs.delete("gone")
    wait_for("everything to go", lambda: not jobs.pods("gone", live=False) and not jobs.services("gone"))


def test_a_lost_coordinator_is_created_again(jobs, kubelet):
    start(jobs, kubelet, "again")
    before = jobs.pod("again-coordinator")
    kubelet.remove(before)
    wait_for("another coordinator", lambda: [uid(pod) for pod in jobs.pods("again")] not in ([], [uid(before)]))
    assert jobs.names("again") == ["again-coordinator"]


def test_a_job_of_both_generations_fails_with_the_reason(jobs):
    mixed = first_job("mixed", tasks=[{"type": "none", "name": "a", **template()}])
    jobs.submit(mixed)
    jobs.reaches("mixed", "Failed")
    assert "both coordinator and tasks" in jobs.message("mixed", "Failed")


def test_O019_a_demand_is_answered_with_that_many_urls(jobs, kubelet, client):
    start(jobs, kubelet, "ask")
    made = client.demand("ask", 2, 3)
    assert (made["namespace"], made["coordinator"]) == ("default", "ask-coordinator")
    assert len(made["collectors"]) == 2 and len(made["learners"]) == 3
    names = [pod["metadata"]["name"] for pod in jobs.pods("ask")]
    assert sorted(names) == sorted(["ask-coordinator", *map(pod_of, made["collectors"] + made["learners"])])
    assert all(url.endswith(".default:22270") for url in made["collectors"])
    assert all(url.endswith(".default:22271") for url in made["learners"])
    wait_for("a service for each", lambda: sorted(jobs.services("ask")) == sorted(names))


def test_O020_the_list_has_the_same_numbers(jobs, kubelet, client):
    start(jobs, kubelet, "same")
    made = client.demand("same", 2, 3)
    listed = client.listed("same")
    assert {key: sorted(made[key]) for key in ("collectors", "learners")} == {
        key: sorted(listed[key]) for key in ("collectors", "learners")}


def test_O021_failed_pods_are_replaced(jobs, kubelet, client):
    start(jobs, kubelet, "heal")
    made = client.demand("heal", 2, 2)
    named = {"namespace": "default", "coordinator": "heal-coordinator", "collectors": [pod_of(made["collectors"][0])],
             "learners": [pod_of(made["learners"][0])]}
    again = client.must("POST", "/replicas/failed", named)
    assert len(again["collectors"]) == len(again["learners"]) == 1
    assert again["collectors"][0] not in made["collectors"] and again["learners"][0] not in made["learners"]
    wait_for("as many pods as before", lambda: len(jobs.pods("heal", live=False)) == 5)


def test_O022_a_pod_named_twice_is_replaced_once(jobs, kubelet, client):
    start(jobs, kubelet, "twice")
    made = client.demand("twice", 1, 1)
    name = pod_of(made["collectors"][0])
    again = client.must("POST", "/replicas/failed", {"namespace": "default", "coordinator": "twice-coordinator",
                                                     "collectors": [name, name]})
    assert len(again["collectors"]) == 1
    wait_for("three pods", lambda: len(jobs.pods("twice", live=False)) == 3)


def test_O023_a_delete_removes_that_many(jobs, kubelet, client):
    start(jobs, kubelet, "less")
    client.demand("less", 2, 2)
    gone = client.demand("less", 1, 1, method="DELETE")
    assert len(gone["collectors"]) == len(gone["learners"]) == 1
    left = {pod["metadata"]["name"] for pod in jobs.pods("less")}
    assert len(left) == 3 and not left & set(map(pod_of, gone["collectors"] + gone["learners"]))
    assert sorted(client.listed("less")["collectors"] + client.listed("less")["learners"]) == sorted(
        f"{name}.default:{22270 if 'collector' in name else 22271}" for name in left if name != "less-coordinator")


def test_O024_lists_of_a_namespace_and_of_all(jobs, kubelet, client):
    start(jobs, kubelet, "listed")
    made = client.demand("listed", 1, 0)
    for path in ("/replicas?namespace=default", "/replicas"):
        one = next(each for each in client.must("GET", path) if each["coordinator"] == "listed-coordinator")
        assert (one["namespace"], one["collectors"], one["learners"]) == ("default", made["collectors"], [])


def test_O025_an_unknown_coordinator_is_404(client):
    status, answer = client.ask("POST", "/replicas", {"namespace": "default", "coordinator": "not-exists",
                                                      "collectors": {"replicas": 1}})
    assert (status, answer) == (404, {
        "success": False, "code": 1, "message": "pod: default/not-exists not exists in cache",
        "data": {"namespace": "", "coordinator": "", "collectors": None, "learners": None}})


@pytest.mark.usefixtures("gpu_nodes", "aggregator_config")
@pytest.mark.parametrize("number, replicas, gpus, aggregators, ddp, ports", [
    (30, 1, 1, 0, 0, 0), (31, 1, 2, 1, 1, 2), (32, 1, 10, 1, 2, 10), (33, 2, 2, 2, 2, 4)])
def test_O030_to_O033_gpus_become_pods(jobs, kubelet, client, number, replicas, gpus, aggregators, ddp, ports):
    name = f"gpu{number}"
    start(jobs, kubelet, name)
    made = client.demand(name, learners={"replicas": replicas, "gpus": gpus})
    assert len(made["learners"]) == replicas
    plain = jobs.pods(name, role="learner")
    groups = jobs.pods(name, role="ddp-learner")
    heads = [pod["metadata"]["name"] for pod in jobs.pods(name, role="aggregator")]
    assert (len(heads), len(groups), len(plain)) == (aggregators, ddp, 0 if aggregators else replicas)
    if aggregators:
        assert sorted(map(pod_of, made["learners"])) == sorted(heads)
    declared = [port for pod in groups for port in pod["spec"]["containers"][0]["ports"] if port["name"] != "master-port"]
    assert len(declared) == ports


@pytest.mark.usefixtures("gpu_nodes", "aggregator_config")
def test_O034_and_O035_an_aggregator_lists_its_learners_and_is_replaced_with_them(jobs, kubelet, client):
    start(jobs, kubelet, "group")
    made = client.demand("group", learners={"replicas": 1, "gpus": 10})
    head = pod_of(made["learners"][0])
    listed = client.must("GET", f"/replicas?namespace=default&aggregator={head}")
    assert listed["coordinator"] == head and listed["collectors"] is None and len(listed["learners"]) == 10
    again = client.must("POST", "/replicas/failed", {"namespace": "default", "coordinator": "group-coordinator",
                                                     "learners": [head]})
    assert len(again["learners"]) == 1
    after = client.must("GET", f"/replicas?namespace=default&aggregator={pod_of(again['learners'][0])}")
    assert len(after["learners"]) == 10 and not set(after["learners"]) & set(listed["learners"])


def test_O038_a_coordinator_of_a_deleted_job_is_refused(jobs, kubelet, client, control_plane):
    start(jobs, kubelet, "reused")
    # Held by a finalizer: the garbage collector deletes pods whose owner is not there.
    path = f"{jobs.pods_path}/reused-coordinator"
    jobs.api.must("PATCH", path, {"metadata": {"finalizers": ["test/stale"]}}, MERGE)
    control_plane.kubectl("delete", "dijob", "reused", "--cascade=background")
    jobs.submit(first_job("reused"))
    status, answer = client.ask("POST", "/replicas", {"namespace": "default", "coordinator": "reused-coordinator",
                                                      "collectors": {"replicas": 1}})
    jobs.api.must("PATCH", path, {"metadata": {"finalizers": None}}, MERGE)
    assert (status, answer["message"]) == (404, "coordinator reused-coordinator is owned by stale DIJob")


def test_O039_requested_resources_overwrite_limits_and_requests(jobs, kubelet, client):
    start(jobs, kubelet, "sized", learner=template(container={"resources": {"limits": {"nvidia.com/gpu": 1, "cpu": 6}}}))
    made = client.demand("sized", {"replicas": 1, "cpus": 2, "memory": "1Gi"}, {"replicas": 1, "gpus": 0, "memory": "2Gi"})
    collector = jobs.pod(pod_of(made["collectors"][0]))["spec"]["containers"][0]["resources"]
    assert collector["limits"] == collector["requests"] == {"cpu": "2", "memory": "1Gi"}
    learner = jobs.pod(pod_of(made["learners"][0]))["spec"]["containers"][0]["resources"]
    assert learner["limits"] == {"cpu": "6", "memory": "2Gi", "nvidia.com/gpu": "1"}
    assert learner["requests"]["memory"] == "2Gi"


def test_the_demand_of_a_recreated_coordinator_does_not_double(jobs, kubelet, client):
    start(jobs, kubelet, "double")
    made = client.demand("double", 2, 1)
    before = jobs.pod("double-coordinator")
    kubelet.remove(before)
    wait_for("another coordinator", lambda: any(
        pod["metadata"]["name"] == "double-coordinator" and uid(pod) != uid(before) for pod in jobs.pods("double")))
    again = client.demand("double", 2, 1)
    assert sorted(again["collectors"]) == sorted(made["collectors"]) and again["learners"] == made["learners"]
    assert len(jobs.pods("double")) == 4


@pytest.mark.usefixtures("gpu_nodes")
def test_the_aggregator_config_is_needed_for_aggregators_only(jobs, kubelet, client):
    start(jobs, kubelet, "lacking")
    assert len(client.demand("lacking", 1, 1)["collectors"]) == 1
    status, answer = client.ask("POST", "/replicas", {"namespace": "default", "coordinator": "lacking-coordinator",
                                                      "learners": {"replicas": 1, "gpus": 2}})
    assert (status, answer["message"]) == (404, "AGConfig: di-system/aggregator-config not exists in cache")


def test_O090_a_restarted_di_server_never_answers_404(jobs, kubelet, control_plane):
    start(jobs, kubelet, "steady")
    port = free_port()
    client, seen, over = Client(port), [], threading.Event()

    def poll():
        while not over.is_set():
            try:
                seen.append(client.ask("GET", "/replicas?namespace=default&coordinator=steady-coordinator"))
            except (OSError, http.client.HTTPException) as error:
                seen.append(error)

    process = Program("di-server", control_plane, "-s", "127.0.0.1:0", "-p", f"127.0.0.1:{port}")
    with process:
        process.says("serving api=")
        made = client.demand("steady", 2, 0)
        poller = threading.Thread(target=poll)
        poller.start()
        try:
            for _ in range(5):
                before = len(seen)
                process.kill()
                process.start()
                process.says("serving api=")
                wait_for("an answer of the new server", lambda: any(isinstance(each, tuple) for each in seen[before + 5:]))
        finally:
            over.set()
            poller.join()
    answers = [each for each in seen if isinstance(each, tuple)]
    assert len(answers) < len(seen), "no request fell into a restart"
    assert {status for status, _ in answers} == {200}
    assert all(sorted(answer["data"]["collectors"]) == sorted(made["collectors"]) for _, answer in answers)
