"""ditask with packages written in Python: section 9.6, the exit codes and the signals."""

import itertools
import json
import os
import re
import signal
import socket
import subprocess
import sys
import zipfile

import pytest
from ports import free_port, wait_until_it_listens

from divisi import launch

DEADLINE = 120

MY_MODULE = """
import os, sys
from divisi import task

def main():
    router = task.router
    print("node=%d local=%d of=%d labels=%s" % (
        router.node_id, router.local_id, router.n_parallel_workers, sorted(router.labels)))
    print("copy=%s" % os.path.dirname(__file__))

def fail():
    raise ValueError("the reward is not a number")

def leave():
    sys.exit(7)

def meet():
    expected = set(map(int, os.environ["EXPECTED"].split(":")[task.router.node_id].split(",")))
    heard = set()
    with task.start():
        def hello(node):
            if node not in heard:
                heard.add(node)
                task.emit("hello", task.router.node_id, only_remote=True)
        task.on("hello", hello)
        task.router.on("peer_joined", lambda _: task.emit("hello", task.router.node_id, only_remote=True))
        task.emit("hello", task.router.node_id, only_remote=True)
        while heard != expected:
            task.wait_for("hello", timeout=0.05)
        task.router.flush(30)
    print("node %d heard %s" % (task.router.node_id, ",".join(map(str, sorted(heard)))))

def forever():
    with task.start():
        print("waiting", os.getpid(), flush=True)
        task.wait_for("never", wake_on_finish=True)
        print("asked to finish", flush=True)

not_a_function = 3
"""


def environment(**more):
    clean = {
        key: value
        for key, value in os.environ.items()
        if not key.startswith(("DI_", "SLURM", "DITASK", "DIVISI"))
    }
    return {**clean, "DIVISI_PYTHON": sys.executable, **more}


def start(*arguments, cwd=None, **env):
    return subprocess.Popen(
        [launch.program(), *map(str, arguments)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True, cwd=cwd, env=environment(**env),
    )


def ditask(*arguments, cwd=None, **env):
    process = start(*arguments, cwd=cwd, **env)
    try:
        out, err = process.communicate(timeout=DEADLINE)
    finally:
        process.kill()
    return process.returncode, out, err


def succeed(*arguments, cwd=None, **env):
    code, out, err = ditask(*arguments, cwd=cwd, **env)
    assert code == 0, err
    return out


@pytest.fixture
def package(tmp_path):
    """pk/my_module/__init__.py and my_module.zip."""
    folder = tmp_path / "pk" / "my_module"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text(MY_MODULE)
    with zipfile.ZipFile(tmp_path / "my_module.zip", "w") as archive:
        archive.writestr("my_module/__init__.py", MY_MODULE)
    return tmp_path


LOCAL = ["--protocol", "ipc"]


def test_A120_the_kubernetes_parser(monkeypatch):
    monkeypatch.setenv("DI_NODES", "SH-0,SH-1,SH-2,SH-3,SH-4,SH-5")
    monkeypatch.setenv("DI_RANK", "3")
    parse = launch.PLATFORM_PARSERS["k8s"]
    spec = {
        "tasks": [
            {"labels": "league,collect", "node_ids": 10},
            {"labels": "league,collect", "node_ids": 11},
            {"labels": "evaluate", "node_ids": 20, "attach_to": "$node.10,$node.11"},
            {"labels": "learn", "node_ids": 31, "ports": 50000,
             "attach_to": "$node.10,$node.11,$node.20"},
            {"labels": "learn", "node_ids": 32, "attach_to": "$node.10,$node.11,$node.20"},
            {"labels": "learn", "node_ids": 33, "attach_to": "$node.10,$node.11,$node.20"},
        ]
    }
    lower = "tcp://SH-0:50515,tcp://SH-1:50515,tcp://SH-2:50515"
    first = parse(json.dumps(spec), topology="mesh", parallel_workers=1)
    assert (first["labels"], first["address"], first["ports"]) == ("learn", "SH-3", 50000)
    assert (first["node_ids"], first["parallel_workers"], first["attach_to"]) == (31, 1, lower)
    second = parse(topology="mesh", parallel_workers=1)
    assert (second["address"], second["node_ids"], second["attach_to"]) == ("SH-3", 3, lower)
    third = parse(topology="mesh", parallel_workers=2)
    assert third["node_ids"] == 6
    assert third["attach_to"] == ",".join(
        f"tcp://SH-{host}:{port}" for host in range(3) for port in (50515, 50516)
    )


def test_A121_the_slurm_parser(monkeypatch):
    for key, value in {
        "SLURM_NTASKS": "6", "SLURM_NTASKS_PER_NODE": "3",
        "SLURM_NODELIST": "SH-IDC1-10-5-38-[190,215]", "SLURM_PROCID": "3",
        "SLURMD_NODENAME": "SH-IDC1-10-5-38-215",
    }.items():
        monkeypatch.setenv(key, value)
    parse = launch.PLATFORM_PARSERS["slurm"]
    lower = ",".join(f"tcp://SH-IDC1-10-5-38-190:{port}" for port in (15151, 15152, 15153))
    spec = {
        "tasks": [
            {"labels": "league,collect", "node_ids": 10},
            {"labels": "league,collect", "node_ids": 11},
            {"labels": "evaluate", "node_ids": 20, "attach_to": "$node.10,$node.11"},
            {"labels": "learn", "node_ids": 31, "attach_to": "$node.10,$node.11,$node.20"},
            {"labels": "learn", "node_ids": 32, "attach_to": "$node.10,$node.11,$node.20"},
            {"labels": "learn", "node_ids": 33, "attach_to": "$node.10,$node.11,$node.20"},
        ]
    }
    named = parse(json.dumps(spec), topology="mesh", parallel_workers=1)
    assert (named["labels"], named["address"]) == ("learn", "SH-IDC1-10-5-38-215")
    assert (named["ports"], named["node_ids"], named["attach_to"]) == (15151, 31, lower)
    plain = parse(topology="mesh", parallel_workers=1)
    assert (plain["address"], plain["ports"]) == ("SH-IDC1-10-5-38-215", 15151)
    assert (plain["node_ids"], plain["parallel_workers"], plain["attach_to"]) == (3, 1, lower)
    monkeypatch.setenv("SLURM_NTASKS", "9")
    monkeypatch.setenv("SLURM_NODELIST", "SH-IDC1-10-5-[38-40]")
    for procid in range(9):  # three entries a host: 38, 38, 38, 39, ...
        host = f"SH-IDC1-10-5-{38 + procid // 3}"
        monkeypatch.setenv("SLURM_PROCID", str(procid))
        monkeypatch.setenv("SLURMD_NODENAME", host)
        one = parse(topology="mesh", parallel_workers=1)
        assert (one["address"], one["ports"]) == (host, 15151 + procid % 3)


def test_A122_one_worker_on_kubernetes_runs_main(package):
    out = succeed(
        "--package", "pk", "--main", "my_module.main", "--platform", "k8s", "--topology", "mesh",
        "--ports", free_port(), "--parallel-workers", 1, cwd=package, DI_NODES="127.0.0.1",
        DI_RANK="0",
    )
    assert "node=0 local=0 of=1" in out


def test_A123_six_ways_to_name_a_package(package):
    installed = package / "installed"
    (installed / "my_module").mkdir(parents=True)
    (installed / "my_module" / "__init__.py").write_text(MY_MODULE)
    local = str(package / "pk" / "my_module")
    for arguments, cwd in (
        (["--package", "pk", "--main", "my_module.main"], package),
        (["--package", "my_module.zip", "--main", "my_module.main"], package),
        (["--package", "my_module.zip"], package),
        (["--package", "my_module", "--main", "my_module.main"], package / "pk"),
        (["--package", "pk/my_module"], package),
        (["--package", ".", "--main", "my_module.main"], package / "pk"),
    ):
        out = succeed(*arguments, *LOCAL, cwd=cwd, PYTHONPATH=str(installed))
        assert "node=0 local=0 of=1" in out, arguments
        if ".zip" in arguments[1]:
            assert str(installed) not in out, arguments
        else:
            assert f"copy={local}" in out, arguments


@pytest.mark.parametrize(
    "arguments, part",
    [
        (["--main", "my_module"], "has no dot"),
        (["--main", "nowhere.main"], "no nowhere.so, libnowhere.so or nowhere.py in"),
        (["--main", "my_module.nothing"], "has no function nothing"),
        (["--main", "my_module.not_a_function"], "is a int, not a function"),
        (["--main", "my_module.main", "--topology", "ring"], "--topology"),
        (["--main", "my_module.main", "--parallel-workers", "0"], "--parallel-workers"),
        (["--main", "broken.main"], "SyntaxError"),
        (["--main", "needs.main"], "no_such_library"),
        (["--main", "my_module.sub.main"], "no sub.so, libsub.so or sub.py in"),
    ],
)
@pytest.mark.parametrize("workers", [[], ["--parallel-workers", "2"]], ids=["one", "two"])
def test_A124_usage_errors_are_2_and_one_line(package, arguments, part, workers):
    (package / "pk" / "broken.py").write_text("def main(:\n")
    (package / "pk" / "needs.py").write_text("import no_such_library\n")
    code, _, err = ditask("--package", "pk", *workers, *arguments, *LOCAL, cwd=package)
    assert code == 2, err
    *before, line = err.strip().splitlines()
    assert line.startswith("ditask: ") and part in line
    # Nothing else, but the traceback of a module that cannot be imported.
    if not arguments[1].startswith(("broken.", "needs.")):
        assert before == []


def test_A124_a_main_that_raises_is_1_with_its_traceback_and_node(package):
    code, _, err = ditask(
        "--package", "pk", "--main", "my_module.fail", "--node-ids", 3, *LOCAL, cwd=package
    )
    assert code == 1
    assert re.search(r"^\[node 3\] Traceback \(most recent call last\):$", err, re.M)
    assert re.search(r"^\[node 3\] ValueError: the reward is not a number$", err, re.M)
    assert err.strip().splitlines()[-1] == "ditask: node 3: ValueError: the reward is not a number"


def test_A124_a_main_that_leaves_by_sys_exit_is_1(package):
    code, _, err = ditask("--package", "pk", "--main", "my_module.leave", *LOCAL, cwd=package)
    assert code == 1
    assert "main returned 7" in err


def test_A124_a_port_in_use_is_3(package):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        code, _, err = ditask(
            "--package", "pk", "--main", "my_module.main", "--address", "127.0.0.1", "--ports", port,
            cwd=package,
        )
    assert code == 3
    assert f"127.0.0.1:{port}" in err.strip().splitlines()[-1]


@pytest.mark.parametrize("number, code", [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_A124_signals_let_main_finish(package, number, code):
    files = package / "files"
    files.mkdir()
    process = start(
        "--package", "pk", "--main", "my_module.forever", "--parallel-workers", 2, "--topology",
        "mesh", *LOCAL, cwd=package, TMPDIR=str(files),
    )
    try:
        pids = [int(re.search(r"waiting (\d+)", process.stdout.readline())[1]) for _ in range(2)]
        assert len(list(files.iterdir())) == 2
        process.send_signal(number)
        out, err = process.communicate(timeout=DEADLINE)
    finally:
        process.kill()
    assert process.returncode == code, err
    assert out.count("asked to finish") == 2
    assert not any(os.path.exists(f"/proc/{pid}") for pid in pids)
    assert list(files.iterdir()) == []


def test_a_signal_ends_the_wait_at_a_barrier(package):
    (package / "pk" / "meets.py").write_text(
        "from divisi import task\n"
        "from divisi.middleware import Barrier\n"
        "def main():\n"
        "    with task.start():\n"
        "        print('waiting', flush=True)\n"
        "        if task.router.node_id == 0:\n"
        "            task.use(Barrier(timeout=600))\n"
        "            task.run()\n"
        "        else:  # which never comes\n"
        "            task.wait_for('never', ignore_timeout_exception=True)\n"
        "    print('ended', flush=True)\n"
    )
    process = start(
        "--package", "pk", "--main", "meets.main", "--parallel-workers", 2, "--topology", "mesh",
        *LOCAL, cwd=package,
    )
    try:
        assert all("waiting" in process.stdout.readline() for _ in range(2))
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=DEADLINE)
    finally:
        process.kill()
    assert process.returncode == 128 + signal.SIGTERM, err
    assert out.count("ended") == 2, out + err


def test_A124_a_killed_worker_is_128_plus_its_signal(package):
    (package / "pk" / "dies.py").write_text(
        "import os, signal\ndef main():\n    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    code, _, err = ditask("--package", "pk", "--main", "dies.main", *LOCAL, cwd=package)
    assert code == 128 + signal.SIGKILL
    assert "node 0" in err.strip().splitlines()[-1]


def test_A124_an_interpreter_that_is_not_there_is_2_and_named(package):
    code, _, err = ditask(
        "--package", "pk", "--main", "my_module.main", *LOCAL, cwd=package,
        DIVISI_PYTHON=str(package / "no_such_python"),
    )
    assert code == 2, err
    assert "no_such_python" in err.strip().splitlines()[-1]


def test_A125_an_address_without_scheme_connects(package):
    first = free_port(2)
    second = first + 1
    common = ["--package", "pk", "--main", "my_module.meet", "--address", "127.0.0.1"]
    hub = start(*common, "--ports", first, cwd=package, EXPECTED="1:0")
    other = start(
        *common, "--ports", second, "--node-ids", 1, "--attach-to", f"127.0.0.1:{first}",
        cwd=package, EXPECTED="1:0",
    )
    for process, said in ((hub, "node 0 heard 1"), (other, "node 1 heard 0")):
        out, err = process.communicate(timeout=DEADLINE)
        assert process.returncode == 0, err
        assert said in out


def test_without_flags_the_workers_of_a_launcher_hear_each_other_over_ipc(package):
    code, out, err = ditask(
        "--package", "pk", "--main", "my_module.meet", "--parallel-workers", 2, cwd=package, EXPECTED="1:0"
    )
    assert code == 0, err
    assert "node 0 heard 1" in out and "node 1 heard 0" in out
    assert "secret" not in err
    plan = json.loads(succeed("--package", "pk", "--main", "my_module.meet", "--dry-run", cwd=package))
    assert (plan["protocol"], plan["topology"]) == ("ipc", "mesh")


def test_a_launcher_on_tcp_is_reached_on_loopback_too_and_told_of_secrets(package):
    first = free_port(2)
    common = ["--package", "pk", "--main", "my_module.meet"]
    hub = start(*common, "--ports", first, cwd=package, EXPECTED="1:0")
    other = start(
        *common, "--ports", first + 1, "--node-ids", 1, "--attach-to", f"127.0.0.1:{first}",
        cwd=package, EXPECTED="1:0",
    )
    for process, said in ((hub, "node 0 heard 1"), (other, "node 1 heard 0")):
        out, err = process.communicate(timeout=DEADLINE)
        assert process.returncode == 0, err
        assert said in out
        # On a host without a network the detected address is loopback itself.
        assert "openssl rand -hex 32 > secret.txt" in err or "no network interface is up" in err


def test_the_output_of_a_program_that_nobody_reads_ends_it(tmp_path):
    command = f"{launch.program()} -- yes | head -1; echo ${{PIPESTATUS[0]}}"
    ended = subprocess.run(
        ["bash", "-c", command], env=environment(), stdin=subprocess.DEVNULL, capture_output=True, text=True,
        timeout=DEADLINE,
    )
    assert ended.stdout.splitlines() == ["[node 0] y", str(128 + signal.SIGPIPE)], ended


def test_A126_labels_and_node_ids_of_the_command_line(package):
    out = succeed(
        "--package", "pk", "--main", "my_module.main", "--labels", "a, b", "--node-ids", 5, *LOCAL,
        cwd=package,
    )
    assert "node=5" in out and "labels=['a', 'b']" in out


def test_A127_two_workers_with_a_list_of_ports(package):
    base = free_port(3)
    out = succeed(
        "--package", "pk", "--main", "my_module.meet", "--parallel-workers", 2, "--topology", "mesh",
        "--address", "127.0.0.1", "--ports", f"{base},{base + 2}", cwd=package, EXPECTED="1:0",
    )
    assert "node 0 heard 1" in out and "node 1 heard 0" in out


def test_A128_the_guides_pod_command_makes_one_job_of_six_nodes(package):
    hosts = ("127.0.0.1", "127.0.0.2", "127.0.0.3")
    port = free_port(2, hosts)
    everybody = ":".join(
        ",".join(str(other) for other in range(6) if other != node) for node in range(6)
    )
    pods = [
        start(
            "--package", "my_module", "--main", "my_module.meet", "--parallel-workers", 2, "--ports",
            port, cwd=package / "pk", DI_NODES=",".join(hosts), DI_RANK=str(rank),
            EXPECTED=everybody,
        )
        for rank in range(3)
    ]
    heard = set()
    for pod in pods:
        out, err = pod.communicate(timeout=DEADLINE)
        assert pod.returncode == 0, err
        heard.update(re.findall(r"node (\d) heard", out))
    assert heard == set("012345")


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_A130_three_servers_in_any_start_order(package, order):
    addresses = ("127.0.0.1", "127.0.0.2", "127.0.0.3")
    port = free_port(1, addresses)
    servers = {}
    for node in order:
        attach = ["--attach-to", f"127.0.0.1:{port}"] if node else []
        servers[node] = start(
            "--package", "pk", "--main", "my_module.meet", "--parallel-workers", 1, "--protocol",
            "tcp", "--address", addresses[node], "--ports", port, "--node-ids", node, *attach,
            cwd=package, EXPECTED="1,2:0:0",
        )
        wait_until_it_listens(servers[node], addresses[node], port)  # one that dials listens before that
    for node, said in ((0, "node 0 heard 1,2"), (1, "node 1 heard 0"), (2, "node 2 heard 0")):
        out, err = servers[node].communicate(timeout=DEADLINE)
        assert servers[node].returncode == 0, err
        assert said in out
