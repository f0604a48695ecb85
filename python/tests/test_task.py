"""Tasks and contexts: section 9.1 of the specification, and the rules around it."""
import dataclasses
import functools
import logging
import pickle
import threading
import time

import pytest

from divisi import (
    Context,
    OfflineRLContext,
    OnlineRLContext,
    Role,
    StepTimer,
    Task,
    VoidMiddleware,
    epoch_timer,
    suspend,
)

SOON = 30.0  # seconds; a deadline, nothing waits so long


@dataclasses.dataclass
class Pipeline(Context):
    """A context with a list."""

    pipeline: list = dataclasses.field(default_factory=list)


def step(value):
    """A plain middleware that notes its value."""

    def plain(ctx):
        ctx.pipeline.append(value)

    plain.__name__ = f"step{value}"
    return plain


def suspending(name, trace):
    """A middleware that notes `name+` and, resumed, `name-`."""

    def both(ctx):
        trace.append(f"{name}+")
        yield
        trace.append(f"{name}-")

    both.__name__ = name
    return both


# --- 9.1 ---


def test_A001_forward_runs_each_step_and_renew_begins_anew(task):
    with task.start(ctx=Pipeline()):
        for _ in range(2):
            task.forward(step(0))
            task.forward(step(1))
        assert task.ctx.pipeline == [0, 1, 0, 1]
        assert task.renew() is task
        assert task.ctx.total_step == 1
        task.forward(step(0))
        task.forward(step(1))
        assert task.ctx.pipeline == [0, 1]


def test_A002_backward_resumes_the_suspended_step(task):
    def s0(ctx):
        ctx.pipeline.append(0)
        yield
        ctx.pipeline.append(0)

    with task.start(ctx=Pipeline()):
        suspended = task.forward(s0)
        assert suspended is not None
        assert task.forward(step(1)) is None
        assert len(task._backward_stack) == 1
        assert task.backward() is None
        assert task.ctx.pipeline == [0, 1, 0]
        assert len(task._backward_stack) == 0


def until(condition):
    deadline = time.monotonic() + SOON
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def test_A003_async_forward(task):
    with task.start(async_mode=True, ctx=Pipeline()):
        for i in range(4):
            assert task.forward(step(i % 2)) is task
            until(lambda: len(task.ctx.pipeline) == i + 1)  # nobody calls sync
        assert task.ctx.pipeline == [0, 1, 0, 1]
        assert task.sync() is task
        task.renew()
        assert task.ctx.total_step == 1


def test_A004_async_backward_is_joined_by_sync(task):
    def s0(ctx):
        time.sleep(0.1)
        ctx.pipeline.append(0)
        yield
        ctx.pipeline.append(0)

    def s1(ctx):
        until(lambda: ctx.pipeline == [0])  # it takes longer than s0
        ctx.pipeline.append(1)

    with task.start(async_mode=True, ctx=Pipeline()):
        task.forward(s0)
        task.forward(s1)
        until(lambda: len(task.ctx.pipeline) == 2 and len(task._backward_stack) == 1)  # no sync
        assert task.backward().sync() is task
        assert task.ctx.pipeline == [0, 1, 0]
        assert len(task._backward_stack) == 0


@pytest.mark.parametrize("async_mode", [False, True])
def test_A005_backward_parts_run_in_reverse(task, async_mode):
    trace = []
    with task.start(async_mode=async_mode, n_async_workers=1):
        for name in "abc":
            task.use(suspending(name, trace))
        task.run(max_step=1)
    assert trace == ["a+", "b+", "c+", "c-", "b-", "a-"]


def test_what_suspends_after_its_iteration_failed_is_never_resumed(task):
    gate = threading.Event()
    trace = []

    def late(ctx):
        assert gate.wait(SOON)
        try:
            yield
            trace.append("resumed")
        finally:
            trace.append("closed")

    def fails_once(ctx):
        if not gate.is_set():
            raise RuntimeError("first run")

    with task.start(async_mode=True):
        task.use(late)
        task.use(fails_once)
        with pytest.raises(RuntimeError, match="first run"):
            task.run(max_step=1)
        gate.set()
        task.sync()
        assert trace == ["closed"]
        task.run(max_step=1)
    assert trace == ["closed", "resumed", "closed"]


def test_A005_backward_order_is_that_of_use_in_async_mode_too(task):
    trace = []
    order = threading.Barrier(3)

    def named(name):
        def both(ctx):
            order.wait(SOON)  # all three forward parts run at the same time
            yield
            trace.append(name)

        return both

    with task.start(async_mode=True, n_async_workers=3):
        for name in "abc":
            task.use(named(name))
        task.run(max_step=5)
    assert trace == ["c", "b", "a"] * 5


def test_A006_serial_nests_like_its_parts(task):
    trace = []
    a, b, c, d = (suspending(name, trace) for name in "abcd")
    with task.start():
        task.use(a)
        task.use(task.serial(b, c))
        task.use(d)
        task.run(max_step=1)
    assert trace == ["a+", "b+", "c+", "d+", "d-", "c-", "b-", "a-"]


def test_A007_parallel_runs_its_parts_at_the_same_time(task):
    fast_ended = threading.Event()

    def slow(ctx):
        assert fast_ended.wait(SOON)
        ctx.pipeline.append("slow")

    def fast(ctx):
        ctx.pipeline.append("fast")
        fast_ended.set()

    with task.start(ctx=Pipeline()):
        task.use(lambda ctx: ctx.pipeline.append("begin"))
        task.use(task.parallel(slow, fast))
        task.run(max_step=1)
        assert task.ctx.pipeline == ["begin", "fast", "slow"]


def test_A008_serial_in_async_mode_keeps_the_order(task):
    begun = threading.Event()

    def begin(ctx):
        ctx.pipeline.append("begin")
        begun.set()

    def slow(ctx):  # beside it, on another thread
        assert begun.wait(SOON)
        time.sleep(0.02)
        ctx.pipeline.append("slow")

    def fast(ctx):
        ctx.pipeline.append("fast")

    with task.start(async_mode=True, ctx=Pipeline()):
        task.use(begin)
        task.use(task.serial(slow, fast))
        task.run(max_step=1)
        assert task.ctx.pipeline == ["begin", "slow", "fast"]


def test_A009_a_wrapped_child_runs_inside_its_mother(task):
    trace = []

    def child(ctx):
        trace.append(3 * ctx.total_step)
        yield
        trace.append(3 * ctx.total_step + 2)

    wrapped = task.wrap(child)

    def mother(ctx):
        back = wrapped(ctx)
        trace.append(3 * ctx.total_step + 1)
        back()
        # Here, and not only in the backward phase of the iteration.
        assert trace[-1] == 3 * ctx.total_step + 2

    with task.start():
        task.use(mother)
        task.run(max_step=2)
    assert trace == [0, 1, 2, 3, 4, 5]


def test_A010_steps_under_the_task_lock_do_not_overlap(task):
    inside = []

    def locked(value, seconds):
        def fn(ctx):
            inside.append(value)
            time.sleep(seconds)
            assert inside[-1] == value, "another one ran meanwhile"
            ctx.pipeline.append(value)

        return fn

    with task.start(async_mode=True, ctx=Pipeline()):
        task.use(locked("slow", 0.05), lock=True)
        task.use(locked("fast", 0.0), lock=True)
        task.run(max_step=1)
        assert task.ctx.pipeline == ["slow", "fast"]


@pytest.mark.parametrize("lock", [True, threading.Lock(), threading.Semaphore()], ids=["own", "lock", "semaphore"])
def test_A010_a_lock_is_taken_in_the_order_of_use(task, lock, monkeypatch):
    begin = Task._begin

    def late(self, fn, ctx, slot):  # the thread of the first comes to the lock last
        if slot == 0:
            time.sleep(0.02)
        return begin(self, fn, ctx, slot)

    monkeypatch.setattr(Task, "_begin", late)
    with task.start(async_mode=True, n_async_workers=4, ctx=Pipeline()):
        for value in range(4):
            task.use(step(value), lock=lock)
        task.run(max_step=1)
        assert task.ctx.pipeline == [0, 1, 2, 3]


def test_a_failure_under_a_lock_lets_the_next_one_have_it(task):
    trace = []

    def fails(ctx):
        trace.append("fails")
        raise RuntimeError("first")

    with task.start(async_mode=True):
        task.use(fails, lock=True)
        task.use(lambda ctx: trace.append("second"), lock=True)
        with pytest.raises(RuntimeError, match="first"):
            task.run(max_step=1)
    assert trace == ["fails", "second"]


def test_a_lock_that_cannot_be_taken_keeps_nobody_waiting(task):
    class Broken:
        def __enter__(self):
            raise OSError("broken")

        def __exit__(self, *error):
            return None

    broken = Broken()
    with task.start(async_mode=True):
        for _ in range(3):
            task.forward(task.wrap(lambda ctx: None, lock=broken))
            with pytest.raises(OSError, match="broken"):
                task.sync()


def test_a_condition_as_a_lock_may_be_waited_on_for_a_later_middleware(task):
    condition, trace = threading.Condition(), []

    def waits(ctx):
        assert condition.wait_for(lambda: trace, SOON)
        trace.append("waited")

    def tells(ctx):
        trace.append("told")
        condition.notify_all()

    with task.start(async_mode=True):
        task.use(waits, lock=condition)
        task.use(tells, lock=condition)
        task.run(max_step=1)
    assert trace == ["told", "waited"]


def test_what_copied_the_looks_of_a_wrapped_middleware_is_called_as_it_is(task):
    wrapped = task.wrap(step(1), lock=True)

    @functools.wraps(wrapped)
    def mine(ctx):
        return wrapped(ctx)

    with task.start(async_mode=True, ctx=Pipeline()):
        task.forward(mine).sync()
        assert task.ctx.pipeline == [1]


def test_A011_different_locks_do_not_influence_each_other(task):
    lock = threading.Lock()
    others = threading.Semaphore(0)

    def fn(value):
        def run(ctx):
            ctx.pipeline.append(value)
            others.release()

        return run

    def slowest(ctx):  # has the task's lock while the two others, under theirs, come and go
        assert others.acquire(timeout=SOON)
        assert others.acquire(timeout=SOON)
        ctx.pipeline.append("slowest")

    with task.start(async_mode=True, n_async_workers=3, ctx=Pipeline()):
        task.use(slowest, lock=True)
        task.use(fn("slow"), lock=lock)
        task.use(fn("fast"), lock=lock)
        task.run(max_step=1)
        assert task.ctx.pipeline == ["slow", "fast", "slowest"]


def test_A012_a_failure_wakes_whoever_waits_for_ever(task):
    waited = []

    def waits(ctx):
        waited.append(task.wait_for("never"))

    def raises(ctx):
        time.sleep(0.05)
        raise RuntimeError("Oh my god")

    with pytest.raises(RuntimeError, match="Oh my god"):
        with task.start(async_mode=True, n_async_workers=2):
            task.use(waits)
            task.use(raises)
            task.run(max_step=2)
    assert task.ctx.total_step == 0
    assert waited == [None]


def test_A013_no_backward_part_after_a_failure(task):
    trace = []

    def raises(ctx):
        raise ValueError("forward failed")

    with task.start():
        task.use(suspending("a", trace))
        task.use(raises)
        with pytest.raises(ValueError, match="forward failed"):
            task.run(max_step=1)
        assert trace == ["a+"]
    assert trace == ["a+"]


def test_A014_finish_does_not_cut_the_iteration_short(task):
    trace = []

    def finishes(ctx):
        trace.append("finish")
        task.finish = True

    with task.start():
        task.use(suspending("a", trace))
        task.use(finishes)
        task.use(suspending("b", trace))
        task.run(max_step=10)
        assert task.ctx.total_step == 0
    assert trace == ["a+", "finish", "b+", "b-", "a-"]


def test_A015_finish_is_set_after_the_last_iteration(task):
    seen = []

    def look(ctx):
        seen.append(task.finish)
        yield
        seen.append(task.finish)

    with task.start():
        task.use(look)
        task.run(max_step=3)
        assert seen == [False] * 6
        assert task.finish is True
        assert task.ctx.total_step == 2


def test_A016_an_empty_pipeline_returns_at_once(task):
    with task.start():
        task.run(max_step=3)
        assert task.finish is False
        assert task.ctx.total_step == 0


@pytest.mark.parametrize(
    "call",
    [
        lambda task: task.run(max_step=1),
        lambda task: task.emit("e"),
        lambda task: task.emit("e", only_remote=True),
        lambda task: task.forward(lambda ctx: None),
        lambda task: task.backward(),
        lambda task: task.renew(),
        lambda task: task.wait_for("e", timeout=0),
    ],
)
def test_A017_a_stopped_task_must_be_started(task, call):
    with task.start():
        pass
    with pytest.raises(AssertionError, match="must be started"):
        call(task)


@dataclasses.dataclass
class Kept(Context):
    """One attribute of two is kept."""

    keep_me: int = 0
    not_keep_me: int = 0

    def __post_init__(self):
        self.keep("keep_me")


def test_A018_context_keeps_what_it_was_told_and_pickles():
    ctx = Kept()
    ctx.keep_me += 1
    ctx.not_keep_me += 1
    copy = pickle.loads(pickle.dumps(ctx))
    for one in (ctx, copy):
        renewed = one.renew()
        assert type(renewed) is Kept
        assert (renewed.keep_me, renewed.not_keep_me, renewed.total_step) == (1, 0, 1)
    assert copy == ctx


def test_A018_a_context_in_use_pickles_without_its_task(task):
    with task.start(ctx=Kept()):
        copy = pickle.loads(pickle.dumps(task.ctx))
    assert copy == Kept()
    assert copy.finish is False


def test_A019_online_context():
    ctx = OnlineRLContext()
    ctx.env_step = ctx.eval_value = 1
    renewed = ctx.renew()
    assert renewed.env_step == 1
    assert renewed.eval_value == float("-inf")


def test_A020_offline_context():
    ctx = OfflineRLContext()
    ctx.train_iter = ctx.eval_value = 1
    renewed = ctx.renew()
    assert renewed.train_iter == 1
    assert renewed.eval_value == float("-inf")


def test_A021_step_timer_in_async_mode(task):
    timer = StepTimer()

    def step1(ctx):
        yield

    def step2(ctx):
        pass

    with task.start(async_mode=True):
        task.use_wrapper(timer)
        task.use(step1)
        task.use(step2)
        task.use(task.serial(step1, step2))
        assert len(task._middleware) == 3
        task.run(max_step=3)
        assert len(timer.records) == 3
        assert all(len(records) == 3 for records in timer.records.values())


def test_A022_nested_step_timers(task):
    timers = [StepTimer(), StepTimer()]

    def step1(ctx):
        pass

    def step2(ctx):
        yield

    with task.start():
        for timer in timers:
            task.use_wrapper(timer)
        task.use(step1)
        task.use(step2)
        task.run(max_step=3)
    for timer in timers:
        assert {name: len(records) for name, records in timer.records.items()} == {"step1": 3, "step2": 3}


def test_A023_labels(task):
    with task.start(labels={"learner", "gpu"}):
        assert task.labels == {"standalone", "learner", "gpu"}
        assert task.match_labels("learn*")
        assert task.match_labels(["x", "gpu"])
        assert not task.match_labels("node.*")
        assert not task.match_labels([])
        assert task.match_labels("[gx]p?")
        assert task.match_labels("[!x]pu")
        assert not task.match_labels("GPU")


def test_A024_roles(task):
    with task.start():
        assert task.has_role(task.role.LEARNER)
        task.add_role(task.role.COLLECTOR)
        assert not task.has_role(task.role.LEARNER)
        assert task.has_role(task.role.COLLECTOR)
        assert task.has_role("collector")
        assert task.roles == {Role.COLLECTOR}
        assert Role.COLLECTOR == "collector"
        assert f"{Role.COLLECTOR}" == str(Role.COLLECTOR) == "collector"


def test_A025_legacy_block_without_start(run_program):
    ended = run_program(
        """
        with Task() as t:
            t.use(print)
            t.run(max_step=10)
        """
    ).ok()
    assert ended.out.count("Context(") == 10


def test_A026_legacy_filter_labels():
    ran = []
    with Task() as legacy:
        legacy.use(lambda ctx: ran.append("filtered"), filter_labels=["async"])
        legacy.use(lambda ctx: ran.append("plain"))
        legacy.use(lambda ctx: ran.append("matching"), filter_labels=["stand*"])
        legacy.run(max_step=2)
    assert ran == ["plain", "matching"] * 2


def test_A027_back_of_a_plain_function_does_nothing(task):
    trace = []
    with task.start():
        back = task.wrap(lambda ctx: trace.append("forward"))(task.ctx)
        back()
        back()
        assert trace == ["forward"]
        back = task.wrap(suspending("s", trace))(task.ctx)
        back()
        assert trace == ["forward", "s+", "s-"]
        back()
        task.backward()
    assert trace == ["forward", "s+", "s-"]


# --- life (1.1, 1.2, 1.9) ---


def test_the_singleton_begins_a_fresh_life_each_time(task):
    from divisi.task import task as again

    assert again is task
    for _ in range(3):
        with task.start(ctx=Pipeline()) as started:
            assert started is task
            assert task.running
            assert task._middleware == []
            assert task.finish is False
            assert task.roles == set()
            task.use(step(1))
            task.use_wrapper(lambda fn: fn)
            task.add_role(Role.LEARNER)
            task.run(max_step=1)
            assert task.finish
        assert not task.running


def test_tasks_are_independent_but_share_the_router(task):
    heard = []
    with task.start(), Task() as other:
        assert other is not task
        assert other.router is task.router
        task.on("e", lambda: heard.append("task"))
        other.on("e", lambda: heard.append("other"))
        other.emit("e")
    assert heard == ["other"]


def test_start_while_running_is_refused(task):
    with task.start():
        with pytest.raises(AssertionError, match="running"):
            task.start()


def test_labels_of_the_caller_stay_as_they_are(task):
    mine = {"gpu"}
    with task.start(labels=mine):
        assert task.labels == {"standalone", "gpu"}
    assert mine == {"gpu"}


def test_async_label(task):
    with task.start(async_mode=True, n_async_workers=2):
        assert task.labels == {"standalone", "async"}
        assert task.async_mode is True
        assert task.n_async_workers == 2


def test_the_block_stops_the_task_in_every_case(task):
    with pytest.raises(KeyError):
        with task.start():
            raise KeyError("mine")
    assert not task.running


def test_on_finish_runs_once_in_every_case(task):
    ran = []
    with task.start():
        task.use(lambda ctx: None)
        task.on_finish(lambda ctx: ran.append(ctx.total_step))
        task.run(max_step=3)
    assert ran == [2]
    with pytest.raises(KeyError):
        with task.start():
            task.on_finish(lambda ctx: ran.append("failed"))
            raise KeyError
    assert ran == [2, "failed"]


def test_stop_leaves_a_blocked_middleware_alone_after_its_time(task, caplog):
    started, release = threading.Event(), threading.Event()

    def blocked(ctx):
        started.set()
        release.wait(SOON)

    with caplog.at_level(logging.ERROR, logger="divisi"):
        with task.start(async_mode=True, stop_timeout=0.05):
            task.forward(blocked)
            assert started.wait(SOON)
    assert "still runs" in caplog.text
    release.set()


# --- pipeline (1.3 to 1.6) ---


def test_use_wants_a_callable(task):
    with task.start():
        with pytest.raises(AssertionError):
            task.use(7)


def test_void_is_skipped(task):
    with task.start():
        task.use(task.void()).use(VoidMiddleware())
        assert len(task._middleware) == 0
        assert task.void()(None) is None


def test_wrappers_apply_to_what_is_there_and_what_comes(task):
    trace = []

    def wrapper(name):
        def wrap(fn):
            def wrapped(ctx):
                trace.append(name)
                return fn(ctx)

            return wrapped

        return wrap

    with task.start():
        task.use(lambda ctx: trace.append("early"))
        task.use_wrapper(wrapper("inner"))
        task.use_step_wrapper(wrapper("outer"))
        task.use(lambda ctx: trace.append("late"))
        task.run(max_step=1)
    assert trace == ["outer", "inner", "early", "outer", "inner", "late"]


class Callable:
    """A middleware without a __name__."""

    def __init__(self, trace):
        self.trace = trace

    def __call__(self, ctx):
        self.trace.append("object")


def test_any_callable_in_serial_and_parallel(task):
    trace = []
    with task.start():
        one, other = Callable(trace), suspending("f", trace)
        assert task.serial(one, other).__name__ == "serial<Callable,f>"
        assert task.sequence(one, other).__name__ == "sequence<Callable,f>"
        assert task.parallel(one, other).__name__ == "parallel<Callable,f>"
        task.use(one).use(task.serial(one, one)).use(task.parallel(one, one))
        task.run(max_step=1)
    assert trace == ["object"] * 5


def test_parallel_resumes_its_parts_and_is_not_for_async_mode(task):
    trace = []
    with task.start():
        task.use(task.parallel(suspending("a", trace), suspending("b", trace)))
        task.run(max_step=1)
    assert sorted(trace[:2]) == ["a+", "b+"]
    assert sorted(trace[2:]) == ["a-", "b-"]
    with task.start(async_mode=True):
        with pytest.raises(AssertionError):
            task.parallel(lambda ctx: None)


def test_a_wrapped_child_without_back_runs_in_its_turn(task):
    trace = []

    def mother(ctx):
        task.wrap(suspending("child", trace))(ctx)
        trace.append("mother+")
        yield
        trace.append("mother-")

    with task.start():
        task.use(suspending("a", trace)).use(mother).use(suspending("z", trace))
        task.run(max_step=1)
    assert trace == ["a+", "child+", "mother+", "z+", "z-", "mother-", "child-", "a-"]


def test_wrap_keeps_the_name(task):
    def fn(ctx):
        pass

    assert task.wrap(fn).__name__ == "fn"
    assert task.wrap(Callable([])).__name__ == "Callable"


def test_the_lock_is_held_in_both_parts(task):
    lock = threading.Lock()
    held = []

    def both(ctx):
        held.append(lock.locked())
        yield
        held.append(lock.locked())

    with task.start():
        task.use(both, lock=lock)
        task.run(max_step=1)
    assert held == [True, True]
    assert not lock.locked()


def test_a_second_suspension_is_told_once(task, caplog):
    trace = []

    def twice(ctx):
        yield
        trace.append("resumed")
        yield
        trace.append("never")

    with caplog.at_level(logging.WARNING, logger="divisi"):
        with task.start():
            task.use(twice)
            task.run(max_step=3)
    assert trace == ["resumed"] * 3
    assert [record.message.count("twice") for record in caplog.records] == [1]


def test_a_generator_that_ends_early_is_done(task):
    trace = []

    def early(ctx):
        trace.append("early")
        return
        yield

    with task.start():
        task.use(early)
        task.run(max_step=2)
    assert trace == ["early"] * 2


def test_async_def_with_suspend(task):
    trace = []

    async def both(ctx):
        trace.append("+")
        await suspend()
        trace.append("-")

    with task.start():
        task.use(both)
        task.run(max_step=2)
    assert trace == ["+", "-"] * 2


def test_finally_blocks_run_in_reverse_after_a_failure(task):
    trace = []

    def guarded(name):
        def fn(ctx):
            try:
                yield
                trace.append("never")
            finally:
                trace.append(name)

        return fn

    def raises(ctx):
        raise RuntimeError("x")

    with task.start():
        for name in "abc":
            task.use(guarded(name))
        task.use(task.serial(guarded("d"), guarded("e"), raises))
        with pytest.raises(RuntimeError):
            task.run(max_step=1)
    assert trace == ["e", "d", "c", "b", "a"]


def test_backward_of_a_given_stack(task):
    trace = []
    with task.start():
        stack = {}
        for name in "ab":
            suspended = task.forward(suspending(name, trace))
            stack[id(suspended)] = suspended
        task.backward(stack)
        assert stack == {}
        task.backward()
    assert trace == ["a+", "b+", "b-", "a-"]


def test_forward_on_another_context(task):
    with task.start(ctx=Pipeline()):
        other = Pipeline()
        task.forward(step(5), ctx=other)
        assert other.pipeline == [5]
        assert task.ctx.pipeline == []


def test_async_executor(task):
    ran = []
    with task.start():
        assert task.sync() is task
        with pytest.raises(Exception, match="async or parallel mode"):
            task.async_executor(ran.append, 1)
    with task.start(async_mode=True):
        task.async_executor(lambda *args, **kwargs: ran.append((args, kwargs)), 1, x=2)
        task.sync()
        assert ran == [((1,), {"x": 2})]
        task.async_executor(lambda: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            task.sync()


def test_get_attach_to_len_needs_a_router(task):
    for call in (task.get_attch_to_len, task.get_attach_to_len):
        with pytest.raises(RuntimeError, match="router"):
            call()


# --- contexts (1.12) and timers (1.13) ---


def test_defaults_and_kept_fields_of_the_contexts():
    tables = {
        OnlineRLContext: (
            {"env_step": 0, "env_episode": 0, "train_iter": 0, "last_eval_iter": -1,
             "last_eval_value": float("-inf"), "wandb_url": ""},
            {"train_data": None, "train_output": None, "collect_kwargs": {}, "obs": None, "action": None,
             "inference_output": None, "trajectories": None, "episodes": None, "trajectory_end_idx": [],
             "eval_value": float("-inf"), "eval_output": {}, "info_for_logging": {}},
        ),
        OfflineRLContext: (
            {"trained_env_step": 0, "train_iter": 0, "last_eval_iter": -1, "last_eval_value": float("-inf"),
             "wandb_url": ""},
            {"train_epoch": 0, "train_data": None, "train_output": None, "eval_value": float("-inf"),
             "eval_output": {}, "info_for_logging": {}},
        ),
    }
    for kind, (kept, others) in tables.items():
        ctx = kind()
        for key, default in {**kept, **others, "total_step": 0}.items():
            assert getattr(ctx, key) == default, key
        for key in {**kept, **others}:
            setattr(ctx, key, f"changed {key}")
        renewed = ctx.renew()
        for key in kept:
            assert getattr(renewed, key) == f"changed {key}"
        for key, default in others.items():
            assert getattr(renewed, key) == default, key
        assert dataclasses.fields(kind)  # they are dataclasses: subclasses declare fields
        assert pickle.loads(pickle.dumps(ctx)) == ctx


def test_keep_at_run_time_lasts_for_one_renewal():
    ctx = Context()
    ctx.more = ["by reference"]
    ctx.keep("more", "absent")
    renewed = ctx.renew()
    assert renewed.more is ctx.more
    assert not renewed.has_attr("absent")
    assert not renewed.renew().has_attr("more")


def test_ctx_finish_mirrors_the_task(task):
    with task.start():
        assert task.ctx.finish is False
        task.ctx.finish = True
        assert task.finish is True
        task.renew()
        assert task.ctx.finish is True


def test_step_timer_keeps_a_ring_and_logs(task, caplog):
    timer = StepTimer(print_per_step=2, smooth_window=2)

    def work(ctx):
        yield

    with caplog.at_level(logging.INFO, logger="divisi"):
        with task.start():
            task.use_wrapper(timer)
            task.use(epoch_timer(print_per=3))
            task.use(work)
            task.run(max_step=6)
    assert len(timer.records["work"]) == 4
    lines = [record.message for record in caplog.records]
    assert sum("work" in line and "Cost" in line and "Mean" in line for line in lines) == 3
    assert sum("Epoch Timer" in line for line in lines) == 2


# --- legacy surface (1.11) ---


def test_legacy_constructor_arguments():
    trace = []

    def wrapper(fn):
        def wrapped(ctx):
            trace.append("wrapped")
            return fn(ctx)

        return wrapped

    legacy = Task(
        async_mode=False,
        n_async_workers=1,
        middleware=[lambda ctx: trace.append("middleware")],
        step_wrappers=[wrapper],
        event_listeners={"e": [lambda: trace.append("on")]},
        once_listeners={"e": [lambda: trace.append("once")]},
        labels={"mine"},
        auto_sync_ctx=True,
        something_else=3,
    )
    with legacy:
        assert legacy.match_labels("mine")
        legacy.run(max_step=1)
        legacy.emit("e")
        legacy.emit("e")
    assert trace == ["wrapped", "middleware", "on", "once", "on"]


def test_legacy_first_use_starts_the_task():
    legacy = Task()
    ran = []
    legacy.use(lambda ctx: ran.append(1))
    legacy.run(max_step=2)
    legacy.stop()
    assert ran == [1, 1]


def test_legacy_names_of_emit(task):
    heard = []
    with task.start():
        task.on("e", heard.append)
        task.exit("e", "by the old name")
        task.emit_remote("e", "nobody is there")
    assert heard == ["by the old name"]


@pytest.mark.parametrize("fails", [False, True])
def test_end_of_main_runs_on_finish_of_a_task_that_was_never_started(run_program, fails):
    ended = run_program(
        f"""
        def main():
            task.on_finish(lambda ctx: tell("finished"))
            if {fails}:
                raise KeyError("main")

        if __name__ == "__main__":
            Parallel.runner(n_parallel_workers=1)(main)
        """
    )
    assert ended.results == [["finished"]]
