"""Round trips of the supervisor, beside the design it replaces: one multiprocessing.Queue a child, one for replies."""
import multiprocessing
import queue
import threading
import time

CHILDREN = 3


class Counter:
    """What a child does: next to nothing."""

    def __init__(self):
        self.steps = 0

    def step(self, action):
        """Counts."""
        self.steps += action
        return self.steps


class Queues:
    """The peer: payloads go through queues, which pickle and write in a thread of their own for processes."""

    def __init__(self, kind):
        from divisi.supervisor import RecvPayload
        context = multiprocessing.get_context("fork")
        make, start = (context.Queue, context.Process) if kind == "process" else (queue.Queue, threading.Thread)
        self._reply = RecvPayload
        self._replies = make()
        self._requests = [make() for _ in range(CHILDREN)]
        self._children = [start(target=self._serve, args=(requests,), daemon=True) for requests in self._requests]
        for child in self._children:
            child.start()

    def send(self, payload):
        """To one child."""
        self._requests[payload.proc_id].put(payload)

    def recv(self):
        """From anyone."""
        return self._replies.get()

    def shutdown(self):
        """Ends the children."""
        for requests in self._requests:
            requests.put(None)
        for child in self._children:
            child.join()

    def _serve(self, requests):
        target = Counter()
        while True:
            payload = requests.get()
            if payload is None:
                return
            data = getattr(target, payload.method)(*payload.args, **payload.kwargs)
            self._replies.put(self._reply(payload.proc_id, payload.req_id, payload.method, data))


def round_trips(side, kind, trips):
    """Rates of request and reply: one at a time, one for each child at a time, and ten for each."""
    from divisi.supervisor import SendPayload, Supervisor
    if side == "ours":
        pool = Supervisor(kind)
        for _ in range(CHILDREN):
            pool.register(Counter)
        pool.start_link()
    else:
        pool = Queues(kind)
    rates, came = {}, 0
    for name, window in (("warm", 1), ("serial", 1), ("each", CHILDREN), ("window", 10 * CHILDREN)):
        begin, out = time.perf_counter(), 0
        for number in range(trips):
            pool.send(SendPayload(proc_id=number % CHILDREN, method="step", args=[1]))
            out += 1
            if out == window:
                pool.recv()
                out -= 1
        while out:
            pool.recv()
            out -= 1
        rates[f"{name}_per_s"] = trips / (time.perf_counter() - begin)
        came += trips
    pool.shutdown()
    return {**rates, "sent": came, "received": came, "disordered": 0}
