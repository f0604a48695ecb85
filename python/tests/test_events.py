"""Events: section 9.2 of the specification, and the rules around it."""
import gc
import json
import threading
import time
import weakref

import pytest

from divisi import EventLoop, OnlineRLContext, Task, TimeoutError, UsageError

SOON = 30.0  # seconds; a deadline, nothing waits so long


@pytest.fixture
def loop():
    """A loop of its own, stopped afterwards."""
    made = EventLoop("test")
    yield made
    try:
        made.stop()
    except Exception:  # the test has seen it, or has failed
        pass


def drain(loop):
    """Until everything emitted so far has run."""
    passed = threading.Event()
    loop.once("drained", passed.set)
    loop.emit("drained")
    assert passed.wait(SOON)


# --- 9.2 ---


def test_A030_a_listener_gets_every_emit(loop):
    got = []
    loop.on("count", got.append)
    for i in range(5):
        loop.emit("count", i)
    drain(loop)
    assert sum(got) == 10


def test_A031_off_removes_the_listener(loop):
    got = []
    loop.on("count", got.append)
    loop.emit("count", 1)
    drain(loop)
    loop.off("count")
    loop.emit("count", 2)
    drain(loop)
    assert got == [1]


def test_A032_once_runs_once(loop):
    got = []
    loop.once("count", lambda n: got.append(n))
    loop.once("count", lambda n: got.append(n))
    loop.emit("count", 10)
    loop.emit("count", 10)
    drain(loop)
    assert sum(got) == 20


def test_A033_the_next_emit_raises_the_error_of_a_listener(loop):
    raised = threading.Event()

    def listener():
        try:
            raise RuntimeError("from the listener")
        finally:
            raised.set()

    loop.on("e", listener)
    loop.emit("e")
    assert raised.wait(SOON)
    with pytest.raises(RuntimeError, match="from the listener"):
        while True:  # the error is stored right after the listener has ended
            loop.emit("other")
    assert loop._exception is None, "thrown once"
    loop.emit("other")


@pytest.mark.parametrize("scope", [{}, {"only_local": True}, {"only_remote": True}], ids=str)
def test_A033_the_next_emit_of_a_task_raises_it_whatever_its_scope(task, scope):
    def listener():
        raise RuntimeError("from the listener")

    with pytest.raises(RuntimeError, match="from the listener"), task.start():
        task.on("e", listener)
        task.emit("e")
        deadline = time.monotonic() + SOON
        while task._exception is None:
            assert time.monotonic() < deadline
            time.sleep(0.001)
        task.emit("other", **scope)
        raise AssertionError("the emit did not raise")


def test_A034_the_second_listener_runs_though_the_first_raises(loop):
    ran = threading.Event()

    def raises():
        raise RuntimeError("first")

    loop.on("e", raises)
    loop.on("e", ran.set)
    loop.emit("e")
    assert ran.wait(SOON)


def test_A035_all_greetings_are_there_after_the_block(task):
    greetings = []
    with task.start():
        task.on("Greeting", greetings.append)
        task.use(lambda ctx: task.emit("Greeting", "Hi"))
        task.run(max_step=10)
    assert greetings == ["Hi"] * 10


def test_A036_wait_for_in_async_mode(task):
    results = []
    with task.start(async_mode=True, n_async_workers=2):
        task.use(lambda ctx: results.append(task.wait_for("Greeting")))
        task.use(lambda ctx: task.emit("Greeting", "Hi"))
        task.run(max_step=10)
    assert [result[0][0] for result in results] == ["Hi"] * 10
    assert all(result[1] == {} for result in results)


def test_A036_a_wait_takes_what_a_later_middleware_emitted_before_it(task):
    heard, waited = [], []
    emitted = [threading.Event() for _ in range(3)]

    def waits(ctx):
        assert emitted[ctx.total_step].wait(SOON)
        for _ in range(2):
            waited.append(task.wait_for("number", timeout=SOON)[0][0])
        yield
        assert task.wait_for("back", timeout=SOON) is not None

    def emits(ctx):
        task.emit("number", 2 * ctx.total_step)
        task.emit("number", 2 * ctx.total_step + 1)
        task.once("settled", emitted[ctx.total_step].set)
        task.emit("settled")
        yield
        came_back = threading.Event()
        task.once("back", came_back.set)
        task.emit("back")
        assert came_back.wait(SOON)

    with task.start(async_mode=True, n_async_workers=2):
        task.on("number", heard.append)
        task.use(waits)
        task.use(emits)
        task.run(max_step=3)
    assert waited == [0, 1, 2, 3, 4, 5]
    assert heard == waited


def test_A037_a_time_out_that_is_not_ignored_raises(task):
    with task.start():
        task.use(lambda ctx: task.wait_for("never", timeout=0.05, ignore_timeout_exception=False))
        with pytest.raises(TimeoutError, match="never"):
            task.run(max_step=1)


def test_A038_a_time_out_gives_none_and_leaves_no_listener(task):
    with task.start():
        begin = time.monotonic()
        assert task.wait_for("never", timeout=0.2) is None
        assert time.monotonic() - begin >= 0.19
        assert not task.listened("never")


def test_A039_first_example_of_the_guide(run_program):
    ended = run_program(
        """
        from divisi import task

        def greeting_listener(msg):
            print("Get msg: {}".format(msg))

        with task.start():
            task.on("greeting", greeting_listener)
            task.emit("greeting", "Hi")
        """
    ).ok()
    assert ended.out == "Get msg: Hi\n"


def test_A040_receiver_and_sender_middleware(task):
    lines = []

    def receiver():
        task.on("msg", lambda n: lines.append(f"message {n}"))
        return lambda ctx: None

    def sender():
        def send(ctx):
            task.emit("msg", ctx.total_step)

        return send

    with task.start(ctx=OnlineRLContext()):
        task.use(receiver())
        task.use(sender())
        task.run(max_step=10)
    assert lines == [f"message {i}" for i in range(10)]


def test_A041_stop_runs_what_is_queued(task):
    ran = []

    def slow(i):
        time.sleep(0.005)
        ran.append(i)

    with task.start():
        task.on("slow", slow)
        for i in range(20):
            task.emit("slow", i)
    assert ran == list(range(20))


def test_A042_each_of_three_listeners_runs_once_for_a_remote_emit(run_program):
    ended = run_program(
        """
        def main():
            with task.start():
                if me() == 1:  # at once, whether anybody listens or not
                    task.emit("e", "x", only_remote=True)
                    task.emit("last", only_remote=True)
                    return
                heard = Gathered()
                end = threading.Event()
                for i in range(3):
                    task.on("e", lambda value, i=i: heard.add([i, value]))
                task.on("last", end.set)
                assert end.wait(60)
                tell(heard)

        if __name__ == "__main__":
            for _ in range(10):
                Parallel.runner(n_parallel_workers=2)(main)
        """
    ).ok()
    assert ended.results == [[[[0, "x"], [1, "x"], [2, "x"]]]] * 10


def test_A043_off_of_one_listener_leaves_the_other(run_program):
    ended = run_program(
        """
        def main():
            heard = Gathered()
            def f(): heard.add("f")
            def g(): heard.add("g")
            with task.start():
                task.on("e", f)
                task.on("e", g)
                task.off("e", f)
                task.router.barrier()
                if me() == 1:
                    task.emit("e", only_remote=True)
                else:
                    heard.wait(1)
                    tell(heard)
                task.router.barrier()

        if __name__ == "__main__":
            Parallel.runner(n_parallel_workers=2)(main)
        """
    ).ok()
    assert ended.results == [[["g"]]]


def test_A044_keyword_arguments_travel(run_program):
    ended = run_program(
        """
        def main():
            heard = Gathered()
            with task.start():
                task.on("e", lambda *args, **kwargs: heard.add([args, kwargs]))
                if me() == 1:
                    task.emit("e", 1, x=2)
                    task.emit("e", only_remote=True, policy="error", y=[1])
                heard.wait(2 if me() == 0 else 1)
                task.router.barrier()
                tell(me(), heard)

        if __name__ == "__main__":
            Parallel.runner(n_parallel_workers=2)(main)
        """
    ).ok()
    assert ended.of_nodes() == {0: [[[1], {"x": 2}], [[], {"y": [1]}]], 1: [[[1], {"x": 2}]]}


@pytest.mark.parametrize("protocol", ["ipc", "tcp"])
def test_A045_ten_thousand_emits_arrive_complete_and_in_order(run_program, free_ports, protocol):
    options = {"protocol": protocol, **({"address": "127.0.0.1", "ports": free_ports(2)} if protocol == "tcp" else {})}
    ended = run_program(
        """
        def main():
            heard = Gathered()
            with task.start():
                if me() == 0:
                    task.on("n", heard.append)
                    end = threading.Event()
                    task.on("end", end.set)
                    assert end.wait(60)
                    tell(heard == list(range(10000)), len(heard))
                else:  # and leaves at once
                    for i in range(10000):
                        task.emit("n", i, only_remote=True)
                    task.emit("end", only_remote=True)

        if __name__ == "__main__":
            Parallel.runner(n_parallel_workers=2, **json.loads(sys.argv[1]))(main)
        """,
        json.dumps(options),
    ).ok()
    assert ended.results == [[True, 10000]]


def test_A046_events_go_on_after_a_listener_has_raised(run_program):
    ended = run_program(
        """
        def main():
            heard = Gathered()
            def listen(value):
                heard.add(value)
                if value == 1:
                    raise RuntimeError("listener failed")
            with task.start():
                task.on("e", listen)
                if me() == 1:
                    for i in range(5):
                        task.emit("e", i, only_remote=True)
                    task.router.barrier()
                    return
                def step(ctx):
                    heard.wait(5)
                task.use(step)
                try:
                    task.run(max_step=3)
                except RuntimeError as error:
                    tell(list(heard), str(error), task.ctx.total_step)
                task.router.barrier()

        if __name__ == "__main__":
            Parallel.runner(n_parallel_workers=2)(main)
        """
    ).ok()
    assert ended.results == [[[0, 1, 2, 3, 4], "listener failed", 0]]


# --- the loop (2.1) ---


def test_named_loops_are_found_again_until_they_stop():
    one = EventLoop.get_event_loop("named")
    assert one.name == "named"
    assert EventLoop.get_event_loop("named") is one
    assert EventLoop("named") is not one
    one.stop()
    other = EventLoop.get_event_loop("named")
    assert other is not one
    other.stop()
    one.stop()


def test_listeners_run_in_the_order_of_registration_and_of_emits(loop):
    got = []
    loop.on("e", lambda n: got.append(("a", n)))
    loop.on("e", lambda n: got.append(("b", n)))
    for i in range(200):
        loop.emit("e", i)
    drain(loop)
    assert got == [(name, i) for i in range(200) for name in "ab"]


def test_several_threads_keep_the_order_of_each_event():
    loop = EventLoop("threads", threads=3)
    got = {name: [] for name in "abcd"}
    both = threading.Barrier(2)
    for name in got:
        loop.on(name, got[name].append)
    loop.on("left", lambda: both.wait(SOON))
    loop.on("right", lambda: both.wait(SOON))
    loop.emit("left")  # the two can only end if they run at the same time
    loop.emit("right")
    for i in range(100):
        for name in got:
            loop.emit(name, i)
    loop.stop()
    assert all(values == list(range(100)) for values in got.values())


def test_the_same_function_twice_is_called_twice_and_removed_one_by_one(loop):
    got = []
    listener = got.append
    loop.on("e", listener)
    loop.on("e", listener)
    loop.emit("e", 1)
    drain(loop)
    assert got == [1, 1]
    loop.off("e", listener)
    loop.off("e", len)  # nobody knows it: nothing happens
    loop.emit("e", 2)
    drain(loop)
    assert got == [1, 1, 2]


class Counter:
    """Two bound methods of one object are not the same object."""

    def __init__(self):
        self.count = 0

    def add(self):
        self.count += 1


def test_off_knows_bound_methods(loop):
    mine, other = Counter(), Counter()
    loop.on("e", mine.add)
    loop.on("e", other.add)
    loop.off("e", mine.add)
    loop.emit("e")
    drain(loop)
    assert (mine.count, other.count) == (0, 1)


def test_off_takes_a_glob(loop):
    for name in ("data_1", "data_2", "model"):
        loop.on(name, lambda: None)
    loop.off("data_*")
    assert [loop.listened(name) for name in ("data_1", "data_2", "model")] == [False, False, True]


def test_names_match_exactly_on_emit(loop):
    got = []
    loop.on("*", lambda: got.append("star"))
    loop.on("e", lambda: got.append("e"))
    loop.emit("e")
    loop.emit("x")
    drain(loop)
    assert got == ["e"]


def test_listened_means_a_live_listener(loop):
    assert not loop.listened("e")
    loop.once("e", lambda: None)
    assert loop.listened("e")
    loop.emit("e")
    drain(loop)
    assert not loop.listened("e")


def test_stop_runs_what_is_queued_then_ignores():
    loop = EventLoop("stopping")
    got = []
    loop.on("e", lambda i: (time.sleep(0.001), got.append(i)))
    for i in range(20):
        loop.emit("e", i)
    loop.stop()
    assert got == list(range(20))
    loop.emit("e", 99)
    loop.stop()
    assert len(got) == 20


def test_stop_raises_an_error_that_nobody_has_seen():
    loop = EventLoop("failing")
    loop.on("e", lambda: 1 / 0)
    loop.emit("e")
    with pytest.raises(ZeroDivisionError):
        loop.stop()
    loop.stop()


def test_the_first_error_stays():
    loop = EventLoop("first")

    def raises(text):
        raise RuntimeError(text)

    loop.on("e", raises)
    done = threading.Event()
    loop.on("done", done.set)
    gate = threading.Event()
    loop.on("gate", lambda: gate.wait(SOON))
    loop.emit("gate")  # nothing runs before everything is queued
    loop.emit("e", "first")
    loop.emit("e", "second")
    loop.emit("done")
    gate.set()
    assert done.wait(SOON)
    with pytest.raises(RuntimeError, match="first"):
        loop.stop()


def test_errors_may_be_only_logged():
    loop = EventLoop("logging", on_error="log")
    ran = []
    loop.on("e", lambda: 1 / 0)
    loop.on("f", lambda: ran.append(1))
    loop.emit("e")
    loop.emit("f")
    loop.stop()
    assert ran == [1]


def test_the_error_keeps_its_traceback(loop):
    def deep():
        raise KeyError("deep")

    loop.on("e", lambda: deep())
    loop.emit("e")
    with pytest.raises(KeyError) as caught:
        loop.stop()
    assert "deep" in [entry.name for entry in caught.traceback]


def test_wait_for_on_a_loop(loop):
    assert loop.wait_for("e", timeout=0.01) is None
    with pytest.raises(TimeoutError, match="'e'"):
        loop.wait_for("e", timeout=0.01, ignore_timeout_exception=False)

    def emit_when_listened():
        while not loop.listened("e"):
            time.sleep(0)
        loop.emit("e", 1, x=2)

    emitter = threading.Thread(target=emit_when_listened)
    emitter.start()
    assert loop.wait_for("e", timeout=SOON) == ((1,), {"x": 2})
    emitter.join()


def test_stop_ends_a_wait():
    loop = EventLoop("waits")
    result = []
    waiter = threading.Thread(target=lambda: result.append(loop.wait_for("e")))
    waiter.start()
    while not loop.listened("e"):
        time.sleep(0)
    loop.stop()
    waiter.join(SOON)
    assert result == [None]


def test_a_listener_may_emit_and_register(loop):
    got = []

    def first(n):
        got.append(n)
        if n == 0:
            loop.on("e", lambda n: got.append(f"late {n}"))
            loop.emit("e", 1)

    loop.on("e", first)
    loop.emit("e", 0)
    drain(loop)
    drain(loop)
    assert got == [0, 1, "late 1"]


def test_local_arguments_are_the_objects_themselves(loop):
    got = []
    payload = object()
    loop.on("e", lambda *args, **kwargs: got.append((args, kwargs)))
    loop.emit("e", payload, key=payload)
    drain(loop)
    assert got[0][0][0] is payload
    assert got[0][1]["key"] is payload


def test_listeners_and_arguments_are_let_go(loop):
    class Thing:
        def listen(self, _):
            pass

    thing, argument = Thing(), Thing()
    alive = [weakref.ref(thing), weakref.ref(argument)]
    loop.on("e", thing.listen)
    loop.emit("e", argument)
    drain(loop)
    loop.off("e")
    del thing, argument
    deadline = time.monotonic() + SOON
    while any(one() is not None for one in alive) and time.monotonic() < deadline:
        loop.emit("nobody")  # what other threads gave up is dropped here at the latest
        gc.collect()
    assert [one() for one in alive] == [None, None]


@pytest.mark.parametrize("name", ["with::colons", "ünïcödé", "a b", "x" * 255])
def test_any_name_of_up_to_255_bytes(loop, name):
    got = []
    loop.on(name, lambda: got.append(name))
    loop.emit(name)
    drain(loop)
    assert got == [name]


# --- events of a task (2.2) ---


def test_flags_without_a_router(task):
    got = []
    with task.start():
        task.on("e", got.append)
        task.emit("e", "default")
        task.emit("e", "local", only_local=True)
        task.emit("e", "remote", only_remote=True)
        task.emit("e", "both", only_local=True, only_remote=True)
    assert got == ["default", "local", "both"]


def test_a_task_raises_the_error_of_a_listener_everywhere(task):
    def raises():
        raise RuntimeError("stored")

    def failing():
        task.on("e", raises)
        task.emit("e")
        deadline = time.monotonic() + SOON
        while task._exception is None and time.monotonic() < deadline:
            time.sleep(0)

    with pytest.raises(RuntimeError, match="stored"):  # stop
        with task.start():
            failing()
    for flags in ({}, {"only_remote": True}, {"only_local": True}):  # any emit
        with task.start():
            failing()
            with pytest.raises(RuntimeError, match="stored"):
                task.emit("other", **flags)
    for async_mode in (False, True):  # sync, with and without a pool
        with task.start(async_mode=async_mode):
            failing()
            with pytest.raises(RuntimeError, match="stored"):
                task.sync()
            task.sync()  # once
    with task.start():  # the end of an iteration
        task.use(lambda ctx: failing())
        with pytest.raises(RuntimeError, match="stored"):
            task.run(max_step=3)
        assert task.ctx.total_step == 0
    with task.start(on_error="log"):
        task.on("e", raises)
        task.emit("e")


def test_wait_for_wakes_on_finish_if_asked(task):
    result = []
    with task.start(async_mode=True):
        task.async_executor(lambda: result.append(task.wait_for("never", wake_on_finish=True)))
        while not task.listened("never"):
            time.sleep(0)
        task.finish = True
        task.sync()
    assert result == [None]


def test_off_on_a_task_takes_a_glob_or_a_function(task):
    got = []

    def f():
        got.append("f")

    with task.start():
        task.on("data_1", f)
        task.on("data_1", lambda: got.append("g"))
        task.off("data_1", f)
        task.emit("data_1")
        task.once("data_2", f)
        task.emit("data_2")
        task.emit("data_2")
    with task.start():
        task.on("data_1", f)
        task.off("data_*")
        assert not task.listened("data_1")
        task.emit("data_1")
    assert got == ["g", "f"]


def test_listeners_end_with_the_task(task):
    got = []
    with task.start():
        task.on("e", got.append)
    with task.start():
        task.emit("e", 1)
    assert got == []


def test_a_second_task_hears_remote_events_too(run_program):
    ended = run_program(
        """
        def main():
            heard = Gathered()
            with task.start(), Task() as other:
                other.on("e", lambda value: heard.add(["other", value]))
                task.on("e", lambda value: heard.add(["task", value]))
                task.router.barrier()
                if me() == 1:
                    task.emit("e", 1, only_remote=True)
                    other.emit("e", 2, only_remote=True)
                else:
                    heard.wait(4)
                    tell(sorted(heard))
                task.router.barrier()

        if __name__ == "__main__":
            Parallel.runner(n_parallel_workers=2)(main)
        """
    ).ok()
    assert ended.results == [[[["other", 1], ["other", 2], ["task", 1], ["task", 2]]]]


def test_answers_under_expected_names_are_not_missed(run_program):
    ended = run_program(
        """
        def main():
            with task.start():
                if me() == 0:
                    task.on("req", lambda i: task.emit(f"reply_{i}", i, only_remote=True))
                    task.router.barrier()
                    task.router.barrier()
                else:
                    task.router.barrier()
                    got = []
                    for i in range(300):
                        with task.expect(f"reply_{i}") as reply:
                            task.emit("req", i, only_remote=True)
                            got.append(reply.wait(timeout=60)[0][0])
                    tell(got == list(range(300)), task.listened("reply_299"))
                    task.router.barrier()

        if __name__ == "__main__":
            Parallel.runner(n_parallel_workers=2)(main)
        """
    ).ok()
    assert ended.results == [[True, False]]


def test_an_expected_event_is_given_once(task):
    with pytest.raises(UsageError):
        task.expect("e")
    with task.start():
        reply = task.expect("e")
        assert reply.wait(timeout=0) is None
        with pytest.raises(TimeoutError):
            reply.wait(timeout=0, ignore_timeout_exception=False)
        task.emit("e", 1, x=2)
        task.emit("e", 3)
        assert reply.wait(timeout=SOON) == ((1,), {"x": 2})
        with pytest.raises(UsageError):
            reply.wait()
        closed = task.expect("e")
        closed.close()
        closed.close()
        with pytest.raises(UsageError):
            closed.wait()


def test_wait_for_of_many_remote_events_leaves_nothing_behind(run_program):
    ended = run_program(
        """
        def main():
            with task.start():
                asked = Gathered()
                if me() == 0:
                    task.on("ask", lambda i: task.emit("answer", i, only_remote=True))
                    task.router.barrier()
                    task.router.barrier()
                else:
                    task.router.barrier()
                    got = []
                    for i in range(50):
                        threading.Thread(target=ask, args=(i,)).start()
                        got.append(task.wait_for("answer", timeout=60)[0][0])
                    tell(got == list(range(50)), task.listened("answer"))
                    task.router.barrier()

        def ask(i):
            while not task.listened("answer"):
                time.sleep(0)
            task.emit("ask", i, only_remote=True)

        if __name__ == "__main__":
            Parallel.runner(n_parallel_workers=2)(main)
        """
    ).ok()
    assert ended.results == [[True, False]]
