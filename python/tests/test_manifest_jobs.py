"""The jobs of `divisi run job.yaml`: their records, and the commands around them."""

import json
import os
import random
import signal
import subprocess
import time
from pathlib import Path

import pytest

DIVISI = Path(os.environ["DIVISI_BUILD"]) / "bin" / "divisi"
SECONDS = 120  # for what takes a moment on a machine that has nothing else to do

JOB = """
apiVersion: diengine.opendilab.org/v2alpha1
kind: DIJob
metadata: {{name: train}}
spec:
  backoffLimit: {backoff}
  tasks:
{tasks}
"""
TASK = """
  - name: {name}
    type: none
    replicas: {replicas}
    template:
      spec:
        terminationGracePeriodSeconds: 5
        containers:
        - {{name: di-container, image: example/image:1, command: [sh, -c, {script}]}}
"""


def wait_until(condition, what=lambda: ""):
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline, what()
        time.sleep(0.02)


class Site:
    """Jobs whose records are in one folder, longer than the path of a socket may be."""

    def __init__(self, folder):
        self.folder = folder
        self.env = dict(os.environ, XDG_STATE_HOME=str(folder / ("s" * 50) / "state"), HOME=str(folder),
                        XDG_CONFIG_HOME=str(folder / "config"), KUBECONFIG=str(folder / "none"))
        # Every replica waits for its end in a program of this number.
        self.number = f"98765.{os.getpid()}{abs(hash(str(folder))) % 10**9}"
        self.wait = f"echo up $DI_RANK; exec sleep {self.number}"

    def manifest(self, script=None, replicas=2, backoff=0, tasks=("work",)):
        path = self.folder / "job.yaml"
        texts = [TASK.format(name=name, replicas=replicas, script=json.dumps(script or self.wait)) for name in tasks]
        path.write_text(JOB.format(backoff=backoff, tasks="".join(texts)))
        return str(path)

    def __call__(self, *words, code=0):
        done = subprocess.run([DIVISI, *map(str, words)], capture_output=True, text=True, timeout=SECONDS, env=self.env,
                              cwd=self.folder)
        assert done.returncode == code, f"{words}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done

    def refused(self, *words):
        """Exit code 2 and one line, which is returned."""
        done = self(*words, code=2)
        assert done.stdout == "" and done.stderr.count("\n") == 1, done.stdout + done.stderr
        return done.stderr

    def record(self, name="train"):
        return json.loads(self("describe", name, "-o", "json").stdout)

    def wait_for(self, state, running=None, name="train"):
        """The record, once the job is in that state with so many ready pods."""
        def there():
            record = self.record(name)
            ready = sum(pod["state"] == "Running" for pod in record["workers"])
            return record["state"] == state and (running is None or ready == running == len(record["workers"]))

        def begun():
            return running is None or name != "train" or len(self.replicas()) == running
        wait_until(lambda: there() and begun(), lambda: json.dumps(self.record(name), indent=1))
        return self.record(name)

    def replicas(self):
        """Process ids of what the replicas run."""
        found = []
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                if path.read_bytes() == b"sleep\0" + self.number.encode() + b"\0":
                    found.append(int(path.parent.name))
            except OSError:
                pass
        return found

    def start(self, *words):
        return subprocess.Popen([DIVISI, *map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                env=self.env, cwd=self.folder)


@pytest.fixture
def site(tmp_path):
    made = Site(tmp_path)
    yield made
    for name in made("jobs", "-o", "name").stdout.split():
        made("delete", "--now", name)
    wait_until(lambda: not made.replicas())


def pods(record, field):
    return {pod["name"]: pod[field] for pod in record["workers"]}


def test_a_detached_job_is_known_to_every_command(site):
    assert site("run", site.manifest(), "--detach").stdout == "train\n"
    record = site.wait_for("Running", 2)
    assert (record["backend"], record["detached"]) == ("local", True)
    assert pods(record, "rank") == {"train-work-0": 0, "train-work-1": 1}
    assert set(pods(record, "task").values()) == {"work"}
    row = site("jobs").stdout.splitlines()[1].split()
    assert row[:4] == ["train", "local", "Running", "2/2"]
    wait_until(lambda: len(site("logs", "train").stdout.splitlines()) == 2)
    assert sorted(site("logs", "train").stdout.splitlines()) == ["[train-work-0] up 0", "[train-work-1] up 1"]
    for choice in ("1", "train-work-1"):
        assert site("logs", "train", "--task", choice).stdout == "[train-work-1] up 1\n"
    assert len(site("logs", "train", "--task", "work", "--since", "1h").stdout.splitlines()) == 2
    assert "did you mean 'work'?" in site.refused("logs", "train", "--task", "wrok")
    page = site("describe", "train").stdout
    assert "Manifest:" in page and "train-work-1  work  1" in page
    folder = Path(site.env["XDG_STATE_HOME"]) / "divisi/jobs/train"
    assert folder.stat().st_mode & 0o777 == 0o700
    assert len(site.replicas()) == 2
    site("delete", "train")
    assert site.replicas() == [] and not folder.exists()


def test_a_name_belongs_to_one_job(site):
    site("run", site.manifest(), "--detach")
    assert "a job train is" in site.refused("run", site.manifest())
    site("run", site.manifest(), "--detach", "--name", "other")
    assert set(pods(site.wait_for("Running", 2, "other"), "rank")) == {"other-work-0", "other-work-1"}


def test_a_job_that_has_ended_says_how(site):
    done = site("run", site.manifest("echo last words; exit 3"), code=3)
    assert "[train-work-0] last words" in done.stdout
    record = site.record()
    assert (record["state"], record["exitCode"]) == ("Failed", 3)
    assert 3 in [pod.get("exitCode") for pod in record["workers"]]
    assert "failed" in record["reason"]
    assert "last words" in site("logs", "train", "-f").stdout
    for words in (["scale", "train", 3], ["suspend", "train"], ["resume", "train"]):
        assert "train has ended (Failed); divisi restart train" in site.refused(*words)


def test_wait_timeout_and_delete(site):
    done = site("run", site.manifest("echo quiet"), "--wait", "--delete")
    assert done.stdout == "" and "Succeeded" in done.stderr
    assert "there is no job train" in site.refused("describe", "train")
    site("run", site.manifest(), "--timeout", "1s", code=124)
    assert site.record()["reason"] == "--timeout has come"
    assert site.replicas() == []


def test_a_killed_replica_is_made_again(site):
    site("run", site.manifest(backoff=3), "--detach")
    site.wait_for("Running", 2)
    before = site.replicas()
    os.kill(before[0], signal.SIGKILL)
    wait_until(lambda: set(site.replicas()) - set(before) and sum(pods(site.record(), "restarts").values()) >= 1)
    record = site.wait_for("Running", 2)
    again = [pod for pod in record["workers"] if pod["restarts"] > 0]
    assert again and all("made again after exit code 137" == pod["reason"] for pod in again), record
    assert pods(record, "rank") == {"train-work-0": 0, "train-work-1": 1}
    assert int(site("jobs").stdout.splitlines()[1].split()[5]) == sum(pods(record, "restarts").values())


def test_a_killed_run_ends_its_job_and_jobs_says_so(site):
    with site.start("run", site.manifest()) as process:
        site_lines = [process.stdout.readline() for _ in range(2)]
        assert all("up" in line for line in site_lines), process.stderr.read()
        process.kill()
    wait_until(lambda: not site.replicas())
    record = site.wait_for("Stopped")
    assert record["reason"] == "the divisi run that it was attached to was killed"
    assert {pod["state"] for pod in record["workers"]} <= {"Stopped", "Failed"}
    assert site("jobs").stdout.splitlines()[1].split()[:3] == ["train", "local", "Stopped"]


def test_a_killed_supervisor_takes_its_pods_along(site):
    site("run", site.manifest(), "--detach")
    os.kill(site.wait_for("Running", 2)["supervisor"]["pid"], signal.SIGKILL)
    wait_until(lambda: not site.replicas())
    record = site.wait_for("Failed")
    assert "was killed, and its workers with it" in record["reason"]
    assert "train has ended" in site.refused("scale", "train", 3)


def processes_of(site):
    """All that has to do with the jobs of this test, by their command lines."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            text = path.read_bytes()
        except OSError:
            continue
        if site.number.encode() in text or str(site.folder).encode() in text:
            found.append(int(path.parent.name))
    return found


def kill_somewhen(site, chance, which):
    """Kills `divisi run`, or the supervisor, within the first moments; nothing is left afterwards."""
    with site.start("run", site.manifest(), "--name", "killed") as process:
        time.sleep(chance.random() * 0.25)  # the moment itself is what is tried out
        victims = [process.pid] if which == "run" else [
            pid for pid in processes_of(site) if "manifest-supervisor" in cmdline(pid)]
        for pid in victims:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        if which != "run":
            process.terminate()
        process.communicate(timeout=SECONDS)

    def jobs():
        return [job["state"] for job in json.loads(site("jobs", "-o", "json").stdout)]
    wait_until(lambda: not processes_of(site) and set(jobs()) <= {"Stopped", "Failed"},
               lambda: f"{jobs()} {[cmdline(pid) for pid in processes_of(site)]}")


def cmdline(pid):
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""


@pytest.mark.parametrize("rounds", [4, pytest.param(50, marks=pytest.mark.long)])
@pytest.mark.parametrize("which", ["run", "supervisor"])
def test_nothing_is_left_whenever_it_is_killed(site, which, rounds):
    chance = random.Random(rounds)
    for _ in range(rounds):
        kill_somewhen(site, chance, which)


def test_a_job_is_resized_while_it_runs(site):
    site("run", site.manifest(), "--detach")
    site.wait_for("Running", 2)
    assert site("scale", "train", 3).stdout == "train scaled to 3\n"
    assert pods(site.wait_for("Running", 3), "rank") == {f"train-work-{i}": i for i in range(3)}
    site("scale", "train", "--task", "work", 1)
    assert pods(site.wait_for("Running", 1), "rank") == {"train-work-0": 0}
    assert len(site("logs", "train", "--task", "work").stdout.splitlines()) == 3  # also of those that are gone
    assert "train has no task wrok, did you mean 'work'?" in site.refused("scale", "train", "--task", "wrok", 2)
    assert "replicas" in site.refused("scale", "train", 20000)
    site.refused("scale", "train", "many")
    site.refused("scale", "train", -1)
    site.wait_for("Running", 1)


def test_which_task_is_resized_is_said_where_there_are_several(site):
    site("run", site.manifest(replicas=1, tasks=("left", "right")), "--detach")
    site.wait_for("Running", 2)
    assert "say which with --task left or right" in site.refused("scale", "train", 2)
    site("scale", "train", "--task", "right", 2)
    assert list(pods(site.wait_for("Running", 3), "task").values()).count("right") == 2


def test_a_suspended_job_comes_back_with_its_ranks(site):
    site("run", site.manifest(), "--detach")
    site.wait_for("Running", 2)
    assert site("suspend", "train").stdout == "train suspended\n"
    record = site.wait_for("Pending", 0)
    assert "suspended" in record["reason"]
    assert site.replicas() == []
    assert site("resume", "train").stdout == "train resumed\n"
    record = site.wait_for("Running", 2)
    assert pods(record, "rank") == {"train-work-0": 0, "train-work-1": 1}
    assert set(pods(record, "restarts").values()) == {0}


def test_a_restart_takes_the_manifest_as_it_is_now(site):
    site("run", site.manifest(), "--detach")
    site.wait_for("Running", 2)
    site.manifest(replicas=1)
    site("restart", "train")
    record = site.wait_for("Running", 1)
    assert record["restarts"] == 1
    piped = subprocess.run([DIVISI, "run", "-", "--detach", "--name", "piped"], input=Path(site.manifest()).read_text(),
                           text=True, env=site.env, cwd=site.folder, capture_output=True, timeout=SECONDS)
    assert piped.returncode == 0, piped.stderr
    site("restart", "piped")
    assert site.wait_for("Running", 2, "piped")["entry"]


def test_a_package_job_has_a_fixed_size(site):
    site("run", "--workers", 1, "--backend", "local", "--detach", "--name", "plain", "--", "sleep", site.number)
    assert "only a DIJob can be resized" in site.refused("scale", "plain", 2)
    assert "only that can be suspended" in site.refused("suspend", "plain")


def test_bad_calls_are_one_line(site):
    assert "did you mean train" not in site.refused("scale", "train", 2)
    assert "--watch has no meaning" in site.refused("run", site.manifest(), "--watch")
    assert "--env has no meaning" in site.refused("run", site.manifest(), "-e", "A=b")
    assert "--folder is for a manifest" in site.refused("run", "--workers", 1, "--folder", "x", "--", "true")
    for command in ("scale", "suspend", "resume"):
        assert "required" in site.refused(command)
        assert f"divisi {command} train" in site(command, "--help").stdout
    assert site("jobs", "-o", "name").stdout == ""
