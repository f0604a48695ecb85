"""The rows of `bench/run --kube`: the Kubernetes client library beside client-go, against a real API server that is
started for it."""
import os
import subprocess
import sys
from pathlib import Path

from rows import Probe, Row

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
KUBERNETES = ROOT / "tests" / "kubernetes"
PEER = "client-go"
SPACE = "bench"
PODS = 5000


def kube_rows(quick):
    rows = []

    def row(name, field, unit, mode, connections, count, bar=None, lower_is_better=False, peer_mode=None, peer=PEER):
        words = (SPACE, str(connections), str(count))
        rows.append(Row(name, Probe(("ours", mode, *words), field), Probe(("peer", peer_mode or mode, *words), field),
                        peer, unit, bar, lower_is_better))

    for connections in (1, 8, 32):
        row(f"API creates, {connections} at once", "per_s", "creates/s", "create", connections, 200 if quick else 2000, 1)
    for connections in (1, 8, 32):
        row(f"API gets, {connections} at once", "per_s", "gets/s", "get", connections, 500 if quick else 5000, 1)
    # The bar is for equals. Beside protobuf, which is less work for the server too, the rows are for information.
    for connections in (1, 8, 32):
        for peer_mode, peer, bar in (("list", f"{PEER}, JSON", 1), ("list-protobuf", f"{PEER}, protobuf", None)):
            row(f"API lists of {PODS} pods, {connections} at once", "mb_per_s", "MB/s", "list", connections,
                1 if quick else max(8, connections), bar, peer_mode=peer_mode, peer=peer)
    row(f"informer of {PODS} pods, memory", "rss_kb", "kB", "informer", 1, PODS, 0.5, True)
    row(f"informer of {PODS} pods, CPU", "cpu_ms", "ms", "informer", 1, PODS, None, True)
    row(f"informer of {PODS} pods, until in step", "ms", "ms", "informer", 1, PODS, None, True)
    row("create to handler, p50", "p50_us", "us", "latency", 1, 50 if quick else 500, None, True)
    row("create to handler, p99", "p99_us", "us", "latency", 1, 50 if quick else 500, None, True)
    return rows


def peer_program(say):
    """client-go's program, built once into the cache of the user."""
    sys.path.insert(0, str(KUBERNETES))
    from cluster import toolchain  # noqa: PLC0415: only --kube needs it

    go = toolchain.find(say)
    folder = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "divisi" / "bench"
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / "kube_peer"
    say("building the peer (client-go) ...")
    built = subprocess.run([go, "build", "-trimpath", "-o", program, "."], cwd=HERE.parent / "kube" / "peer",
                           stdout=sys.stderr, env={**os.environ, "CGO_ENABLED": "0", "GOWORK": "off"})
    if built.returncode != 0:
        sys.exit("bench/run: the peer could not be built")
    return program


class Cluster:
    """A control plane with a name space of pods, for as long as the rows are measured."""

    def __init__(self, tree, say):
        self.ours, self.peer, self.say = tree / "bench" / "bench_kube", peer_program(say), say
        self.name = f"bench-{os.getpid()}"

    def __enter__(self):
        self.say("starting an API server ...")
        said = self._do(KUBERNETES / "up", "--name", self.name, "--control-plane-only")
        self.kubeconfig = next(line.split("=", 1)[1] for line in said.splitlines() if line.startswith("KUBECONFIG="))
        self.environment = {**os.environ, "KUBECONFIG": self.kubeconfig}
        namespace = f'{{"apiVersion":"v1","kind":"Namespace","metadata":{{"name":"{SPACE}"}}}}'
        divisi = self.ours.parent.parent / "bin" / "divisi"
        subprocess.run([divisi, "kube", "apply", "-f", "-"], input=namespace, text=True, check=True,
                       env=self.environment, stdout=sys.stderr)
        self.say(f"making {PODS} pods ...")
        self._do(self.ours, "seed", SPACE, "16", str(PODS), env=self.environment)
        return self

    def __exit__(self, *_):
        subprocess.run([KUBERNETES / "down", "--name", self.name], stdout=sys.stderr)

    def _do(self, *command, env=None):
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=env)
        if done.returncode != 0:
            subprocess.run([KUBERNETES / "down", "--name", self.name], stdout=sys.stderr)
            sys.exit(f"bench/run: {command[0]} failed")
        return done.stdout

    def program(self, command):
        return [str(self.ours if command[0] == "ours" else self.peer), *command[1:]], self.environment
