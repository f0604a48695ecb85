"""The command `ding`: bad use, configurations in Python, the helper that speaks to di-server."""

import os
import pickle
import subprocess
import textwrap

import pytest
from dist_support import BUILD, REPOSITORY, FakeDiServer, Job, cartpole, ding, end, prepare
from ports import free_port, wait_until_it_listens


def config(folder, text, **more):
    (folder / "config.py").write_text(text)
    return ding(folder, "-m", "dist", "--module", "config", "-P", "k8s", "-c", "config.py", "-s", "3", **more)


def refused(done, *texts):
    assert done.returncode == 2, (done.returncode, done.stderr)
    assert done.stderr.count("\n") == 1, done.stderr
    assert done.stderr.startswith("ding: "), done.stderr
    for text in texts:
        assert text in done.stderr, done.stderr
    return True


def test_a_configuration_becomes_a_pickle_of_plain_values(tmp_path):
    done = config(tmp_path, cartpole())
    assert done.returncode == 0, done.stderr
    assert done.stdout == "wrote config.py.pkl\n"
    with open(tmp_path / "config.py.pkl", "rb") as file:
        written = pickle.load(file)
    assert written["main"]["policy"]["model"]["encoder_hidden_size_list"] == [128, 128, 64]
    assert written["create"]["env"]["type"] == "cartpole"
    assert written["system"]["coordinator"]["operator_server"]["system_addr"] == "di-server.di-system:8080"
    assert written["system"]["coordinator"]["port"] == 22273
    assert written["system"]["learner"] == {
        "path_data": "./data", "path_policy": "./policy", "host": "0.0.0.0", "port": 22271}
    assert written["seed"] == 3
    assert [p.name for p in tmp_path.iterdir()] and not list(tmp_path.glob(".tmp.*"))


def test_where_easydict_is_installed_the_pickle_has_attributes(tmp_path):
    # As much of the package as its users see: attributes repeat items.
    (tmp_path / "modules").mkdir()
    (tmp_path / "modules" / "easydict.py").write_text(
        "class EasyDict(dict):\n"
        "    def __init__(self, d=None, **kw):\n"
        "        for k, v in dict(d or {}, **kw).items():\n"
        "            setattr(self, k, v)\n"
        "    def __setattr__(self, k, v):\n"
        "        if isinstance(v, dict) and not isinstance(v, EasyDict):\n"
        "            v = EasyDict(v)\n"
        "        super().__setattr__(k, v)\n"
        "        super().__setitem__(k, v)\n"
        "    __setitem__ = __setattr__\n"
    )
    path = {"PYTHONPATH": str(tmp_path / "modules")}
    assert config(tmp_path, cartpole(), env=path).returncode == 0
    read = subprocess.run(
        ["python3", "-c", "import pickle; c = pickle.load(open('config.py.pkl', 'rb')); print(c.system.coordinator.port)"],
        cwd=tmp_path, env={**os.environ, **path}, capture_output=True, text=True)
    assert read.stdout == "22273\n", read.stderr
    # Our side reads it, and goes on until it asks for the cluster.
    done = ding(tmp_path, "-m", "dist", "--module", "coordinator", "-c", "config.py.pkl", "-cdp", "70000")
    assert refused(done, "--coordinator-port")


@pytest.mark.parametrize("text, words", [
    ("main_config = dict(\n", ["config.py:1", "never closed"]),
    ("\n\nmain_config = dict(a=unknown)\n", ["config.py:3", "NameError", "unknown"]),
    ("import no_such_module\n", ["config.py:1", "no_such_module"]),
    ("import sys\nsys.exit(0)\n", ["config.py", "ends Python"]),
    ("x = 1\n", ["config.py", "main_config"]),
    (cartpole(more="system_config = 5"), ["config.py", "system_config"]),
    (cartpole(more="main_config.policy.model = lambda: 0"), ["main_config.policy.model", "function"]),
    (cartpole(more="main_config.policy.file = open('/dev/null')"), ["main_config.policy.file", "TextIOWrapper"]),
    (cartpole(more="main_config['policy']['list'] = [0, {1: 2}]"), ["main_config.policy.list[1]", "key 1"]),
    (cartpole(more="loop = []\nloop.append(loop)\ndict.__setitem__(main_config, 'loop', loop)"), ["contains itself"]),
    ("raise ValueError('two\\nlines')\n", ["config.py:1", "ValueError: two lines"]),
])
def test_a_mistake_in_a_configuration_is_one_line_with_its_place(tmp_path, text, words):
    assert refused(config(tmp_path, text), *words)
    assert not (tmp_path / "config.py.pkl").exists()


def test_a_configuration_that_is_not_there_is_named(tmp_path):
    assert refused(ding(tmp_path, "-m", "dist", "--module", "config", "-c", "nothing.py"), "nothing.py")
    assert refused(ding(tmp_path, "-m", "dist", "--module", "learner", "-c", "nothing.py.pkl"), "nothing.py.pkl")


def test_python_that_is_not_there_is_named(tmp_path):
    done = config(tmp_path, cartpole(), env={"DIVISI_PYTHON": "/no/such/python"})
    assert done.returncode in (1, 2) and "/no/such/python" in done.stderr and done.stderr.count("\n") == 1


def test_a_malicious_pickle_is_refused_by_name_and_does_nothing(tmp_path):
    class Attack:
        def __reduce__(self):
            return (os.system, (f"touch {tmp_path}/trace",))

    (tmp_path / "bad.pkl").write_bytes(pickle.dumps({"main": Attack(), "system": {}}))
    for module in ("coordinator", "collector", "learner"):
        assert refused(ding(tmp_path, "-m", "dist", "--module", module, "-c", "bad.pkl"), "bad.pkl", "system")
    assert not (tmp_path / "trace").exists()


def test_qbert_is_refused_by_name(tmp_path):
    (tmp_path / "config.py").write_text(
        cartpole(more="main_config.env.env_id = 'QbertNoFrameskip-v4'\nmain_config.policy.model.obs_shape = [4, 84, 84]"))
    assert ding(tmp_path, "-m", "dist", "--module", "config", "-p", "k8s", "-c", "config.py", "-s", "0").returncode == 0
    for module in ("coordinator", "collector", "spawn_learner"):
        done = ding(tmp_path, "-m", "dist", "--module", module, "-p", "k8s", "-c", "config.py.pkl", "-s", "0")
        assert refused(done, "QbertNoFrameskip-v4", "CartPole-v1")


def test_bad_use_is_one_line_and_help_is_none(tmp_path):
    for arguments in ([], ["-m", "serial"], ["-m", "dist"], ["-m", "dist", "--module", "x"], ["-m", "dist", "--module", "learner"]):
        assert refused(ding(tmp_path, *arguments), "ding --help")
    done = ding(tmp_path, "--help")
    assert done.returncode == 0 and "examples:" in done.stdout and not done.stderr
    divisi = subprocess.run([BUILD / "bin" / "divisi", "dist", "--help"], capture_output=True, text=True)
    assert divisi.returncode == 0 and "divisi dist --module coordinator" in divisi.stdout
    divisi = subprocess.run([BUILD / "bin" / "divisi", "dist", "--module", "x"], capture_output=True, text=True)
    assert divisi.returncode == 2 and divisi.stderr.startswith("divisi dist: --module 'x'")


def test_the_example_manifest_holds_a_configuration_that_is_read(tmp_path):
    manifest = (REPOSITORY / "examples" / "dijob" / "cartpole.yaml").read_text()
    text = textwrap.dedent(manifest.split("cat <<EOF > cartpole_dqn_config_k8s.py\n")[1].split("            EOF\n")[0])
    pickle_name = prepare(tmp_path, text)
    port = free_port()
    with Job(tmp_path, "127.0.0.1:1") as job:
        collector = job.start("collector", "--module", "collector", "-c", pickle_name, "-s", "0", "-clp", port)
        wait_until_it_listens(collector, "0.0.0.0", port)
        assert end(collector) == 0, job.log("collector")


def test_a_coordinator_without_a_server_says_what_to_set(tmp_path):
    prepare(tmp_path, cartpole(more="system_config.coordinator.operator_server.system_addr = 'bad url'"))
    done = ding(tmp_path, "-m", "dist", "--module", "coordinator", "-c", "config.py.pkl")
    assert done.returncode in (1, 2) and done.stderr.count("\n") == 1, done.stderr
    done = ding(tmp_path, "-m", "dist", "--module", "coordinator", "--mock")
    assert done.returncode in (1, 2) and "KUBERNETES_SERVER_URL" in done.stderr, done.stderr


def test_replicas_are_added_deleted_and_restarted(tmp_path):
    with FakeDiServer(collectors=["job-collector-a.default:80"]) as server:
        common = ["-cdn", "job-coordinator", "-ns", "default"]
        added = ding(tmp_path, "-m", "dist", "--add", "collector", *common, "-rs", "2", "--server", server.url)
        assert added.returncode == 0, added.stderr
        assert "job-collector-a.default:80" in added.stdout
        environment = {"KUBERNETES_SERVER_URL": f"http://{server.url}"}
        for more in (["--delete", "learner", "-rs", "1"], ["--restart", "learner", "-rpn", "job-learner-b"]):
            done = ding(tmp_path, "-m", "dist", *more, *common, env=environment)
            assert done.returncode == 0, done.stderr
        assert server.requests == [
            ("POST", "/v1alpha1/replicas",
             {"namespace": "default", "coordinator": "job-coordinator", "collectors": {"replicas": 2}}),
            ("DELETE", "/v1alpha1/replicas",
             {"namespace": "default", "coordinator": "job-coordinator", "learners": {"replicas": 1}}),
            ("POST", "/v1alpha1/replicas/failed",
             {"namespace": "default", "coordinator": "job-coordinator", "learners": ["job-learner-b"]}),
        ]
        server.take = lambda *_: {"success": False, "code": 1, "message": "pod: default/x not exists in cache", "data": None}
        done = ding(tmp_path, "-m", "dist", "--add", "collector", *common, env=environment)
        assert done.returncode == 1 and "not exists in cache" in done.stderr
        server.take = lambda *_: "what"
        done = ding(tmp_path, "-m", "dist", "--add", "collector", *common, env=environment)
        assert done.returncode == 1 and "is it di-server?" in done.stderr
    without = {"KUBERNETES_SERVER_URL": ""}
    assert refused(ding(tmp_path, "-m", "dist", "--add", "collector", *common, env=without), "KUBERNETES_SERVER_URL")
    nobody = ding(tmp_path, "-m", "dist", "--add", "collector", *common, "--server", server.url)
    assert nobody.returncode == 1 and nobody.stderr.count("\n") == 1
