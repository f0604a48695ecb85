"""Replay: a ring of transitions, a limit of samples per insert, and both as a service by events.

The events are the router's; C++ has the same. `total` is the sum of env_steps over all collectors.

    replay -> all         replay.here        (node, a number that is new with every process)
    collector -> replay   replay.hello       (node, protocol, size of an observation): C++ asks first
    replay -> collector   replay.welcome     ()
    collector -> replay   replay.insert      (node, seq, transitions, env_steps, episodes, return_sum)
    replay -> collector   replay.inserted    (seq, total), when it may go on
    learner -> replay     replay.sample      (node, request, batch_size, batches)
    replay -> learner     replay.samples     (request, transitions with index and weight, total)
    learner -> replay     replay.priorities  (index, priority); this replay samples evenly and ignores it
"""

import collections
import logging
import math
import threading
import time

import numpy as np

from divisi import Error, Waiter, task

FIELDS = {
    "observation": np.float32,
    "action": np.int32,
    "reward": np.float32,
    "next_observation": np.float32,
    "not_done": np.float32,
    "discount": np.float32,
}
"""Of a batch of transitions, with their types."""

PROTOCOL = 1
"""Of the events; C++ has the same."""

_log = logging.getLogger("cartpole")


def arrays_of(transitions, discount_factor):
    """From the collector's dicts to a dict of arrays."""
    columns = {
        "observation": [one["obs"] for one in transitions],
        "action": [one["action"] for one in transitions],
        "reward": [one["reward"] for one in transitions],
        "next_observation": [one["next_obs"] for one in transitions],
        "not_done": [not one["done"] for one in transitions],
        "discount": [one.get("value_gamma", discount_factor) for one in transitions],
    }
    return {key: np.asarray(columns[key], dtype) for key, dtype in FIELDS.items()}


class Replay:
    """The latest `capacity` transitions as arrays. Not for several threads."""

    def __init__(self, capacity, obs_shape, seed):
        shapes = {"observation": (obs_shape,), "next_observation": (obs_shape,)}
        self._arrays = {
            key: np.zeros((capacity, *shapes.get(key, ())), dtype) for key, dtype in FIELDS.items()
        }
        self._capacity = capacity
        self._random = np.random.default_rng(seed)
        self.inserted = 0

    def __len__(self):
        return min(self.inserted, self._capacity)

    def insert(self, transitions):
        count = len(transitions["action"])
        places = (self.inserted + np.arange(count)) % self._capacity
        for key, array in self._arrays.items():
            array[places] = transitions[key]
        self.inserted += count

    def push(self, transition, _=None):
        """One of the collector's dicts: as the middleware of one process want it."""
        self.insert(arrays_of([transition], 1.0))

    def sample(self, size, needed=None):
        """So many, evenly and with replacement; ValueError while there are fewer than `needed`."""
        if len(self) < (needed or size):
            raise ValueError(f"{needed or size} transitions are needed, there are {len(self)}")
        index = self._random.integers(len(self), size=size)
        batch = {key: array[index] for key, array in self._arrays.items()}
        return {**batch, "index": index.astype(np.int64), "weight": np.ones(size, np.float32)}


class Limiter:
    """Keeps samples and inserts in step: `samples_per_insert` of the ones for each of the others, give or
    take `slack` samples, once there are `min_size` transitions."""

    def __init__(self, samples_per_insert, min_size, slack):
        self._ratio, self._min_size, self._slack = samples_per_insert, min_size, slack
        self._inserted = self._sampled = 0

    def _ahead(self):
        return self._ratio * (self._inserted - self._min_size) - self._sampled

    def insert(self, count):
        self._inserted += count

    def may_insert(self):
        return self._ahead() <= self._slack

    def may_sample(self, count):
        return self._inserted >= self._min_size and self._ahead() - count >= -self._slack

    def sample(self, count):
        self._sampled += count

    @classmethod
    def of(cls, cfg):
        learn, collect = cfg.policy.learn, cfg.policy.collect
        request = learn.update_per_collect * learn.batch_size
        ratio = cfg.policy.other.replay_buffer.samples_per_insert or request / collect.n_sample
        # Room for a few requests: both sides always have one under way.
        return cls(ratio, learn.batch_size, max(4 * request, 4 * ratio * collect.n_sample))


class ReplayService:
    """A replay behind a limiter. What has to wait is answered when the limiter lets it. Threads: any."""

    def __init__(self, replay, limiter, total=0):
        self._lock = threading.RLock()
        self._replay, self._limiter = replay, limiter
        self._total = total
        self._seen = collections.defaultdict(lambda: collections.deque(maxlen=16))  # node -> seq
        self._held_inserts = collections.deque()  # answers
        self._held_samples = collections.deque()  # (batch_size, batches, answer)

    def serve(self, router, is_the_replay):
        """Listens to the events, and tells everybody who comes that the replay is here. `is_the_replay()`:
        False while another node has it."""
        life = time.time_ns() // 1000

        def announce(node):
            if is_the_replay():
                _tell(router, node, "replay.here", router.node_id, life)

        def insert(node, seq, transitions, env_steps, _episodes, _return_sum):
            self.insert(node, seq, transitions, env_steps,
                        lambda total: _tell(router, node, "replay.inserted", seq, total))

        def sample(node, request, batch_size, batches):
            self.sample(batch_size, batches, lambda batch, total: _tell(
                router, node, "replay.samples", request, batch, total))

        def hello(node, protocol, size):
            if protocol == PROTOCOL:
                _tell(router, node, "replay.welcome")
            else:
                _tell(router, node, "replay.refused",
                      f"node {node} speaks version {protocol} of the replay's events, this replay version {PROTOCOL}")

        for event in ("peer_joined", "peer_back"):
            router.on(event, announce)
        router.on("replay.hello", hello)
        router.on("replay.insert", insert)
        router.on("replay.sample", sample)
        router.on("replay.priorities", lambda _index, _priority: None)
        for peer in router.peers():
            announce(peer["node_id"])

    def insert(self, node, seq, transitions, env_steps, answer):
        """What a collector repeats, in doubt, is answered and not inserted again."""
        with self._lock:
            if seq not in self._seen[node]:
                self._seen[node].append(seq)
                self._replay.insert(transitions)
                self._limiter.insert(len(transitions["action"]))
                self._total += env_steps
            self._held_inserts.append(answer)
            self._pump()

    def sample(self, batch_size, batches, answer):
        with self._lock:
            self._held_samples.append((batch_size, batches, answer))
            self._pump()

    def _pump(self):
        while True:
            if self._held_samples and self._limiter.may_sample(math.prod(self._held_samples[0][:2])):
                batch_size, batches, answer = self._held_samples.popleft()
                self._limiter.sample(batch_size * batches)
                answer(self._replay.sample(batch_size * batches, needed=1), self._total)
            elif self._held_inserts and self._limiter.may_insert():
                self._held_inserts.popleft()(self._total)
            else:
                return


def _tell(router, node, event, *args):
    try:
        router.emit(event, *args, to=node)
    except Error as error:  # it is gone; as a new process it asks again
        _log.info("%s for node %d: %s", event, node, error)


class _Client:
    """What the collector's and the learner's end have in common: where the replay is."""

    def __init__(self, where):
        self._where = where  # the node id of the replay, or None while there is none
        self._waiter = Waiter(task)
        for event in ("peer_joined", "peer_back"):  # the latter perhaps as a new process
            task.router.on(event, self._on_joined)

    def _on_joined(self, node):
        with self._waiter.changed:
            if node == self._where():
                self._again(node)
            self._waiter.wake()

    @staticmethod
    def _first_number():
        # No process repeats the numbers of the one whose place it took.
        return time.time_ns() // 1000

    def _node(self):
        """Waits for it; None at the end of the task."""
        self._waiter.wait(lambda: self._where() is not None)
        return self._where()


class Inserter(_Client):
    """A collector's end: at most `AT_ONCE` inserts without an answer; they are sent again when the replay
    comes back as a new process. `total_env_step` is what the replay last said."""

    AT_ONCE = 2

    def __init__(self, where):
        self._unanswered = collections.OrderedDict()  # guarded by the waiter's condition, as the rest
        self._seq = self._first_number()
        self.total_env_step = 0
        super().__init__(where)
        task.router.on("replay.inserted", self._on_inserted)

    def insert(self, transitions, env_steps, episodes, return_sum):
        """False at the end of the task."""
        if not self._waiter.wait(lambda: len(self._unanswered) < self.AT_ONCE):
            return False
        node = self._node()
        if node is None:
            return False
        with self._waiter.changed:
            args = (task.router.node_id, self._seq, transitions, env_steps, episodes, float(return_sum))
            self._unanswered[self._seq] = args
            self._seq += 1
        _tell(task.router, node, "replay.insert", *args)
        return True

    def _on_inserted(self, seq, total):
        with self._waiter.changed:
            self._unanswered.pop(seq, None)
            self.total_env_step = total
            self._waiter.wake()

    def _again(self, node):
        for args in self._unanswered.values():
            _tell(task.router, node, "replay.insert", *args)


class Sampler(_Client):
    """The learner's end: `AT_ONCE` requests are always under way, so that a batch is there when the last
    one is done. `service`: a replay of this process, used while there is no other."""

    AT_ONCE = 2

    def __init__(self, where, service, batch_size, batches):
        self._service, self._batch_size, self._batches = service, batch_size, batches
        self._requests = self._first_number()
        self._asked = set()  # guarded by the waiter's condition, as the next
        self._ready = collections.deque()
        super().__init__(where)
        task.router.on("replay.samples", self._on_samples)

    def next(self):
        """(transitions, total); None at the end of the task."""
        self._ask()
        if not self._waiter.wait(lambda: self._ready):
            return None
        with self._waiter.changed:
            came = self._ready.popleft()
        self._ask()
        return came

    def _ask(self):
        while True:
            with self._waiter.changed:
                if len(self._asked) + len(self._ready) >= self.AT_ONCE:
                    return
                request, self._requests = self._requests, self._requests + 1
                self._asked.add(request)
            self._send(self._where(), request)

    def _send(self, node, request):
        if node is not None:
            me = task.router.node_id
            _tell(task.router, node, "replay.sample", me, request, self._batch_size, self._batches)
        else:
            self._service.sample(self._batch_size, self._batches,
                                 lambda batch, total: self._on_samples(request, batch, total))

    def _on_samples(self, request, batch, total):
        with self._waiter.changed:
            if request in self._asked:
                self._asked.discard(request)
                self._ready.append((batch, total))
                self._waiter.wake()

    def _again(self, node):
        for request in sorted(self._asked):
            self._send(node, request)
