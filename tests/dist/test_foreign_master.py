"""Our slave and our aggregator, driven by a master that shares no code with them."""

import socket

import pytest
from foreign_peers import ForeignMaster, ForeignSlave, Program, eventually, learner, request


@pytest.fixture
def master():
    with ForeignMaster() as running:
        yield running


@pytest.fixture
def slave():
    with Program("dist_slave") as running:
        yield running


def test_O084_connect_and_disconnect(master, slave):
    token, status, answer = master.connect(slave.url)
    assert status == 200
    assert answer == {"success": True, "code": 0, "message": "Connect success.", "data": None}
    eventually(lambda: token in master.heartbeats, "no heartbeat came")
    status, answer = master.disconnect(token)
    assert (status, answer["message"]) == (200, "Disconnect success.")
    assert master.disconnect(token)[1]["code"] == 502


def test_O084_wrong_channel(slave):
    with ForeignMaster(channel=5) as other:
        _, status, answer = other.connect(slave.url)
        assert (status, answer["success"], answer["code"]) == (403, False, 202)


def test_O085_results_of_tasks(master, slave):
    token, _, _ = master.connect(slave.url)
    assert master.task(token, {"name": "resource"}) == ("complete", {"gpu": 1, "cpu": 20})
    assert master.task(token, {"name": "no such task"}) == ("fail", {"message": "task name error"})
    assert master.task(token, {"name": "collector_start_task"})[0] == "fail"
    assert master.task(token, {"name": "collector_start_task", "task_info": {
        "task_id": "t", "buffer_id": "b"}}) == ("complete", {"message": "collector task has started"})
    for _ in range(3):
        verdict, record = master.task(token, {"name": "collector_data_task"})
        assert verdict == "complete" and record["task_id"] == "t" and record["data_id"]
    assert master.task(token, {"name": "collector_data_task"})[1]["collector_done"] is True
    assert master.task(token, {"name": "collector_close_task"})[1]["task_id"] == "t"


def test_O086_busy_second_master_wrong_token(master, slave):
    token, _, _ = master.connect(slave.url)
    master.start(token, {"name": "wait"})
    body = {"task": {"id": "2"}, "data": {"name": "resource"}}
    status, answer = request(slave.url, "POST", "/task/new", body, token)
    assert (status, answer["code"]) == (400, 601)
    status, answer = request(slave.url, "POST", "/task/new", body, "0" * 64)
    assert (status, answer["code"]) == (403, 302)
    with ForeignMaster() as second:
        _, status, answer = second.connect(slave.url)
        assert (status, answer["code"]) == (400, 501)


def test_exception_sends_fail(master, slave):
    token, _, _ = master.connect(slave.url)
    assert master.task(token, {"name": "throw"}) == ("fail", {"message": "broken on purpose"})
    assert master.task(token, {"name": "resource"})[0] == "complete"


def test_403_on_heartbeat_is_a_disconnect(master, slave):
    token, _, _ = master.connect(slave.url)
    master.start(token, {"name": "wait"})
    master.forgets = True
    eventually(lambda: slave.said("master gone"), "the slave stays connected")
    master.forgets = False
    token, status, _ = master.connect(slave.url)
    assert status == 200
    assert master.task(token, {"name": "resource"})[0] == "complete"


def test_vanished_master_is_forgotten(slave):
    gone = ForeignMaster()
    gone.connect(slave.url)
    gone.close()
    eventually(lambda: slave.said("master gone"), "the slave stays connected")
    with ForeignMaster() as second:
        assert second.connect(slave.url)[1] == 200


def test_order_of_checks(slave):
    def code(*args, **kwargs):
        status, answer = request(slave.url, *args, **kwargs)
        return status, answer["code"]

    assert code("POST", "/connect", channel=None) == (400, 201)
    assert code("POST", "/connect", channel=3) == (403, 202)
    assert code("POST", "/connect") == (400, 301)
    assert code("POST", "/task/new", token="t") == (400, 502)
    assert code("GET", "/ping") == (400, 401)
    assert code("GET", "/ping", token="t") == (403, 402)
    assert request(slave.url, "GET", "/ping", token=slave.self_token)[1]["message"] == "PONG!"
    assert code("DELETE", "/shutdown", token=slave.self_token) == (200, 0)
    assert code("POST", "/connect", channel=None) == (401, 101)


def test_bad_bytes_harm_nobody(master, slave):
    for raw in (b"{", b"\xff\xfe", b"[" * 10_000, b'{"master": {"address": 7}}', b"null"):
        status, answer = request(slave.url, "POST", "/connect", token="t", raw=raw)
        assert (status, answer["success"]) == (400, False), raw
    with socket.create_connection(("127.0.0.1", slave.port)) as peer:
        peer.sendall(b"POST /connect HTTP/1.1\r\nHost: x\r\nChannel: 0\r\nToken: t\r\n"
                     b"Content-Length: 999999999999\r\n\r\n")
        assert b" 413 " in peer.makefile("rb").readline()
    with socket.create_connection(("127.0.0.1", slave.port)) as peer:
        peer.sendall(b"nonsense\r\n\r\n")
        assert b" 400 " in peer.makefile("rb").readline()
    token, status, _ = master.connect(slave.url)
    assert status == 200
    assert master.task(token, {"name": "resource"})[0] == "complete"


def test_aggregator_between_foreign_peers(master):
    with ForeignSlave(learner(2, batch=3)) as one, ForeignSlave(learner(2, batch=5)) as two, \
            Program("dist_aggregator") as aggregator:
        token, _, _ = master.connect(aggregator.url)
        status, answer = request(aggregator.url, "POST", "/learners", token=token,
                                 raw=f'["{one.url}", "{two.url}"]')
        assert (status, answer["data"]) == (200, {"failed": []})
        eventually(lambda: master.task(token, {"name": "resource"})[1] == {"gpu": 2}, "the learners do not join")
        start = {"name": "learner_start_task", "task_info": {"task_id": "t", "policy_id": "p", "buffer_id": "b"}}
        assert master.task(token, start) == ("complete", {"message": "learner task has started"})
        for step in (1, 2):
            assert master.task(token, {"name": "learner_get_data_task"})[1]["batch_size"] == 8
            verdict, result = master.task(token, {"name": "learner_learn_task",
                                                  "data": [{"data_id": str(i)} for i in range(8)]})
            assert verdict == "complete"
            assert result["info"] == {"learner_step": step, "priority_info": {"p": [1.0] * 8},
                                      "learner_done": step == 2}
        assert master.task(token, {"name": "learner_close_task"}) == ("complete", {"task_id": "t", "buffer_id": "b"})
