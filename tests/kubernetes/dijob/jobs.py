"""DIJobs as a test writes and sees them.

  jobs = Jobs(instance)
  jobs.submit(job("mine", task("learner"), task("collector", 2)))
  jobs.reaches("mine", "Running")
"""

from harness import BUSYBOX, wait_for

from .api import GROUP, MERGE, Api, Refused


def template(script="sleep 1000", **extra):
    container = {"name": "di-container", "image": BUSYBOX, "imagePullPolicy": "Never", "command": ["sh", "-c", script],
                 **extra.pop("container", {})}
    return {"spec": {"terminationGracePeriodSeconds": 0, "containers": [container], **extra}}


def task(kind, replicas=1, script="sleep 1000", **extra):
    return {"type": kind, "replicas": replicas, "template": template(script), **extra}


def job(name, *tasks, **spec):
    return {"apiVersion": "diengine.opendilab.org/v2alpha1", "kind": "DIJob", "metadata": {"name": name},
            "spec": {**({"tasks": list(tasks)} if tasks else {}), **spec}}


class Jobs:
    def __init__(self, instance, space="default"):
        self.instance, self.space, self.api = instance, space, Api(instance)
        self.pods_path = f"/api/v1/namespaces/{space}/pods"
        self.jobs_path = f"{GROUP}/namespaces/{space}/dijobs"

    def submit(self, *objects):
        for each in objects:
            self.api.must("POST", self.jobs_path, each)

    def get(self, name):
        return self.api.must("GET", f"{self.jobs_path}/{name}")

    def status(self, name):
        return self.get(name).get("status", {})

    def patch(self, name, patch, subresource=""):
        return self.api.must("PATCH", f"{self.jobs_path}/{name}{subresource}", patch, MERGE)

    def change(self, name, change):
        """Edits the object as kubectl edit does: again when somebody else was faster."""

        def written():
            whole = self.get(name)
            change(whole["spec"])
            try:
                return self.api.must("PUT", f"{self.jobs_path}/{name}", whole)
            except Refused as refused:
                if refused.status != 409:
                    raise
                return None

        return wait_for(f"an edit of {name}", written)

    def delete(self, name):
        self.api.must("DELETE", f"{self.jobs_path}/{name}?propagationPolicy=Background")

    def reaches(self, name, phase, **status):
        """The status, once it has this phase and these fields."""

        def there():
            now = self.status(name)
            wanted = {"phase": phase, **status}
            return now if all(now.get(key) == value for key, value in wanted.items()) else None

        try:
            return wait_for(f"{name} {phase} {status}", there, 60)
        except AssertionError as error:
            raise AssertionError(f"{error}: {self.status(name)}, pods {self.names(name)}") from None

    def pods(self, name, live=True):
        """Those of a job, by rank."""
        found = self.api.must("GET", f"{self.pods_path}?labelSelector=diengine/job%3D{name}")["items"]
        if live:
            found = [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]
        return sorted(found, key=rank)

    def names(self, name):
        return [pod["metadata"]["name"] for pod in self.pods(name)]

    def has_pods(self, name, *names):
        wait_for(f"the pods {names} of {name}", lambda: sorted(self.names(name)) == sorted(names), 60)
        return self.pods(name)

    def message(self, name, kind):
        """Of the condition of that type."""
        conditions = self.status(name)["conditions"]
        return next(c["message"] for c in conditions if c["type"] == kind and c["status"] == "True")


def rank(pod):
    return int(pod["metadata"].get("annotations", {}).get("diengine/rank", -1))


def uid(pod):
    return pod["metadata"]["uid"]


def environment(pod):
    return {entry["name"]: entry.get("value", "") for entry in pod["spec"]["containers"][0].get("env", [])}
