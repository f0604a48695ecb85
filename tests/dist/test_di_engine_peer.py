"""The real DI-engine from PyPI with our side: its master, its slaves, its coordinator."""

import json
import pathlib
import subprocess

import dist_support
import foreign_peers
import pytest
from ports import free_port, free_ports, wait_until_it_listens

PEER = pathlib.Path(__file__).with_name("di_engine_peer.py")

# As DI-engine's example for Kubernetes; with large files, because its coordinator waits longer each time that there are too few.
CONFIG = dist_support.cartpole(stop_value=15, collectors=1, learners=1, more="""
main_config.exp_name = 'cartpole_dqn'
main_config.policy.collect.n_sample = 512
main_config.policy.priority = True
create_config.learner = EasyDict(type='base', import_names=['ding.worker.learner.base_learner'])
create_config.collector = EasyDict(type='zergling', import_names=['ding.worker.collector.zergling_parallel_collector'])
create_config.commander = EasyDict(type='solo', import_names=['ding.worker.coordinator.solo_parallel_commander'])
create_config.comm_learner = EasyDict(type='flask_fs', import_names=['ding.worker.learner.comm.flask_fs_learner'])
create_config.comm_collector = EasyDict(type='flask_fs', import_names=['ding.worker.collector.comm.flask_fs_collector'])
""")


@pytest.fixture(scope="module")
def python():
    """An interpreter that has DI-engine; the same environment as python/tests use."""
    place = dist_support.REPOSITORY / "build" / "ding-venv"
    subprocess.run([dist_support.REPOSITORY / "scripts" / "ding_venv", place], check=True)
    return place / "bin" / "python"


class Job(dist_support.Job):
    def start_peer(self, name, python, *arguments):
        with open(self.folder / f"{name}.log", "ab") as output:
            process = subprocess.Popen([python, PEER, *map(str, arguments)], cwd=self.folder, stdout=output,
                                       stderr=subprocess.STDOUT, env=self.environment)
        self.processes.append(process)
        return process


def test_its_master_drives_our_slave(tmp_path, python):
    with foreign_peers.Program("dist_slave") as slave, Job(tmp_path, "127.0.0.1:1") as job:
        code, log = job.wait_for_end(job.start_peer("master", python, "master", free_port(), slave.port), "master")
    assert code == 0, log
    said = [json.loads(line) for line in log.splitlines() if line.startswith("[\"")]
    assert said[:4] == [
        ["connected", True],
        ["second master", "SlaveSlaveAlreadyConnected"],
        ["resource", "COMPLETED", {"gpu": 1, "cpu": 20}],
        ["unheard of", "FAILED", {"message": "task name error"}],
    ], said
    assert said[4][:2] == ["throw", "FAILED"] and "broken on purpose" in said[4][2]["message"]
    # Its json writes Infinity and NaN.
    assert said[5:] == [["resource", "COMPLETED", {"gpu": 1, "cpu": 20}], ["connected", False]]


def test_its_slaves_work_for_our_coordinator(tmp_path, python):
    one, two = free_ports(2)
    with foreign_peers.FakeDiServer([f"127.0.0.1:{one}"], [f"127.0.0.1:{two}"]) as server, \
            Job(tmp_path, "127.0.0.1:1") as job:
        for role, port in (("collector", one), ("learner", two)):
            wait_until_it_listens(job.start_peer(role, python, role, port), "127.0.0.1", port)
        with foreign_peers.Program("dist_coordinator", server=server.url) as coordinator:
            assert coordinator.wait() == 0, (coordinator.errors, job.log("collector"), job.log("learner"))
        for role, names in (("collector", ("resource", "collector_start_task", "collector_data_task")),
                            ("learner", ("resource", "learner_start_task", "learner_get_data_task", "learner_learn_task"))):
            for name in names:
                assert f"task {name}\n" in job.log(role)


def test_its_coordinator_trains_with_our_workers(tmp_path, python):
    pickle = dist_support.prepare(tmp_path, CONFIG)
    one, two, own = free_ports(3)
    with dist_support.FakeDiServer([f"127.0.0.1:{one}"], [f"127.0.0.1:{two}"]) as server, Job(tmp_path, server.url) as job:
        job.start("collector", "--module", "collector", "-c", pickle, "-s", "0", "-clp", one)
        job.start("learner", "--module", "learner", "-c", pickle, "-s", "0", "-lp", two)
        coordinator = job.start_peer("coordinator", python, "coordinator", "config.py", own, server.url)
        code, log = job.wait_for_end(coordinator, "coordinator")
        assert code == 0, log[-3000:]
        assert "Traceback" not in log, log[log.find("Traceback"):][:3000]
        assert "Your RL agent is converged" in log
        assert server.requests[0] == ("POST", "/v1alpha1/replicas", {
            "namespace": "default", "coordinator": "job-coordinator",
            "collectors": {"replicas": 1}, "learners": {"gpus": "0", "replicas": 1}})
        for role in ("collector", "learner"):
            assert " error " not in job.log(role) and "disconnected" in job.log(role), job.log(role)
