"""A node with Divisi on it, as users install it: the image of deploy/Containerfile with the programs of this build,
`kubectl apply`."""

import contextlib

from harness import BUSYBOX, Instance, succeed, wait_for

from .jobs import Jobs
from .programs import BUILD, DEPLOY

DITASK = "docker.io/local/ditask:1"
ORCHESTRATOR = "docker.io/divisi/di-orchestrator:0.1.0"
# What the stage that compiles would have made.
IN_ORCHESTRATOR = {"/divisi/build/release/bin/di-orchestrator": BUILD / "bin" / "di-orchestrator"}
PACKAGES = [BUILD / "tests" / "packages" / "meeting.so", BUILD / "tests" / "packages" / "peer_watch.so",
            BUILD / "examples" / "cartpole_dqn.so"]


def load_images(instance):
    succeed("image", "--name", instance.name, BUSYBOX, "--busybox")
    # Where nothing is cached it begins with a Debian out of packages.
    succeed("image", "--name", instance.name, ORCHESTRATOR, "--containerfile", DEPLOY / "Containerfile",
            *(f"{source}={place}" for place, source in IN_ORCHESTRATOR.items()), deadline=900)
    succeed("image", "--name", instance.name, DITASK, f"{BUILD}/bin/ditask=/usr/bin/ditask",
            *(f"{package}=/packages/{package.name}" for package in PACKAGES), "--busybox", "--libraries")


def install(instance):
    instance.kubectl("apply", "-f", str(DEPLOY / "divisi.yaml"))
    for name in ("di-operator", "di-server"):
        instance.kubectl("-n", "di-system", "rollout", "status", f"deployment/{name}", "--timeout=100s")


@contextlib.contextmanager
def installed():
    with Instance() as instance:
        load_images(instance)
        install(instance)
        yield instance


class Server:
    """di-server as clients in the cluster see it; the API server passes the requests on."""

    def __init__(self, jobs: Jobs, port=8081):
        self.api = jobs.api
        self.path = f"/api/v1/namespaces/di-system/services/di-server:{port}/proxy"

    def ask(self, method, path, body=None):
        return self.api.call(method, self.path + path, body)

    def must(self, method, path, body=None):
        status, answer = self.ask(method, path, body)
        assert status == 200 and answer["success"], (status, answer)
        return answer["data"]


def log(instance, pod):
    return instance.kubectl("logs", pod)


def kill_container(instance, pod):
    """As a crash: everything in it but its shell, which then ends with 137."""
    instance.run_kubectl("exec", pod, "--", "sh", "-c", "kill -9 $(pidof ditask)")


def gone(jobs, name):
    wait_for(f"the pods of {name} to go", lambda: jobs.pods(name, live=False) == [])
