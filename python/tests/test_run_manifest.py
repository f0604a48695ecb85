"""`divisi run job.yaml`: a DIJob manifest without a cluster."""

import json
import os
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest

DIVISI = Path(os.environ["DIVISI_BUILD"]) / "bin" / "divisi"


@pytest.fixture(autouse=True)
def own_records(tmp_path, monkeypatch):
    """Records of jobs in a folder of this test."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


JOB = """
apiVersion: diengine.opendilab.org/v2alpha1
kind: DIJob
metadata: {{name: train}}
spec:
  backoffLimit: 0
  tasks:
  - name: work
    type: none
    replicas: 2
    template:
      spec:
        containers:
        - name: di-container
          image: example/image:1
          command: [sh, -c, {script}]
"""


def manifest(folder, script):
    path = folder / "job.yaml"
    path.write_text(JOB.format(script=json.dumps(script)))
    return path


def run(folder, script, *more):
    return subprocess.run([DIVISI, "run", manifest(folder, script), *more], capture_output=True, text=True, timeout=60)


def start(folder, script):
    return subprocess.Popen([DIVISI, "run", manifest(folder, script), "--folder", folder / "out"], stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True)


def wait_for_lines(process, text, count):
    while count > 0:
        line = process.stdout.readline()
        assert line, process.stderr.read()
        count -= text in line


def processes_with(text):
    """Process ids whose command line contains the text."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if text.encode() in path.read_bytes():
                found.append(int(path.parent.name))
        except OSError:
            pass
    return found


def wait_until(condition, seconds=30):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_output_is_merged_behind_the_names_of_the_pods(tmp_path):
    done = run(tmp_path, "echo hello from $DI_RANK")
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == ["[train-work-0] hello from 0", "[train-work-1] hello from 1"]
    assert "Succeeded: job succeeded" in done.stderr
    assert done.stderr.count("image example/image:1 is not used") == 1


def test_exit_codes_arrive(tmp_path):
    assert run(tmp_path, "exit 3").returncode == 3
    assert run(tmp_path, "kill -9 $$$$").returncode == 137


def test_logs_are_kept_in_the_folder(tmp_path):
    done = run(tmp_path, "echo once; echo twice", "--folder", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    lines = (tmp_path / "out/logs/train-work-0.di-container.log").read_text().splitlines()
    assert [line.split(" ", 1)[1] for line in lines] == ["once", "twice"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_job(tmp_path, number):
    with start(tmp_path, "trap 'echo bye; exit 0' TERM; echo up; while :; do sleep 0.1; done") as process:
        wait_for_lines(process, "up", 2)
        process.send_signal(number)
        out, err = process.communicate(timeout=60)
        assert process.returncode == 128 + number
        assert out.count("bye") == 2
        assert "once more to kill it" in err


def test_a_program_that_is_no_shell_gets_the_signal(tmp_path):
    with start(tmp_path, "exec python3 -c 'import signal, time; signal.signal(signal.SIGTERM, lambda *_: exit(print(\"bye\", flush=True))); "
                         "print(\"up\", flush=True); time.sleep(1000)'") as process:
        wait_for_lines(process, "up", 2)
        process.send_signal(signal.SIGTERM)
        out, _ = process.communicate(timeout=60)
        assert out.count("bye") == 2


def test_a_reader_that_has_gone_ends_the_job(tmp_path):
    with start(tmp_path, "while :; do echo up; sleep 0.05; done") as process:
        wait_for_lines(process, "up", 1)
        process.stdout.close()
        assert process.wait(timeout=60) == 141


def test_a_program_with_a_manifest_as_its_argument_is_no_manifest(tmp_path):
    done = subprocess.run([DIVISI, "run", "--workers", "1", "--backend", "local", "--", "sh", "-c", "echo $0", "cfg.yaml"],
                          capture_output=True, text=True, timeout=60, env=dict(os.environ, XDG_STATE_HOME=str(tmp_path)))
    assert done.returncode == 0, done.stderr
    assert "cfg.yaml" in done.stdout


def test_a_killed_run_leaves_no_process(tmp_path):
    token = f"sleep 98765.{os.getpid()}"
    with start(tmp_path, f"setsid {token} & echo up; wait") as process:
        wait_for_lines(process, "up", 2)
        assert len(processes_with(token.split()[1])) >= 2
        process.kill()
    wait_until(lambda: not processes_with(token.split()[1]))


def test_pip_changes_nothing_outside(tmp_path):
    package = tmp_path / "thing"
    package.mkdir()
    info = "divisi_thing-1.dist-info"
    with zipfile.ZipFile(package / "divisi_thing-1-py3-none-any.whl", "w") as wheel:
        wheel.writestr("divisi_thing.py", "ANSWER = 42\n")
        wheel.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: divisi-thing\nVersion: 1\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", f"divisi_thing.py,,\n{info}/METADATA,,\n{info}/WHEEL,,\n{info}/RECORD,,\n")
    mounted = JOB.format(script=json.dumps(f"{sys.executable} -m pip install --no-index -q /thing/divisi_thing-1-py3-none-any.whl && "
                                f"{sys.executable} -c 'import divisi_thing; print(divisi_thing.ANSWER, divisi_thing.__file__)'"))
    mounted = mounted.replace("replicas: 2", "replicas: 1").rstrip() + f"""
          volumeMounts: [{{name: thing, mountPath: /thing}}]
        volumes: [{{name: thing, hostPath: {{path: {package}}}}}]
"""
    path = tmp_path / "pip.yaml"
    path.write_text(mounted)
    environment = dict(os.environ)
    if sys.prefix != sys.base_prefix:  # as after `source bin/activate`
        environment["VIRTUAL_ENV"] = sys.prefix
    done = subprocess.run([DIVISI, "run", path], capture_output=True, text=True, timeout=120, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "42 /var/lib/divisi/home/.local/" in done.stdout
    again = subprocess.run([sys.executable, "-c", "import divisi_thing"], capture_output=True, text=True)
    assert "No module named" in again.stderr


def test_wrong_input_is_one_line(tmp_path):
    other = tmp_path / "other.yaml"
    other.write_text("kind: Deployment\nmetadata: {name: x}\n")
    for arguments, text in [(["none.yaml"], "cannot read none.yaml"), ([other], "kind Deployment needs a cluster"),
                            ([other, "--bakend", "local"], "did you mean --backend?")]:
        done = subprocess.run([DIVISI, "run", *arguments], capture_output=True, text=True, timeout=60)
        assert done.returncode == 2
        assert text in done.stderr and done.stderr.count("\n") == 1, done.stderr
