"""Start and stop again and again, with random kills: nothing is left behind."""

import os
import random
import signal
import subprocess
import sys
import tempfile
import time

import pytest

from small_programs import PACKAGES, TOKEN, processes_with

CYCLES = 200 if os.environ.get("DIVISI_SOAK") else 12

PROGRAM = """
import sys
from divisi import Parallel, task

def main():
    with task.start():
        task.on("chat", lambda *_: None)
        print("up", flush=True)
        while not task.finish:
            task.emit("chat", b"x" * 20000, only_remote=True)
            task.wait_for("never", timeout=0.002, wake_on_finish=True)

if __name__ == "__main__":
    Parallel.runner(n_parallel_workers=3, worker_lost=sys.argv[1], protocol=sys.argv[2], address="127.0.0.1",
                    ports=int(sys.argv[3]), grace=2)(main)
"""


def shared_memory():
    return {name for name in os.listdir("/dev/shm") if name.startswith(("ditask", "divisi"))}


@pytest.mark.parametrize("cycle", range(CYCLES))
def test_a_job_that_is_killed_somewhere_leaves_nothing_behind(cycle, tmp_path, free_ports):
    chance = random.Random(cycle)
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    token = f"cycle{os.getpid()}_{cycle}"
    folder = tempfile.mkdtemp(prefix="divisi", dir="/tmp")
    shm = shared_memory()
    launcher = subprocess.Popen(
        [sys.executable, str(program), chance.choice(["fail", "ignore", "restart"]),
         chance.choice(["ipc", "tcp"]), str(free_ports(3)[0])],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        env=dict(os.environ, PYTHONPATH=PACKAGES, TMPDIR=folder, **{TOKEN: token}),
    )
    try:
        for _ in range(chance.randint(0, 3)):  # somewhere between the start and the middle of the work
            launcher.stdout.readline()
        workers = [pid for pid in processes_with(token) if pid != launcher.pid]
        if workers and chance.random() < 0.7:
            try:
                os.kill(chance.choice(workers), signal.SIGKILL)
            except ProcessLookupError:
                pass
        end = chance.choice([signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
        launcher.send_signal(end)
        launcher.communicate(timeout=60)
        deadline = time.monotonic() + 30
        while processes_with(token):
            assert time.monotonic() < deadline, f"still there: {processes_with(token)}"
            time.sleep(0.01)
    finally:
        for pid in processes_with(token):
            os.kill(pid, signal.SIGKILL)
        launcher.kill()
        launcher.wait()
        launcher.stdout.close()
    assert os.listdir(folder) == []
    assert shared_memory() <= shm
    os.rmdir(folder)
