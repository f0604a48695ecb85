"""A first-generation job as local processes: CartPole to its stop value, faults, the mock job, DDP ranks."""

import json
import os
import signal
import socket
import time

import pytest
from dist_support import FakeDiServer, Job, cartpole, end, prepare
from ports import free_ports, wait_until_it_listens

SOAK = bool(os.environ.get("DIVISI_SOAK"))


def urls(ports):
    return [f"127.0.0.1:{port}" for port in ports]


def start_workers(job, pickle, collectors, learners):
    """One process for each port."""
    started = {}
    for port in collectors:
        started[port] = job.start(f"collector-{port}", "--module", "collector", "-c", pickle, "-s", "0", "-clp", port)
    for port in learners:
        started[port] = job.start(f"learner-{port}", "--module", "spawn_learner", "-c", pickle, "-s", "0", "-lp", port)
    return started


def start_coordinator(job, pickle, port, name="coordinator"):
    return job.start(name, "--module", "coordinator", "-P", "k8s", "-c", pickle, "-s", "0", "-cdp", port)


def wait_until(what, condition, process, seconds=120):
    """Until the condition gives something true, which is returned."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert process.poll() is None, "the process has ended"
        assert time.monotonic() < deadline, f"no {what}"
        time.sleep(0.02)
    return found


def saved_state(folder):
    """The state of a coordinator that has evaluated, and whose learner has a checkpoint."""
    job = folder / "policy" / "job-coordinator"
    state = json.loads((job / "state.json").read_text())
    return state if state["evaluations"] > 0 and list(job.glob("checkpoint_*")) else None


def files_below(folder):
    return [path for path in folder.rglob("*") if path.is_file()]


@pytest.mark.parametrize("as_objects", [False, True])
def test_O087_fake_di_server_drives_a_full_run(tmp_path, as_objects):
    """Cartpole with 2 collectors and 2 learners reaches its stop value; answers are arrays or objects keyed by URL."""
    pickle = prepare(tmp_path, cartpole())
    c1, c2, l1, l2, own = free_ports(5)
    with FakeDiServer(urls([c1, c2]), urls([l1, l2]), as_objects) as server, Job(tmp_path, server.url) as job:
        workers = start_workers(job, pickle, [c1, c2], [l1, l2])
        code, log = job.wait_for_end(start_coordinator(job, pickle, own), "coordinator")
        assert code == 0, log[-3000:]
        assert server.requests[0] == ("POST", "/v1alpha1/replicas", {
            "namespace": "default", "coordinator": "job-coordinator",
            "collectors": {"replicas": 2}, "learners": {"replicas": 2, "gpus": "0"}})
        # The log of the documents, in its order.
        at = 0
        for text in ("Recevied replicas response from server {", "try to connect to", "Successed to connect to",
                     "match limit requests.", "Start...", "learner task(learner_task_", "put into queue",
                     "is created", "is successful to be assigned", "is assigned to collector(", "send data(",
                     "evaluation ", "the job is done"):
            found = log.find(text, at)
            assert found >= 0, f"'{text}' not in order"
            at = found
        # Data goes with its buffer; the last policy and checkpoint stay.
        assert not files_below(tmp_path / "data"), files_below(tmp_path / "data")
        left = sorted(path.name.split("_")[0] for path in (tmp_path / "policy" / "job-coordinator").iterdir())
        assert left[-1].startswith("state.json.final") and "policy" in left, left
        state = json.loads((tmp_path / "policy" / "job-coordinator" / "state.json.final").read_text())
        assert state["best_reward"] >= 195 and state["env_step"] > 1000 and state["train_iter"] > 100
        for worker in workers.values():
            assert worker.poll() is None, "workers wait for the next master"
            assert end(worker) == 0


def test_the_job_survives_a_killed_collector_and_learner(tmp_path):
    pickle = prepare(tmp_path, cartpole(stop_value=1000, more="main_config.max_env_step = 10**9"))
    c1, c2, l1, l2, own = free_ports(5)
    with FakeDiServer(urls([c1, c2]), urls([l1, l2])) as server, Job(tmp_path, server.url) as job:
        workers = start_workers(job, pickle, [c1, c2], [l1, l2])
        coordinator = start_coordinator(job, pickle, own)
        log = job.wait_for_line("coordinator", "evaluation train_iter=", coordinator)
        wait_until("checkpoint", lambda: saved_state(tmp_path), coordinator)
        busy = l1 if f"is assigned to learner(127.0.0.1:{l1})" in log else l2
        idle = l2 if busy == l1 else l1
        workers[busy].kill()
        workers[c1].kill()
        # The other learner takes over where the first was.
        job.wait_for_line(f"learner-{idle}", "learner goes on from", coordinator)
        log = job.wait_for_line("coordinator", f"is assigned to learner(127.0.0.1:{idle})", coordinator)
        evaluations = log.count("evaluation train_iter=")
        wait_until("evaluation after the faults",
                   lambda: job.log("coordinator").count("evaluation train_iter=") >= evaluations + 2, coordinator)
        assert end(coordinator) == 1


def test_a_second_coordinator_goes_on_from_the_last_checkpoint(tmp_path):
    pickle = prepare(tmp_path, cartpole(1000, collectors=1, learners=1, more="main_config.max_env_step = 10**9"))
    c1, l1, first, second = free_ports(4)
    with FakeDiServer(urls([c1]), urls([l1])) as server, Job(tmp_path, server.url) as job:
        start_workers(job, pickle, [c1], [l1])
        coordinator = start_coordinator(job, pickle, first, "first")
        job.wait_for_line("first", "evaluation train_iter=", coordinator)
        wait_until("checkpoint", lambda: saved_state(tmp_path), coordinator)
        coordinator.send_signal(signal.SIGKILL)
        coordinator.wait()
        state = saved_state(tmp_path)
        again = start_coordinator(job, pickle, second, "second")
        job.wait_for_line("second", f"coordinator goes on at env_step={state['env_step']}", again)
        # The workers are free again when their heartbeats to the first one have failed.
        log = job.wait_for_line("second", "evaluation train_iter=", again)
        at = int(log.split("evaluation train_iter=")[1].split()[0])
        assert at >= state["train_iter"] > 0, (at, state)
        job.wait_for_line(f"learner-{l1}", "learner goes on from")
        assert end(again) == 1
        assert "asked to end by a signal" in job.log("second")


def test_too_many_steps_fail_the_job(tmp_path):
    pickle = prepare(tmp_path, cartpole(1000, collectors=1, learners=1, more="main_config.max_env_step = 3000"))
    c1, l1, own = free_ports(3)
    with FakeDiServer(urls([c1]), urls([l1])) as server, Job(tmp_path, server.url) as job:
        start_workers(job, pickle, [c1], [l1])
        code, log = job.wait_for_end(start_coordinator(job, pickle, own), "coordinator")
        assert code == 1
        assert "ding: the stop value 1000 was not reached within max_env_step=3000" in log.splitlines()[-1]


def test_the_mock_job_needs_no_configuration(tmp_path):
    c1, c2, l1, l2, own = free_ports(5)
    with FakeDiServer(urls([c1, c2]), urls([l1, l2])) as server, Job(tmp_path, server.url) as job:
        for port in (c1, c2):
            job.start(f"collector-{port}", "--module", "collector", "--mock", "-clp", port)
        for port in (l1, l2):
            job.start(f"learner-{port}", "--module", "learner", "--mock", "-lp", port)
        code, log = job.wait_for_end(job.start("coordinator", "--module", "coordinator", "--mock", "-cdp", own), "coordinator")
        assert code == 0, log[-3000:]
        # The document's log also has a task that is too old by then ("timeout: ["): that depends on how long the workers
        # take to start, and is tested where time is the test's (CoordinatorTest).
        at = 0
        for text in ("Start...", "put into queue", "can't find proper buffer_id", "reput into queue", "is created",
                     "learner_task(learner_task_", "is assigned to collector(", "send data("):
            found = log.find(text, at)
            assert found >= 0, f"no '{text}' in its place:\n{log[-4000:]}"
            at = found
        assert "send delete and received {" in log


def test_ranks_of_a_pod_train_behind_an_aggregator(tmp_path):
    """A learner of two GPUs: an aggregator, and spawn_learner that starts rank 0 and 1."""
    pickle = prepare(tmp_path, cartpole(collectors=1, learners=1))
    c1, own, master, ag, ag_master, l0, l1 = free_ports(7)
    # The aggregator asks di-server for its learners.
    with FakeDiServer([], urls([l0, l1])) as ranks, FakeDiServer(urls([c1]), urls([ag])) as server, \
            Job(tmp_path, server.url) as job:
        job.start("collector", "--module", "collector", "-c", pickle, "-s", "0", "-clp", c1)
        job.start("aggregator", "--module", "learner_aggregator", "-agp", ag,
                  env={"KUBERNETES_SERVER_URL": ranks.url, "KUBERNETES_POD_NAME": "job-aggregator-x"})
        pod = job.start("learners", "--module", "spawn_learner", "-c", pickle, "-s", "0", "-lp", l0,
                        env={"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "START_RANK": "0", "MASTER_ADDR": "localhost",
                             "MASTER_PORT": str(master)})
        code, log = job.wait_for_end(start_coordinator(job, pickle, own), "coordinator")
        assert code == 0, log[-3000:] + job.log("aggregator")[-2000:] + job.log("learners")[-2000:]
        assert pod.poll() is None
        assert end(pod) == 0


def test_a_rank_that_dies_ends_its_pod(tmp_path):
    pickle = prepare(tmp_path, cartpole())
    port, _ = free_ports(2)
    with Job(tmp_path, "127.0.0.1:1") as job:
        with socket.socket() as taken:  # where rank 1 wants to listen
            taken.bind(("0.0.0.0", port + 1))
            taken.listen()
            pod = job.start("learners", "--module", "spawn_learner", "-c", pickle, "-lp", port,
                            env={"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "START_RANK": "0"})
            code, log = job.wait_for_end(pod, "learners")
        assert code == 1, log
        assert "the others are ended too" in log


def test_a_worker_listens_where_its_variable_says(tmp_path):
    pickle = prepare(tmp_path, cartpole())
    collector_port, learner_port = free_ports(2)
    with Job(tmp_path, "127.0.0.1:1") as job:
        collector = job.start("collector", "--module", "collector", "-c", pickle, env={"COLLECTOR_PORT": str(collector_port)})
        learner = job.start("learner", "--module", "learner", "-c", pickle, env={"LEARNER_PORT": str(learner_port)})
        wait_until_it_listens(collector, "0.0.0.0", collector_port)
        wait_until_it_listens(learner, "0.0.0.0", learner_port)
        second = job.start("second", "--module", "collector", "-c", pickle, "-clp", collector_port)
        code, log = job.wait_for_end(second, "second")
        assert code == 1 and str(collector_port) in log and log.count("\n") == 1, log
        assert end(collector) == 0 and end(learner) == 0


@pytest.mark.parametrize("seed", range(5 if SOAK else 1))
def test_cartpole_is_learned_with_priorities(tmp_path, seed):
    pickle = prepare(tmp_path, cartpole(learners=1, more="main_config.policy.priority = True"))
    c1, c2, l1, own = free_ports(4)
    with FakeDiServer(urls([c1, c2]), urls([l1])) as server, Job(tmp_path, server.url) as job:
        for port in (c1, c2):
            job.start(f"collector-{port}", "--module", "collector", "-c", pickle, "-s", seed, "-clp", port)
        job.start("learner", "--module", "learner", "-c", pickle, "-s", seed, "-lp", l1)
        coordinator = job.start("coordinator", "--module", "coordinator", "-c", pickle, "-s", seed, "-cdp", own)
        code, log = job.wait_for_end(coordinator, "coordinator")
        assert code == 0, log[-3000:]
