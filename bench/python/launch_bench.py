"""One run of the launcher rows: `launch_bench.py ours|ray BIN`. Prints one JSON line.

A package of 2,000 files is started once; then one line of it changes, and the time is taken from the start of the command
to the first line that the new code prints. Ray's cluster is up before, and stays up; a job of ours needs none.
"""
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

FILES = 2000
CHANGES = 5
DEADLINE_S = 120


def write_package(folder):
    for i in range(FILES):
        path = folder / f"part_{i // 100}" / f"module_{i}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"# module {i}\n" + "".join(f"VALUE_{j} = {i * j}\n" for j in range(40)))


def write_main(folder, version):
    (folder / "my_module.py").write_text(
        f"def main():\n    print('version {version}', flush=True)\n\n\nif __name__ == '__main__':\n    main()\n")


def time_to_first_line(command, version, environment):
    """Milliseconds from the start of the command to the line of that version."""
    begin = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment)
    taken, lines = None, []
    for line in process.stdout:
        lines.append(line)
        if taken is None and re.search(rf"version {version}\b", line) and "print(" not in line:
            taken = (time.monotonic() - begin) * 1000
    if process.wait(DEADLINE_S) != 0 or taken is None:
        sys.exit(f"{' '.join(map(str, command))}: exit code {process.returncode}: {''.join(lines[-5:])}")
    return taken


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Ray:
    """A cluster of one node, in a process group of its own."""

    def __init__(self, binaries, scratch):
        self.ray, self.port = binaries / "ray", free_port()
        self.environment = dict(os.environ, RAY_DISABLE_IMPORT_WARNING="1", RAY_USAGE_STATS_ENABLED="0")
        with open(scratch / "ray.log", "w") as log:
            self.process = subprocess.Popen(
                [self.ray, "start", "--head", "--block", "--disable-usage-stats", "--node-ip-address=127.0.0.1",
                 f"--port={free_port()}", "--dashboard-host=127.0.0.1", f"--dashboard-port={self.port}",
                 f"--temp-dir={scratch}/r"],
                stdout=log, stderr=log, start_new_session=True, env=self.environment)
        end = time.monotonic() + DEADLINE_S
        while not self._answers():
            if time.monotonic() > end or self.process.poll() is not None:
                self.end()
                sys.exit(f"ray start: {(scratch / 'ray.log').read_text()[-500:]}")
            time.sleep(0.2)

    def _answers(self):
        listed = [self.ray, "job", "list", "--address", f"http://127.0.0.1:{self.port}"]
        return subprocess.run(listed, capture_output=True, env=self.environment).returncode == 0

    def command(self, package):
        return [self.ray, "job", "submit", "--address", f"http://127.0.0.1:{self.port}", "--working-dir", package, "--",
                "python", "my_module.py"]

    def end(self):
        for number in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(self.process.pid, number)
            except ProcessLookupError:
                return
            try:
                self.process.wait(15)
            except subprocess.TimeoutExpired:
                pass


class Ours:
    def __init__(self, binaries, scratch):
        self.divisi = binaries / "divisi"
        self.environment = dict(os.environ, XDG_STATE_HOME=str(scratch / "state"), XDG_CONFIG_HOME=str(scratch / "config"),
                                XDG_CACHE_HOME=str(scratch / "cache"))

    def command(self, package):
        return [self.divisi, "run", "--workers", "1", "--backend", "local", "-p", package, "-m", "my_module.main"]

    def end(self):
        pass


def main():
    side, binaries = sys.argv[1], Path(sys.argv[2])
    with tempfile.TemporaryDirectory(prefix="dl") as name:
        scratch = Path(name)
        package = scratch / "pkg"
        package.mkdir()
        write_package(package)
        write_main(package, 0)
        launcher = (Ours if side == "ours" else Ray)(binaries, scratch)
        try:
            time_to_first_line(launcher.command(package), 0, launcher.environment)
            times = []
            for version in range(1, CHANGES + 1):
                write_main(package, version)
                times.append(time_to_first_line(launcher.command(package), version, launcher.environment))
        finally:
            launcher.end()
    print(json.dumps({"first_line_ms": median(times), "times_ms": times, "sent": 1, "received": 1, "disordered": 0}))


if __name__ == "__main__":
    main()
