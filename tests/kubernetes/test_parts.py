"""Parts of tests/kubernetes that need no Kubernetes."""

import hashlib
import io
import json
import os
import pathlib
import signal
import subprocess
import sys
import tarfile

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

from cluster import images, processes  # noqa: E402
from cluster.paths import check_name, locked  # noqa: E402
from cluster.problem import Problem, wait_until  # noqa: E402


@pytest.fixture
def sleeper():
    process = subprocess.Popen(["sleep", "1000"])
    yield process
    process.kill()
    process.wait()


def test_a_process_is_stopped_by_its_record(sleeper, tmp_path):
    processes.Record.of(sleeper.pid).write(tmp_path / "record")
    record = processes.Record.read(tmp_path / "record")
    assert record.alive()
    processes.stop(record)
    assert sleeper.wait() == -signal.SIGKILL
    assert not record.alive()
    processes.stop(record)  # once more is no error


@pytest.mark.parametrize("change", [{"started": 1}, {"boot": "another"}])
def test_a_process_that_has_got_a_recycled_pid_is_left_alone(sleeper, change):
    mine = processes.Record.of(sleeper.pid)
    other = processes.Record(**{"pid": mine.pid, "started": mine.started, "boot": mine.boot, **change})
    assert not other.alive()
    processes.stop(other)
    assert sleeper.poll() is None and mine.alive()


@pytest.mark.parametrize("text", ["", "12", "12 34", "twelve 34 boot", "1 2 3 4"])
def test_half_a_record_is_none(tmp_path, text):
    (tmp_path / "record").write_text(text)
    assert processes.Record.read(tmp_path / "record") is None


def test_a_daemon_runs_on_its_own_and_its_words_are_in_its_log(tmp_path):
    script = ["/bin/sh", "-c", "echo $GREETING $PPID; exec sleep 1000"]
    record = processes.spawn(script, tmp_path / "record", tmp_path / "log",
                             environment={"GREETING": "hello", "PATH": os.environ["PATH"]})
    try:
        wait_until("its words", lambda: (tmp_path / "log").exists() and (tmp_path / "log").read_text(), 10)
        greeting, parent = (tmp_path / "log").read_text().split()
        assert greeting == "hello" and int(parent) != os.getpid()
        assert processes.Record.read(tmp_path / "record") == record
    finally:
        processes.stop(record)
    assert not record.alive()


def test_what_goes_wrong_before_a_daemon_runs_is_told(tmp_path):
    def fail():
        raise OSError(1, "no namespaces here")

    with pytest.raises(Problem, match="cannot start sleep: .*no namespaces here"):
        processes.spawn(["/bin/sleep"], tmp_path / "record", tmp_path / "log", environment={}, outer=fail)
    assert not (tmp_path / "record").exists()


def test_a_lock_is_held_by_one_and_the_next_one_locks_the_new_file(tmp_path):
    path = tmp_path / "thing.lock"
    with locked(path, remove=True):
        with pytest.raises(Problem, match="'thing' is in the hands of another process"):
            with locked(path):
                pass
    assert not path.exists()
    with locked(path):
        assert path.exists()


def test_an_image_archive_holds_what_its_digests_say():
    data = images.image("docker.io/local/x:1", {"/opt/tool": b"program"}, links={"/bin/t": "/opt/tool"}, command=["t"])
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        blobs = {member.name: archive.extractfile(member).read() for member in archive}
    for name, content in blobs.items():
        if name.startswith("blobs/"):
            assert name == f"blobs/sha256/{hashlib.sha256(content).hexdigest()}"

    def blob(descriptor):
        content = blobs["blobs/" + descriptor["digest"].replace(":", "/")]
        assert len(content) == descriptor["size"]
        return content

    (entry,) = json.loads(blobs["index.json"])["manifests"]
    assert entry["annotations"]["io.containerd.image.name"] == "docker.io/local/x:1"
    manifest = json.loads(blob(entry))
    assert json.loads(blob(manifest["config"]))["config"]["Cmd"] == ["t"]
    with tarfile.open(fileobj=io.BytesIO(blob(manifest["layers"][0]))) as layer:
        assert layer.getnames() == ["bin", "opt", "tmp", "opt/tool", "bin/t"]
        assert layer.extractfile("opt/tool").read() == b"program"


@pytest.mark.parametrize("reference, place", [("busybox", "/x"), ("docker.io/local/x", "/x"), ("docker.io/X:1", "/x"),
                                              ("docker.io/local/x:1", "x"), ("docker.io/local/x:1", "/a/../../x")])
def test_an_image_with_a_bad_name_or_place_is_refused(reference, place):
    with pytest.raises(Problem):
        images.image(reference, {place: b""})


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "A", "-a", "a-", "a" * 25, "a b", "a\n"])
def test_a_bad_name_of_an_instance_is_refused(name):
    with pytest.raises(Problem, match="cannot name an instance"):
        check_name(name)
