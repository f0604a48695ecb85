"""The runner of divisi.tune: steps, tries, events, the log, stopping and interrupts."""

import enum
import logging
import math
import queue
import signal
import threading
import time

import pytest

from divisi.tune import (
    BaseAlgorithm, BaseSession, C, EventRegistry, EventSet, HpoEvent, NoSuccessfulTrial, OptimizeDirection, R,
    RankList, RunResult, ServiceBusy, ServiceNoLongerAccept, ServiceState, SessionState, Skip, Task,
    ThreadService, hpo, uniform,
)  # fmt: skip
from divisi.tune._log import ordinal, pairs
from divisi.tune._records import rank_table

DEADLINE_S = 60


RAISING = threading.Event()
"""An Emitter is about to raise its error."""


class Emitter(BaseAlgorithm):
    """Emits {'a': 0}, {'a': 1}, ... as a user's algorithm would."""

    def __init__(self, count=None, error=None, **settings):
        super().__init__(**settings)
        self.count, self.error = count, error

    def get_session(self, space, service):
        return EmitterSession(self, space, service)


class EmitterSession(BaseSession):
    def produce(self):
        for a in range(self.algorithm.count):
            self.push({"a": a})
        if self.algorithm.error is not None:
            RAISING.set()
            raise self.algorithm.error


def emitting(function, count, silent=True):
    return hpo(function).search(Emitter, silent=silent).count(count).max_workers(1).spaces({})


class Counter(EventSet):
    """Counts the calls of every handler."""

    def __init__(self):
        self.seen = []
        for event in HpoEvent:
            setattr(self, event.handler, lambda *args, name=event.handler: self.seen.append(name))


def event_counter():
    return Counter()


def count(counter, name):
    return counter.seen.count(name)


def test_H055_wrapping():
    def f(x):
        return x + 1

    wrapped = hpo(f)
    assert wrapped(2) == 3 and hpo(wrapped) is wrapped
    assert repr(wrapped).startswith("<HpoFunc of <function")
    with pytest.raises(TypeError):
        hpo(3)


def test_H056_exactly_one_target():
    for first in ("minimize", "maximize"):
        for second in ("minimize", "maximize"):
            runner = getattr(emitting(len, 1), first)(R)
            with pytest.raises(SyntaxError):
                getattr(runner, second)(R)
    with pytest.raises(SyntaxError):
        emitting(len, 1).run()
    with pytest.raises(SyntaxError, match="spaces"):
        hpo(len).grid(silent=True).maximize(R).run()


def test_H057_best_of_an_own_algorithm():
    config, value, metrics = emitting(lambda v: (v["a"] - 5) ** 2, 12).maximize(R).run()
    assert config == {"a": 11} and value == 36 and "time" in metrics


def near_33(config):
    return {"result": (config["a"] - 32.8) ** 2}


def test_H058_counts_of_events():
    def objective(config):
        if config["a"] % 3 == 0:
            raise ValueError("three")
        if config["a"] % 7 == 0:
            raise Skip("seven")
        return near_33(config)

    counter = event_counter()
    config, value, _ = (
        emitting(objective, 40).minimize(R["result"]).add_event_set(counter).run()
    )
    names = ("step", "step_ok", "step_fail", "step_skip", "step_final")
    assert [count(counter, name) for name in names] == [40, 22, 14, 4, 40]
    assert config["a"] == 32 and value["result"] == pytest.approx(0.64)


def test_H059_no_step_follows_the_stop_condition():
    calls = []

    def objective(config):
        calls.append(config["a"])
        return near_33(config)

    config, value, _ = (
        emitting(objective, 100).minimize(R["result"]).stop_when(R["result"] < 4).run()
    )
    assert config["a"] == 31 and value["result"] == pytest.approx(3.24)
    assert calls == list(range(32))


@pytest.mark.parametrize("call", [("max_workers", "x"), ("max_workers", 0), ("max_retries", 0),
                                  ("rank", 0), ("max_steps", -1), ("timeout", "1")])  # fmt: skip
def test_H060_wrong_numbers(call):
    with pytest.raises(ValueError):
        getattr(emitting(len, 1), call[0])(call[1])


def test_H061_tries():
    def run(tries):
        calls = []

        def objective(config):
            calls.append(config)
            if len(calls) <= 2:
                raise ValueError("not yet")
            return 1

        counter = event_counter()
        result = emitting(objective, 1).max_retries(tries).add_event_set(counter).maximize(R).run()
        return result, count(counter, "try_"), count(counter, "step_ok"), count(counter, "step_fail")

    assert run(3)[0][1] == 1 and run(3)[1:] == (3, 1, 0)
    assert run(2) == (None, 2, 0, 1)


def test_H062_arguments_of_the_objective():
    seen = []
    for function in (
        lambda config: seen.append((config,)),
        lambda config, step: seen.append((config, step)),
        lambda *args: seen.append(args),
    ):
        runner = emitting(function, 1).maximize(lambda record: 0)
        assert runner.run() is not None
    assert seen == [({"a": 0},), ({"a": 0}, 1), ({"a": 0}, 1)]
    # A builtin without a signature gets the configuration only: max of a dict is its largest key.
    assert emitting(max, 1).maximize(lambda _: 0).run()[1] == "a"


def test_H063_producer_error_is_raised_after_draining():
    done = []
    RAISING.clear()

    def objective(config):
        assert RAISING.wait(DEADLINE_S)  # all steps run when the error comes
        done.append(config["a"])
        return 0

    runner = emitting(objective, 4).max_workers(4).option("error", OSError("producer"))
    with pytest.raises(OSError, match="producer"):
        runner.maximize(R).run()
    assert sorted(done) == [0, 1, 2, 3]


@pytest.mark.parametrize("event", list(HpoEvent))
def test_H064_handler_error_ends_the_run(event):
    error = KeyError("handler")

    def fail(*_):
        raise error

    calls = []

    def objective(config):
        calls.append(config)
        if event in (HpoEvent.TRY_FAIL, HpoEvent.STEP_FAIL):
            raise ValueError("bad luck")
        if event in (HpoEvent.TRY_SKIP, HpoEvent.STEP_SKIP):
            raise Skip
        return 0

    failing, counter = EventSet(), event_counter()
    setattr(failing, event.handler, fail)
    runner = emitting(objective, 10).max_retries(1).maximize(R)
    with pytest.raises(KeyError) as raised:
        runner.add_event_set(counter).add_event_set(failing).run()
    assert raised.value is error
    before = event in (HpoEvent.INIT, HpoEvent.INIT_OK, HpoEvent.RUN_START)
    steps = 0 if before else 10 if event is HpoEvent.RUN_COMPLETE else 1
    assert count(counter, "step") == steps
    assert len(calls) == (0 if event in (HpoEvent.STEP, HpoEvent.TRY) else steps)


def test_H065_silent(caplog):
    counter = event_counter()
    with caplog.at_level(logging.DEBUG):
        emitting(lambda c: 1, 3).maximize(R).add_event_set(counter).run()
        assert caplog.records == []
        assert count(counter, "step_ok") == 3 and count(counter, "run_complete") == 1
        emitting(lambda c: 1, 3, silent=False).maximize(R).run()
    assert len(caplog.records) > 0


def result_of(task_id, value):
    result = RunResult(Task(task_id, {"a": task_id}), value, {"time": 0.0})
    result.value = value
    return result


def test_H066_rank_list():
    ranking = RankList(5, OptimizeDirection.MAXIMIZE)
    for number, score in enumerate([99, 90, 95, 80, 90, 90, 95, 80, 90], 1):
        ranking.insert(result_of(number, score))
    assert [(one.value, one.task_id) for one in ranking] == [
        (99, 1), (95, 3), (95, 7), (90, 2), (90, 5),
    ]  # fmt: skip
    assert len(ranking) == 5 and ranking[0].value == 99
    assert rank_table(list(ranking), [], "target", []) == (
        "+-----+----------+\n"
        "|   # |   target |\n"
        "|-----+----------|\n"
        "|   1 |       99 |\n"
        "|   3 |       95 |\n"
        "|   7 |       95 |\n"
        "|   2 |       90 |\n"
        "|   5 |       90 |\n"
        "+-----+----------+"
    )


def test_H066_table_of_the_specification():
    results = []
    for number, optimizer, value in ((12, "adam", 99.5), (2, "rmsprop", 95.25)):
        results.append(RunResult(Task(number, {"opt": optimizer}), value, {"time": 0.0}))
        results[-1].value = value
    assert rank_table(results, [("opt", C["opt"])], "target", []) == (
        "+-----+---------+----------+\n"
        "|   # | opt     |   target |\n"
        "|-----+---------+----------|\n"
        "|  12 | adam    |    99.5  |\n"
        "|   2 | rmsprop |    95.25 |\n"
        "+-----+---------+----------+"
    )


def test_nan_ranks_last_in_both_directions():
    for direction in OptimizeDirection:
        ranking = RankList(5, direction)
        for number, score in enumerate([math.nan, 2.0, math.nan, math.inf], 1):
            ranking.insert(result_of(number, score))
        assert [math.isnan(one.value) for one in ranking] == [False, False, True, True]


def test_H067_event_registry():
    class Events(enum.Enum):
        ONE = 1

    registry = EventRegistry(Events)
    seen = []

    def first():
        seen.append("first")

    registry.bind(Events.ONE, first)
    registry.bind(Events.ONE, lambda: seen.append("second"), name="second")
    registry.bind(Events.ONE, lambda: seen.append("third"), name="third")
    registry.trigger(Events.ONE)
    registry.unbind(Events.ONE, "second")
    registry.trigger(Events.ONE)
    registry.unbind(Events.ONE, first)
    registry.trigger(Events.ONE)
    assert seen == ["first", "second", "third", "first", "third", "third"]
    registry.unbind_all(Events.ONE)
    registry.trigger(Events.ONE)
    assert len(seen) == 6
    for misuse in (
        lambda: registry.trigger("TWO"), lambda: registry.bind("TWO", first),
        lambda: registry.unbind("TWO", "first"), lambda: registry.unbind_all("TWO"),
    ):  # fmt: skip
        with pytest.raises(KeyError):
            misuse()
    for events in (3, "ONE", Events.ONE, int, [1], None):
        with pytest.raises(TypeError):
            EventRegistry(events)
    EventRegistry(["one"]).trigger("one")


class NotedCondition(threading.Condition):
    """Tells which threads have begun to wait."""

    def __init__(self):
        super().__init__()
        self.waits = queue.Queue()

    def wait(self, timeout=None):
        self.waits.put(threading.current_thread().name)
        return super().wait(timeout)


class Waiting(ThreadService):
    def __init__(self, workers):
        super().__init__(workers)
        self.go = threading.Event()
        self._condition = NotedCondition()

    def await_waiting(self, name):
        while self._condition.waits.get(timeout=DEADLINE_S) != name:
            pass

    def execute(self, task):
        assert self.go.wait(DEADLINE_S)


def test_H068_service_capacity():
    service = Waiting(12)
    with pytest.raises(RuntimeError):
        service.send(0)
    service.start()
    for i in range(12):
        service.send(i)
    with pytest.raises(ServiceBusy):
        service.send(12, timeout=0)
    thirteenth = threading.Thread(target=service.send, args=(12,), name="thirteenth")
    thirteenth.start()
    service.await_waiting("thirteenth")
    assert thirteenth.is_alive()
    service.go.set()
    thirteenth.join(DEADLINE_S)
    assert not thirteenth.is_alive()
    service.shutdown()
    assert service.state == ServiceState.DEAD
    with pytest.raises(ServiceNoLongerAccept):
        service.send(13)
    with pytest.raises(RuntimeError):
        service.start()


def test_H068_one_worker_that_is_busy():
    service = Waiting(1)
    service.start()
    service.send(0)
    with pytest.raises(ServiceBusy):
        service.send(1, timeout=0)
    service.go.set()
    service.shutdown()
    assert service.state == ServiceState.DEAD


@pytest.mark.parametrize("hook, called", [("before_exec", False), ("after_exec", False),
                                          ("after_sent_back", True), ("after_callback", True)])  # fmt: skip
def test_H069_errors_in_hooks(hook, called):
    seen = []

    class Service(ThreadService):
        def execute(self, task):
            return task.config

        def callback(self, task, result):
            seen.append(result)

    service = Service(1)
    error = ValueError(hook)

    def fail(*_):
        raise error

    setattr(service, hook, fail)
    service.start()
    service.send("result")
    assert service.join(DEADLINE_S)
    assert service.state == ServiceState.DEAD and service.error is error
    assert seen == (["result"] if called else [])


def test_H070_pairs():
    chain = [("name", "str"), ("val", 233), ("float", 233.5)]
    assert pairs(chain) == "name: 'str', val: 233, float: 233.5"


def test_H071_directions():
    assert OptimizeDirection.loads("minimize") is OptimizeDirection.MINIMIZE
    assert OptimizeDirection.loads("Maximize") is OptimizeDirection.MAXIMIZE
    with pytest.raises(ValueError):
        OptimizeDirection.loads("up")


SLEEPING = """
import signal, sys, threading, time
from divisi.tune import hpo, R, uniform

def objective(config, step):
    if step == 1:
        return 5.0
    print("sleeping", flush=True)
    until = time.monotonic() + 600
    while time.monotonic() < until:
        time.sleep(0.01)

result = (hpo(objective).random(silent=True).max_workers(3).grace(1.0).maximize(R)
          .spaces({"x": uniform(0, 1)}).run())
print("workers", sum(thread.name.startswith("divisi-tune") for thread in threading.enumerate()))
print("result", result[1], result.interrupted)
print("handler", signal.getsignal(signal.SIGINT) is signal.default_int_handler)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_H072_signal_returns_the_best_so_far(start_program, number):
    program = start_program(SLEEPING, preamble=False)
    program.wait_line("sleeping")
    program.process.send_signal(number)
    code, out, err = program.end(DEADLINE_S)
    assert code == 0, err
    assert "workers 0" in out and "result 5.0 True" in out and "handler True" in out


NAPPING = """
import signal, threading, time
from divisi.tune import hpo, R, uniform

def objective(config, step):
    if step == 4:
        print("sleeping", flush=True)
    time.sleep(0.5)
    return -step

result = (hpo(objective).random(silent=True).max_workers(3).grace(60.0).maximize(R)
          .spaces({"x": uniform(0, 1)}).run())
print("threads", [thread.name for thread in threading.enumerate()])
print("result", result[1], result.interrupted)
"""


def test_H072_steps_that_sleep_are_let_finish(start_program):
    program = start_program(NAPPING, preamble=False)
    program.wait_line("sleeping")
    program.process.send_signal(signal.SIGINT)
    code, out, err = program.end(DEADLINE_S)
    assert code == 0, err
    assert "threads ['MainThread']" in out and "result -1 True" in out


def test_H072_second_signal_raises_keyboard_interrupt(start_program):
    program = start_program(SLEEPING.replace("grace(1.0)", "grace(600.0)"), preamble=False)
    program.wait_line("sleeping")
    program.process.send_signal(signal.SIGINT)
    program.process.send_signal(signal.SIGTERM)
    code, _, err = program.end(DEADLINE_S)
    assert code != 0 and "KeyboardInterrupt" in err


TRIALS = """
from divisi.tune import hpo, R, uniform
from divisi.tune.scheduler import run_scheduler_local

open("template.py", "w").write('''
import time
main_config = {"x": 0}
if __name__ == "__main__":
    time.sleep(600)
''')
scheduler = run_scheduler_local("template.py", "project")
result = (hpo(scheduler.enable_hpo()).random(silent=True).max_workers(2).grace(0.2).maximize(R)
          .add_event_set(Shout()).spaces({"x": uniform(0, 1)}).run())
print("result", result, flush=True)
scheduler.stop()
"""


def test_H072_signal_ends_trials_that_are_programs(start_program):
    shout = """
from divisi.tune import EventSet
class Shout(EventSet):
    def try_(self, task, index, max_try):
        print("trying", flush=True)
"""
    program = start_program(shout + TRIALS, preamble=False)
    program.wait_line("trying")
    program.process.send_signal(signal.SIGINT)
    code, out, err = program.end(DEADLINE_S)  # also sees that no process is left
    assert code == 0 and "result None" in out, err


def test_target_error_fails_the_step():
    counter = event_counter()
    objective = lambda config: {} if config["a"] % 2 else {"v": config["a"]}  # noqa: E731
    config, _, _ = emitting(objective, 10).maximize(R["v"]).add_event_set(counter).run()
    assert config["a"] == 8 and count(counter, "step_fail") == 5
    with pytest.raises(KeyError):
        emitting(objective, 10).maximize(R["v"]).on_target_error("raise").run()


def test_failure_policy_raise():
    def objective(config):
        raise OSError("broken")

    with pytest.raises(OSError, match="broken"):
        emitting(objective, 5).maximize(R).on_failure("raise").run()
    assert emitting(objective, 5).maximize(R).run() is None
    with pytest.raises(NoSuccessfulTrial) as raised:
        emitting(objective, 5).maximize(R).run(strict=True)
    assert isinstance(raised.value.__cause__, OSError)


def test_exit_inside_of_an_objective_is_a_failed_try():
    def objective(config):
        if config["a"] == 0:
            raise SystemExit(3)
        if config["a"] == 1:
            raise KeyboardInterrupt
        return config["a"]

    assert emitting(objective, 3).maximize(R).run()[0] == {"a": 2}


def test_unknown_option_names_the_nearest():
    with pytest.raises(AttributeError, match="max_steps"):
        hpo(len).grid().max_step(5)
    with pytest.raises(AttributeError, match="init_steps"):
        hpo(len).bayes().init_step(5)
    with pytest.raises(AttributeError):
        hpo(len).grid().seed(5)


def test_timeout_ends_an_endless_search():
    result = (
        hpo(lambda c: c["x"]).random(silent=True).timeout(0.2).maximize(R)
        .spaces({"x": uniform(0, 1)}).run()
    )  # fmt: skip
    assert result is not None and not result.interrupted


def test_no_improvement_ends_the_search():
    calls = []

    def objective(config):
        calls.append(config)
        return -abs(config["a"] - 10)

    config, _, _ = emitting(objective, 1000).maximize(R).no_improvement(5).run()
    assert config["a"] == 10 and len(calls) == 16


def test_cancel_on_stop_ends_running_steps():
    started = threading.Event()

    def objective(config):
        if config["a"] == 0:
            started.set()
            while True:
                time.sleep(0.01)
        assert started.wait(DEADLINE_S)
        return config["a"]

    runner = emitting(objective, 1000).max_workers(2).maximize(R).cancel_on_stop()
    assert runner.stop_when(R >= 3).run()[1] == 3


def test_sessions_start_once_and_push_while_they_run():
    service = Waiting(1)
    session = EmitterSession(Emitter(count=0), None, service)
    assert session.state == SessionState.PENDING
    with pytest.raises(RuntimeError):
        session.push({})
    service.start()
    session.start()
    with pytest.raises(RuntimeError):
        session.start()
    session.join(DEADLINE_S)
    assert session.state == SessionState.DEAD
    assert Emitter.algorithm_name() == "emitter"


def test_log_lines(caplog):
    def objective(config):
        if config["x"] < 0.6:
            raise ValueError("too small")
        if config["x"] == 1.0:
            raise Skip("one", 1)
        return {"v": 3 * config["x"]}

    runner = hpo(objective).grid().max_steps(3).max_workers(1).max_retries(2)
    runner.maximize(R["v"], "value").concern(R["v"] * 2, "twice").spaces({"x": uniform(0.5, 1)})
    with caplog.at_level(logging.INFO):
        runner.run()
    lines = [record.getMessage() for record in caplog.records]
    assert lines[:3] == [
        "Grid algorithm will be used, with max_steps: 3, max_workers: 1, "
        "opt_direction: <OptimizeDirection.MAXIMIZE: 2>",
        "Grid algorithm initialized.",
        "Optimization will be started soon.",
    ]
    assert lines[3:5] == [
        "======================= 1st step =======================",
        "Step initialized, with variables - x: 0.5.",
    ]
    assert lines[5].startswith("Start the 1st running try of function <function")
    assert lines[6] == "Error has occurred - ValueError('too small'), will try again later (1/2)..."
    assert lines[8] == (
        "Error has occurred - ValueError('too small'), max retry limit is reached (2/2)..."
    )
    assert lines[9].startswith("Function running failed, time cost: 0.0")
    assert lines[9].endswith("this step will be skipped and ignored due to this failure.")
    assert caplog.records[9].levelname == "ERROR" and caplog.records[9].exc_info
    assert "with concerned results - value: 2.25, twice: 4.5." in lines
    assert "with arguments: ('one', 1)." in lines
    assert (
        "Current ranklist (1 best record):\n"
        "+-----+------+---------+---------+\n"
        "|   # |    x |   value |   twice |\n"
        "|-----+------+---------+---------|\n"
        "|   2 | 0.75 |    2.25 |     4.5 |\n"
        "+-----+------+---------+---------+"
    ) in lines
    assert lines[-1] == "Iteration is over, search will be ended..."
    assert [ordinal(n) for n in (1, 2, 3, 4, 11, 12, 13, 21, 111, 112)] == [
        "1st", "2nd", "3rd", "4th", "11th", "12th", "13th", "21st", "111th", "112th",
    ]  # fmt: skip


@pytest.mark.parametrize("call", ["maximize", "minimize", "also_maximize", "stop_when", "concern"])
def test_text_is_no_expression(call):
    runner = emitting(lambda config: {"v": 1}, 1)
    if call == "also_maximize":
        runner.maximize(R["v"])
    arguments = ["v", "name"] if call == "concern" else ["v"]
    with pytest.raises(TypeError, match=r"write R\['v'\]"):
        getattr(runner, call)(*arguments)


def test_a_call_without_an_algorithm_names_the_way():
    function = hpo(lambda config: 1)
    with pytest.raises(AttributeError, match=r"choose an algorithm first, as in hpo\(f\)\.auto\(\)\.max_steps"):
        function.max_steps(3)
    with pytest.raises(AttributeError, match="no attribute 'nothing'$"):
        function.nothing()


def test_a_missing_target_names_the_keys_that_are_there():
    with pytest.raises(NoSuccessfulTrial, match=r"R\['reward'\] is missing; the keys there: 'v', 'loss'"):
        emitting(lambda config: {"v": 1, "loss": 2}, 2).maximize(R["reward"]).run(strict=True)


# --- what a search cannot be ---


def test_spaces_of_nothing_are_refused():
    with pytest.raises(TypeError, match=r"spaces takes what is searched, .* not None"):
        hpo(lambda config: 1).random().spaces(None)


def test_spaces_without_a_variable_are_one_step_and_a_warning(caplog):
    calls = []
    hpo(lambda config: calls.append(config) or 1.0).random().max_steps(5).spaces({"y": 2}).minimize(R).run()
    assert calls == [{"y": 2}]
    assert "The spaces have no variable: there is one configuration to try." in caplog.messages


def test_only_a_study_that_is_kept_has_a_name():
    search = hpo(lambda config: 1.0).random(silent=True).max_steps(1).spaces({"x": uniform(0, 1)}).minimize(R)
    with pytest.raises(ValueError, match=r"study_name\('mine'\) names a study that is not kept: call storage"):
        search.study_name("mine").run()
    assert search.enqueue({"x": 0.5}).run().study.name == "mine"


def test_failures_in_a_row_end_the_search(caplog):
    ended = event_counter()

    def objective(config):
        if config["a"] % 4 != 1:
            raise RuntimeError("no")
        return 1

    assert emitting(objective, 40).max_tries(1).maximize(R).max_failures(4).run() is not None
    runner = emitting(objective, 40, silent=False).max_tries(1).maximize(R).max_failures(3).add_event_set(ended)
    assert runner.run().trial_id == 2
    assert ended.seen.count("step") == 5 and ended.seen.count("step_fail") == 4
    assert "The last 3 steps have failed: the search ends." in caplog.messages
    with pytest.raises(ValueError):
        runner.max_failures(0)
