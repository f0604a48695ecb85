"""divisi run with the backends dijob and job, on a real Kubernetes."""

import contextlib
import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import threading
import time
import urllib.parse

import pytest

from dijob.programs import BUILD
from harness import answers, succeed, wait_for

DIVISI = BUILD / "bin" / "divisi"
IMAGE = "docker.io/local/run:1"
SPACE = "run"
LABEL = "divisi.opendilab.org/job"
LONG = 300  # seconds; only a hang ever waits for it
BACKENDS = ("dijob", "job")
KINDS = "dijobs,jobs,pods,services,configmaps,secrets"

GREETING = """
import queue

from divisi import task


def main():
    with task.start():
        node = task.router.node_id
        if node == 0:
            heard = queue.Queue()
            task.on("greeting", heard.put)
            for _ in range(2):
                print("heard:", heard.get(timeout=60))
        else:
            task.emit("greeting", f"Hi from {node}", only_remote=True)
"""


class Cli:
    """`divisi` with records, settings and a kubeconfig of its own."""

    def __init__(self, instance, folder, space):
        self.folder = folder
        self.kubeconfig = folder / "kubeconfig"
        shutil.copy(instance.kubeconfig, self.kubeconfig)
        self.kubeconfig.chmod(0o600)
        subprocess.run([instance.program, "config", "set-context", "--current", f"--namespace={space}",
                        "--kubeconfig", self.kubeconfig], check=True, capture_output=True)
        self.environment = {"HOME": str(folder), "PATH": os.environ["PATH"], "KUBECONFIG": str(self.kubeconfig)}
        self.processes = []

    def start(self, *arguments):
        out, err = (self.folder / f"{name}-{len(self.processes)}" for name in ("out", "err"))
        with out.open("w") as stdout, err.open("w") as stderr:
            process = subprocess.Popen([DIVISI, *map(str, arguments)], env=self.environment, cwd=self.folder,
                                       stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr)
        process.said, process.noted = out.read_text, err.read_text
        self.processes.append(process)
        return process

    def __call__(self, *arguments):
        """Exit code, standard output and standard error."""
        process = self.start(*arguments)
        return process.wait(LONG), process.said(), process.noted()

    def must(self, *arguments):
        code, out, err = self(*arguments)
        assert code == 0, (arguments, out, err)
        return out

    def mistake(self, *arguments):
        """The one line of an error."""
        code, out, err = self(*arguments)
        lines = [line for line in err.splitlines() if ", because " not in line]
        assert code in (2, 125) and out == "" and len(lines) == 1, (arguments, code, out, err)
        return lines[0]

    def run(self, backend, *arguments, workers=1):
        return ("run", "--workers", workers, "--backend", backend, "--image", IMAGE, "--image-pull-policy", "Never",
                *arguments)

    def close(self):
        for process in self.processes:
            if process.poll() is None:
                process.kill()
                process.wait()


@pytest.fixture(scope="module")
def cluster(node):
    # Where ditask looks for the Python package beside itself, and that for its library.
    files = [f"{file}=/usr/{file.relative_to(BUILD)}" for file in sorted((BUILD / "python" / "divisi").rglob("*"))
             if file.is_file() and not {"__pycache__", "tune", "_ding_shim"} & set(file.parts)]
    files.append(f"{BUILD}/lib/libdivisi.so.0=/usr/lib/libdivisi.so.0")
    succeed("image", "--name", node.name, IMAGE, f"{BUILD}/bin/ditask=/usr/bin/ditask", *files, "--busybox", "--python",
            "--libraries")
    node.kubectl("create", "namespace", SPACE)
    real = json.loads(node.kubectl("get", "nodes", "-o", "json"))["items"][0]["metadata"]["name"]
    gpus = {"nvidia.com/gpu": "2"}
    node.kubectl("patch", "node", real, "--subresource=status", "--type=merge", "-p",
                 json.dumps({"status": {"capacity": gpus, "allocatable": gpus}}))
    yield node
    node.kubectl("patch", "node", real, "--subresource=status", "--type=json", "-p", json.dumps(
        [{"op": "remove", "path": f"/status/{key}/nvidia.com~1gpu"} for key in ("capacity", "allocatable")]))
    node.kubectl("delete", "namespace", SPACE, "--wait=false")


@pytest.fixture
def cli(cluster, tmp_path):
    cli = Cli(cluster, tmp_path, SPACE)
    yield cli
    cli.close()


def write_package(cli):
    package = cli.folder / "pkg"
    package.mkdir()
    (package / "my_module.py").write_text(GREETING)
    return package


def objects(instance, name, space=SPACE):
    """What is there of a job: kinds and names."""
    found = set()
    for kind in KINDS.split(","):
        items = json.loads(instance.kubectl("-n", space, "get", kind, "-o", "json"))["items"]
        found |= {f"{kind}/{item['metadata']['name']}" for item in items
                  if re.match(rf"(di-)?{name}(-|$)", item["metadata"]["name"])}
    return found


def wait_until_gone(instance, name):
    wait_for(f"all of {name} to go", lambda: not objects(instance, name))


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_greeting_of_three_workers_of_which_two_have_a_gpu(cluster, cli, backend):
    package = write_package(cli)
    name = f"greet-{backend}"
    code, out, err = cli(*cli.run(backend, "--gpus", 2, "-p", package, "-m", "my_module.main", "--topology", "star",
                                  "--name", name, workers=3))
    assert code == 0, (out, err)
    heard = ["[node 0] heard: Hi from 1", "[node 0] heard: Hi from 2"]
    assert sorted(line for line in out.splitlines() if "heard" in line) == heard, (out, err)
    assert f"job {name}: 3 workers of my_module.main, backend {backend}" in err
    pods = json.loads(cluster.kubectl("-n", SPACE, "get", "pods", "-o", "json"))["items"]
    limits = [pod["spec"]["containers"][0].get("resources", {}).get("limits", {}) for pod in sorted(
        (pod for pod in pods if pod["metadata"]["name"].startswith(name)), key=lambda pod: pod["metadata"]["name"])]
    assert [each.get("nvidia.com/gpu") for each in limits] == ["1", "1", None]
    assert sorted(cli.must("logs", name).splitlines()) == sorted(out.splitlines())
    worker = cli.must("logs", name, "--task", "worker").splitlines()
    assert worker == [line for line in out.splitlines() if line.startswith("[node 2]")]
    table = cli.must("jobs").splitlines()[1].split()
    assert table[:5] == [name, backend, "Succeeded", "3", "0"]
    described = cli.must("describe", name)
    assert re.search(r"State: +Succeeded", described) and described.count("Succeeded") == 4, described
    cli.must("delete", name)
    wait_until_gone(cluster, name)
    assert cli.must("jobs", "-o", "name") == ""


@pytest.mark.parametrize("backend", BACKENDS)
def test_exit_codes_are_those_of_the_first_worker_that_fails(cluster, cli, backend):
    fail = 'if [ "$DITASK_NODE_ID" = 0 ]; then {}; fi; exec sleep 600'
    # Of `job` the two kinds of workers are two Jobs: the failure of one ends the other.
    for number, (script, code, words) in enumerate((("echo failing; exit 3", 3, "exit code 3"),
                                                    ("kill -KILL $$", 137, "SIGKILL"))):
        name = f"fail-{backend}-{number}"
        ended = cli(*cli.run(backend, "--gpus", 1, "--name", name, "--grace", "1s", "--", "sh", "-c",
                             fail.format(script), workers=2))
        assert ended[0] == code, ended
        assert words in ended[2] and "failed" in ended[2], ended
        if code == 3:
            assert "[node 0] failing\n" in ended[1], ended
        cli.must("delete", "--now", name)
        wait_until_gone(cluster, name)


def test_a_worker_that_cannot_listen_gives_the_job_ditasks_code(cluster, cli):
    package = write_package(cli)
    for more in ((), ("--delete",)):  # the second takes the place of the first, which has ended
        code, out, err = cli(*cli.run("dijob", "--name", "deaf", "--env", "DI_NODES=192.0.2.1", *more, "-p", package,
                                      "-m", "my_module.main"))
        assert code == 3 and "worker 0 (pod deaf-worker-0) ended with exit code 3" in err, (code, out, err)
    wait_until_gone(cluster, "deaf")


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_interrupted_job_leaves_nothing(cluster, cli, backend):
    name = f"stop-{backend}"
    script = "trap 'echo saving; exit 0' TERM; echo waiting; while :; do sleep 0.1; done"
    run = cli.start(*cli.run(backend, "--name", name, "--", "sh", "-c", script, workers=2))
    wait_for("both to run", lambda: run.said().count("waiting") == 2, LONG)
    run.send_signal(signal.SIGINT)
    assert run.wait(LONG) == 130, run.noted()
    assert run.said().count("saving") == 2, run.said() + run.noted()
    wait_until_gone(cluster, name)
    assert "Stopped" in cli.must("jobs")


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_detached_job_is_found_followed_and_deleted(cluster, cli, backend):
    name = f"train-{backend}"
    script = "i=0; while :; do echo line $i; i=$((i+1)); sleep 0.05; done"
    line = cli.run(backend, "--name", name, "--grace", "1s", "--detach", "--", "sh", "-c", script, workers=2)
    assert cli.must(*line) == name + "\n"
    # Its name is taken; the job stays as it is.
    assert f"a job {name} is" in cli.mistake(*line)
    follow = cli.start("logs", "-f", name)
    wait_for("lines of both", lambda: all(f"[node {node}] line 20\n" in follow.said() for node in (0, 1)), LONG)
    wait_for("two running workers", lambda: re.search(rf"{name} +{backend} +Running +2/2 +- +0 ", cli.must("jobs")))
    # For another person, with records of their own, the cluster has the name.
    elsewhere = cli.folder / "other"
    elsewhere.mkdir()
    other = Cli(cluster, elsewhere, SPACE)
    said = other.mistake(*other.run(backend, "--name", name, "--detach", "--", "true", workers=2))
    assert name in said and "left alone" in said, said
    if backend == "dijob":
        assert re.search(rf"{name} +dijob +Running", other.must("jobs"))
        assert "[node 1] line 0\n" in other.must("logs", name, "--task", "1")
        assert re.search(r"State: +Running", other.must("describe", name))
    cli.must("restart", "--now", name)
    wait_for("the follower to see the end", lambda: follow.poll() is not None, LONG)
    for node in (0, 1):  # every line, in order, none twice
        numbers = [int(n) for n in re.findall(rf"^\[node {node}\] line (\d+)$", follow.said(), re.MULTILINE)]
        assert numbers == list(range(len(numbers)))
    wait_for("the new one to run", lambda: re.search(rf"{name} +{backend} +Running +2/2 +- +1 ", cli.must("jobs")), LONG)
    cli.must("delete", name)
    wait_until_gone(cluster, name)


def test_a_manifest_runs_on_the_cluster(cluster, cli):
    container = {"name": "di-container", "image": IMAGE, "imagePullPolicy": "Never",
                 "command": ["sh", "-c", 'echo "rank $DI_RANK, lr $(cat /settings/lr)"'],
                 "volumeMounts": [{"name": "settings", "mountPath": "/settings"}]}
    pod = {"containers": [container], "volumes": [{"name": "settings", "configMap": {"name": "manifest-settings"}}]}
    job = {"apiVersion": "diengine.opendilab.org/v2alpha1", "kind": "DIJob", "metadata": {"name": "manifest"},
           "spec": {"tasks": [{"name": "worker", "type": "none", "replicas": 2, "template": {"spec": pod}}]}}
    settings = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "manifest-settings"}, "data": {"lr": "0.1"}}
    file = cli.folder / "job.yaml"
    file.write_text(f"{json.dumps(settings)}\n---\n{json.dumps(job)}\n")
    code, out, err = cli("run", file, "--backend", "dijob")
    assert (code, sorted(out.splitlines())) == (0, ["[node 0] rank 0, lr 0.1", "[node 1] rank 1, lr 0.1"]), (out, err)
    cluster.kubectl("-n", SPACE, "delete", "dijob", "manifest")  # which owns the rest
    wait_until_gone(cluster, "manifest")
    file.write_text(json.dumps(settings))
    assert "one DIJob is needed, it has 0" in cli.mistake("run", file, "--backend", "dijob")


def test_a_dijob_is_scaled_suspended_and_resumed(cluster, cli):
    cli.must(*cli.run("dijob", "--name", "sized", "--grace", "1s", "--detach", "--", "sleep", "600"))

    def shows(pattern):
        wait_for(f"{pattern} in divisi jobs", lambda: re.search(rf"sized +dijob +{pattern}", cli.must("jobs")), LONG)

    shows("Running +1/1")
    cli.must("scale", "sized", 2)
    shows("Running +2/2")
    assert "--task names one of worker" in cli.mistake("scale", "sized", 1, "--task", "gpu")
    cli.must("suspend", "sized")
    shows("Pending +0/2")
    wait_for("its pods to go", lambda: not any("pods/" in each for each in objects(cluster, "sized")))
    cli.must("resume", "sized")
    shows("Running +2/2")
    cli.must("delete", "--now", "sized")
    wait_until_gone(cluster, "sized")


def test_a_job_that_cannot_start_says_why_and_ends_with_its_timeout(cluster, cli):
    code, out, err = cli("run", "--workers", 1, "--backend", "dijob", "--image", "docker.io/local/missing:1",
                         "--image-pull-policy", "Never", "--name", "missing", "--timeout", "10s", "--delete", "--", "true")
    assert code == 124 and out == "", (code, out, err)
    assert re.search(r"pod missing-worker-0 does not start \(ImagePull\): .*ErrImageNeverPull", err), err
    wait_until_gone(cluster, "missing")


class Wire:
    """What lies between divisi and a cluster, and can be cut."""

    def __init__(self, cli, instance):
        where = urllib.parse.urlsplit(instance.server)
        self.target = where.hostname, where.port
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.links = []
        self.joined = True
        server = f"https://127.0.0.1:{self.listener.getsockname()[1]}"
        cli.kubeconfig.write_text(cli.kubeconfig.read_text().replace(instance.server, server))
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                near = self.listener.accept()[0]
            except OSError:
                return
            if not self.joined:
                near.close()
                continue
            far = socket.create_connection(self.target)
            self.links += [near, far]
            for source, sink in ((near, far), (far, near)):
                threading.Thread(target=self.carry, args=(source, sink), daemon=True).start()

    @staticmethod
    def carry(source, sink):
        try:
            while piece := source.recv(1 << 16):
                sink.sendall(piece)
        except OSError:
            pass
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def cut(self, joined=True):
        """Every connection ends now; new ones are taken unless it stays cut."""
        self.joined = joined
        for end in self.links:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        self.links.clear()

    def close(self):
        self.listener.close()
        self.cut(joined=False)


@pytest.fixture
def wire(cluster, cli):
    wire = Wire(cli, cluster)
    yield wire
    wire.close()


def last_line(run):
    found = re.findall(r"line (\d+)$", run.said(), re.MULTILINE)
    return int(found[-1]) if found else -1


@pytest.mark.long
def test_a_connection_that_breaks_costs_no_line(cluster, cli, wire):
    script = "i=0; while [ $i -lt 1500 ]; do echo line $i; echo line $i >&2; i=$((i+1)); sleep 0.01; done"
    run = cli.start(*cli.run("dijob", "--name", "broken", "--delete", "--", "sh", "-c", script, workers=2))
    for number in range(3):
        seen = last_line(run)
        wait_for("some lines more", lambda: last_line(run) > seen + 100, LONG)
        wire.cut(joined=number != 2)
    wait_for("a note that the cluster is away", lambda: "does not answer" in run.noted(), LONG)
    wire.joined = True
    assert run.wait(LONG) == 0, run.noted()
    assert run.noted().count("does not answer") == 1 and "answers again" in run.noted(), run.noted()
    for node in (0, 1):
        numbers = [int(n) for n in re.findall(rf"^\[node {node}\] line (\d+)$", run.said(), re.MULTILINE)]
        # Both outputs of a container have a pipe of their own: each is in order.
        assert sorted(numbers) == [n for n in range(1500) for _ in range(2)]
    wait_until_gone(cluster, "broken")


@pytest.mark.long
def test_a_cluster_that_stays_away_is_given_up(cluster, cli, wire):
    run = cli.start(*cli.run("dijob", "--name", "away", "--", "sleep", "600"))
    wait_for("its start", lambda: "job away: 1 worker" in run.noted(), LONG)
    wire.cut(joined=False)
    assert run.wait(LONG) == 125, run.noted()
    assert "given up after 120 s" in run.noted().splitlines()[-1], run.noted()
    assert re.search(r"away +dijob +Unknown", cli.must("jobs"))
    wire.joined = True
    assert re.search(r"away +dijob +(Starting|Running)", cli.must("jobs"))
    cli.must("delete", "--now", "away")
    wait_until_gone(cluster, "away")


@pytest.fixture
def bare(control_plane, tmp_path):
    """A cluster whose pods never run."""
    cli = Cli(control_plane, tmp_path, "default")
    yield cli
    cli.close()


def test_the_default_is_dijob_where_the_cluster_has_the_type(control_plane, bare):
    line, program = ("run", "--workers", 1), ("--", "true")
    code, out, err = bare(*line, "--dry-run", *program)
    assert code == 0 and "kind: DIJob" in out, (code, out, err)
    assert err == "divisi run: backend dijob, because the cluster divisi has the type DIJob\n"
    assert "--backend dijob needs --image" in bare.mistake(*line, *program)
    bare.environment["KUBECONFIG"] = str(bare.folder / "none")
    code, out, err = bare(*line, "--dry-run", *program)
    assert code == 0 and "backend local, because" in err, (code, out, err)


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_cannot_start_is_one_line_and_leaves_nothing(control_plane, bare, backend):
    line = bare.run(backend, "--name", "refused", "-p", write_package(bare), "-m", "my_module.main")
    assert "has no namespace nowhere" in bare.mistake(*line, "--namespace", "nowhere")
    noise = bare.folder / "pkg" / "noise.bin"
    noise.write_bytes(os.urandom(1100 << 10))
    assert re.search(r"has 11\d\d KiB packed, a ConfigMap holds 1024; its biggest file is noise.bin", bare.mistake(*line))
    noise.unlink()
    said = answers(succeed("certificate", "--name", control_plane.name, "--user", "stranger"))
    subprocess.run([control_plane.program, "config", "set-credentials", "stranger", "--kubeconfig", bare.kubeconfig,
                    f"--client-certificate={said['CERTIFICATE']}", f"--client-key={said['KEY']}"], check=True,
                   capture_output=True)
    subprocess.run([control_plane.program, "config", "set-context", "stranger", "--kubeconfig", bare.kubeconfig,
                    "--cluster=" + json.loads(subprocess.run(
                        [control_plane.program, "config", "view", "--kubeconfig", bare.kubeconfig, "-o", "json"], check=True,
                        capture_output=True, text=True).stdout)["clusters"][0]["name"], "--user=stranger"], check=True,
                   capture_output=True)
    kind = "dijobs" if backend == "dijob" else "jobs"
    assert re.search(rf"in the namespace default: you may not create {kind}, .*get pods/log", bare.mistake(
        *line, "--context", "stranger"))
    config = bare.folder / "away"
    config.write_text(bare.kubeconfig.read_text().replace(control_plane.server, "https://127.0.0.1:1"))
    assert "the cluster divisi does not answer" in bare.mistake(*line, "--kubeconfig", config)
    # A package in the way, which is not ours: the job that was made before it goes again.
    control_plane.kubectl("create", "configmap", "refused-package")
    assert "ConfigMap refused-package is there already" in bare.mistake(*line)
    wait_for("nothing of it", lambda: objects(control_plane, "refused", "default") == {"configmaps/refused-package"})
    control_plane.kubectl("delete", "configmap", "refused-package")
    assert bare.must("jobs", "-o", "name") == ""


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_killed_divisi_run_leaves_nothing_that_divisi_jobs_does_not_know(control_plane, bare, backend):
    line = bare.run(backend, "-p", write_package(bare), "-m", "my_module.main")
    points = random.Random(15)
    for number in range(6):
        name = f"killed-{backend}-{number}"
        run = bare.start(*line, "--name", name)
        if number == 0:
            wait_for("its start", lambda: f"job {name}: 1 worker" in run.noted())
        else:
            time.sleep(points.uniform(0, 0.3))  # anywhere in its start
        run.kill()
        run.wait()
        table = bare.must("jobs")  # also ends what was started by half
        known = re.search(rf"^{name} +{backend} +(\w+)", table, re.MULTILINE)
        if number == 0:
            assert known.group(1) in ("Pending", "Starting"), table
        if known is None or known.group(1) == "Failed":
            wait_for(f"nothing of {name}", lambda: not objects(control_plane, name, "default"))
        if number == 0 and backend == "job":  # one object owns the rest; of a DIJob the manifest's test sees it
            control_plane.kubectl("delete", "job", "-l", f"{LABEL}={name}")
            assert re.search(rf"{name} +{backend} +Stopped", bare.must("jobs"))
            wait_for(f"nothing of {name}", lambda: not objects(control_plane, name, "default"))
        if known is not None:
            bare.must("delete", name)
            wait_for(f"nothing of {name}", lambda: not objects(control_plane, name, "default"))
