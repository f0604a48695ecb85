"""The Kubernetes of the tests is a real one, and leaves nothing behind. Needs root, like its node."""

import itertools
import os
import pathlib
import signal
import socket
import subprocess
import sys

import pytest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from cluster import build, cgroups, control_plane, leftovers  # noqa: E402
from cluster.instance import down, running, up  # noqa: E402
from cluster.paths import state_folder  # noqa: E402
from harness import BUSYBOX, Instance, answers, command, pod, succeed, wait_for  # noqa: E402


@pytest.fixture(scope="module", autouse=True)
def programs(request):
    """Built before the first test, which may take half an hour: that is shown, not captured."""
    with request.config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
        return build.ensure(lambda line: print(f"    {line}", flush=True))


@pytest.fixture(scope="module")
def bare(programs):
    host = leftovers.host()
    with Instance() as instance:
        instance.host_before = host
        succeed("image", "--name", instance.name, BUSYBOX, "--busybox")
        yield instance


def test_a_pod_reads_its_config_map_and_kubectl_its_log(bare):
    bare.kubectl("create", "configmap", "greeting", "--from-literal=text=good morning")
    volume = {"name": "greeting", "configMap": {"name": "greeting"}}
    mount = {"volumeMounts": [{"name": "greeting", "mountPath": "/etc/greeting"}]}
    bare.apply(pod("reader", "cat /etc/greeting/text; exit 3", container=mount, volumes=[volume]))
    assert bare.finished("reader")["exitCode"] == 3
    assert bare.kubectl("logs", "reader") == "good morning"


def test_the_name_of_a_service_leads_to_its_pod(bare):
    bare.apply(pod("server", "mkdir /www && echo served > /www/index.html && httpd -f -p 8080 -h /www"),
               {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"},
                "spec": {"selector": {"app": "server"}, "ports": [{"port": 80, "targetPort": 8080}]}})
    bare.kubectl("wait", "pod/server", "--for=condition=Ready", "--timeout=60s")
    bare.apply(pod("client", "until wget -q -O - http://web.default.svc.cluster.local; do sleep 0.1; done;"
                             "wget -q -O - http://web"))
    assert bare.finished("client")["exitCode"] == 0
    assert bare.kubectl("logs", "client") == "served\nserved\n"
    assert bare.kubectl("exec", "server", "--", "cat", "/www/index.html") == "served\n"
    assert bare.run_kubectl("exec", "server", "--", "sh", "-c", "exit 7").returncode == 7


def test_a_pod_is_known_to_the_api_server_by_its_service_account(bare):
    ask = ("token=$(cat /var/run/secrets/kubernetes.io/serviceaccount/token); wget -q -O - --no-check-certificate "
           "--header \"Authorization: Bearer $token\" --header 'Content-Type: application/json' --post-data "
           "'{\"apiVersion\":\"authentication.k8s.io/v1\",\"kind\":\"SelfSubjectReview\"}' "
           "https://kubernetes.default.svc/apis/authentication.k8s.io/v1/selfsubjectreviews")
    bare.apply(pod("asking", ask))
    assert bare.finished("asking")["exitCode"] == 0, bare.kubectl("logs", "asking")
    assert "system:serviceaccount:default:default" in bare.kubectl("logs", "asking")
    assert bare.kubectl("auth", "can-i", "list", "pods") == "yes\n"
    allowed = bare.run_kubectl("auth", "can-i", "list", "pods", "--as=system:serviceaccount:default:default")
    assert allowed.stdout == "no\n"


def test_a_pod_that_takes_more_memory_than_its_limit_is_killed(bare):
    limit = {"resources": {"limits": {"memory": "24Mi"}}}
    bare.apply(pod("hungry", "head -c 64m /dev/zero | tail", container=limit))
    assert bare.finished("hungry")["reason"] == "OOMKilled"


def test_an_image_brings_the_libraries_of_its_program(bare):
    succeed("image", "--name", bare.name, "docker.io/local/bash:1", "/bin/bash=/bin/bash", "--libraries")
    container = {"image": "docker.io/local/bash:1", "command": ["/bin/bash", "-c", "echo $BASH_VERSION"]}
    bare.apply(pod("bash", "", container=container))
    assert bare.finished("bash")["exitCode"] == 0
    assert bare.kubectl("logs", "bash").startswith("5.")


def test_nothing_of_a_node_is_left_when_it_was_killed_and_taken_down(bare):
    """Runs last of those that use it. Pods are still running."""
    namespaces = leftovers.namespaces_of(bare.pid("cell"))
    assert len(leftovers.processes(bare.name, namespaces)) > 8
    assert leftovers.mounts(bare.name) and cgroups.folders(bare.name)
    os.kill(bare.pid("kubelet"), signal.SIGKILL)
    os.kill(bare.pid("containerd"), signal.SIGKILL)
    succeed("down", "--name", bare.name)
    assert leftovers.of(bare.name, namespaces) == []
    assert leftovers.host() - bare.host_before == set()


def test_two_run_side_by_side_and_one_of_them_knows_nothing_of_the_other():
    with Instance("--control-plane-only") as one, Instance("--control-plane-only", "--controllers") as two:
        one.kubectl("create", "namespace", "only-here")
        assert one.server != two.server
        assert two.run_kubectl("get", "namespace", "only-here").returncode != 0
        two.kubectl("create", "namespace", "short-lived")
        two.kubectl("delete", "namespace", "short-lived", "--timeout=60s")  # the controllers' work
        version = build.kubernetes_version()
        assert f"Server Version: {version}" in one.kubectl("version")
    assert leftovers.of(one.name) == leftovers.of(two.name) == []


def test_a_crashed_instance_can_be_started_again_and_a_running_one_cannot():
    with Instance("--control-plane-only") as instance:
        again = command("up", "--name", instance.name)
        assert again.returncode == 1 and "is running already: KUBECONFIG=" in again.stderr
        os.kill(instance.pid("etcd"), signal.SIGKILL)
        wait_for("the end of etcd", lambda: not running(instance.name))
        instance.up()
        assert instance.kubectl("get", "namespaces", "-o", "name").startswith("namespace/default")


@pytest.mark.parametrize("victim", [0, 2], ids=["etcd", "kube-apiserver"])
def test_a_port_that_somebody_takes_in_the_meantime_is_replaced(monkeypatch, victim):
    name = Instance().name
    with socket.create_server(("127.0.0.1", 0)) as somebody:
        taken, free, asked = somebody.getsockname()[1], control_plane.free_port, itertools.count()
        monkeypatch.setattr(control_plane, "free_port", lambda: taken if next(asked) == victim else free())
        try:
            up(name, control_plane_only=True)
            assert next(asked) == 6, "three ports, twice"
        finally:
            down(name)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_an_up_that_is_killed_half_way_can_be_taken_down(how):
    instance = Instance()
    with subprocess.Popen([HERE / "up", "--name", instance.name], stderr=subprocess.DEVNULL) as starting:
        kubelet = state_folder(instance.name) / "pids" / "kubelet"
        wait_for("the kubelet to be started", kubelet.exists)
        namespaces = leftovers.namespaces_of(kubelet.read_text().split()[0])
        starting.send_signal(how)
    taken_down = command("down", "--name", instance.name).returncode
    assert taken_down == (0 if how == signal.SIGKILL else 1), "only a killed one leaves the work to down"
    assert leftovers.of(instance.name, namespaces) == []


def test_users_are_who_their_certificates_and_tokens_say():
    with Instance("--control-plane-only") as instance:
        nobody = ["--kubeconfig", os.devnull, "--server", instance.server,
                  "--certificate-authority", str(instance.folder / "pki" / "ca.crt")]

        def certificate(*arguments):
            said = answers(succeed("certificate", "--name", instance.name, *arguments))
            return [*nobody, "--client-certificate", said["CERTIFICATE"], "--client-key", said["KEY"]]

        assert "admin-token" in instance.kubectl("auth", "whoami", *nobody, "--token", instance.token)
        alice = certificate("--user", "alice", "--group", "guests")
        who = instance.kubectl("auth", "whoami", *alice)
        assert "alice" in who and "guests" in who
        assert "Forbidden" in instance.run_kubectl("get", "secrets", *alice).stderr
        brief = certificate("--user", "brief", "--seconds", "1")
        wait_for("the certificate to expire",
                 lambda: "Unauthorized" in instance.run_kubectl("auth", "whoami", *brief).stderr)


@pytest.mark.parametrize("name, arguments, code, complaint", [
    ("up", ["--bogus"], 2, "unrecognized arguments: --bogus"),
    ("up", ["--controllers"], 2, "--controllers goes with --control-plane-only"),
    ("up", ["--name", "Not/A/Name"], 1, "cannot name an instance"),
    ("down", ["--name", "nobody-started-this"], 1, "there is no instance 'nobody-started-this'"),
    ("down", ["--name", ".."], 1, "cannot name an instance"),
    ("down", ["--all", "--name", "x"], 2, "not allowed with argument --all"),
    ("image", ["docker.io/local/x:1"], 2, "an image needs files"),
    ("image", ["docker.io/local/x:1", "--containerfile", "/nowhere", "a=/b"], 1, "there is no file '/nowhere'"),
    ("image", ["docker.io/local/x:1", "--containerfile", "/etc/passwd", "--busybox"], 2, "says all by itself"),
    ("image", ["--name", "nobody-started-this", "docker.io/local/x:1", "--busybox"], 1, "is running: start it"),
    ("certificate", ["--user", "a/b"], 2, "is no name"),
    ("certificate", ["--user", "a", "--seconds", "0"], 2, "--seconds is from 1"),
])
def test_bad_arguments_get_one_line_and_a_code(name, arguments, code, complaint):
    done = command(name, *arguments)
    assert done.returncode == code
    assert done.stderr.count("\n") == 1 and done.stderr.startswith(f"{name}: ") and complaint in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize("name", ["up", "down", "image", "certificate"])
def test_help_tells_what_a_command_does(name):
    done = command(name, "--help")
    assert done.returncode == 0 and "Exit code" in done.stdout and done.stderr == ""
