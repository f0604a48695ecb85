"""The queue behind `mq_type="divisi"`, on a transport that the test holds in its hand; and the
order of callbacks."""

import itertools
import queue
import threading
from types import SimpleNamespace

import pytest

from divisi import _node_queue
from divisi._ding_order import OrderedPool
from divisi._node_queue import CHANNEL, NodeQueue


class FakeNative:
    """The calls of the native node. `arrive` is what peers send; `sent` is what they got."""

    def __init__(self):
        self.inbox = queue.Queue()
        self.opened = None
        self.sent = []
        self.topics = set()
        self.closed = 0

    def node_open(self, listen, attach_to, node_id, secret, join_timeout):
        assert node_id > 0 and join_timeout > 0
        self.opened = (listen, attach_to)
        self.secret = secret

    def node_publish(self, channel, data):
        assert channel == CHANNEL
        topic, _, data = data.partition(b"\0")
        self.sent.append((topic.decode(), data))

    def node_subscribe(self, topic):
        self.topics.add(topic)

    def node_unsubscribe(self, topic):
        self.topics.discard(topic)

    def node_recv(self, timeout=None):
        try:
            return self.inbox.get(timeout=timeout)
        except queue.Empty:
            return None

    def node_close(self):
        self.closed += 1
        self.inbox.put(None)

    def arrive(self, topic, data=b""):
        self.inbox.put((CHANNEL, topic.encode() + b"\0" + data))


@pytest.fixture
def native(monkeypatch):
    fake = FakeNative()
    monkeypatch.setattr(_node_queue, "_native", fake)
    return fake


class Clock:
    """Stands still, but while the queue waits for messages in vain and when the test says so."""

    def __init__(self, native):
        self.now = 0.0
        self.recv, native.node_recv = native.node_recv, self.node_recv

    def node_recv(self, timeout=None):
        message = self.recv(0.0 if timeout is not None else None)
        if message is None and timeout is not None:
            self.now += timeout
        return message


@pytest.fixture
def clock(native, monkeypatch):
    made = Clock(native)
    monkeypatch.setattr(_node_queue, "time", SimpleNamespace(monotonic=lambda: made.now))
    return made


def test_the_secret_reaches_the_transport(native):
    NodeQueue(listen_to="ipc:///tmp/a", secret=b"s3cret")
    assert native.secret == b"s3cret"
    NodeQueue(listen_to="ipc:///tmp/a")
    assert native.secret == b""


def test_it_binds_when_it_is_made_and_ignores_what_it_does_not_know(native):
    made = NodeQueue(
        listen_to="ipc:///tmp/a", attach_to=["host:50515", "tcp://b:1"], redis_host=None, whatever=3
    )
    assert native.opened == ("ipc:///tmp/a", ["tcp://host:50515", "tcp://b:1"])
    assert made.attach_to == ["tcp://host:50515", "tcp://b:1"]


def test_a_failed_bind_is_an_error_of_the_constructor(native):
    def fail(*_, **__):
        raise OSError("tcp://1.2.3.4:5: cannot assign")

    native.node_open = fail
    with pytest.raises(OSError, match="1.2.3.4:5"):
        NodeQueue(listen_to="1.2.3.4:5")


def test_messages_come_in_order(native):
    made = NodeQueue()
    for i in range(5):
        native.arrive("t", b"%d" % i)
    assert [made.recv() for _ in range(5)] == [("t", b"%d" % i) for i in range(5)]


def test_any_bytes_and_names_travel(native):
    made = NodeQueue()
    made.publish("größe::[1]", b"\0::\xff")
    assert native.sent == [("größe::[1]", b"\0::\xff")]
    native.arrive("größe::[1]", b"\0::\xff")
    assert made.recv() == ("größe::[1]", b"\0::\xff")
    made.subscribe("größe::[1]")
    made.unsubscribe("*")
    assert native.topics == {CHANNEL}


def test_a_message_waits_for_its_listener(native):
    # The tenth time it is asked after "a", somebody listens: two messages have been held by then, and
    # nothing more comes.
    asked = itertools.count(1)
    made = NodeQueue(listens=lambda topic: topic == "b" or next(asked) >= 10)
    native.arrive("a", b"1")
    native.arrive("b", b"2")
    native.arrive("a", b"3")
    assert made.recv() == ("b", b"2")
    assert made.recv() == ("a", b"1")
    native.arrive("a", b"4")
    assert [made.recv(), made.recv()] == [("a", b"3"), ("a", b"4")]


def test_what_waits_is_bounded(native, monkeypatch):
    monkeypatch.setattr(_node_queue, "_HELD_BYTES", 10)
    listened = {"end"}
    made = NodeQueue(listens=lambda topic: topic in listened)
    for i in range(5):
        native.arrive("a", b"%04d" % i)
    native.arrive("end")
    assert made.recv() == ("end", b"")
    listened.add("a")
    native.arrive("end")
    assert [made.recv(), made.recv(), made.recv()] == [("a", b"0000"), ("a", b"0001"), ("end", b"")]


def test_stop_ends_a_recv_that_waits_and_may_be_called_again(native):
    made = NodeQueue()
    got = []
    receiver = threading.Thread(target=lambda: got.append(made.recv()))
    receiver.start()
    made.stop()
    receiver.join(10)
    assert got == [None]
    made.stop()
    made.publish("t", b"late")
    made.subscribe("late")
    assert native.closed == 1 and made.recv() is None
    assert native.sent == []


def test_joining_greets_until_all_are_heard_and_keeps_what_comes_in_between(native, clock):
    made = NodeQueue()
    assert not made.join(1, 2.5 * _node_queue._GREET_EVERY_S)
    assert [topic for topic, _ in native.sent] == ["", "", ""]
    native.arrive("early", b"x")
    for who in [b"one", b"one", b"two"]:
        native.arrive("", who)
    assert made.join(2, 10)
    assert made.recv() == ("early", b"x")


def test_a_late_greeting_is_answered_once(native):
    made = NodeQueue()
    native.arrive("", b"late")
    native.arrive("", b"late")
    native.arrive("t")
    assert made.recv() == ("t", b"")
    assert [topic for topic, _ in native.sent] == [""]


def test_a_program_that_listens_for_long_gets_nothing_old(native, clock):
    listened = {"end"}
    made = NodeQueue(listens=lambda topic: topic in listened)
    native.arrive("a", b"kept while nobody listens at all")
    native.arrive("end")
    assert made.recv() == ("end", b"")
    made.subscribe("end")
    clock.now += _node_queue._LISTENERS_MADE_S + 1
    native.arrive("b", b"not kept")
    native.arrive("end")
    assert made.recv() == ("end", b"")
    listened.update({"a", "b"})
    native.arrive("end")
    assert made.recv() == ("end", b"")


def test_jobs_of_one_event_run_in_order_and_one_at_a_time():
    pool = OrderedPool(max_workers=4)
    seen = {"a": [], "b": []}
    busy = {"a": False, "b": False}

    def trigger(event, number, keyword):
        assert not busy[event]
        busy[event] = True
        seen[event].append(number)
        assert keyword == "k"
        busy[event] = False

    for i in range(5000):
        pool.submit(trigger, "a", i, keyword="k")
        pool.submit(trigger, "b", i, keyword="k")
    pool.shutdown()
    assert seen == {"a": list(range(5000)), "b": list(range(5000))}


def test_a_job_may_wait_for_another_event():
    pool = OrderedPool(max_workers=2)
    b_ran = threading.Event()
    waited = []
    pool.submit(lambda event: waited.append(b_ran.wait(30)), "a")
    pool.submit(lambda event: b_ran.set(), "b")
    pool.shutdown()
    assert waited == [True]


def test_a_busy_event_lets_others_through():
    pool = OrderedPool(max_workers=1)
    go, done, seen = threading.Event(), threading.Event(), []
    pool.submit(lambda event: go.wait(30), "busy")
    for i in range(1000):
        pool.submit(lambda event, number: seen.append(number), "busy", i)
    pool.submit(lambda event: seen.append("other"), "other")
    pool.submit(lambda event: done.set(), "busy")
    go.set()
    assert done.wait(30)
    pool.shutdown()
    assert len(seen) == 1001 and seen.index("other") < 100
