"""divisi run --backend slurm on a Slurm of one node: its own munged, slurmctld and slurmd, on free ports.

Needs root, and Debian's slurmctld, slurmd, slurm-client and munge. DIVISI_BUILD names the build.
"""

import contextlib
import json
import os
import pathlib
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "shared"))

from ports import free_port, free_ports  # noqa: E402

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
BUILD = REPOSITORY / os.environ.get("DIVISI_BUILD", "build/release")
DIVISI = BUILD / "bin" / "divisi"
DEADLINE = 120  # seconds; only a hang ever waits for it
CPUS = 4

GREETING = """
import queue

from divisi import task

def main():
    heard = queue.Queue()
    with task.start():
        task.on("greeting", heard.put)
        task.router.ready()
        node = task.router.node_id
        if node == 0:
            for _ in range(2):
                print("heard:", heard.get(timeout=60))
        else:
            task.emit("greeting", f"Hi from {node}", only_remote=True)
"""
WAIT = 'echo $$ > "$FOLDER/pid_$DITASK_NODE_ID"; echo waiting; exec sleep 600'


def eventually(holds, complaint=lambda: "it never held"):
    end = time.monotonic() + DEADLINE
    while not holds():
        assert time.monotonic() < end, complaint()
        time.sleep(0.05)


def alive(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


class Slurm:
    def __init__(self, folder, stack):
        self.folder, self.stack = folder, stack
        folder.chmod(0o755)
        for name in ("state", "spool", "munge"):
            (folder / name).mkdir(mode=0o700)
        (folder / "munge/key").write_bytes(os.urandom(1024))
        (folder / "munge/key").chmod(0o400)
        self.environment = {name: value for name, value in os.environ.items()
                            if not name.startswith(("DI_", "SLURM", "DITASK", "DIVISI", "XDG_"))}
        self.environment |= {"SLURM_CONF": str(folder / "slurm.conf"), "KUBECONFIG": str(folder / "none")}
        controller, node = free_ports(2)
        (folder / "slurm.conf").write_text(f"""
ClusterName=divisi
SlurmctldHost={socket.gethostname().split(".")[0]}(127.0.0.1)
SlurmUser=root
SlurmctldPort={controller}
SlurmdPort={node}
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
SlurmdParameters=config_overrides
KillWait=5
NodeName=localhost NodeHostname={socket.gethostname().split(".")[0]} NodeAddr=127.0.0.1 CPUs={CPUS} State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
""")
        self.daemon("munged", "--force", "--foreground", f"--key-file={folder}/munge/key",
                    f"--socket={folder}/munge/socket", f"--pid-file={folder}/munge/pid",
                    f"--log-file={folder}/munge/log", f"--seed-file={folder}/munge/seed")
        eventually((folder / "munge/socket").exists, self.logs)
        self.daemon("slurmctld", "-D")
        self.daemon("slurmd", "-D", "-N", "localhost")
        eventually(lambda: self.ask("sinfo", "-h", "-o", "%T").strip() == "idle", self.logs)

    def daemon(self, name, *arguments):
        log = open(self.folder / f"{name}.out", "wb")
        process = subprocess.Popen([f"/usr/sbin/{name}", *arguments], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                   env=self.environment, start_new_session=True)

        def end():
            process.terminate()
            try:
                process.wait(DEADLINE)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            log.close()

        self.stack.callback(end)

    def logs(self):
        return "\n".join(file.read_text(errors="replace")[-2000:] for file in self.folder.glob("*.[lo][ou][gt]"))

    def ask(self, *words):
        return subprocess.run(words, env=self.environment, capture_output=True, text=True, timeout=DEADLINE).stdout

    def jobs(self):
        return self.ask("squeue", "-h", "-o", "%i").split()


class Site:
    def __init__(self, slurm, folder, stack):
        self.slurm, self.folder, self.stack = slurm, folder, stack
        self.env = {**slurm.environment, "HOME": str(folder), "FOLDER": str(folder), "DIVISI_PYTHON": sys.executable,
                    "PATH": f"{BUILD}/bin:{os.environ['PATH']}"}

    def start(self, *arguments, env=None):
        run = Run(self.folder, arguments, {**self.env, **(env or {})})
        self.stack.callback(run.close)
        return run

    def divisi(self, *arguments, **options):
        return self.start(*arguments, **options).wait()

    def on_slurm(self, *flags, workers=3):
        return ("run", "--backend", "slurm", "--workers", workers, "--port", free_port(3), *flags)

    def record(self, name):
        code, out, err = self.divisi("describe", name, "-o", "json")
        assert code == 0, err
        return json.loads(out)

    def pids(self, count):
        files = [self.folder / f"pid_{i}" for i in range(count)]
        eventually(lambda: all(f.exists() and f.read_text().strip() for f in files), self.slurm.logs)
        return [int(f.read_text()) for f in files]

    def assert_nothing_left(self):
        eventually(lambda: not self.slurm.jobs(), lambda: self.slurm.ask("squeue"))
        shared = self.folder / ".cache/divisi/packages/jobs"
        eventually(lambda: not list(shared.iterdir()), lambda: str(list(shared.iterdir())))


class Run:
    def __init__(self, folder, arguments, env):
        self.out = tempfile.TemporaryFile(dir=folder)
        self.err = tempfile.TemporaryFile(dir=folder)
        self.process = subprocess.Popen([DIVISI, *map(str, arguments)], stdin=subprocess.DEVNULL, stdout=self.out,
                                        stderr=self.err, env=env, cwd=folder)

    def text(self, stream):
        stream.seek(0)
        return stream.read().decode(errors="replace")

    def wait(self):
        code = self.process.wait(DEADLINE)
        return code, self.text(self.out), self.text(self.err)

    def wait_until_printed(self, text, times=1, stream=None):
        def there():
            if self.text(stream or self.out).count(text) >= times:
                return True
            assert self.process.poll() is None, f"{self.text(self.out)}\n{self.text(self.err)}"
            return False

        eventually(there, lambda: f"never printed {text!r}: {self.text(self.out)}\n{self.text(self.err)}")

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.out.close()
        self.err.close()


@pytest.fixture(scope="module")
def slurm():
    folder = pathlib.Path(tempfile.mkdtemp(prefix="divisi_slurm_"))
    with contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        yield Slurm(folder, stack)


@pytest.fixture
def site(slurm, tmp_path):
    with contextlib.ExitStack() as stack:
        site = Site(slurm, tmp_path, stack)
        yield site
        names = site.divisi("jobs", "-o", "name")[1].split()
        if names:
            site.divisi("delete", "--now", *names)
        assert slurm.jobs() == []


def test_the_greeting_comes_from_all_tasks(site, tmp_path):
    package = tmp_path / "pkg"
    package.mkdir()
    (package / "my_module.py").write_text(GREETING)
    code, out, err = site.divisi(*site.on_slurm("-p", package, "-m", "my_module.main", "--topology", "star", "--name",
                                                "greet"))
    assert code == 0, f"{out}\n{err}"
    heard = sorted(line for line in out.splitlines() if "heard" in line)
    assert heard == ["[node 0] heard: Hi from 1", "[node 0] heard: Hi from 2"]
    record = site.record("greet")
    assert (record["state"], record["exitCode"]) == ("Succeeded", 0)
    assert record["data"]["slurmJob"].isdigit()
    assert sorted(site.divisi("logs", "greet")[1].splitlines()) == sorted(out.splitlines())
    site.assert_nothing_left()


def test_exit_codes_and_signals_arrive(site):
    # Of a program, its own code; of a signal, what a shell makes of it.
    for program, code in (("exit 3", 3), ("kill -9 $$", 137)):
        program = f'if [ "$DITASK_NODE_ID" = 1 ]; then {program}; fi; {WAIT}'
        got, out, err = site.divisi(*site.on_slurm("--name", "fails", "--", "sh", "-c", program))
        record = site.record("fails")
        assert (got, record["exitCode"], record["state"]) == (code, code, "Failed"), f"{out}\n{err}"
        assert record["reason"].startswith("worker 1: "), record
        site.assert_nothing_left()


def test_an_interrupt_cancels_the_job(site):
    run = site.start(*site.on_slurm("--name", "stopped", "--", "sh", "-c", WAIT))
    run.wait_until_printed("waiting", 3)
    pids = site.pids(3)
    run.process.send_signal(signal.SIGINT)
    assert run.wait()[0] == 130
    eventually(lambda: not any(map(alive, pids)))
    assert site.record("stopped")["state"] == "Stopped"
    site.assert_nothing_left()


def test_a_killed_run_cancels_the_job(site):
    run = site.start(*site.on_slurm("--name", "killed", "--", "sh", "-c", WAIT))
    run.wait_until_printed("waiting", 3)
    pids = site.pids(3)
    run.process.kill()
    run.process.wait()
    eventually(lambda: not any(map(alive, pids)))
    site.assert_nothing_left()
    eventually(lambda: site.record("killed")["state"] == "Stopped", lambda: str(site.record("killed")))


def test_a_detached_job_outlives_its_supervisor_and_is_known(site):
    code, out, err = site.divisi(*site.on_slurm("--name", "away", "--detach", "--", "sh", "-c", WAIT))
    assert (code, out) == (0, "away\n"), err
    pids = site.pids(3)
    follower = site.start("logs", "-f", "away", "--task", "1")
    follower.wait_until_printed("[node 1] waiting")
    first = site.record("away")["supervisor"]["pid"]
    os.kill(first, signal.SIGKILL)
    eventually(lambda: not alive(first))
    eventually(lambda: site.record("away")["state"] == "Running", lambda: str(site.record("away")))
    assert site.record("away")["supervisor"]["pid"] != first
    assert all(map(alive, pids))
    eventually(lambda: site.divisi("logs", "away")[1].count("waiting") == 3, lambda: site.divisi("logs", "away")[1])
    assert site.divisi("delete", "away")[0] == 0
    eventually(lambda: not any(map(alive, pids)))
    site.assert_nothing_left()
    assert site.divisi("jobs", "-o", "name")[1] == ""


@pytest.mark.long
def test_nothing_is_left_of_a_run_that_is_killed_at_any_moment(site, tmp_path):
    for i in range(50 if os.environ.get("DIVISI_SOAK") == "1" else 10):
        run = site.start(*site.on_slurm("--name", f"k{i}", "--", "sleep", "600", workers=1))
        with contextlib.suppress(subprocess.TimeoutExpired):
            run.process.wait(random.uniform(0, 2))
        run.process.kill()
        run.process.wait()

    def states():
        return {job["state"] for job in json.loads(site.divisi("jobs", "-o", "json")[1])}

    eventually(lambda: states() <= {"Stopped", "Failed"}, lambda: site.divisi("jobs")[1])
    site.assert_nothing_left()


@pytest.mark.long
def test_why_a_job_waits_is_said_and_a_timeout_ends_it(site):
    code, out, err = site.divisi(*site.on_slurm("--name", "first", "--detach", "--", "sh", "-c", WAIT, workers=CPUS))
    assert code == 0, err
    site.pids(CPUS)
    code, out, err = site.divisi(*site.on_slurm("--name", "second", "--timeout", "8s", "--", "true", workers=CPUS))
    assert (code, out) == (124, ""), err
    assert err.count("waits in the queue: Resources") == 1, err
    assert site.divisi("delete", "--now", "first")[0] == 0
    site.assert_nothing_left()


def test_what_sbatch_refuses_is_one_line(site):
    code, out, err = site.divisi(*site.on_slurm("--slurm=--partition=nowhere", "--", "true"))
    assert (code, out, len(err.splitlines())) == (125, "", 1), err
    assert "sbatch: " in err and "nvalid partition" in err
    code, out, err = site.divisi(*site.on_slurm("--", "true"), env={"PATH": f"{BUILD}/bin"})
    assert (code, out, len(err.splitlines())) == (125, "", 1), err
    assert "sbatch cannot be started" in err
    assert site.divisi("jobs", "-o", "name")[1] == ""
    site.assert_nothing_left()


def test_the_secret_is_a_private_file(site):
    code, out, err = site.divisi(*site.on_slurm(
        "--", "sh", "-c", 'cat "$DIVISI_SECRET_FILE"; stat -c %a "$DIVISI_SECRET_FILE"', workers=1))
    assert code == 0, err
    secret, mode = [line.split()[-1] for line in out.splitlines()]
    assert (len(secret), mode) == (64, "600")
