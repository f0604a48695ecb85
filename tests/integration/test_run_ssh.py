"""divisi run --backend ssh: three hosts with an sshd of their own, each in a network namespace.

The hosts are joined by a bridge in a fourth namespace, where divisi run is; nothing of the machine's own network is
touched. Each has an address, a host key and a cache of packages of its own. Needs root. DIVISI_BUILD names the build.
"""

import contextlib
import json
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import zipfile

import pytest

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
BUILD = REPOSITORY / os.environ.get("DIVISI_BUILD", "build/release")
DIVISI = BUILD / "bin" / "divisi"
DEADLINE = 120  # seconds; only a hang ever waits for it
ADDRESSES = ["192.168.0.1", "192.168.0.2", "192.168.0.3"]
GATEWAY = "192.168.0.254"

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
# Every worker writes its number, says that it is there, and waits for its end.
WAIT = 'echo $$ > "$FOLDER/pid_$DITASK_NODE_ID"; echo waiting; exec sleep 600'


def ip(*arguments):
    done = subprocess.run(["ip", *map(str, arguments)], capture_output=True, text=True, timeout=DEADLINE)
    assert done.returncode == 0, f"ip {' '.join(map(str, arguments))}: {done.stderr.strip()}"


def eventually(holds, complaint=lambda: "it never held", seconds=DEADLINE):
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, complaint()
        time.sleep(0.02)


def alive(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


class Host:
    """An sshd in a namespace."""

    def __init__(self, folder, namespace, address):
        self.folder, self.namespace, self.address = folder, namespace, address
        folder.mkdir()
        self.cache = folder / "cache"
        self.bin = folder / "bin"
        self.bin.mkdir()
        for name in ("ditask", "divisi"):
            (self.bin / name).symlink_to(BUILD / "bin" / name)
        self.log = open(folder / "sshd.log", "wb")
        self.process = None
        self.new_key()

    def new_key(self):
        key = self.folder / "host_key"
        for file in (key, key.with_suffix(".pub")):
            file.unlink(missing_ok=True)
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)

    def public_key(self):
        return self.address + " " + (self.folder / "host_key.pub").read_text()

    def start(self):
        config = self.folder / "sshd_config"
        config.write_text(f"""
ListenAddress {self.address}
HostKey {self.folder}/host_key
AuthorizedKeysFile {self.folder.parent}/client.pub
PidFile none
StrictModes no
UsePAM no
PermitRootLogin yes
PasswordAuthentication no
KbdInteractiveAuthentication no
SetEnv XDG_CACHE_HOME={self.cache} PATH={self.bin}:/usr/bin:/bin
""")
        # Its own /run, in the mount namespace that ip netns exec makes: sshd wants /run/sshd.
        self.process = subprocess.Popen(
            ["ip", "netns", "exec", self.namespace, "sh", "-c",
             'mount -t tmpfs tmpfs /run && mkdir -p /run/sshd && exec /usr/sbin/sshd -D -e -f "$1"', "sh", config],
            stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log, start_new_session=True)

        def listens():
            assert self.process.poll() is None, (self.folder / "sshd.log").read_text()
            return "Server listening" in (self.folder / "sshd.log").read_text(errors="replace")

        eventually(listens, lambda: (self.folder / "sshd.log").read_text())

    def stop(self):
        if self.process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            self.process = None
            (self.folder / "sshd.log").write_bytes(b"")

    def received(self):
        """Bytes that have come to the host over its network."""
        done = subprocess.run(["ip", "-n", self.namespace, "-j", "-s", "link", "show", "eth0"], capture_output=True,
                              check=True, timeout=DEADLINE)
        return json.loads(done.stdout)[0]["stats64"]["rx"]["bytes"]

    def runs(self):
        """Files of workers that are there."""
        folder = self.cache / "divisi/packages/runs"
        return sorted(folder.iterdir()) if folder.exists() else []


class Run:
    """One divisi ... that was started; its output goes to files."""

    def __init__(self, site, arguments):
        self.out = tempfile.TemporaryFile(dir=site.folder)
        self.err = tempfile.TemporaryFile(dir=site.folder)
        self.process = subprocess.Popen(
            ["ip", "netns", "exec", site.switch, DIVISI, *map(str, arguments)], stdin=subprocess.DEVNULL,
            stdout=self.out, stderr=self.err, env=site.env, cwd=site.work)

    def text(self, stream):
        stream.seek(0)
        return stream.read().decode(errors="replace")

    def wait(self):
        code = self.process.wait(DEADLINE)
        return code, self.text(self.out), self.text(self.err)

    def wait_until_printed(self, text, times=1, stream=None):
        def printed():
            if self.text(stream or self.out).count(text) >= times:
                return True
            assert self.process.poll() is None, f"{self.text(self.out)}\n{self.text(self.err)}"
            return False

        eventually(printed, lambda: f"never printed {text!r}: {self.text(self.out)}\n{self.text(self.err)}")

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.out.close()
        self.err.close()


class Site:
    """The hosts, and the place where divisi run is."""

    def __init__(self, folder, stack):
        self.folder, self.stack = folder, stack
        label = folder.name.removeprefix("divisi_ssh_")
        self.switch = self.namespace(f"dssh-{label}-s")
        ip("-n", self.switch, "link", "add", "bridge", "type", "bridge")
        ip("-n", self.switch, "address", "add", f"{GATEWAY}/24", "dev", "bridge")
        ip("-n", self.switch, "link", "set", "bridge", "up")
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / "client"], check=True)
        self.hosts = [self.host(i, label) for i in range(len(ADDRESSES))]
        self.known = folder / "known_hosts"
        config = folder / "ssh_config"
        config.write_text(f"""
Host *
  User root
  IdentityFile {folder}/client
  IdentitiesOnly yes
  IdentityAgent none
  UserKnownHostsFile {self.known}
  GlobalKnownHostsFile /dev/null
  UpdateHostKeys no
""")
        self.environment = {name: value for name, value in os.environ.items()
                            if not name.startswith(("DI_", "SLURM", "DITASK", "DIVISI", "XDG_"))}
        self.environment |= {"DIVISI_SSH_CONFIG": str(config), "KUBECONFIG": str(folder / "none")}
        self.know_hosts()

    def namespace(self, name):
        ip("netns", "add", name)
        self.stack.callback(ip, "netns", "delete", name)
        ip("-n", name, "link", "set", "lo", "up")
        return name

    def host(self, number, label):
        namespace = self.namespace(f"dssh-{label}-{number}")
        port = f"port{number}"
        ip("-n", self.switch, "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", namespace)
        ip("-n", self.switch, "link", "set", port, "master", "bridge", "up")
        ip("-n", namespace, "address", "add", f"{ADDRESSES[number]}/24", "dev", "eth0")
        ip("-n", namespace, "link", "set", "eth0", "up")
        ip("-n", namespace, "route", "add", "default", "via", GATEWAY)
        host = Host(self.folder / f"host{number}", namespace, ADDRESSES[number])
        self.stack.callback(host.stop)
        host.start()
        return host

    def know_hosts(self):
        self.known.write_text("".join(host.public_key() for host in self.hosts))

    def begin(self, work):
        """A test of its own: its jobs, its folder."""
        self.work = work
        self.env = {**self.environment, "HOME": str(work), "XDG_STATE_HOME": str(work / "state"),
                    "XDG_CACHE_HOME": str(work / "cache"), "XDG_CONFIG_HOME": str(work / "config"),
                    "DIVISI_TEST_MARK": str(work)}

    def start(self, *arguments):
        run = Run(self, arguments)
        self.stack.callback(run.close)
        return run

    def divisi(self, *arguments):
        return self.start(*arguments).wait()

    def on_hosts(self, *flags, hosts=",".join(ADDRESSES), workers=3):
        return ("run", "--backend", "ssh", "--hosts", hosts, "--workers", workers, "--env", f"FOLDER={self.work}",
                "--env", f"DIVISI_TEST_MARK={self.work}", "--env", f"DIVISI_PYTHON={sys.executable}", *flags)

    def record(self, name):
        code, out, err = self.divisi("describe", name, "-o", "json")
        assert code == 0, err
        return json.loads(out)

    def pids(self, count):
        files = [self.work / f"pid_{i}" for i in range(count)]
        eventually(lambda: all(f.exists() and f.read_text().strip() for f in files), lambda: "no workers")
        return [int(f.read_text()) for f in files]

    def ours(self):
        """Every process of the test's jobs, on the hosts and here, by its environment."""
        mark, found = f"DIVISI_TEST_MARK={self.work}".encode(), []
        for process in pathlib.Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if process.name.isdigit() and mark in (process / "environ").read_bytes().split(b"\0"):
                    found.append((process.name, (process / "cmdline").read_bytes().replace(b"\0", b" ").decode()))
        return found

    def assert_nothing_left(self):
        eventually(lambda: not self.ours(), lambda: f"left behind: {self.ours()}")
        eventually(lambda: not any(host.runs() for host in self.hosts),
                   lambda: f"left behind: {[host.runs() for host in self.hosts]}")


@pytest.fixture(scope="module")
def hosts():
    folder = pathlib.Path(tempfile.mkdtemp(prefix="divisi_ssh_"))
    with contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        yield Site(folder, stack)


@pytest.fixture
def site(hosts, tmp_path):
    hosts.begin(tmp_path)
    yield hosts
    names = hosts.divisi("jobs", "-o", "name")[1].split()
    if names:
        hosts.divisi("delete", "--now", *names)


def package(folder, files=()):
    folder.mkdir()
    (folder / "my_module.py").write_text(GREETING)
    for name, text in files:
        (folder / name).write_text(text)
    return folder


def mistake(site, *arguments):
    """Exit code 125 and one line, which is returned; nothing was started and no record stays."""
    code, out, err = site.divisi(*arguments)
    assert (code, out, len(err.splitlines())) == (125, "", 1), err
    assert site.divisi("jobs", "-o", "name")[1] == ""
    site.assert_nothing_left()
    return err


def printed(out, word):
    """The lines with the word, in some order; the others are the runtime's log."""
    return sorted(line for line in out.splitlines() if word in line)


def test_the_greeting_comes_from_all_three_hosts(site, tmp_path):
    code, out, err = site.divisi(*site.on_hosts("-p", package(tmp_path / "pkg"), "-m", "my_module.main", "--topology",
                                                "star", "--name", "greet"))
    assert code == 0, f"{out}\n{err}"
    assert printed(out, "heard") == ["[node 0] heard: Hi from 1", "[node 0] heard: Hi from 2"]
    assert "sent to 3 hosts" in err
    record = site.record("greet")
    assert (record["state"], record["exitCode"], record["backend"]) == ("Succeeded", 0, "ssh")
    assert sorted(site.divisi("logs", "greet")[1].splitlines()) == sorted(out.splitlines())
    site.assert_nothing_left()


def test_only_what_has_changed_is_sent(site, tmp_path):
    # Every file has content of its own, as code has.
    folder = package(tmp_path / "pkg", [(f"file_{i}.py", f"VALUE = {i}\n" * 20) for i in range(2000)])
    line = site.on_hosts("-p", folder, "-m", "my_module.main", workers=1, hosts=ADDRESSES[0])
    (folder / "my_module.py").write_text("def main():\n    print('first')\n")

    def run():
        before = site.hosts[0].received()
        code, out, err = site.divisi(*line)
        assert code == 0, err
        return out, err, site.hosts[0].received() - before

    out, err, sent = run()
    assert printed(out, "first") == ["[node 0] first"]
    assert "2001 files" in err
    out, err, sent = run()
    assert "sent" not in err
    again = sent
    (folder / "my_module.py").write_text("def main():\n    print('second')\n")
    out, err, sent = run()
    assert printed(out, "second") == ["[node 0] second"]
    assert re.search(r"1 file \(.* KiB\) sent to 1 host\n", err), err
    # On the wire, with both connections and their keys.
    assert again < sent < 64 << 10, (again, sent)


def test_exit_codes_and_signals_arrive(site, tmp_path):
    # ditask's own: it cannot listen where sshd does.
    code, out, err = site.divisi(*site.on_hosts("-p", package(tmp_path / "pkg"), "-m", "my_module.main", "--port", 22,
                                                "--name", "port"))
    assert (code, site.record("port")["exitCode"]) == (3, 3), f"{out}\n{err}"
    program = f'if [ "$DITASK_NODE_ID" = 1 ]; then kill -9 $$; fi; {WAIT}'
    code, out, err = site.divisi(*site.on_hosts("--name", "fails", "--", "sh", "-c", program))
    record = site.record("fails")
    assert (code, record["state"], record["exitCode"]) == (137, "Failed", 137), err
    assert "worker 1" in record["reason"] and "SIGKILL" in record["reason"]
    site.assert_nothing_left()


def test_the_secret_is_a_private_file_of_the_host(site):
    code, out, err = site.divisi(*site.on_hosts(
        "--", "sh", "-c", 'cat "$DIVISI_SECRET_FILE"; stat -c %a "$DIVISI_SECRET_FILE"; tr "\\0" " " < /proc/$PPID/cmdline',
        workers=1, hosts=ADDRESSES[1]))
    assert code == 0, err
    secret, mode = [line.split()[-1] for line in out.splitlines()[:2]]
    assert (len(secret), mode) == (64, "600")
    assert out.count(secret) == 1


def test_an_interrupt_ends_everything_everywhere(site):
    run = site.start(*site.on_hosts("--name", "stopped", "--", "sh", "-c", WAIT))
    run.wait_until_printed("waiting", 3)
    run.process.send_signal(signal.SIGINT)
    assert run.wait()[0] == 130
    site.assert_nothing_left()
    assert site.record("stopped")["state"] == "Stopped"


def test_a_killed_run_leaves_nothing(site):
    run = site.start(*site.on_hosts("--name", "killed", "--", "sh", "-c", WAIT))
    run.wait_until_printed("waiting", 3)
    run.process.kill()
    run.process.wait()
    site.assert_nothing_left()
    eventually(lambda: site.record("killed")["state"] == "Stopped", lambda: str(site.record("killed")))


def test_a_killed_supervisor_and_a_cut_connection_leave_nothing(site):
    code, out, err = site.divisi(*site.on_hosts("--name", "orphans", "--detach", "--", "sh", "-c", WAIT))
    assert (code, out) == (0, "orphans\n"), err
    site.pids(3)
    os.kill(site.record("orphans")["supervisor"]["pid"], signal.SIGKILL)
    site.assert_nothing_left()
    assert site.record("orphans")["state"] == "Failed"


def test_a_detached_job_goes_on_is_followed_and_started_again(site, tmp_path):
    code, out, err = site.divisi(*site.on_hosts("--name", "away", "--detach", "--", "sh", "-c", WAIT))
    assert (code, out) == (0, "away\n"), err
    before = site.pids(3)
    assert site.record("away")["state"] == "Running"
    follower = site.start("logs", "-f", "away", "--task", "1")
    follower.wait_until_printed("[node 1] waiting")
    for i in range(3):
        (tmp_path / f"pid_{i}").unlink()
    assert site.divisi("restart", "away")[0] == 0
    assert "[node 0]" not in follower.wait()[1]
    after = site.pids(3)
    assert not any(map(alive, before)) and all(map(alive, after))
    assert site.record("away")["restarts"] == 1
    assert site.divisi("delete", "--now", "away")[0] == 0
    site.assert_nothing_left()
    assert site.divisi("jobs", "-o", "name")[1] == ""


@pytest.mark.long
def test_a_timeout_ends_the_job(site):
    code, out, err = site.divisi(*site.on_hosts("--name", "slow", "--timeout", "3s", "--", "sleep", "600"))
    assert code == 124, err
    site.assert_nothing_left()


def test_a_saved_file_starts_the_job_again_with_the_new_code(site, tmp_path):
    folder = package(tmp_path / "pkg")
    (folder / "my_module.py").write_text("def main():\n    print('first')\n")
    run = site.start(*site.on_hosts("-p", folder, "-m", "my_module.main", "--watch", "--name", "watched", workers=1,
                                    hosts=ADDRESSES[0]))
    run.wait_until_printed("waiting for a change", stream=run.err)
    fresh = tmp_path / "fresh"
    fresh.write_text("def main():\n    print('second')\n")
    fresh.replace(folder / "my_module.py")
    run.wait_until_printed("[node 0] second")
    run.process.send_signal(signal.SIGINT)
    assert run.wait()[0] == 130
    site.assert_nothing_left()


def test_a_zip_travels_whole(site, tmp_path):
    with zipfile.ZipFile(tmp_path / "pkg.zip", "w") as archive:
        archive.writestr("my_module.py", GREETING)
    code, out, err = site.divisi(*site.on_hosts("-p", tmp_path / "pkg.zip", "-m", "my_module.main"))
    assert code == 0, f"{out}\n{err}"
    assert printed(out, "heard") == ["[node 0] heard: Hi from 1", "[node 0] heard: Hi from 2"]
    site.assert_nothing_left()


def test_a_host_that_cannot_keep_the_package(site, tmp_path):
    err = mistake(site, *site.on_hosts("-p", package(tmp_path / "pkg"), "-m", "my_module.main", "--remote-folder",
                                       "/proc/divisi"))
    assert f"host {ADDRESSES[0]}: making /proc/divisi" in err
    err = mistake(site, *site.on_hosts("-p", tmp_path / "pkg", "-m", "my_module.main", "--remote-folder", "here"))
    assert "--remote-folder here" in err


@pytest.mark.long
def test_nothing_is_left_of_a_run_that_is_killed_at_any_moment(site, tmp_path):
    folder = package(tmp_path / "pkg")
    for i in range(50 if os.environ.get("DIVISI_SOAK") == "1" else 10):
        (folder / "my_module.py").write_text(f"import time\ndef main():\n    time.sleep(600 + {i})\n")
        run = site.start(*site.on_hosts("-p", folder, "-m", "my_module.main", "--name", f"k{i}"))
        with contextlib.suppress(subprocess.TimeoutExpired):
            run.process.wait(random.uniform(0, 3))
        run.process.kill()
        run.process.wait()
    site.assert_nothing_left()
    for job in json.loads(site.divisi("jobs", "-o", "json")[1]):
        assert job["state"] in ("Stopped", "Failed"), job


@pytest.mark.long
def test_both_sides_notice_a_network_that_fails(site):
    run = site.start(*site.on_hosts("--name", "parted", "--grace", "1s", "--", "sh", "-c", WAIT))
    run.wait_until_printed("waiting", 3)
    pids = site.pids(3)
    ip("-n", site.switch, "link", "set", "port1", "down")
    try:
        # ssh gives up after a minute; so does the host.
        eventually(lambda: run.process.poll() is not None, lambda: "it goes on without its host", 240)
        assert run.wait()[0] == 125
        assert f"host {ADDRESSES[1]}: " in site.record("parted")["reason"]
        eventually(lambda: not any(map(alive, pids)), lambda: "a worker goes on without its connection", 240)
    finally:
        ip("-n", site.switch, "link", "set", "port1", "up")
    site.assert_nothing_left()


def test_an_unknown_host_and_one_that_does_not_listen(site):
    err = mistake(site, *site.on_hosts("--", "true", workers=2, hosts=f"{ADDRESSES[0]},no-such-host.invalid"))
    assert "host no-such-host.invalid: " in err and "resolve" in err
    err = mistake(site, *site.on_hosts("--", "true", workers=2, hosts=f"{ADDRESSES[0]},{GATEWAY}"))
    assert f"host {GATEWAY}: " in err and "refused" in err


def test_a_signal_ends_the_wait_for_a_host_that_says_nothing(site):
    program = ("import socket\nserver = socket.create_server((%r, 22))\nprint('listening', flush=True)\n"
               "peer = server.accept()\nprint('accepted', flush=True)\npeer[0].recv(1 << 20)\n"
               "while peer[0].recv(1 << 20): pass\n" % GATEWAY)
    silent = subprocess.Popen(["ip", "netns", "exec", site.switch, sys.executable, "-c", program],
                              stdout=subprocess.PIPE, text=True)
    try:
        assert silent.stdout.readline() == "listening\n"
        run = site.start(*site.on_hosts("--", "true", workers=2, hosts=f"{ADDRESSES[0]},{GATEWAY}"))
        assert silent.stdout.readline() == "accepted\n"
        run.process.send_signal(signal.SIGTERM)
        code, out, err = run.wait()
        assert (code, out, err) == (143, "", "divisi run: ended before the job began\n")
        assert site.divisi("jobs", "-o", "name")[1] == ""
        site.assert_nothing_left()
    finally:
        silent.kill()
        silent.wait()
        silent.stdout.close()


def test_a_host_key_that_changed_or_is_not_known(site):
    host = site.hosts[2]
    known = site.known.read_text()
    try:
        site.known.write_text(known.replace(host.public_key(), ""))
        err = mistake(site, *site.on_hosts("--", "true"))
        assert f"host {host.address}: its key is not in known_hosts" in err
        site.known.write_text(known.replace(host.public_key(), host.address + " " +
                                            site.hosts[0].public_key().split(" ", 1)[1]))
        err = mistake(site, *site.on_hosts("--", "true"))
        assert f"host {host.address}: its key is another one" in err
    finally:
        site.known.write_text(known)


def test_a_host_that_refuses_us(site):
    allowed = site.folder / "client.pub"
    text = allowed.read_text()
    try:
        allowed.write_text("")
        err = mistake(site, *site.on_hosts("--", "true"))
        assert f"host {ADDRESSES[0]}: it refuses us" in err and "Permission denied" in err
    finally:
        allowed.write_text(text)


def test_a_host_without_ditask_or_with_another_version(site):
    host = site.hosts[1]
    ditask, divisi = host.bin / "ditask", host.bin / "divisi"
    try:
        ditask.rename(host.bin / "away")
        err = mistake(site, *site.on_hosts("--", "true"))
        assert f"host {host.address}: there is no ditask" in err
        (host.bin / "away").rename(ditask)
        divisi.unlink()
        version = json.dumps({"version": "0.0.1", "abi": 1, "architecture": os.uname().machine})
        head = "V" + "".join(f"\\{byte:03o}" for byte in len(version).to_bytes(4, "big"))
        divisi.write_text(f"#!/bin/sh\nprintf '\\ndivisi-host 1\\n{head}%s' '{version}'\nexec cat > /dev/null\n")
        divisi.chmod(0o755)
        err = mistake(site, *site.on_hosts("--", "true"))
        assert f"host {host.address}: divisi there has version 0.0.1" in err
    finally:
        divisi.unlink()
        divisi.symlink_to(BUILD / "bin" / "divisi")


def test_a_host_that_goes_away_is_named(site):
    run = site.start(*site.on_hosts("--name", "lost", "--", "sh", "-c", WAIT))
    run.wait_until_printed("waiting", 3)
    host = site.hosts[1]
    sessions = [int(pid) for pid, command in processes() if command.startswith("sshd") and parent(pid) == host.process.pid]
    assert len(sessions) == 1, sessions
    os.kill(sessions[0], signal.SIGKILL)
    code, out, err = run.wait()
    assert code == 125, f"{out}\n{err}"
    assert f"host {host.address}: " in site.record("lost")["reason"]
    site.assert_nothing_left()


def processes():
    for process in pathlib.Path("/proc").iterdir():
        if process.name.isdigit():
            with contextlib.suppress(OSError):
                yield process.name, (process / "cmdline").read_bytes().replace(b"\0", b" ").decode()


def parent(pid):
    try:
        return int(pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
    except OSError:
        return 0
