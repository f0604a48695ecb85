"""Acceptance A-080 to A-091 of the supervisor, and what the reference does not promise (D24, D25)."""
import contextlib
import gc
import logging
import multiprocessing
import os
import pickle
import queue
import select
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from divisi.supervisor import ChildType, RecvPayload, ReserveMethod, SendPayload, Supervisor, WorkerLost

DEADLINE_S = 120  # of whatever should take moments; a loaded machine may need half a minute to start an interpreter
BOTH = pytest.mark.parametrize("type_", list(ChildType), ids=lambda type_: type_.value)
PROCESS = pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])


class Env:
    """Counts its steps. Used by every start method, so it lives at the top of an importable module."""

    def __init__(self, name="any"):
        self.name = name
        self.counter = 0

    @property
    def action_space(self):
        return 3

    @property
    def broken(self):
        raise KeyError("broken")

    @property
    def pid(self):
        return os.getpid()

    def step(self, _=None):
        self.counter += 1
        return self.counter

    def block(self):
        time.sleep(10)

    block_again = block

    def echo(self, *args, **kwargs):
        return args, kwargs

    def fail(self, text):
        raise ValueError(text)

    def kill_me(self):
        os.kill(os.getpid(), signal.SIGKILL)

    def leave(self, code):
        sys.exit(code)

    def lambda_result(self):
        return lambda: None

    def odd_error(self):
        raise OddError("first", "second")

    def odd_result(self):
        return OddError("first", "second")

    def double(self, array):
        array *= 2
        return array

    def blob(self, size):
        return b"x" * size

    def meet(self, barrier):
        barrier.wait(DEADLINE_S)
        return self.step()

    def ignore_sigterm(self):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)

    def leave_a_grandchild(self):
        pid = os.fork()
        if pid == 0:
            time.sleep(3 * DEADLINE_S)
            os._exit(0)
        return pid

    def _shutdown(self):
        return "mine"

    def _getattr(self):
        return "mine as well"


class CrashEnv(Env):
    def step(self, _=None):
        super().step()
        if self.counter == 2:
            raise RuntimeError("Ohh")
        return self.counter


class OddError(Exception):
    """Can be pickled, but not rebuilt from that: its constructor wants two arguments."""

    def __init__(self, first, second):
        super().__init__(f"{first} {second}")


@pytest.fixture
def start():
    """start(type_, *inits, **options): a running supervisor, shut down after the test."""
    running = []

    def build(type_, *inits, mp_ctx=None, **options):
        supervisor = Supervisor(type_, mp_ctx=mp_ctx)
        running.append(supervisor)
        for init in inits:
            supervisor.register(init, **options)
        supervisor.start_link()
        return supervisor

    yield build
    for supervisor in running:
        supervisor.shutdown(1)


def ask(supervisor, proc_id, method, *args, **kwargs):
    payload = SendPayload(proc_id=proc_id, method=method, args=list(args), kwargs=kwargs)
    supervisor.send(payload)
    return payload


def call(supervisor, proc_id, method, *args, ignore_err=False, **kwargs):
    return supervisor.recv_all([ask(supervisor, proc_id, method, *args, **kwargs)], ignore_err=ignore_err)[0]


def ended(pid):
    """Whether the process has ended, or does before the deadline."""
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([fd], [], [], DEADLINE_S)[0])
    finally:
        os.close(fd)


class Waiter(threading.Thread):
    """A call in a thread of its own."""

    def __init__(self, function, *args, **kwargs):
        super().__init__(daemon=True)
        self.result = self.error = None
        self.call = lambda: function(*args, **kwargs)
        self.start()

    def run(self):
        try:
            self.result = self.call()
        except BaseException as error:
            self.error = error

    def done(self):
        self.join(DEADLINE_S)
        assert not self.is_alive(), "the call still waits"
        return self


def until(condition):
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


# ---- acceptance


def one_step_each(supervisor):
    for proc_id in range(3):
        ask(supervisor, proc_id, "step", "any action")
    replies = [supervisor.recv(timeout=DEADLINE_S) for _ in range(3)]
    assert sum(reply.proc_id for reply in replies) == 3
    assert [reply.data for reply in replies] == [1, 1, 1]
    assert all(reply.err is None for reply in replies)


@BOTH
def test_A080_one_step_each_gives_three_replies(start, type_):
    one_step_each(start(type_, *[lambda: Env("any")] * 3))


@BOTH
def test_A081_recv_all_of_the_last_two_leaves_the_first(start, type_):
    supervisor = start(type_, Env, Env, Env)
    sent = [ask(supervisor, proc_id, "step") for proc_id in range(3)]
    replies = supervisor.recv_all(sent[1:])
    assert [reply.req_id for reply in replies] == [payload.req_id for payload in sent[1:]]
    assert supervisor.recv(timeout=DEADLINE_S).req_id == sent[0].req_id


@BOTH
def test_A081_replies_are_in_request_order_whatever_the_order_of_arrival(start, type_):
    supervisor = start(type_, Env, Env, Env)
    sent = [ask(supervisor, proc_id, "step") for proc_id in (2, 0, 1, 2, 0)]
    sent.reverse()
    assert [reply.req_id for reply in supervisor.recv_all(sent)] == [payload.req_id for payload in sent]


@BOTH
def test_A082_an_attribute_is_that_of_every_child(start, type_):
    supervisor = start(type_, Env, Env, Env)
    assert supervisor.action_space == [3, 3, 3]
    assert supervisor.get_child_attr(1, "action_space") == 3


@PROCESS
def test_A083_ready_objects_work_with_every_start_method(start, method):
    one_step_each(start(ChildType.PROCESS, Env(), Env(), Env(), mp_ctx=multiprocessing.get_context(method)))


def test_A083_a_start_method_may_be_given_by_name(start):
    one_step_each(start("process", Env, Env, Env, mp_ctx="spawn"))


@BOTH
def test_A084_a_child_that_raised_is_restarted_by_the_user(start, type_):
    supervisor = start(type_, lambda: Env(), lambda: Env(), lambda: CrashEnv())
    for proc_id in range(3):
        for _ in range(2):
            ask(supervisor, proc_id, "step", "any action")
    errors = []
    for _ in range(6):
        reply = supervisor.recv(ignore_err=True, timeout=DEADLINE_S)
        if reply.err:
            errors.append((reply.proc_id, str(reply.err)))
            supervisor._children[reply.proc_id].restart()
    assert errors == [(2, "Ohh")]
    for proc_id in range(3):
        ask(supervisor, proc_id, "step", "any action")
    assert sum(supervisor.recv(timeout=DEADLINE_S).data for _ in range(3)) == 3 + 3 + 1
    ask(supervisor, 2, "step", "any action")
    with pytest.raises(RuntimeError, match="Ohh"):
        supervisor.recv(ignore_err=False, timeout=DEADLINE_S)


@BOTH
def test_A085_a_callback_may_send_again(start, type_):
    supervisor = start(type_, Env, Env, Env)
    sent = [ask(supervisor, proc_id, "step") for proc_id in range(3)]
    retries = {0: 0, 1: 0, 2: 0}

    def again(reply, remaining):
        if retries[reply.proc_id] < 2:
            retries[reply.proc_id] += 1
            payload = SendPayload(proc_id=reply.proc_id, method="step", args={"any action"})
            supervisor.send(payload)
            remaining[payload.req_id] = payload

    replies = supervisor.recv_all(send_payloads=sent, callback=again)
    assert [reply.data for reply in replies] == [1, 1, 1]
    assert retries == {0: 2, 1: 2, 2: 2}


@BOTH
def test_A086_blocked_children_time_out_and_the_supervisor_starts_again(start, type_):
    supervisor = start(type_, Env, Env, Env)
    sent = [ask(supervisor, proc_id, "block") for proc_id in range(3)]
    with pytest.raises(TimeoutError):
        supervisor.recv_all(sent, timeout=1)
    supervisor.shutdown(1)
    supervisor.start_link()
    one_step_each(supervisor)


@BOTH
def test_A087_only_the_blocked_child_has_the_timeout(start, type_):
    supervisor = start(type_, Env, Env)
    call(supervisor, 1, "step")  # it is there: its start is not what is timed
    sent = [ask(supervisor, 0, "block"), ask(supervisor, 1, "step")]
    blocked, fast = supervisor.recv_all(sent, ignore_err=True, timeout=3)
    assert isinstance(blocked.err, TimeoutError) and blocked.method == "block"
    assert fast.err is None and fast.data == 2


@BOTH
def test_A088_the_timeout_of_an_added_request_reaches_the_callback(start, type_):
    supervisor = start(type_, Env)
    seen = []

    def retry(reply, remaining):
        seen.append((reply.method, type(reply.err)))
        if reply.method == "block":
            payload = ask(supervisor, 0, "block_again")
            remaining[payload.req_id] = payload

    replies = supervisor.recv_all([ask(supervisor, 0, "block")], ignore_err=True, callback=retry, timeout=0.5)
    assert seen == [("block", TimeoutError), ("block_again", TimeoutError)]
    assert [reply.method for reply in replies] == ["block"]


def write_ids(reply, buffer):
    buffer[reply.proc_id].value = reply.req_id.encode()
    reply.extra, reply.data = reply.data, None


@BOTH
def test_A089_children_answer_side_by_side_through_shared_memory(start, type_):
    shared = [multiprocessing.Array("c", 64) for _ in range(3)]
    # That the three work at the same time is not timed: none goes on before all have come.
    barrier = multiprocessing.Barrier(3)
    make = [lambda: BarrierEnv(barrier)] * 3
    supervisor = start(type_, *make, shm_buffer=shared, shm_callback=write_ids)
    for turn in (1, 2):
        sent = [ask(supervisor, proc_id, "meet") for proc_id in range(3)]
        replies = supervisor.recv_all(sent, timeout=DEADLINE_S)
        assert [cell.value.decode() for cell in shared] == [payload.req_id for payload in sent]
        assert [(reply.data, reply.extra) for reply in replies] == [(None, turn)] * 3


class BarrierEnv(Env):
    def __init__(self, barrier):
        super().__init__()
        self.barrier = barrier

    def meet(self):
        return super().meet(self.barrier)


@BOTH
def test_A090_a_thousand_round_trips_over_three_children(start, type_):
    supervisor = start(type_, Env, Env, Env)
    for turn in range(1000):
        ask(supervisor, turn % 3, "step")
        assert supervisor.recv(timeout=DEADLINE_S).proc_id == turn % 3


@PROCESS
def test_A091_a_pending_recv_reports_a_killed_child(start, method):
    supervisor = start(ChildType.PROCESS, Env, Env, mp_ctx=method)
    pid = supervisor.get_child_attr(1, "pid")
    ask(supervisor, 1, "block")
    waiter = Waiter(supervisor.recv)
    until(lambda: supervisor._inbox._led)  # it is pending
    killed = time.monotonic()
    os.kill(pid, signal.SIGKILL)
    error = waiter.done().error
    assert time.monotonic() - killed < 10
    assert isinstance(error, WorkerLost)
    assert f"child 1 (pid {pid}) was killed by SIGKILL" in str(error)
    assert call(supervisor, 0, "step").data == 1


def test_A091_recv_all_reports_each_request_of_a_killed_child(start):
    supervisor = start(ChildType.PROCESS, Env, Env)
    sent = [ask(supervisor, 0, "step"), ask(supervisor, 1, "kill_me"), ask(supervisor, 1, "step")]
    first, killed, queued = supervisor.recv_all(sent, ignore_err=True)
    assert first.data == 1
    assert isinstance(killed.err, WorkerLost) and isinstance(queued.err, WorkerLost)
    assert [killed.req_id, queued.req_id] == [sent[1].req_id, sent[2].req_id]


def test_A091_an_idle_child_that_ends_is_reported_once_to_a_recv_with_nothing_else_to_wait_for(start):
    supervisor = start(ChildType.PROCESS, Env, Env)
    waiter = Waiter(supervisor.recv, ignore_err=True)
    os.kill(pid_of(supervisor, 1), signal.SIGKILL)
    reply = waiter.done().result
    assert (reply.proc_id, reply.req_id) == (1, None) and isinstance(reply.err, WorkerLost)
    with pytest.raises(queue.Empty):
        supervisor.recv(timeout=0.1)


def test_A091_a_child_with_children_of_its_own_is_noticed_too(start):
    supervisor = start(ChildType.PROCESS, Env)
    grandchild = call(supervisor, 0, "leave_a_grandchild").data
    try:
        ask(supervisor, 0, "kill_me")
        with pytest.raises(WorkerLost):
            supervisor.recv(timeout=DEADLINE_S)
    finally:
        os.kill(grandchild, signal.SIGKILL)


def test_A091_what_a_child_answered_before_it_was_killed_is_not_lost(start):
    supervisor = start(ChildType.PROCESS, Env)
    sent = [ask(supervisor, 0, "step") for _ in range(100)] + [ask(supervisor, 0, "kill_me")]
    replies = supervisor.recv_all(sent, ignore_err=True)
    assert [reply.data for reply in replies[:-1]] == list(range(1, 101))
    assert isinstance(replies[-1].err, WorkerLost)


def test_A091_a_killed_child_works_again_after_its_restart(start):
    supervisor = start(ChildType.PROCESS, Env, Env)
    assert isinstance(call(supervisor, 1, "kill_me", ignore_err=True).err, WorkerLost)
    assert isinstance(call(supervisor, 1, "step", ignore_err=True).err, WorkerLost)
    supervisor._children[1].restart()
    assert call(supervisor, 1, "step").data == 1


@BOTH
def test_A091_a_child_that_leaves_is_lost(start, type_):
    supervisor = start(type_, Env)
    lost = call(supervisor, 0, "leave", 7, ignore_err=True)
    assert isinstance(lost.err, WorkerLost) and "7" in str(lost.err)
    assert isinstance(call(supervisor, 0, "step", ignore_err=True).err, WorkerLost)


def pid_of(supervisor, proc_id):
    return supervisor._children[proc_id]._session._process.pid


# ---- replies belong to their requests (D25)


@BOTH
def test_D25_errors_left_over_from_one_call_do_not_reach_the_next(start, type_):
    supervisor = start(type_, Env, Env, Env)
    with pytest.raises(ValueError, match="number"):
        supervisor.recv_all([ask(supervisor, proc_id, "fail", f"number {proc_id}") for proc_id in range(3)])
    assert [reply.data for reply in supervisor.recv_all([ask(supervisor, i, "step") for i in range(3)])] == [1, 1, 1]
    ask(supervisor, 0, "step")
    assert supervisor.recv(timeout=DEADLINE_S).data == 2


@BOTH
def test_D25_a_reply_that_comes_after_its_timeout_is_dropped(start, type_):
    barrier = multiprocessing.Barrier(2)
    supervisor = start(type_, lambda: BarrierEnv(barrier), Env)
    late = ask(supervisor, 0, "meet")
    with pytest.raises(TimeoutError):
        supervisor.recv_all([late], timeout=0.1)
    barrier.wait(DEADLINE_S)
    assert call(supervisor, 0, "step").data == 2  # so the late one is here
    with pytest.raises(queue.Empty):
        supervisor.recv(timeout=0)


@BOTH
def test_D25_a_request_that_timed_out_can_be_waited_for_again(start, type_):
    barrier = multiprocessing.Barrier(2)
    supervisor = start(type_, lambda: BarrierEnv(barrier))
    sent = [ask(supervisor, 0, "meet")]
    with pytest.raises(TimeoutError):
        supervisor.recv_all(sent, timeout=0.1)
    waiter = Waiter(supervisor.recv_all, sent)
    barrier.wait(DEADLINE_S)
    assert waiter.done().result[0].data == 1


@BOTH
def test_receivers_in_several_threads_get_each_reply_once(start, type_):
    supervisor = start(type_, Env, Env)
    waiters = [Waiter(lambda: [supervisor.recv(timeout=DEADLINE_S).data for _ in range(100)]) for _ in range(3)]
    for number in range(300):
        ask(supervisor, number % 2, "echo", number)
    assert sorted(data[0][0] for waiter in waiters for data in waiter.done().result) == list(range(300))


@BOTH
def test_callers_in_several_threads_get_their_own_replies(start, type_):
    supervisor = start(type_, Env, Env)

    def caller(name):
        for turn in range(50):
            sent = [ask(supervisor, proc_id, "echo", name, turn, proc_id) for proc_id in (0, 1)]
            assert [reply.data[0] for reply in supervisor.recv_all(sent)] == [(name, turn, 0), (name, turn, 1)]
        return name

    assert [waiter.done().result for waiter in [Waiter(caller, name) for name in "abcd"]] == list("abcd")


# ---- restart and shutdown


class GateEnv(Env):
    def __init__(self, gate):
        super().__init__()
        self.gate = gate

    def wait(self):
        assert self.gate.wait(3 * DEADLINE_S)


@BOTH
def test_requests_lost_by_a_restart_are_reported(start, type_):
    gate = threading.Event()
    supervisor = start(type_, lambda: GateEnv(gate), Env)
    sent = [ask(supervisor, 0, "wait"), ask(supervisor, 0, "step")]
    restarter = Waiter(supervisor._children[0].restart)
    lost = supervisor.recv_all(sent, ignore_err=True)
    gate.set()  # the copy of a process stays shut: it has to be terminated
    restarter.done()
    assert all(isinstance(reply.err, WorkerLost) and "restarted" in str(reply.err) for reply in lost)
    assert call(supervisor, 0, "step").data == 1
    assert call(supervisor, 1, "step").data == 1


@BOTH
def test_no_request_is_lost_while_its_child_is_restarted(start, type_):
    supervisor = start(type_, Env)
    done = threading.Event()

    def restart_often():
        for _ in range(20):
            supervisor._children[0].restart()
        done.set()

    restarter = Waiter(restart_often)
    outcomes = set()
    while not done.is_set():
        reply = call(supervisor, 0, "echo", ignore_err=True)
        outcomes.add(type(reply.err))
    restarter.done()
    assert outcomes <= {type(None), WorkerLost}
    assert call(supervisor, 0, "step").data == 1


def test_what_was_answered_before_a_restart_stays(start):
    supervisor = start(ChildType.PROCESS, Env)
    sent = [ask(supervisor, 0, "step") for _ in range(2)]
    assert supervisor.recv_all(sent[1:])[0].data == 2
    supervisor._children[0].restart()
    assert supervisor.recv(timeout=DEADLINE_S).data == 1


@BOTH
def test_a_thread_that_waits_at_a_shutdown_ends_without_a_word(start, type_, monkeypatch):
    supervisor = start(type_, Env)
    inbox, said = supervisor._inbox, []
    # Called as threading itself would; SystemExit alone is passed over there.
    monkeypatch.setattr(threading, "excepthook", lambda what: said.append(what.exc_type))
    waiter = threading.Thread(target=supervisor.recv, daemon=True)
    waiter.start()
    until(lambda: inbox._led)
    supervisor.shutdown()
    waiter.join(DEADLINE_S)
    assert not waiter.is_alive()
    assert said in ([], [SystemExit])


def test_a_shutdown_ends_the_call_of_the_main_thread_with_an_error(start):
    supervisor = start(ChildType.THREAD, Env)
    inbox = supervisor._inbox

    def shut_down():
        until(lambda: inbox._led)
        supervisor.shutdown()

    ender = Waiter(shut_down)
    with pytest.raises(RuntimeError, match="shut down"):
        supervisor.recv(timeout=DEADLINE_S)
    ender.done()


@BOTH
@pytest.mark.parametrize("req_id", [0, "", False, b"", 7])
def test_a_reply_comes_whatever_the_id_of_its_request(start, type_, req_id):
    supervisor = start(type_, Env)
    payload = SendPayload(proc_id=0, req_id=req_id, method="step", args=[1])
    supervisor.send(payload)
    reply = supervisor.recv(timeout=DEADLINE_S)
    assert (reply.req_id, reply.data) == (req_id, 1)
    supervisor.send(payload)
    assert [reply.data for reply in supervisor.recv_all([payload], timeout=DEADLINE_S)] == [2]


@BOTH
def test_a_shutdown_ends_calls_that_wait(start, type_):
    supervisor = start(type_, Env)
    inbox = supervisor._inbox
    waiter = Waiter(supervisor.recv)
    until(lambda: inbox._led)
    supervisor.shutdown()
    assert isinstance(waiter.done().error, SystemExit)
    supervisor.shutdown()
    supervisor.start_link()
    supervisor.start_link()
    assert call(supervisor, 0, "step").data == 1


def test_a_child_that_ignores_sigterm_is_killed(start):
    supervisor = start(ChildType.PROCESS, Env)
    call(supervisor, 0, "ignore_sigterm")
    pid = pid_of(supervisor, 0)
    ask(supervisor, 0, "block")
    supervisor.shutdown(0.2)
    assert ended(pid)


def test_the_handlers_of_the_program_are_not_those_of_its_children(start):
    called = []
    before = signal.signal(signal.SIGTERM, lambda *_: called.append(1))
    try:
        supervisor = start(ChildType.PROCESS, Env)
        pid = supervisor.get_child_attr(0, "pid")
        ask(supervisor, 0, "block")
        os.kill(pid, signal.SIGTERM)
        with pytest.raises(WorkerLost, match="SIGTERM"):
            supervisor.recv(timeout=DEADLINE_S)
    finally:
        signal.signal(signal.SIGTERM, before)


def what_there_is():
    """Descriptors, threads, children, shared memory and semaphores of this process."""
    gc.collect()
    children = [pid for task in Path("/proc/self/task").iterdir() for pid in (task / "children").read_text().split()]
    # Threads that have just been told to end may be on their last instruction.
    threads = [thread for thread in threading.enumerate() if thread.name.startswith("divisi")]
    for thread in threads:
        thread.join(DEADLINE_S)
    fds = sorted(os.readlink(f"/proc/self/fd/{fd}").split(":")[0] for fd in os.listdir("/proc/self/fd")
                 if os.path.islink(f"/proc/self/fd/{fd}"))
    mapped = (line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if "/dev/shm" in line)
    return {"fds": fds, "threads": [thread for thread in threads if thread.is_alive()], "children": sorted(children),
            "shm": sorted(mapped)}


@pytest.mark.parametrize("type_, method", [(ChildType.THREAD, None), (ChildType.PROCESS, "fork"),
                                           (ChildType.PROCESS, "spawn")])
def test_a_shutdown_leaves_nothing_behind(type_, method):
    def use():
        supervisor = Supervisor(type_, mp_ctx=method)
        for _ in range(3):
            supervisor.register(Env)
        for _ in range(2):
            supervisor.start_link()
            one_step_each(supervisor)
            supervisor._children[1].restart()
            for _ in range(200):
                ask(supervisor, 0, "blob", 10000)  # more than the socket holds, and nobody reads it
            for _ in range(200):
                ask(supervisor, 2, "echo", b"x" * 10000)
            if type_ is ChildType.PROCESS:
                call(supervisor, 1, "kill_me", ignore_err=True)
            supervisor.shutdown()

    use()  # what multiprocessing keeps for itself (its resource tracker) is there now
    before = what_there_is()
    use()
    assert what_there_is() == before


def test_a_supervisor_that_is_dropped_takes_its_processes_along():
    supervisor = Supervisor(ChildType.PROCESS)
    supervisor.register(Env)
    supervisor.start_link()
    pid = supervisor.get_child_attr(0, "pid")
    del supervisor
    gc.collect()
    assert ended(pid)


PROGRAM = """
import sys, time
sys.path[:0] = {path!r}
from divisi.supervisor import ChildType, SendPayload, Supervisor
from test_supervisor import Env
supervisor = Supervisor({type_!r}, mp_ctx={method!r})
for _ in range(2):
    supervisor.register(Env)
supervisor.start_link()
print(*supervisor.pid, flush=True)
supervisor.send(SendPayload(proc_id=1, method="block"))
sys.stdin.read()
"""


def program(type_, method=None):
    text = PROGRAM.format(path=sys.path, type_=type_.value, method=method)
    process = subprocess.Popen([sys.executable, "-c", text], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    return process, [int(word) for word in process.stdout.readline().split()]


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_idle_children_end_when_their_program_is_killed(method):
    process, pids = program(ChildType.PROCESS, method)
    with process:
        process.kill()
    try:
        assert ended(pids[0])
    finally:
        with contextlib.suppress(ProcessLookupError):  # the blocked one finds out in ten seconds by itself
            os.kill(pids[1], signal.SIGKILL)


@BOTH
def test_a_program_may_end_without_shutdown(type_):
    process, pids = program(type_)
    with process:
        process.stdin.close()
        assert process.wait(DEADLINE_S) == 0
    assert type_ is ChildType.THREAD or all(ended(pid) for pid in pids)


def test_a_fork_of_the_program_cannot_stop_the_children(start):
    supervisor = start(ChildType.PROCESS, Env)
    pid = os.fork()
    if pid == 0:
        supervisor.shutdown()
        os._exit(0)
    os.waitpid(pid, 0)
    assert call(supervisor, 0, "step").data == 1


# ---- what goes wrong


@BOTH
def test_an_exception_is_the_reply_and_the_child_lives_on(start, type_, caplog):
    supervisor = start(type_, Env)
    call(supervisor, 0, "step")
    reply = call(supervisor, 0, "fail", "why", ignore_err=True)
    assert isinstance(reply.err, ValueError) and str(reply.err) == "why" and reply.data is None
    if type_ is ChildType.PROCESS:
        assert "in fail" in str(reply.err.__cause__)  # where it happened, in the other process
    else:
        assert "fail() failed" in caplog.text
    assert call(supervisor, 0, "step").data == 2


@BOTH
def test_a_method_that_does_not_exist(start, type_):
    supervisor = start(type_, Env)
    ask(supervisor, 0, "no_such_method")
    with pytest.raises(AttributeError, match="no_such_method"):
        supervisor.recv(timeout=DEADLINE_S)
    assert isinstance(call(supervisor, 0, None, ignore_err=True).err, TypeError)
    assert call(supervisor, 0, "step").data == 1


@BOTH
@pytest.mark.parametrize("proc_id", [-1, 1, 99])
def test_an_unknown_child_is_warned_about(start, type_, proc_id, caplog):
    supervisor = start(type_, Env)
    with caplog.at_level(logging.WARNING):
        payload = ask(supervisor, proc_id, "step")
    assert f"child {proc_id}" in caplog.text
    with pytest.raises(queue.Empty):
        supervisor.recv(timeout=0)
    with pytest.raises(TimeoutError):
        supervisor.recv_all([payload], timeout=0.1)
    with pytest.raises(LookupError):
        supervisor.recv_all([payload])  # and does not wait for ever


@BOTH
def test_what_is_done_with_a_supervisor_that_does_not_run(type_, caplog):
    supervisor = Supervisor(type_)
    supervisor.register(Env)
    payload = SendPayload(proc_id=0, method="step")
    supervisor.send(payload)
    assert "not running" in caplog.text
    with pytest.raises(RuntimeError, match="not running"):
        supervisor.recv()
    with pytest.raises(RuntimeError, match="not running"):
        supervisor.recv_all([payload])
    with pytest.raises(AssertionError):
        supervisor.action_space
    with pytest.raises(AssertionError):
        supervisor.get_child_attr(0, "action_space")
    supervisor._children[0].restart()
    supervisor.shutdown()
    assert not hasattr(supervisor, "__deepcopy__")


@BOTH
def test_recv_all_of_nothing(start, type_):
    supervisor = start(type_, Env)
    with pytest.raises(AssertionError):
        supervisor.recv_all([])


@BOTH
def test_recv_times_out_as_an_empty_queue(start, type_):
    supervisor = start(type_, Env)
    for timeout in (0, 0.05):
        with pytest.raises(queue.Empty):
            supervisor.recv(timeout=timeout)


@BOTH
def test_a_child_that_was_registered_too_late(start, type_, caplog):
    supervisor = start(type_, Env)
    supervisor.register(Env)
    ask(supervisor, 1, "step")
    assert "child 1, which is not running" in caplog.text


def no_env():
    raise OSError("no such simulator")


@BOTH
def test_a_factory_that_raises(start, type_):
    supervisor = start(type_, Env, no_env)
    lost = call(supervisor, 1, "step", ignore_err=True)
    assert isinstance(lost.err, WorkerLost) and "no such simulator" in str(lost.err)
    assert isinstance(lost.err.__cause__, OSError) or "gone" in str(lost.err)
    assert isinstance(call(supervisor, 1, "step", ignore_err=True).err, WorkerLost)
    assert call(supervisor, 0, "step").data == 1
    with pytest.raises(WorkerLost):
        supervisor.action_space


@BOTH
def test_a_missing_or_broken_attribute(start, type_):
    supervisor = start(type_, Env, Env)
    with pytest.raises(AttributeError):
        supervisor.no_such_attribute
    with pytest.raises(KeyError, match="broken"):
        supervisor.get_child_attr(0, "broken")
    assert supervisor.name == ["any", "any"]


@BOTH
def test_reserved_methods_do_not_clash_with_those_of_the_object(start, type_):
    supervisor = start(type_, Env)
    assert call(supervisor, 0, "_shutdown").data == "mine"
    assert call(supervisor, 0, "_getattr").data == "mine as well"
    assert call(supervisor, 0, ReserveMethod.GETATTR, "name").data == "any"
    assert isinstance(call(supervisor, 0, ReserveMethod.SHUTDOWN, ignore_err=True).err, WorkerLost)


@BOTH
def test_arguments_by_position_and_by_name(start, type_):
    supervisor = start(type_, Env)
    reply = call(supervisor, 0, "echo", 1, "two", three=[3])
    assert reply == RecvPayload(0, reply.req_id, "echo", ((1, "two"), {"three": [3]}), None, None)


def test_arguments_that_cannot_be_pickled(start):
    supervisor = start(ChildType.PROCESS, Env)
    reply = call(supervisor, 0, "echo", lambda: None, ignore_err=True)
    assert isinstance(reply.err, pickle.PicklingError) and "arguments of echo()" in str(reply.err)
    assert call(supervisor, 0, "step").data == 1


def test_a_result_that_cannot_be_pickled(start):
    supervisor = start(ChildType.PROCESS, Env)
    reply = call(supervisor, 0, "lambda_result", ignore_err=True)
    assert isinstance(reply.err, pickle.PicklingError) and "result of lambda_result()" in str(reply.err)
    assert call(supervisor, 0, "step").data == 1


def test_what_can_be_pickled_but_not_unpickled(start):
    supervisor = start(ChildType.PROCESS, Env)
    reply = call(supervisor, 0, "odd_error", ignore_err=True)
    assert isinstance(reply.err, RuntimeError) and str(reply.err) == "OddError: first second"
    reply = call(supervisor, 0, "odd_result", ignore_err=True)
    assert isinstance(reply.err, pickle.UnpicklingError) and "odd_result()" in str(reply.err)
    reply = call(supervisor, 0, "echo", OddError("first", "second"), ignore_err=True)
    assert isinstance(reply.err, pickle.UnpicklingError) and "child 0" in str(reply.err)
    assert call(supervisor, 0, "step").data == 1


def test_a_child_that_cannot_start_leaves_none_running():
    supervisor = Supervisor(ChildType.PROCESS, mp_ctx="spawn")
    supervisor.register(Env)
    supervisor.register(lambda: Env())  # cannot be pickled, and spawn has to
    warm_up = multiprocessing.get_context("spawn").Process(target=print)
    warm_up.start()
    warm_up.join()
    warm_up.close()
    before = what_there_is()
    with pytest.raises((AttributeError, pickle.PicklingError)):
        supervisor.start_link()
    assert what_there_is() == before
    with pytest.raises(RuntimeError, match="not running"):
        supervisor.recv()


# ---- large and many


def test_large_arrays_travel_both_ways(start):
    import numpy

    supervisor = start(ChildType.PROCESS, Env)
    array = numpy.arange(3_000_000, dtype=numpy.float64).reshape(3, -1)
    result = call(supervisor, 0, "double", array).data
    assert numpy.array_equal(result, array * 2)
    result += 1  # a result is the receiver's own
    kept = call(supervisor, 0, "echo", {"large": array, "small": array[:, :2], "empty": array[:0]}).data[0][0]
    assert all(numpy.array_equal(kept[key], value)
               for key, value in {"large": array, "small": array[:, :2], "empty": array[:0]}.items())


def test_a_sender_may_change_its_array_after_send(start):
    import numpy

    barrier = multiprocessing.Barrier(2)
    supervisor = start(ChildType.PROCESS, lambda: BarrierEnv(barrier))
    ask(supervisor, 0, "meet")
    array = numpy.ones(1_000_000)
    sent = ask(supervisor, 0, "echo", array)  # does not fit into the socket of a child that is not reading
    array[:] = 2
    barrier.wait(DEADLINE_S)
    assert supervisor.recv_all([sent])[0].data[0][0].sum() == 1_000_000


def test_large_requests_and_large_replies_do_not_wait_for_each_other(start):
    supervisor = start(ChildType.PROCESS, Env, Env)
    blob = os.urandom(1 << 20)
    sent = [ask(supervisor, number % 2, "echo", blob, number) for number in range(20)]
    replies = supervisor.recv_all(sent, timeout=DEADLINE_S)
    assert [reply.data for reply in replies] == [((blob, number), {}) for number in range(20)]


@BOTH
def test_a_sender_does_not_wait_for_a_busy_child(start, type_):
    barrier = multiprocessing.Barrier(2)
    supervisor = start(type_, lambda: BarrierEnv(barrier))
    sent = [ask(supervisor, 0, "meet")] + [ask(supervisor, 0, "step") for _ in range(3000)]
    barrier.wait(DEADLINE_S)  # the child cannot have taken any of the others before
    assert [reply.data for reply in supervisor.recv_all(sent)] == list(range(1, 3002))
