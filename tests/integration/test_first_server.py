"""di-server's first generation with a client that behaves as DI-engine's: http.client, a body on GET, no
Content-Type, and the command line that swaps quotes in the answer before it parses it."""

import http.client
import json
import os
import pathlib
import subprocess
import sys
import time

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(pathlib.Path(__file__).resolve().parent), str(ROOT / "tests" / "shared")]

from fake_kubernetes import FakeKubernetes  # noqa: E402
from ports import free_ports  # noqa: E402

PROGRAM = pathlib.Path(os.environ.get("DIVISI_BUILD", ROOT / "build" / "release"), "bin", "di-orchestrator")
JOBS = "/apis/diengine.opendilab.org/v2alpha1"
CONFIGS = "/apis/diengine.opendilab.org/v1alpha1"
DEADLINE = 60
QUANTITY = "^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$"


def template(port):
    return {"template": {"spec": {"containers": [
        {"name": "di-container", "image": "i", "ports": [{"name": "di-port", "containerPort": port}]}]}}}


def coordinator_pod(job):
    return {
        "apiVersion": "v1", "kind": "Pod", "status": {"phase": "Running"}, "spec": {"containers": [{"name": "di-container"}]},
        "metadata": {
            "name": f"{job['metadata']['name']}-coordinator", "namespace": "default",
            "labels": {"group-name": "diengine.opendilab.org", "controller-name": "di-operator", "replica-type": "coordinator",
                       "dijob-name": job["metadata"]["name"], "pod-name": f"{job['metadata']['name']}-coordinator"},
            "ownerReferences": [{"apiVersion": "diengine.opendilab.org/v1alpha1", "kind": "DIJob", "controller": True,
                                 "name": job["metadata"]["name"], "uid": job["metadata"]["uid"]}],
        },
    }


def request(port, verb, path, body, headers=None):
    """Retries refused connections five times, one second apart, and has no time-out of its own."""
    for tries in range(5):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=DEADLINE)
        try:
            connection.request(verb, path, body=None if body is None else json.dumps(body), headers=headers or {})
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        except ConnectionError:
            if tries == 4:
                raise
            time.sleep(1)
        finally:
            connection.close()


def printed_by_the_helper(text):
    """What the command line of DI-engine understands of what curl printed in the coordinator pod."""
    text = text.replace("'", '"').replace("None", "null").replace(": False", ": 0").replace(": True", ": 1")
    text = text.replace(f'"{QUANTITY}"', f'\\"{QUANTITY}\\"')
    answer = json.loads(text)
    return answer["code"], answer["message"]


class Server:
    def __init__(self, cluster, folder, *flags):
        self.api, self.probe = free_ports(2)
        self.arguments = [str(PROGRAM), "server", "--kubeconfig", cluster.kubeconfig(folder), "--metric-addr", "0",
                          "-s", f"127.0.0.1:{self.api}", "-p", f"127.0.0.1:{self.probe}", *flags]
        self.log = open(pathlib.Path(folder, "server.log"), "ab")
        self.process = None

    def start(self):
        self.process = subprocess.Popen(self.arguments, stdout=self.log, stderr=subprocess.STDOUT)
        end = time.monotonic() + DEADLINE
        while time.monotonic() < end:
            assert self.process.poll() is None, pathlib.Path(self.log.name).read_text()
            try:
                if request(self.api, "GET", "/healthz", None)[0] == 200:
                    return
            except ConnectionError:
                continue
        raise AssertionError("di-server does not answer")

    def kill(self):
        self.process.kill()
        self.process.wait()

    def stop(self):
        self.process.terminate()
        code = self.process.wait(DEADLINE)
        self.log.close()
        assert code == 0, pathlib.Path(self.log.name).read_text()


@pytest.fixture
def cluster():
    with FakeKubernetes() as made:
        job = made.put(JOBS, "dijobs", {"metadata": {"name": "dijob-example-1", "namespace": "default"}, "spec": {
            "coordinator": template(80), "collector": template(80), "learner": template(80)}})
        made.put("/api/v1", "pods", coordinator_pod(job))
        made.put(CONFIGS, "aggregatorconfigs", {"metadata": {"name": "mine", "namespace": "rl"},
                                                "spec": {"aggregator": template(22270)}})
        made.put("/api/v1", "nodes", {"metadata": {"name": "n"}, "status": {"allocatable": {"nvidia.com/gpu": "8"}}})
        yield made


@pytest.fixture
def server(cluster, tmp_path):
    made = Server(cluster, tmp_path, "--agconfig-namespace=rl", "--agconfig-name=mine", "--gpu-alloc-policy=simple",
                  "--leader-elect", "--lease-lock-namespace=di-system", "--lease-lock-name=di-server",
                  "--server-address=di-server.di-system:8080")
    made.start()
    yield made
    made.stop()


def demand(**sizes):
    return {"namespace": "default", "coordinator": "dijob-example-1-coordinator", **sizes}


def poll(port):
    status, text = request(port, "GET", "/v1alpha1/replicas?namespace=default&coordinator=dijob-example-1-coordinator", {})
    assert status == 200, text
    return json.loads(text)["data"]


def test_O040_engine_client_drives_the_worked_exchange(server, cluster):
    for port in (server.api, server.probe):
        assert poll(port) == {"namespace": "default", "coordinator": "dijob-example-1-coordinator", "collectors": [],
                              "learners": []}
    status, text = request(server.probe, "POST", "/v1alpha1/replicas",
                           demand(collectors={"replicas": 2, "cpu": "0.5"}, learners={"gpus": "0", "replicas": 2}))
    assert status == 200, text
    answer = json.loads(text)
    assert list(answer) == ["success", "code", "message", "data"]
    assert answer["success"] is True and answer["code"] == 0
    made = answer["data"]
    assert len(made["collectors"]) == 2 and len(made["learners"]) == 2
    for url in made["collectors"] + made["learners"]:
        host, colon, port = url.partition(":")  # as the client takes it apart
        assert colon and port == "80"
        pod, dot, space = host.rpartition(".")
        assert dot and space == "default"
        assert pod.startswith("dijob-example-1-")
    names = {each["metadata"]["name"] for each in cluster.pods("collector")}
    assert {url.partition(".")[0] for url in made["collectors"]} == names
    env = {each["name"]: each["value"] for each in cluster.pods("collector")[0]["spec"]["containers"][0]["env"]}
    assert env["KUBERNETES_SERVER_URL"] == "di-server.di-system:8080"
    for _ in range(5):
        seen = poll(server.api)
        assert sorted(seen["collectors"]) == sorted(made["collectors"])
        assert sorted(seen["learners"]) == sorted(made["learners"])

    status, text = request(server.probe, "DELETE", "/v1alpha1/replicas", demand(collectors={"replicas": 1}))
    gone = json.loads(text)["data"]
    assert status == 200 and len(gone["collectors"]) == 1 and gone["learners"] == []
    assert poll(server.probe)["collectors"] == [url for url in sorted(made["collectors"]) if url not in gone["collectors"]]

    left = poll(server.probe)["collectors"][0]
    status, text = request(server.probe, "POST", "/v1alpha1/replicas/failed",
                           {"namespace": "default", "coordinator": "dijob-example-1-coordinator",
                            "collectors": [left.partition(".")[0]], "learners": []})
    fresh = json.loads(text)["data"]
    assert status == 200 and len(fresh["collectors"]) == 1 and fresh["learners"] is None
    assert poll(server.probe)["collectors"] == fresh["collectors"]


def test_helper_of_the_command_line_understands_every_answer(server):
    headers = {"content-type": "application/json"}
    asked = [
        ("POST", "/v1alpha1/replicas", demand(collectors={"replicas": 1, "cpus": 1}), 0, "successfully create replicas"),
        ("POST", "/v1alpha1/replicas", demand(learners={"replicas": 1, "gpus": 2, "cpus": 1}), 0, "successfully create replicas"),
        ("DELETE", "/v1alpha1/replicas", demand(collectors={"replicas": 1}), 0, "successfully delete replicas"),
        ("POST", "/v1alpha1/replicas/failed", demand(collectors=["no-such-pod"]), 0, "successfully recreate replicas"),
        ("POST", "/v1alpha1/replicas", demand(collectors={"replicas": 1, "memory": "much"}), 1, QUANTITY),
        ("POST", "/v1alpha1/replicas", demand(collectors={"replicas": "it's \"2\""}), 1, "failed to decode request body"),
        ("POST", "/v1alpha1/replicas", demand(coordinator="it's"), 1, "not exists in cache"),
        ("PATCH", "/v1alpha1/replicas", demand(), 1, "PATCH not implemented"),
        ("GET", "/v1alpha1/replicas?it's=1", {}, 1, "is not supported"),
    ]
    for verb, path, body, code, message in asked:
        _, text = request(server.probe, verb, path.replace("'", "%27"), body, headers)
        got, said = printed_by_the_helper(text)
        assert got == code, text
        assert message in said, text


def test_O090_killed_server_leads_to_no_404(server, cluster):
    request(server.probe, "POST", "/v1alpha1/replicas", demand(collectors={"replicas": 2}, learners={"replicas": 1}))
    for _ in range(3):
        server.kill()
        server.start()
        for _ in range(3):
            seen = poll(server.probe)
            assert len(seen["collectors"]) == 2 and len(seen["learners"]) == 1
    assert len(cluster.pods("collector")) == 2


def test_OD25_recreated_coordinator_finds_its_workers(server, cluster):
    sizes = {"collectors": {"replicas": 2}, "learners": {"replicas": 1, "gpus": 10}}
    first = json.loads(request(server.probe, "POST", "/v1alpha1/replicas", demand(**sizes))[1])["data"]
    assert len(cluster.pods("ddp-learner")) == 2
    cluster.remove("/api/v1", "pods", "default", "dijob-example-1-coordinator")
    job = cluster.objects[(JOBS + "/dijobs", "default", "dijob-example-1")]
    cluster.put("/api/v1", "pods", coordinator_pod(job))
    again = json.loads(request(server.probe, "POST", "/v1alpha1/replicas", demand(**sizes))[1])["data"]
    assert sorted(again["collectors"]) == sorted(first["collectors"])
    assert again["learners"] == first["learners"]
    assert len(cluster.pods("collector")) == 2 and len(cluster.pods("ddp-learner")) == 2
