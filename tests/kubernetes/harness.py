"""An instance as the tests see it: started and stopped by the commands, asked by the real kubectl."""

import json
import os
import pathlib
import subprocess
import time

HERE = pathlib.Path(__file__).resolve().parent
DEADLINE = 120  # seconds; only a hang ever waits for it
BUSYBOX = "docker.io/local/busybox:1"


def command(name, *arguments, deadline=DEADLINE):
    """One of the commands beside this file."""
    return subprocess.run([HERE / name, *map(str, arguments)], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          timeout=deadline)


def succeed(name, *arguments, deadline=DEADLINE):
    done = command(name, *arguments, deadline=deadline)
    assert done.returncode == 0, f"{name} {arguments}: {done.stderr}"
    return done.stdout


def answers(text):
    """NAME=value, a line each."""
    return dict(line.split("=", 1) for line in text.splitlines() if "=" in line)


def wait_for(what, predicate, seconds=DEADLINE):
    deadline = time.monotonic() + seconds
    while not (value := predicate()):
        assert time.monotonic() < deadline, f"waited {seconds} s for {what}"
        time.sleep(0.1)
    return value


class Output:
    """What a process has said so far, without waiting for it."""

    def __init__(self, pipe):
        self.pipe = pipe.fileno()
        self.keep = pipe  # its end would close the descriptor
        os.set_blocking(self.pipe, False)
        self.said = b""

    def text(self):
        try:
            while piece := os.read(self.pipe, 1 << 16):
                self.said += piece
        except BlockingIOError:
            pass
        return self.said.decode()


class Instance:
    """with Instance("--control-plane-only") as instance: instance.kubectl("get", "nodes")"""

    count = 0

    def __init__(self, *options):
        Instance.count += 1
        self.name = f"test-{os.getpid()}-{Instance.count}"
        self.options = options

    def __enter__(self):
        try:
            self.up()
        except BaseException:  # its deadline may have killed `up` half-way
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        command("down", "--name", self.name)

    def up(self):
        said = answers(succeed("up", "--name", self.name, "--token", *self.options))
        self.token = said["TOKEN"]
        self.kubeconfig = pathlib.Path(said["KUBECONFIG"])
        self.folder = self.kubeconfig.parent
        facts = json.loads((self.folder / "facts.json").read_text())
        self.server, self.program = facts["server"], facts["kubectl"]

    def pid(self, daemon):
        return int((self.folder / "pids" / daemon).read_text().split()[0])

    def run_kubectl(self, *arguments, stdin=None):
        environment = {"KUBECONFIG": str(self.kubeconfig), "HOME": str(self.folder), "PATH": os.environ["PATH"]}
        return subprocess.run([self.program, *arguments], input=stdin, capture_output=True, text=True, timeout=DEADLINE,
                              env=environment)

    def kubectl(self, *arguments, stdin=None):
        done = self.run_kubectl(*arguments, stdin=stdin)
        assert done.returncode == 0, f"kubectl {' '.join(arguments)}: {done.stderr}"
        return done.stdout

    def apply(self, *objects):
        self.kubectl("apply", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))

    def get(self, kind, name):
        return json.loads(self.kubectl("get", kind, name, "-o", "json"))

    def finished(self, pod):
        """The state of its container, once that has ended."""

        def ended():
            statuses = self.get("pod", pod)["status"].get("containerStatuses")
            return statuses[0]["state"].get("terminated") if statuses else None

        return wait_for(f"the end of pod {pod}", ended)


def pod(name, script, **extra):
    """A pod that runs a shell script. `extra` is merged: container=..., anything else into the spec."""
    container = {"name": "main", "image": BUSYBOX, "imagePullPolicy": "Never", "command": ["sh", "-c", script],
                 **extra.pop("container", {})}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": name}},
            "spec": {"restartPolicy": "Never", "terminationGracePeriodSeconds": 0, "containers": [container], **extra}}
