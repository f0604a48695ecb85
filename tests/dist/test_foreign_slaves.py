"""Our coordinator with slaves and a di-server that share no code with it."""

import contextlib
import re
import signal
import socket
import threading

import pytest
from foreign_peers import FakeDiServer, ForeignSlave, Program, collector, eventually, learner, request


@contextlib.contextmanager
def workers(*works):
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(ForeignSlave(work)) for work in works]


@pytest.mark.parametrize("keyed", [False, True])
def test_O087_full_run(keyed):
    with workers(collector(6), learner(3)) as (one, two), FakeDiServer([one.url], [two.url], keyed) as server, \
            Program("dist_coordinator", server=server.url) as coordinator:
        assert coordinator.wait() == 0, coordinator.errors
    assert one.names[0] == "resource" and one.names[1] == "collector_start_task"
    assert two.names[-1] == "learner_close_task" or two.names[-1] == "resource"
    assert one.master is None and two.master is None, "disconnected at the end"
    assert server.requests[0] == ("POST", "/v1alpha1/replicas", {
        "namespace": "default", "coordinator": "dijob-example-1-coordinator",
        "collectors": {"replicas": 1}, "learners": {"replicas": 1}})
    assert ("GET", "/v1alpha1/replicas?namespace=default&coordinator=dijob-example-1-coordinator", {}) \
        in server.requests


def test_log_of_the_document():
    with workers(collector(6), learner(3)) as (one, two), FakeDiServer([one.url], [two.url]) as server, \
            Program("dist_coordinator", server=server.url) as coordinator:
        assert coordinator.wait() == 0, coordinator.errors
        said = coordinator.lines
    name = r"PID\d+UUID[0-9a-f-]{36}_\d+\.\d+"
    head = rf"\[Coordinator\({name}\)\]: "
    replicas = "{'namespace': 'default', 'coordinator': 'dijob-example-1-coordinator', " \
               f"'collectors': ['{one.url}'], 'learners': ['{two.url}']}}"
    forms = [
        re.escape(f"Recevied replicas response from server {replicas}"),
        re.escape(f"try to connect to {one.url}"),
        r"Only can connect 0 collectors, 0 learners\.",
        r"Successed to connect to 127\.0\.0\.1:\d+",
        r"Have connected 1 collectors, 1 learners, match limit requests\.",
        r"Start\.\.\.",
        rf"{head}learner task\(learner_task_{name}\) put into queue",
        rf"{head}collector task\(collector_task_{name}\) put into queue",
        rf"{head}collector_task\(collector_task_{name}\) can't find proper buffer_id\(buffer_{name}\)",
        rf"{head}replay_buffer\(buffer_{name}\) is created",
        rf"{head}learner_task\(learner_task_{name}\) is successful to be assigned",
        rf"collector task\(collector_task_{name}\) is assigned to collector\({re.escape(one.url)}\)",
        rf"{head}collector_task\(collector_task_{name}\) is successful to be assigned",
        rf"{head}collector task\(collector_task_{name}\) send data\([0-9a-f-]{{36}}\)",
    ]
    places = []
    for form in forms:
        found = [i for i, line in enumerate(said) if re.fullmatch(form, line)]
        assert found, f"no line is {form}: {said}"
        places.append(found[0])
    assert places == sorted(places), said
    assert "failed list: [] []" in said
    assert f"currnet list: ['{one.url}'] ['{two.url}']" in said


def test_slave_killed_in_a_task_is_replaced():
    with workers(collector(6), learner(3)) as (second, teacher), \
            ForeignSlave(collector(10_000, pace=0.05)) as first, \
            FakeDiServer([first.url], [teacher.url]) as server, \
            Program("dist_coordinator", server=server.url, tolerance_ms=1000, retries=0) as coordinator:
        eventually(lambda: "collector_data_task" in first.names, "the collector gets no task")
        first.dead = True
        first.close()
        server.collectors = [second.url]
        assert coordinator.wait() == 0, coordinator.errors
    assert "collector_data_task" in second.names


def test_slave_that_never_answers_holds_up_nobody():
    listener = socket.create_server(("127.0.0.1", 0))
    silent = f"127.0.0.1:{listener.getsockname()[1]}"
    with listener, workers(collector(6), learner(3)) as (one, two), \
            FakeDiServer([silent, one.url], [two.url]) as server, \
            Program("dist_coordinator", server=server.url) as coordinator:
        assert coordinator.wait() == 0, coordinator.errors


def test_slave_that_keeps_its_task_loses_it():
    asked = threading.Event()

    def never(data):
        asked.set()
        return None, None  # takes the task, sends no result, and goes on with its heartbeats

    with workers(never, collector(10_000, pace=0.02), learner(10_000)) as (bad, one, two), \
            FakeDiServer([bad.url, one.url], [two.url]) as server, \
            Program("dist_coordinator", server=server.url, resource_ms=300, connect_limit_ms=600) as coordinator:
        eventually(asked.is_set, "it was not asked")
        eventually(lambda: any(path.endswith("/failed") for _, path, _ in server.requests), "it was not reported")
        eventually(lambda: "learner_learn_task" in two.names, "the others do not train")
    assert coordinator.said(f"can't acquire resource for collector({bad.url})")


def test_di_server_that_answers_404_for_a_while():
    with workers(collector(6, pace=0.05), learner(3)) as (one, two), \
            FakeDiServer([one.url], [two.url]) as server:
        server.broken = 3
        with Program("dist_coordinator", server=server.url) as coordinator:
            eventually(lambda: coordinator.said("Start..."), "it does not start")
            server.broken = 3
            assert coordinator.wait() == 0, coordinator.errors


def test_no_workers_is_exit_1():
    with FakeDiServer([], []) as server, \
            Program("dist_coordinator", server=server.url, wait_limit_ms=400) as coordinator:
        assert coordinator.wait() == 1
    assert coordinator.errors[-1].startswith("waiting for workers: 0 collectors and 0 learners are connected")


def test_sigterm_disconnects_all():
    with workers(collector(10_000, pace=0.05), learner(10_000)) as (one, two), \
            FakeDiServer([one.url], [two.url]) as server, \
            Program("dist_coordinator", server=server.url) as coordinator:
        eventually(lambda: "collector_data_task" in one.names, "the collector gets no task")
        coordinator.process.send_signal(signal.SIGTERM)
        assert coordinator.wait() == 1
        assert one.master is None and two.master is None


def test_deleted_collector_is_dropped():
    with workers(collector(10_000, pace=0.05), collector(6), learner(3)) as (first, second, teacher), \
            FakeDiServer([first.url], [teacher.url]) as server, \
            Program("dist_coordinator", server=server.url, release=1) as coordinator:
        eventually(lambda: coordinator.said("send delete and received {'namespace': 'default'"), "no delete")
        eventually(lambda: first.master is None, "it stays connected")
        server.collectors = [second.url]
        assert coordinator.wait() == 0, coordinator.errors
    assert coordinator.said(f"'collectors': ['{first.url}'], 'learners': []}}")


def test_strangers_cannot_speak_for_a_slave():
    with workers(collector(10_000, pace=0.05), learner(10_000)) as (one, two), \
            FakeDiServer([one.url], [two.url]) as server, \
            Program("dist_coordinator", server=server.url) as coordinator:
        eventually(lambda: "collector_data_task" in one.names, "the collector gets no task")
        for path in ("/slave/task/complete", "/slave/task/fail"):
            status, answer = request(coordinator.url, "PUT", path, {"task": {"id": "x"}, "result": {}}, "f" * 64)
            assert (status, answer["code"]) == (403, 502)
        token = one.master[1]
        status, answer = request(coordinator.url, "PUT", "/slave/task/complete", {}, token)
        assert (status, answer["success"], answer["code"]) == (200, False, 601)
        status, answer = request(coordinator.url, "GET", "/slave/heartbeat", {}, token.swapcase())
        assert (status, answer["code"]) == (403, 502)


def test_oldest_layout():
    with workers(collector(6), learner(3, batch=2), learner(3, batch=3)) as (one, two, three), \
            Program("dist_aggregator") as aggregator, \
            FakeDiServer([one.url], [two.url, three.url]) as server, \
            Program("dist_coordinator", server=server.url, aggregator=aggregator.url) as coordinator:
        assert coordinator.wait() == 0, coordinator.errors
    assert coordinator.place("Successed to connect to " + aggregator.url) \
        < coordinator.place("have connected to aggregator") < coordinator.place("Recevied replicas response")
    assert "learner_learn_task" in two.names and "learner_learn_task" in three.names
    assert not coordinator.said("try to connect to " + two.url)
