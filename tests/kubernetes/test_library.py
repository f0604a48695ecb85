"""The Kubernetes client library against a real API server: src/kube's suite, leader election, the divisi command."""

import os
import pathlib
import signal
import subprocess

import pytest

from harness import DEADLINE, Instance, Output, wait_for

BUILD = pathlib.Path(os.environ.get("DIVISI_BUILD", "build/release")).resolve()
SUITE = BUILD / "tests" / "kube_suite"
CANDIDATE = BUILD / "tests" / "lease_candidate"
DIVISI = BUILD / "bin" / "divisi"


def names():
    """Every test of the suite, by the name that its program gives it."""
    listed = subprocess.run([SUITE, "--gtest_list_tests"], capture_output=True, text=True, check=True, timeout=60).stdout
    group = ""
    for line in listed.splitlines():
        if line.endswith("."):
            group = line
        elif line.startswith("  "):
            yield group + line.strip().split()[0]


@pytest.fixture(scope="module")
def cluster():
    with Instance("--control-plane-only") as instance:
        yield instance


def environment(cluster):
    return {**os.environ, "KUBECONFIG": str(cluster.kubeconfig)}


@pytest.mark.parametrize("name", names())
def test_suite(cluster, name):
    done = subprocess.run([SUITE, f"--gtest_filter={name}"], env=environment(cluster), capture_output=True, text=True,
                          timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr


class Candidate:
    def __init__(self, cluster, identity):
        self.process = subprocess.Popen([CANDIDATE, "default", "suite", identity], env=environment(cluster),
                                        stdout=subprocess.PIPE)
        self.output = Output(self.process.stdout)

    def leads(self):
        return self.process.poll() is None and "leads" in self.output.text()

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


def test_one_of_three_leads_and_the_next_takes_over_when_it_is_killed(cluster):
    candidates = {f"c{i}": Candidate(cluster, f"c{i}") for i in range(3)}
    try:
        for _ in range(3):
            leader = wait_for("a leader", lambda: next((n for n, c in candidates.items() if c.leads()), None))
            lease = cluster.get("lease", "suite")
            assert lease["spec"]["holderIdentity"] == leader
            candidates.pop(leader).kill()
        assert lease["spec"]["leaseTransitions"] == 2
    finally:
        for candidate in candidates.values():
            candidate.kill()


def divisi(cluster, *arguments, code=0, stdin=None):
    done = subprocess.run([DIVISI, "kube", *arguments], env=environment(cluster), capture_output=True, text=True,
                          input=stdin, timeout=DEADLINE)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout if code == 0 else done.stderr


MAP = """
apiVersion: v1
kind: ConfigMap
metadata: {name: mine, labels: {app: tool}}
data: {answer: "42"}
"""


def test_the_command_applies_shows_and_deletes(cluster):
    assert divisi(cluster, "apply", "-f", "-", stdin=MAP) == "configmaps/mine applied\n"
    assert "42" in cluster.kubectl("get", "configmap", "mine", "-o", "yaml")
    table = divisi(cluster, "get", "cm", "-l", "app=tool").splitlines()
    assert table[0].split() == ["NAME", "DATA", "AGE"] and table[1].split()[:2] == ["mine", "1"]
    assert "answer: \"42\"\n" in divisi(cluster, "get", "cm", "mine", "-o", "yaml")
    assert divisi(cluster, "list", "configmaps", "-l", "app=tool", "-o", "name").strip().endswith("mine")
    assert "default" in divisi(cluster, "get", "configmaps", "-A", "-l", "app=tool")
    assert divisi(cluster, "watch", "cm", "mine", "--events", "1") == "ADDED     default/mine\n"
    assert divisi(cluster, "delete", "cm", "mine") == "configmaps/mine deleted\n"
    assert "configmaps \"mine\" not found" in divisi(cluster, "get", "cm", "mine", code=1)


@pytest.mark.parametrize("arguments, stdin, message", [
    (["get", "nonsense"], None, "no resource \"nonsense\""),
    (["get", "pods", "-o", "picture"], None, "the forms are yaml, json, name and wide"),
    (["apply", "-f", "-"], "a: [", "not valid YAML at line"),
    (["apply", "-f", "-"], "a: 1", "an object needs apiVersion, kind and metadata.name"),
    (["apply", "-f", "/nowhere.yaml"], None, "/nowhere.yaml: cannot be read"),
    (["delete"], None, "delete needs a resource and a name, or -f FILE"),
    (["logs", "nobody"], None, "pods \"nobody\" not found"),
    (["exec", "nobody", "--", "ls"], None, "pods \"nobody\" not found"),
    (["--context", "other", "get", "pods"], None, "other"),
    (["--kubeconfig", "/nowhere", "get", "pods"], None, "/nowhere"),
])
def test_mistakes_are_one_clear_line(cluster, arguments, stdin, message):
    done = subprocess.run([DIVISI, "kube", *arguments], env=environment(cluster), capture_output=True, text=True,
                          input=stdin, timeout=DEADLINE)
    assert done.returncode in (1, 2)
    assert message in done.stderr and done.stderr.count("\n") == 1, done.stderr
