"""Who we are to a real API server: rotated certificates and tokens, plugins, and a pod's service account."""

import json
import os
import stat
import subprocess

import pytest

from harness import DEADLINE, Output, answers, pod, succeed, wait_for
from test_library import BUILD, DIVISI

PROBE = BUILD / "tests" / "informer_probe"
ROLE = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "reader"},
        "rules": [{"apiGroups": [""], "resources": ["configmaps", "pods"], "verbs": ["get", "list", "watch"]}]}


def binding(name, subject):
    return {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "reader"},
            "subjects": [subject]}


def service_account(name):
    return [{"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}},
            binding(name, {"kind": "ServiceAccount", "name": name, "namespace": "default"})]


@pytest.fixture(scope="module")
def cluster(node):
    node.apply(ROLE, binding("user-alice", {"kind": "User", "name": "alice", "apiGroup": "rbac.authorization.k8s.io"}))
    return node


def kubeconfig(cluster, folder, user):
    """A kubeconfig for that user, with the server and its CA as the administrator's has them."""
    admin = json.loads(cluster.kubectl("config", "view", "--raw", "-o", "json"))
    path = folder / "kubeconfig"
    path.write_text(json.dumps({**admin, "users": [{"name": admin["users"][0]["name"], "user": user}]}))
    return path


class Probe:
    """An informer in a process of its own, and what it says."""

    def __init__(self, config):
        self.process = subprocess.Popen([PROBE, "default"], env={**os.environ, "KUBECONFIG": str(config)},
                                        stdout=subprocess.PIPE)
        self.output = Output(self.process.stdout)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()

    def hears(self, cluster, name):
        cluster.kubectl("create", "configmap", name)

        def heard():
            assert self.process.poll() is None, "it ended"
            return f"+{name}\n" in self.output.text()

        wait_for(f"+{name}", heard)


def replace(path, text):
    """At once, as kubelets and renewers do."""
    fresh = path.with_suffix(".new")
    fresh.write_text(text)
    os.replace(fresh, path)


def test_a_certificate_that_is_rotated_while_a_watch_runs(cluster, tmp_path):
    def certificate(seconds):
        said = answers(succeed("certificate", "--name", cluster.name, "--user", "alice", "--seconds", seconds))
        for file, source in (("tls.crt", "CERTIFICATE"), ("tls.key", "KEY")):
            with open(said[source], encoding="ascii") as made:
                replace(tmp_path / file, made.read())

    certificate(30)  # time enough for the probe on a busy machine
    config = kubeconfig(cluster, tmp_path, {"client-certificate": "tls.crt", "client-key": "tls.key"})
    with Probe(config) as probe:
        probe.hears(cluster, "first-certificate")
        first = tmp_path / "first.crt"
        first.write_bytes((tmp_path / "tls.crt").read_bytes())
        certificate(3600)
        wait_for("the end of the first certificate", lambda: subprocess.run(
            ["openssl", "x509", "-checkend", "0", "-noout", "-in", first], check=False, capture_output=True).returncode)
        probe.hears(cluster, "second-certificate")


def test_a_token_that_is_rotated_while_a_watch_runs_and_one_that_is_revoked(cluster, tmp_path):
    for name in ("one", "two"):
        cluster.apply(*service_account(name))
    token = tmp_path / "token"
    token.write_text(cluster.kubectl("create", "token", "one"))
    config = kubeconfig(cluster, tmp_path, {"tokenFile": "token"})
    with Probe(config) as probe:
        probe.hears(cluster, "first-token")
        replace(token, cluster.kubectl("create", "token", "two"))
        cluster.kubectl("delete", "serviceaccount", "one")  # revokes what it had signed
        probe.hears(cluster, "second-token")
    cluster.kubectl("delete", "serviceaccount", "two")
    done = wait_for("the token to be refused", lambda: refused(config))
    assert "Unauthorized" in done.stderr and done.stderr.count("\n") == 1


def refused(config):
    done = subprocess.run([DIVISI, "kube", "--kubeconfig", config, "get", "cm"], capture_output=True, text=True,
                          timeout=DEADLINE)
    return done if done.returncode else None


def test_an_expired_certificate_and_a_wrong_authority_are_one_clear_line(cluster, tmp_path):
    said = answers(succeed("certificate", "--name", cluster.name, "--user", "alice", "--seconds", 1))
    config = kubeconfig(cluster, tmp_path, {"client-certificate": said["CERTIFICATE"], "client-key": said["KEY"]})
    done = wait_for("the certificate to expire", lambda: refused(config))
    assert done.stderr.count("\n") == 1, done.stderr
    other = json.loads(config.read_text())
    cluster_entry = other["clusters"][0]["cluster"]
    cluster_entry.pop("certificate-authority-data", None)
    stranger = tmp_path / "stranger.pem"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout",
                    tmp_path / "k", "-out", stranger, "-subj", "/CN=stranger", "-days", "1"], check=True,
                   capture_output=True)
    cluster_entry["certificate-authority"] = str(stranger)
    config.write_text(json.dumps(other))
    done = refused(config)
    assert "certificate" in done.stderr and done.stderr.count("\n") == 1, done.stderr


def test_an_exec_plugin(cluster, tmp_path):
    cluster.apply(*service_account("plugged"))
    plugin = tmp_path / "plugin"
    credential = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential",
                  "status": {"token": cluster.kubectl("create", "token", "plugged").strip()}}
    plugin.write_text(f"#!/bin/sh\necho ran >> {tmp_path}/runs\ncat <<'END'\n{json.dumps(credential)}\nEND\n")
    plugin.chmod(plugin.stat().st_mode | stat.S_IXUSR)
    config = kubeconfig(cluster, tmp_path, {"exec": {"apiVersion": "client.authentication.k8s.io/v1",
                                                     "command": "./plugin", "interactiveMode": "Never"}})
    done = subprocess.run([DIVISI, "kube", "--kubeconfig", config, "get", "cm"], capture_output=True, text=True,
                          timeout=DEADLINE)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "runs").read_text() == "ran\n", "once for all requests"


def test_a_pod_uses_its_service_account(cluster):
    cluster.apply(*service_account("inside"))
    image = "docker.io/local/divisi:1"
    succeed("image", "--name", cluster.name, image, f"{DIVISI}=/bin/divisi", "--libraries")
    cluster.apply(pod("inside", "unused", serviceAccountName="inside",
                      container={"image": image, "command": ["/bin/divisi", "kube", "get", "pods", "-o", "name"]}))
    ended = cluster.finished("inside")
    log = cluster.kubectl("logs", "inside")
    assert ended["exitCode"] == 0, log
    assert log.strip().endswith("inside")


def test_logs_and_commands_of_a_pod(cluster):
    cluster.apply(pod("talker", "echo one; echo two; trap 'exit 0' TERM; while :; do sleep 1; done"))
    cluster.kubectl("wait", "--for=condition=Ready", "pod/talker", "--timeout=60s")

    def divisi(*arguments, code=0, stdin=None):
        done = subprocess.run([DIVISI, "kube", "--kubeconfig", cluster.kubeconfig, *arguments], input=stdin,
                              capture_output=True, text=True, timeout=DEADLINE)
        assert done.returncode == code, done.stderr
        return done

    wait_for("the log", lambda: divisi("logs", "talker").stdout == "one\ntwo\n")
    assert divisi("logs", "talker", "--tail", "1").stdout == "two\n"
    done = divisi("exec", "talker", "--", "sh", "-c", "echo out; echo err >&2; exit 7", code=7)
    assert (done.stdout, done.stderr) == ("out\n", "err\n")
    assert divisi("exec", "-i", "talker", "--", "cat", stdin="through\n").stdout == "through\n"
    assert divisi("exec", "talker", "--", "/no/such/program", code=1).stderr.count("\n") == 1
