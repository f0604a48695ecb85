"""`pip install` as a user does it, in an environment of its own."""

import os
import pickle
import subprocess
import sys
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

LISTING = """
from divisi import task, OnlineRLContext, Supervisor, OfflineRLContext, Context, Task, EventLoop, Parallel
import divisi

with task.start(async_mode=False, ctx=OnlineRLContext()):
    task.on("greeting", lambda msg: print("Get msg: %s" % msg))
    task.emit("greeting", "Hi")
print(divisi.__version__, divisi.__file__)
"""


def run(*command, **options):
    env = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run(
        [str(part) for part in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        timeout=1500, env=env, **options,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """A fresh environment with both wheels: (its python, its bin folder)."""
    folder = tmp_path_factory.mktemp("wheel")
    # The environment that ./test builds with, so that nothing is fetched and the compiler's cache
    # knows every file.
    for source, options in (
        (
            ROOT,
            [
                f"--config-settings=cmake.define.{setting}"
                for setting in ("DIVISI_WERROR=ON", "CMAKE_CXX_COMPILER=g++", "CMAKE_C_COMPILER=gcc")
            ],
        ),
        (ROOT / "python" / "ding", []),
    ):
        run(
            sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation",
            "--wheel-dir", folder, *options, source,
        )
    venv.create(folder / "env", with_pip=True)
    binaries = folder / "env" / "bin"
    run(binaries / "pip", "install", "--quiet", "--no-index", "--no-deps", *folder.glob("*.whl"))
    return binaries / "python", binaries


def test_the_readme_example_runs_in_a_fresh_environment(installed, tmp_path):
    python, _ = installed
    script = tmp_path / "hello.py"
    script.write_text(LISTING)
    lines = run(python, script, cwd=tmp_path).splitlines()
    assert lines[0] == "Get msg: Hi"
    assert "site-packages" in lines[1]


def test_two_workers_of_the_installed_package_meet(installed, tmp_path):
    python, binaries = installed
    (tmp_path / "meeting.py").write_text(
        "from divisi import task\n"
        "def main():\n"
        "    with task.start():\n"
        "        if task.router.node_id == 0:\n"
        "            task.on('greeting', lambda msg: print('Get msg: %s' % msg))\n"
        "            task.wait_for('greeting', timeout=60)\n"
        "        else:\n"
        "            task.emit('greeting', 'Hi')\n"
    )
    out = run(
        binaries / "ditask", "--package", tmp_path, "--main", "meeting.main", "--parallel-workers",
        2, "--topology", "mesh", "--protocol", "ipc", cwd=tmp_path,
    )
    assert "[node 0] Get msg: Hi" in out.splitlines()


def test_the_package_installs_the_command(installed, tmp_path):
    python, binaries = installed
    owned = run(python, "-m", "pip", "show", "--files", "divisi").splitlines()
    assert any(line.endswith("/bin/ditask") for line in owned)
    assert "bin/ditask" not in run(python, "-m", "pip", "show", "--files", "divisi-ding")
    version = run(binaries / "ditask", "--version", cwd=tmp_path)
    assert version.startswith("ditask (divisi) ")
    for module in ("divisi", "divisi.launch"):
        assert run(python, "-m", module, "--version", cwd=tmp_path) == version


def test_the_readme_line_of_the_launcher_runs_as_written(installed):
    _, binaries = installed
    block = (ROOT / "README.md").read_text().split("## The same in Python")[1]
    (line,) = [line for line in block.splitlines() if line.startswith("ditask --package examples/greeting_py")]
    path = f"{binaries}{os.pathsep}{os.environ['PATH']}"
    out = run("env", f"PATH={path}", "sh", "-c", line, cwd=ROOT)
    assert "[node 0] " in out


def test_the_installed_package_trains_a_configuration_of_di_engine(installed, tmp_path):
    from test_serial import GUIDE_TEMPLATE

    python, _ = installed
    (tmp_path / "cartpole_dqn_config.py").write_text(GUIDE_TEMPLATE.replace("seed=0)", "seed=0, max_env_step=400)"))
    run(python, "cartpole_dqn_config.py", cwd=tmp_path)
    result = pickle.loads((tmp_path / "cartpole_dqn_seed0" / "result.pkl").read_bytes())
    assert result["env_step"] == 400
