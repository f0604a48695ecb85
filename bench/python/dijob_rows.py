"""The rows of `bench/run --dijob`: the operator on a real API server without nodes, beside what that server sustains
when the same client asks it directly, and beside the memory we allow ourselves."""
import json
import os
import subprocess
import sys
from pathlib import Path

from rows import Probe, Row

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
KUBERNETES = ROOT / "tests" / "kubernetes"
SPACE = "bench"
ALONE = "API server alone"
PODS = 10


def dijob_rows(quick):
    jobs, times, churn = (30, 3, 15) if quick else (300, 30, 600)

    def ask(*words):
        return ("bench_dijob", words[0], SPACE, *(str(word) for word in words[1:]))

    def limit(kilobytes):
        return Probe(("limit", str(kilobytes)), "kb")

    replace = ask("replace", times, PODS)
    return [
        Row(f"{jobs} DIJobs x {PODS} pods at once", Probe(ask("submit", jobs, PODS), "per_s"),
            Probe(ask("pods", jobs, PODS), "per_s"), ALONE, "pods/s", 0.7),
        *(Row(f"from a failure to the next request, {part}", Probe(replace, f"replace_{part}_us"),
              Probe(replace, f"create_{part}_us"), "one create", "us", bar, True) for part, bar in (("p50", None), ("p99", 5))),
        Row("operator's memory, idle", Probe(ask("resident", 0, PODS), "kb"), limit(15 * 1024), "15 MB", "kB", 1, True),
        Row(f"operator's memory, {jobs} jobs", Probe(ask("resident", jobs, PODS), "kb"), limit(60 * 1024), "60 MB", "kB",
            1, True),
        Row(f"operator's memory after {churn} s of churn", Probe(ask("churn", churn, PODS), "kb"),
            Probe(ask("churn", churn, PODS), "first_kb"), "after a tenth of it", "kB", 1.05, True),
    ]


class Cluster:
    """A control plane, the DIJob type and a di-operator, for as long as the rows are measured."""

    def __init__(self, tree, say):
        self.tree, self.say = tree, say
        self.name = f"bench-{os.getpid()}"
        self.operator = None

    def __enter__(self):
        self.say("starting an API server ...")
        up = [KUBERNETES / "up", "--name", self.name, "--control-plane-only", "--audit"]
        said = subprocess.run(up, stdout=subprocess.PIPE, text=True, check=True).stdout
        paths = dict(line.split("=", 1) for line in said.splitlines() if line.startswith(("KUBECONFIG=", "AUDIT=")))
        self.environment = {**os.environ, **paths}
        try:
            self._apply((ROOT / "deploy" / "divisi.yaml").read_text())
            self._apply(json.dumps({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SPACE}}))
            account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": SPACE}}
            self._apply(json.dumps(account))
            self._start_operator()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        self._stop_operator()
        subprocess.run([KUBERNETES / "down", "--name", self.name], stdout=sys.stderr)

    def _apply(self, text):
        subprocess.run([self.tree / "bin" / "divisi", "kube", "apply", "-f", "-"], input=text, text=True, check=True,
                       env=self.environment, stdout=sys.stderr)

    def _start_operator(self):
        quiet = ["--probe-addr", "127.0.0.1:0", "--metric-addr", "127.0.0.1:0"]
        self.operator = subprocess.Popen([self.tree / "bin" / "di-operator", *quiet], env=self.environment,
                                         stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def _stop_operator(self):
        if self.operator is not None:
            self.operator.terminate()
            self.operator.wait()
            self.operator = None

    def program(self, command, repeat):
        if command[0] == "limit":
            return ["echo", json.dumps({"kb": int(command[1]), "sent": 1, "received": 1, "disordered": 0})], None
        if command[1] == "churn" and repeat > 0:
            return None
        if command[1] in ("resident", "churn"):
            # What earlier rows left in it is not theirs.
            self._stop_operator()
            self._start_operator()
        words = [str(self.tree / "bench" / "bench_dijob"), *command[1:], str(self.operator.pid)]
        return words, self.environment
