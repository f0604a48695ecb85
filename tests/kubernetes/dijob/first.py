"""First-generation (v1alpha1) DIJobs as a test writes and sees them."""

import json
import urllib.error
import urllib.request

from harness import BUSYBOX, wait_for

from .jobs import Jobs

V1 = "diengine.opendilab.org/v1alpha1"
GROUP = f"/apis/{V1}"


def template(role="di-container", script="sleep 1000", **extra):
    container = {"name": role, "image": BUSYBOX, "imagePullPolicy": "Never", "command": ["sh", "-c", script],
                 **extra.pop("container", {})}
    return {"template": {"spec": {"terminationGracePeriodSeconds": 0, "containers": [container], **extra}}}


def first_job(name, *, workers=True, **spec):
    roles = {"coordinator": template(), **({"collector": template(), "learner": template()} if workers else {})}
    return {"apiVersion": V1, "kind": "DIJob", "metadata": {"name": name}, "spec": {**roles, **spec}}


class FirstJobs(Jobs):
    def __init__(self, instance, space="default"):
        super().__init__(instance, space)
        self.jobs_path = f"{GROUP}/namespaces/{space}/dijobs"
        self.services_path = f"/api/v1/namespaces/{space}/services"

    def pods(self, name, live=True, role=None):
        found = self._labelled(self.pods_path, name, role)
        return [pod for pod in found if not live or "deletionTimestamp" not in pod["metadata"]]

    def services(self, name):
        return [each["metadata"]["name"] for each in self._labelled(self.services_path, name)]

    def pod(self, name):
        return self.api.must("GET", f"{self.pods_path}/{name}")

    def counts(self, name):
        return self.status(name).get("replicaStatus", {})

    def counts_become(self, name, **roles):
        """Waits until replicaStatus has these counts for these roles."""
        wait_for(f"the counts {roles} of {name}",
                 lambda: all(self.counts(name).get(role) == count for role, count in roles.items()), 60)

    def _labelled(self, path, name, role=None):
        selector = f"controller-name%3Ddi-operator,dijob-name%3D{name}" + (f",replica-type%3D{role}" if role else "")
        return sorted(self.api.must("GET", f"{path}?labelSelector={selector}")["items"],
                      key=lambda each: each["metadata"]["name"])


class Client:
    """di-server as DI-engine's client asks it: bodies on every verb, no Content-Type."""

    def __init__(self, port):
        self.base = f"http://127.0.0.1:{port}/v1alpha1"

    def ask(self, method, path, body=None):
        """(status, answer)."""
        data = json.dumps({} if body is None else body).encode()
        request = urllib.request.Request(self.base + path, data, {"Content-Type": ""}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, json.loads(answer.read() or b"null")
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read())

    def must(self, method, path, body=None):
        status, answer = self.ask(method, path, body)
        assert (status, answer["success"], answer["code"]) == (200, True, 0), (status, answer)
        return answer["data"]

    def demand(self, job, collectors=None, learners=None, method="POST", **more):
        body = {"namespace": "default", "coordinator": f"{job}-coordinator", **more}
        if collectors is not None:
            body["collectors"] = collectors if isinstance(collectors, dict) else {"replicas": collectors}
        if learners is not None:
            body["learners"] = learners if isinstance(learners, dict) else {"replicas": learners}
        return self.must(method, "/replicas", body)

    def listed(self, job):
        return self.must("GET", f"/replicas?namespace=default&coordinator={job}-coordinator")


def pod_of(url):
    """As the client recovers it: without the port, without the last label."""
    host, _ = url.split(":")
    return host.rsplit(".", 1)[0]
