"""In the pods of a DIJob: packages written in Python follow its size and report their progress."""

import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
from ports import free_port

from divisi import UsageError, launch, report_progress
from test_ditask import DEADLINE, environment

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "integration"))

from fake_di_server import FakeDiServer  # noqa: E402

HOSTS = {rank: f"127.0.0.{rank + 1}" for rank in range(3)}

FOLLOWER = '''
import os, time
from divisi import Parallel, report_progress, task

def main():
    router = task.router
    print("begins", flush=True)
    with task.start():
        report_progress(episode_return=1.5, loss=0.25)
        last = None
        while not task.finish:
            now = [peer["node_id"] for peer in router.peers() if not peer["lost"]]
            if now != last:
                print("peers %s" % now, flush=True)
                last = now
            time.sleep(0.005)
'''


class Pod:
    def __init__(self, folder, server, port, rank, nodes):
        self.log = open(folder / f"{rank}.log", "w+")
        self.process = subprocess.Popen(
            [launch.program(), "--package", str(folder), "--main", "follower.main", "--ports", str(port)],
            stdin=subprocess.DEVNULL, stdout=self.log, stderr=subprocess.STDOUT,
            env=environment(
                DI_NODES=",".join(HOSTS[i] for i in range(nodes)), DI_RANK=str(rank),
                DI_JOB_ID="lab/train", DI_SERVER_URL=server.url,
            ),
        )

    def lines(self):
        """What the worker has printed, without the node id in front."""
        self.log.seek(0)
        return [line.split("] ", 1)[-1] for line in self.log.read().splitlines()]

    def sees(self, *peers):
        wanted, end = f"peers {list(peers)}", time.monotonic() + DEADLINE
        while [line for line in self.lines() if line.startswith("peers")][-1:] != [wanted]:
            assert self.process.poll() is None and time.monotonic() < end, "\n".join(self.lines())
            time.sleep(0.01)

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.log.close()


@pytest.fixture
def job(tmp_path):
    (tmp_path / "follower.py").write_text(textwrap.dedent(FOLLOWER))
    server, pods = FakeDiServer(), []
    port = free_port(1, tuple(HOSTS.values()))

    class Job:
        def __init__(self):
            self.server = server

        def list_ranks(self, *ranks):
            server.set_members({rank: HOSTS[rank] for rank in ranks})

        def pod(self, rank, nodes):
            pods.append(Pod(tmp_path, server, port, rank, nodes))
            return pods[-1]

    yield Job()
    for pod in pods:
        pod.close()
    server.close()


def test_a_job_grows_and_shrinks_around_python_workers(job):
    job.list_ranks(0, 1)
    first, second = job.pod(0, 2), job.pod(1, 2)
    first.sees(1)
    second.sees(0)
    job.list_ranks(0, 1, 2)
    third = job.pod(2, 3)
    third.sees(0, 1)
    first.sees(1, 2)
    job.list_ranks(0, 2)
    second.process.send_signal(signal.SIGKILL)
    first.sees(2)
    third.sees(0)
    assert first.lines().count("begins") == third.lines().count("begins") == 1


def test_progress_of_python_workers_reaches_the_di_server(job):
    job.list_ranks(0)
    job.pod(0, 1)
    path, _, body = job.server.wait_for_posts(lambda posts: posts)[0]
    assert path == "/v2alpha1/job/lab/train/profilings"
    figures = {"return": 1.5, "loss": 0.25}
    assert body == {"progress": figures, "ranks": {"0": figures}}


def test_outside_of_a_job_reporting_does_nothing_but_check_its_arguments():
    report_progress(env_steps_per_second=1, episode_return=float("nan"), loss=2)
    with pytest.raises(UsageError, match="63"):
        report_progress(**{"x" * 64: 1.0})
    with pytest.raises(UsageError, match="at most 64"):
        report_progress(**{f"figure_{i}": 1.0 for i in range(65)})
    with pytest.raises(TypeError):
        report_progress(env_steps_per_second="fast")
