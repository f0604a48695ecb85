"""The rows of `bench/run --dist`: the first generation. Tasks from a coordinator to its workers, beside the same
exchange over Flask and requests, which is what the reference uses; and the demand of a coordinator at di-server, beside
what a real API server sustains when the same client asks it directly; and CartPole beside our second generation's."""
import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

from python_rows import base_python
from rows import Probe, Row

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
KUBERNETES = ROOT / "tests" / "kubernetes"
FLASK = HERE.parent / "dist" / "flask_peer.py"
PEERS = ["flask==3.1.3", "requests==2.34.2"]
TARGETS = ("bench_dist", "bench_demand", "di_orchestrator", "divisi_program", "ding", "cartpole_dqn")
TRIPS_BAR = 10
DEMAND_BAR = 0.7
COLLECTORS = 200
SPACE = "bench"


def dist_rows(quick):
    seconds = "0.5" if quick else "3"
    rows = []
    for workers, whom in ((1, "1 worker"), (8, "8 workers")):
        words = ("trips", str(workers), seconds)
        for name, field, unit, bar, lower in ((f"tasks to {whom}", "per_s", "trips/s", TRIPS_BAR, False),
                                              (f"time of a task, {whom}", "p50_us", "us, p50", None, True)):
            rows.append(Row(name, Probe(("ours", *words), field), Probe(("flask", *words), field), "Flask, requests",
                            unit, bar, lower))

    def demand(mode):
        return Probe(("demand", mode, SPACE, str(COLLECTORS), "1" if quick else "5"), "per_s")

    for name, mode, bar in ((f"demand of {COLLECTORS} collectors", "server", DEMAND_BAR),
                            (f"demand of {COLLECTORS} collectors, with their services", "operator", None)):
        rows.append(Row(name, demand(mode), demand("alone"), "API server alone", "pods/s", bar))

    def job(generation, field, per_insert):
        return Probe(("job", generation, "2" if quick else "6", per_insert), field)

    for name, field, unit, per_insert in (
            ("CartPole, 24 samples an insert: env steps", "env_steps_per_s", "steps/s", "24"),
            ("CartPole, 24 samples an insert: updates", "updates_per_s", "updates/s", "24"),
            ("CartPole, no limit: env steps", "env_steps_per_s", "steps/s", "0"),
            ("CartPole, no limit: updates", "updates_per_s", "updates/s", "0")):
        rows.append(Row(name, job("first", field, per_insert), job("second", field, per_insert),
                        "our second generation", unit))
    return rows


def environment(root, say, peers=tuple(PEERS), name="bench-venv"):
    """The interpreter of a virtual environment in build/ that has the peers of Python; made on first use."""
    folder = root / "build" / name
    python = folder / "bin" / "python"
    versions = [(peer.split("==")[0].split("[")[0], peer.split("==")[1]) for peer in peers]
    wanted = " and ".join(f"version({package!r}) == {found!r}" for package, found in versions)
    check = [str(python), "-c", f"from importlib.metadata import version; raise SystemExit(not ({wanted}))"]
    if python.exists() and subprocess.run(check, stderr=subprocess.DEVNULL).returncode == 0:
        return python
    say(f"adding {', '.join(peers)} to {folder.relative_to(root)} ...")
    make = [] if python.exists() else [[base_python(), "-m", "venv", "--system-site-packages", str(folder)]]
    for command in (*make, [str(python), "-m", "pip", "install", "--quiet", *peers], check):
        if subprocess.run(command, stdout=sys.stderr).returncode != 0:
            sys.exit(f"bench/run: {' '.join(command)} failed")
    return python


def free_address():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


class Programs:
    """What it takes to run the probes; a control plane with a di-server only when a row wants it."""

    def __init__(self, tree, python, rows, say):
        self.tree, self.python, self.say = tree, python, say
        self.wants_cluster = any(probe.command[0] == "demand" for row in rows for probe in (row.ours, row.peer))
        self.name = f"bench-{os.getpid()}"
        self.server = self.operator = None

    def __enter__(self):
        if not self.wants_cluster:
            return self
        self.say("starting an API server ...")
        up = [KUBERNETES / "up", "--name", self.name, "--control-plane-only"]
        said = subprocess.run(up, stdout=subprocess.PIPE, text=True, check=True).stdout
        config = next(line.split("=", 1)[1] for line in said.splitlines() if line.startswith("KUBECONFIG="))
        self.environment = {**os.environ, "KUBECONFIG": config}
        try:
            self._apply((ROOT / "deploy" / "divisi.yaml").read_text())
            self._apply(json.dumps({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SPACE}}))
            account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": SPACE}}
            self._apply(json.dumps(account))
            self._start_server()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        self._run_operator(False)
        if self.server is not None:
            self.server.terminate()
            self.server.wait()
        if self.wants_cluster:
            subprocess.run([KUBERNETES / "down", "--name", self.name], stdout=sys.stderr)

    def _apply(self, text):
        subprocess.run([self.tree / "bin" / "divisi", "kube", "apply", "-f", "-"], input=text, text=True, check=True,
                       env=self.environment, stdout=sys.stderr)

    def _start(self, name, *words):
        return subprocess.Popen([self.tree / "bin" / name, *words, "--metric-addr", "127.0.0.1:0"], env=self.environment,
                                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def _start_server(self):
        self.address = free_address()
        self.server = self._start("di-server", "-s", self.address, "-p", "127.0.0.1:0")
        host, port = self.address.split(":")
        end = time.monotonic() + 60
        while time.monotonic() < end and self.server.poll() is None:
            with socket.socket() as probe:
                if probe.connect_ex((host, int(port))) == 0:
                    return
            time.sleep(0.05)
        sys.exit("bench/run: di-server does not listen")

    def _run_operator(self, wanted):
        if wanted and self.operator is None:
            self.operator = self._start("di-operator", "--probe-addr", "127.0.0.1:0")
        elif not wanted and self.operator is not None:
            self.operator.terminate()
            self.operator.wait()
            self.operator = None

    def program(self, command, _):
        if command[0] == "flask":
            return [str(self.python), str(FLASK), *command[2:]], dict(os.environ, PYTHONDONTWRITEBYTECODE="1")
        if command[0] == "job":
            words = [command[1], str(self.tree), *command[2:]]
            return [str(self.python), str(HERE / "dist_jobs.py"), *words], dict(os.environ, PYTHONDONTWRITEBYTECODE="1")
        if command[0] == "ours":
            return [str(self.tree / "bench" / "bench_dist"), *command[1:]], None
        self._run_operator(command[1] == "operator")  # where it is not measured it does not run
        return [str(self.tree / "bench" / "bench_demand"), *command[1:], self.address], self.environment
