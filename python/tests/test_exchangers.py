"""ContextExchanger, ModelExchanger, PeriodicalModelExchanger, Barrier: programs of several processes."""

import json
import signal

import pytest

MODEL = '''
import math
import numpy as np
from divisi.middleware import *

class Model:
    """The least that an exchanger needs: no torch."""
    def __init__(self, value=0.0):
        self.w = np.full(4, value)
    def state_dict(self):
        return {"w": self.w}
    def load_state_dict(self, state):
        self.w = np.array(state["w"])

def play(role):
    task.add_role(role)

def heard(*events):
    """Gathers these events from now on, so that none is missed before it is waited for."""
    found = Gathered()
    for event in events:
        task.on(event, lambda *_, **__: found.add(event))
    return found
'''

LOADER = MODEL + '''
import pickle, tempfile

class Handle:
    def __init__(self, path):
        self.path = path
    def load(self):
        with open(self.path, "rb") as file:
            return pickle.load(file)

class Loader:
    """Has the methods of a model loader and of a storage loader."""
    def __init__(self, folder, model=None):
        self.folder, self.model, self.count, self.is_started, self.shut_down = folder, model, 0, False, 0
    def start(self):
        self.is_started = True
    def _put(self, data):
        path = os.path.join(self.folder, f"{os.getpid()}_{self.count}")
        self.count += 1
        with open(path, "wb") as file:
            pickle.dump(data, file)
        return Handle(path)
    def save(self, given):
        if self.model is None:
            return self._put(given)
        assert self.is_started
        handle = self._put(self.model.state_dict())
        threading.Thread(target=given, args=(handle,)).start()
    def load(self, handle, callback=None):
        data = handle.load()
        return data if callback is None else threading.Thread(target=callback, args=(data,)).start()
    def shutdown(self):
        self.shut_down += 1
'''

CONTEXTS = '''
def learn(ctx):
    seen.append([len(ctx.trajectories), len(ctx.trajectory_end_idx), len(ctx.episodes), ctx.env_step, ctx.env_episode])
    yield
    ctx.train_iter += 1

def collect(ctx):
    seen.append(ctx.train_iter)
    yield
    ctx.trajectories = [np.random.rand(10, 10) for _ in range(2)]
    ctx.trajectory_end_idx = [1] * 4
    ctx.episodes = [np.random.rand(10, 10) for _ in range(8)]
    ctx.env_step += 1
    ctx.env_episode += 1

seen = []
def run_both(waits=True, **options):
    with task.start(ctx=OnlineRLContext()):
        over = heard("finish")
        play(Role.LEARNER if me() == 0 else Role.COLLECTOR)
        task.use(ContextExchanger(skip_n_iter=1, **options))
        task.use(learn if me() == 0 else collect)
        task.run(max_step=3)
        if me() == 1 and waits:
            over.wait(1)  # a collector that stops first would finish the learner before its third iteration
    tell(me(), seen)
'''

BOTH = "if __name__ == '__main__': Parallel.runner(n_parallel_workers=2)(main)\n"


def test_A100_learner_and_collector_exchange_their_contexts(run_program):
    ended = run_program(MODEL + CONTEXTS + "def main(): run_both()\n" + BOTH).ok()
    nodes = ended.of_nodes()
    assert nodes[0] == [[2, 4, 8, 1, 1], [2, 4, 8, 2, 2], [2, 4, 8, 3, 3]]
    assert nodes[1] == [0, 1, 2]


def test_A100_nobody_waits_for_the_end_of_the_other(run_program):
    ended = run_program(MODEL + CONTEXTS + "def main(): run_both(waits=False)\n" + BOTH).ok()
    nodes = ended.of_nodes()
    # The collector's finish may end the learner before its last iteration.
    assert nodes[0] == [[2, 4, 8, i, i] for i in range(1, len(nodes[0]) + 1)] and 1 <= len(nodes[0]) <= 3
    assert len(nodes[1]) == 3 and nodes[1][0] == 0 and all(seen > 0 for seen in nodes[1][1:])


def test_A100_with_a_storage_loader_the_payload_is_a_handle(run_program, tmp_path):
    program = LOADER + CONTEXTS + f"""
def main():
    loader = Loader({str(tmp_path)!r})
    run_both(storage_loader=loader)
    assert (loader.count, loader.shut_down) == (3 if me() == 1 else 0, 1), vars(loader)
""" + BOTH
    nodes = run_program(program).ok().of_nodes()
    assert [row[:3] for row in nodes[0]] == [[2, 4, 8]] * 3
    assert nodes[1] == [0, 1, 2]


def test_D29_the_event_of_a_role_has_its_plain_name(run_program):
    program = MODEL + """
def main():
    with task.start(ctx=OnlineRLContext()):
        if me() == 0:
            done = heard("heard")
            play(Role.LEARNER)
            task.use(ContextExchanger(timeout=0))
            task.run(max_step=1)
            done.wait(1)
        else:
            came = task.wait_for("context_exchanger_learner")
            tell(me(), came[0][0])
            task.emit("heard", only_remote=True)
""" + BOTH
    assert run_program(program).ok().of_nodes() == {1: {"train_iter": 0}}


def test_D30_a_learner_that_waits_for_data_ends_when_a_peer_finishes(run_program):
    program = MODEL + """
def main():
    with task.start(ctx=OnlineRLContext()):
        if me() == 0:
            play(Role.LEARNER)
            task.use(ContextExchanger())
            task.on_finish(lambda ctx: tell("the learner ended", ctx.total_step))
            task.run()
        else:
            play(Role.COLLECTOR)  # and never sends
            task.use(lambda _: None)
            task.run(max_step=1)
""" + BOTH
    assert run_program(program).ok().results == [["the learner ended", 0]]


def test_D30_a_wait_ends_when_another_thread_finishes_or_a_listener_fails(run_program):
    program = MODEL + """
def main(how):
    with task.start(ctx=OnlineRLContext()):
        play(Role.LEARNER)
        exchanger = ContextExchanger()
        inner = exchanger._waiter.wait
        def wait(*args):
            threading.Thread(target=end).start()
            return inner(*args)
        def end():
            if how == "finish":
                task.finish = True
            else:
                task.emit("broken", only_local=True)
        task.on("broken", lambda: 1 / 0)
        exchanger._waiter.wait = wait
        task.use(exchanger)
        task.run()
    tell("ended")

if __name__ == "__main__":
    Parallel.runner(n_parallel_workers=1)(main, "finish")
    try:
        Parallel.runner(n_parallel_workers=1)(main, "fail")
    except Exception as error:
        tell(type(error).__name__, "division by zero" in str(error))
"""
    assert run_program(program).ok().results == [["ended"], ["ZeroDivisionError", True]]


def test_D31_no_increment_is_lost_or_counted_twice(run_program):
    program = MODEL + """
class Interrupted:
    \'\'\'An increment, during whose addition another thread merges: it has to wait.\'\'\'
    def __radd__(self, other):
        merging.start()
        merging.join(0.2)
        return other + 1

def main():
    global merging
    with task.start(ctx=OnlineRLContext()):
        play(Role.LEARNER)
        exchanger = ContextExchanger(timeout=0)
        merging = threading.Thread(target=exchanger.merge, args=(task.ctx,))
        exchanger.put({"env_step": 5})
        exchanger.put({"env_step": Interrupted()})
        merging.join()
        exchanger.merge(task.ctx)
        tell(task.ctx.env_step)

if __name__ == "__main__":
    Parallel.runner(n_parallel_workers=1)(main)
"""
    assert run_program(program).ok().results == [[6]]


def test_end_indices_of_several_collectors_can_be_shifted(run_program):
    program = MODEL + """
def main():
    for shifts in (False, True):
        with task.start(ctx=OnlineRLContext()):
            play(Role.LEARNER)
            exchanger = ContextExchanger(shift_end_idx=shifts)
            for _ in range(2):
                exchanger.put({"trajectories": [0, 1, 2], "trajectory_end_idx": [0, 2]})
            exchanger.merge(task.ctx)
            tell(task.ctx.trajectory_end_idx)

if __name__ == "__main__":
    Parallel.runner(n_parallel_workers=1)(main)
"""
    assert run_program(program).ok().results == [[[0, 2, 0, 2]], [[0, 2, 3, 5]]]


MODELS = """
def run_both(make_loader=lambda model: None):
    with task.start(ctx=OnlineRLContext()):
        play(Role.LEARNER if me() == 0 else Role.COLLECTOR)
        model, seen = Model(), []
        loader = make_loader(model)
        def train(ctx):
            model.w += 1
        def predict(ctx):
            seen.append(model.w[0])
        task.use(Barrier())  # in step, so that every iteration has its model
        task.use(ModelExchanger(model, loader))
        task.use(Barrier())
        task.use(train if me() == 0 else predict)
        task.run(max_step=3)
    tell(me(), [seen, "torch" in sys.modules, getattr(loader, "shut_down", None)])
"""


def test_A102_the_others_predict_with_the_learners_model(run_program):
    nodes = run_program(MODEL + MODELS + "def main(): run_both()\n" + BOTH).ok().of_nodes()
    assert nodes == {0: [[], False, None], 1: [[0, 1, 2], False, None]}


def test_A102_the_same_with_a_model_loader(run_program, tmp_path):
    main = f"def main(): run_both(lambda model: Loader({str(tmp_path)!r}, model))\n"
    nodes = run_program(LOADER + MODELS + main + BOTH).ok().of_nodes()
    assert nodes[1] == [[0, 1, 2], False, 1]


def test_A102_predictions_change_when_nobody_is_kept_in_step(run_program):
    program = MODEL + """
def main():
    with task.start(ctx=OnlineRLContext()):
        play(Role.LEARNER if me() == 0 else Role.COLLECTOR)
        model, seen = Model(), []
        def train(ctx):
            model.w += 1
        task.use(ModelExchanger(model))
        task.use(train if me() == 0 else lambda ctx: seen.append(model.w[0]))
        task.run(**({} if me() == 0 else {"max_step": 10}))
        if me() == 1:
            tell(seen)
""" + BOTH
    ((seen,),) = run_program(program).ok().results
    assert len(seen) == 10 and seen == sorted(set(seen)), seen


def test_A103_no_model_serves_too_long_when_nobody_is_kept_in_step(run_program):
    program = MODEL + """
def main():
    with task.start(ctx=OnlineRLContext()):
        model, seen = Model(), []
        exchanger = (PeriodicalModelExchanger(model, "send", period=3) if me() == 0 else
                     PeriodicalModelExchanger(model, "receive", period=3, stale_toleration=3))
        task.use(exchanger)
        def step(ctx):
            time.sleep(0.3)
            if me() == 0:
                model.w += 1
            else:
                seen.append(exchanger.model_id)
        task.use(step)
        # The sender runs until the receiver ends: one that is slow is never left without a sender.
        task.run(**({} if me() == 0 else {"max_step": 8}))
        if me() == 1:
            tell(seen)
""" + BOTH
    ((seen,),) = run_program(program).ok().results
    assert len(seen) == 8 and all(seen.count(model) <= 3 for model in seen), seen


def test_a_torch_module_is_exchanged_and_takes_arrays(run_program):
    program = MODEL + """
import torch
def main():
    with task.start(ctx=OnlineRLContext()):
        model = torch.nn.Linear(3, 2)
        seen = []
        task.add_role(Role.LEARNER if me() == 0 else Role.COLLECTOR)
        if me() == 0:
            done = heard("done")
            torch.nn.init.constant_(model.weight, 7.0)
            task.use(ModelExchanger(model))
            task.run(max_step=1)
            task.emit("model_exchanger", {"weight": np.full((2, 3), 8, np.float32), "bias": np.zeros(2, np.float32)},
                      only_remote=True)
            done.wait(1)
        else:
            task.use(ModelExchanger(model))
            task.use(lambda ctx: seen.append(model.weight[0][0].item()))
            task.use(lambda ctx: setattr(task, "finish", 8.0 in seen))
            task.run()
            tell(seen[-1])
            task.emit("done", only_remote=True)
""" + BOTH
    assert run_program(program).ok().results == [[8.0]]


def test_a_deleted_model_is_skipped_and_waited_on(run_program, tmp_path):
    program = LOADER + f"""
def main():
    with task.start(ctx=OnlineRLContext()):
        if me() == 0:
            answers = heard("asked", "done")
            for i, (path, value) in enumerate((("gone", 1), ("there", 2))):
                if path == "there":
                    with open(os.path.join({str(tmp_path)!r}, path), "wb") as file:
                        pickle.dump({{"w": np.full(4, value)}}, file)
                task.emit("model_exchanger", Handle(os.path.join({str(tmp_path)!r}, path)), only_remote=True)
                answers.wait(i + 1)
        else:
            play(Role.COLLECTOR)
            model = Model()
            exchanger = ModelExchanger(model, Loader({str(tmp_path)!r}, model))
            import logging
            class Told(logging.Handler):
                def emit(self, record):
                    tell(record.getMessage().split(":")[0])
                    task.emit("asked", only_remote=True)
            logging.getLogger("divisi").addHandler(Told())
            task.use(exchanger)
            task.run(max_step=2)
            tell(float(model.w[0]))
            task.emit("done", only_remote=True)
""" + BOTH
    results = run_program(program).ok().results
    assert results == [["a model was deleted before it was loaded (longer ttl?)"], [2.0]]


PERIODICAL = """
def main():
    with task.start(ctx=OnlineRLContext()):
        model, seen = Model(), []
        loader = Loader(FOLDER, model) if FOLDER else None
        task.use(Barrier())
        exchanger = (PeriodicalModelExchanger(model, "send", period=3, model_loader=loader) if me() == 0 else
                     PeriodicalModelExchanger(model, "receive", period=3, stale_toleration=3, model_loader=loader))
        task.use(exchanger)
        task.use(Barrier())
        def step(ctx):
            if me() == 0:
                model.w[:] = ctx.total_step
            elif ctx.total_step > 0:
                assert model.w[0] == exchanger.model_id
                seen.append([ctx.total_step, exchanger.model_id])
        task.use(step)
        task.run(max_step=8)
    tell(me(), seen)
"""


def test_A103_a_model_serves_no_longer_than_its_tolerated_steps(run_program):
    ended = run_program(LOADER + "FOLDER = None\n" + PERIODICAL + BOTH).ok()
    assert ended.of_nodes()[1] == [[1, 0], [2, 0], [3, 0], [4, 3], [5, 3], [6, 3], [7, 6]]


def test_D32_A103_the_same_with_a_model_loader(run_program, tmp_path):
    ended = run_program(LOADER + f"FOLDER = {str(tmp_path)!r}\n" + PERIODICAL + BOTH).ok()
    assert ended.of_nodes()[1] == [[1, 0], [2, 0], [3, 0], [4, 3], [5, 3], [6, 3], [7, 6]]


def test_D33_a_model_that_is_too_old_is_looked_at_once(run_program):
    program = MODEL + """
def main():
    with task.start(ctx=OnlineRLContext(total_step=1)):
        model = Model()
        exchanger = PeriodicalModelExchanger(model, "receive", delay_toleration=1000)
        messages = [(5, 1.0, time.time() - 2000), (6, 2.0, time.time())]
        looks, waits = [], []
        inner = exchanger._is_too_old
        exchanger._is_too_old = lambda sent: looks.append(sent) or inner(sent)
        def wait(predicate, timeout):
            assert not predicate(), "it would not wait but spin"
            waits.append(timeout)
            number, value, sent = messages.pop(0)
            exchanger._keep({"id": number, "model": {"w": np.full(4, value)}, "time": sent})
            assert predicate()
            return True
        exchanger._waiter.wait = wait
        task.use(exchanger)
        task.run(max_step=1)
        tell(model.w[0], exchanger.model_id, len(waits), len(looks) < 6)

if __name__ == "__main__":
    Parallel.runner(n_parallel_workers=1)(main)
"""
    assert run_program(program).ok().results == [[2.0, 6, 2, True]]


def test_A103_it_waits_exactly_when_the_model_has_served(run_program):
    program = MODEL + """
def main():
    with task.start(ctx=OnlineRLContext()):
        exchanger, waited = PeriodicalModelExchanger(Model(), "receive", stale_toleration=3), []
        def wait(predicate, timeout):
            waited.append(task.ctx.total_step)
            exchanger._keep({"id": len(waited), "model": {"w": np.zeros(4)}, "time": time.time()})
            return True
        exchanger._waiter.wait = wait
        task.use(exchanger)
        task.run(max_step=9)
        tell(waited)

if __name__ == "__main__":
    Parallel.runner(n_parallel_workers=1)(main)
"""
    assert run_program(program).ok().results == [[[1, 4, 7]]]


def test_versions_come_from_the_context_and_a_restarted_sender_is_heard(run_program):
    program = MODEL + """
def main():
    with task.start(ctx=OnlineRLContext(train_iter=100)):
        model = Model()
        if me() == 0:
            done = heard("done")
            def train(ctx):
                ctx.train_iter += 2
            task.use(PeriodicalModelExchanger(model, "send", period=3, version=lambda ctx: ctx.train_iter))
            task.use(train)
            task.run(max_step=4)
            done.wait(1)
        else:
            got = Gathered()
            task.on("model_exchanger", lambda message: got.add(message["id"]))
            with got.changed:  # the first may be skipped: only the newest counts
                assert got.changed.wait_for(lambda: 106 in got, 60), got
            assert set(got) <= {102, 106}
            got.clear()
            receiver = PeriodicalModelExchanger(model, "receive")
            now = time.time()
            for number, sent in ((50, now), (10, now - 5), (10, now + 5)):  # late, then a sender anew
                receiver._keep({"id": number, "model": {"w": np.full(4, number)}, "time": sent})
                message = receiver._take()
                got.add(message and receiver._load(message) and receiver.model_id)
            tell(got)
            task.emit("done", only_remote=True)
""" + BOTH
    assert run_program(program).ok().results == [[[50, None, 10]]]


def test_a_mode_is_send_or_receive():
    import pytest

    from divisi.middleware import PeriodicalModelExchanger

    with pytest.raises(NotImplementedError, match="'send' or 'receive', not 'both'"):
        PeriodicalModelExchanger(None, "both")


LEARNER_AND_LATE_COMER = MODEL + """
PORTS = [int(port) for port in sys.argv[2:4]]

def main():
    with task.start(ctx=OnlineRLContext()):
        model = Model(3.0 if me() == 0 else 0.0)
        play(Role.LEARNER if me() == 0 else Role.COLLECTOR)
        task.use(EXCHANGER)
        if me() == 0:
            got = Gathered()
            task.on("got", got.add)
            def wait(ctx):
                if ctx.total_step == 1:
                    tell("sent")
                    got.wait(1)
                    tell("first")
                    got.wait(2)
            task.use(wait)
            task.run(max_step=2)
        else:
            over = heard("finish")
            task.run(max_step=2)
            task.emit("got", model.w[0], only_remote=True)
            tell("got", model.w[0])
            over.wait(1)

if __name__ == "__main__":
    node = int(sys.argv[1])
    Parallel.runner(1, protocol="tcp", address="127.0.0.1", ports=PORTS[node], node_ids=node, topology="alone",
                    attach_to=[f"127.0.0.1:{PORTS[0]}"] if node else [])(main)
"""


def late_comers(start_program, free_ports, exchanger):
    ports = free_ports(2)
    source = LEARNER_AND_LATE_COMER.replace("EXCHANGER", exchanger)
    learner = start_program(source, 0, *ports)
    learner.wait_line('"sent"')
    collector = start_program(source, 1, *ports)
    collector.wait_line('"got", 3.0')
    learner.wait_line('"first"')
    collector.process.send_signal(signal.SIGKILL)
    collector.process.wait()
    again = start_program(source, 1, *ports)
    again.wait_line('"got", 3.0')
    learner.end().ok()
    again.end().ok()


def test_who_joins_late_or_restarts_gets_the_newest_model(start_program, free_ports):
    late_comers(start_program, free_ports, "ModelExchanger(model)")


def test_who_joins_late_or_restarts_gets_the_newest_periodical_model(start_program, free_ports):
    late_comers(
        start_program, free_ports,
        'PeriodicalModelExchanger(model, "send" if me() == 0 else "receive")',
    )


def test_A114_without_a_router_the_exchangers_are_void(task):
    from divisi import Role, VoidMiddleware
    from divisi.middleware import ContextExchanger, ModelExchanger

    task.start()
    task.add_role(Role.LEARNER)
    assert isinstance(ContextExchanger(1), VoidMiddleware)
    assert isinstance(ModelExchanger(None), VoidMiddleware)


def test_without_roles_the_exchangers_are_void_and_say_so(run_program):
    program = MODEL + """
def main():
    import logging
    logging.basicConfig()
    with task.start(ctx=OnlineRLContext()):
        tell([type(one).__name__ for one in (ContextExchanger(), ModelExchanger(Model()))])

if __name__ == "__main__":
    Parallel.runner(n_parallel_workers=1)(main)
"""
    ended = run_program(program).ok()
    assert ended.results == [[["VoidMiddleware"] * 2]]
    assert "ContextExchanger does nothing: this node has no role" in ended.err


def test_a_barrier_that_expects_peers_waits_for_them(run_program):
    program = MODEL + """
def main():
    with task.start():
        task.use(Barrier(2 - me(), timeout=60))
        task.run(max_step=3)
    tell(me(), "together")

if __name__ == "__main__":
    Parallel.runner(n_parallel_workers=3)(main)
"""
    assert sorted(run_program(program).ok().of_nodes()) == [0, 1, 2]


def test_a_barrier_says_whom_it_misses(run_program):
    program = MODEL + """
def main():
    with task.start():
        task.use(Barrier(1, timeout=0.2))
        task.run(max_step=1)

if __name__ == "__main__":
    Parallel.runner(n_parallel_workers=1)(main)
"""
    ended = run_program(program)
    assert ended.code != 0
    assert "node 0 expects 1 peers at its barrier; after 0.2 s these are connected: []" in ended.err


# --- the barrier ---

BARRIERS = """
import random
from divisi.middleware import Barrier

def main():
    topology, longest = sys.argv[2], float(sys.argv[3])
    n, times = task.router.n_parallel_workers, []
    with task.start():
        def before(ctx):
            time.sleep(random.uniform(0.2, 1) * longest)
            times.append(time.monotonic())
            yield
            times.append(time.monotonic())
        def after(ctx):
            times.append(time.monotonic())
            yield
            time.sleep(random.uniform(0.2, 1) * longest)
            times.append(time.monotonic())
        task.use(before)
        task.use(Barrier((n - 1 if me() == 0 else 0) if topology == "star" else n - 1 - me()))
        task.use(after)
        task.run(max_step=2)
    tell(me(), times)

if __name__ == "__main__":
    Parallel.runner(**json.loads(sys.argv[1]))(main)
"""


def nobody_passes_before_all_have_come(ended, nodes):
    rows = ended.of_nodes()
    assert set(rows) == set(range(nodes)) and all(len(row) == 8 for row in rows.values())
    # Each step: they come, they go; backward they come, they go.
    for come in (0, 2, 4, 6):
        assert max(row[come] for row in rows.values()) <= min(row[come + 1] for row in rows.values())


@pytest.mark.parametrize("topology", ["star", "mesh"])
def test_A104_four_nodes_step_together(run_program, free_ports, topology):
    options = {"n_parallel_workers": 4, "protocol": "tcp", "address": "127.0.0.1", "ports": free_ports(4),
               "topology": topology}
    nobody_passes_before_all_have_come(run_program(BARRIERS, json.dumps(options), topology, 1).ok(), 4)


def test_A105_who_waits_for_a_node_that_does_not_come_gets_a_timeout_error(run_program, free_ports):
    program = """
from divisi.middleware import Barrier

def main():
    with task.start():
        ended = Gathered()
        task.on("ended", ended.add)
        task.use(Barrier(3 - me(), timeout=5))
        if me() != 2:
            task.use(Barrier(3 - me(), timeout=5))
        try:
            task.run(max_step=2)
            tell(me(), "ended")
        except TimeoutError as error:
            tell(me(), str(error))
        task.emit("ended", me(), only_remote=True)
        ended.wait(3)  # nobody's finish comes before the others are done

if __name__ == "__main__":
    Parallel.runner(**json.loads(sys.argv[1]))(main)
"""
    options = {"n_parallel_workers": 4, "protocol": "tcp", "address": "127.0.0.1", "ports": free_ports(4)}
    told = run_program(program, json.dumps(options)).ok().of_nodes()
    assert told.pop(2) == "ended"
    assert set(told) == {0, 1, 3}
    assert all("2" in text for text in told.values()), told


def test_A106_eight_nodes_step_together(run_program):
    options = {"n_parallel_workers": 8}
    nobody_passes_before_all_have_come(run_program(BARRIERS, json.dumps(options), "mesh", 0.3).ok(), 8)
