"""The reference's message layers, rebuilt from their description so that ours can be measured beside them.

What is kept is what decides the speed: an event loop hands each trigger to a pool of 2 threads; a task sends from a
pool of 3; a payload is {"a": args, "k": kwargs} in pickle's highest protocol; a frame is the topic, two colons and the
payload, on one nng bus socket a node, with the queue lengths nng has by default; the receiver splits, looks at the
topic, unpickles, and hands the event from the router's loop to the task's. Workers are spawned, wait their turn
(index x interval), and sleep at fixed places where the reference does.
"""
import multiprocessing
import os
import pickle
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor

if os.environ.get("DIVISI_BENCH_NNG") == "debian":
    import libnng as nng
else:
    import pynng as nng

LOOP_THREADS = 2
SEND_THREADS = 3
DEFAULT_INTERVAL_S = 1
BEFORE_DIAL_S = 0.1
BEFORE_MAIN_S = 0.3
BEFORE_CLOSE_S = 0.03
JOIN_S = 1


class EventLoop:
    """Listeners by name; every emit becomes a job of the pool."""

    def __init__(self, name="default"):
        self.name = name
        self._listeners = {}
        self._pool = ThreadPoolExecutor(LOOP_THREADS)
        self._error = None
        self._active = True

    def on(self, event, fn):
        """Calls fn for every emit of that name."""
        self._listeners.setdefault(event, []).append(fn)

    def listened(self, event):
        """Whether the name was ever listened to."""
        return event in self._listeners

    def emit(self, event, *args, **kwargs):
        """Queues one trigger; raises what an earlier listener raised."""
        if self._error is not None:
            raise self._error
        if self._active:
            self._pool.submit(self._trigger, event, args, kwargs)

    def stop(self):
        """No more triggers; waits for those that run."""
        self._active = False
        self._listeners = {}
        self._pool.shutdown(wait=True)

    def _trigger(self, event, args, kwargs):
        for fn in list(self._listeners.get(event, ())):
            try:
                fn(*args, **kwargs)
            except Exception as error:
                self._error = error


class Bus:
    """One nng bus socket: listens on one address, dials others."""

    def __init__(self, listen_to, attach_to):
        self._listen_to, self._attach_to = listen_to, attach_to
        self._socket = None
        self._running = True

    def listen(self):
        """Binds, then dials those that are known."""
        self._socket = nng.Bus0()
        self._socket.listen(self._listen_to)
        time.sleep(BEFORE_DIAL_S)
        for address in self._attach_to:
            self._socket.dial(address, block=False)

    def publish(self, topic, data):
        """To every neighbour, interested or not; nothing before `listen` is through."""
        if self._running and self._socket is not None:
            self._socket.send(topic.encode() + b"::" + data)

    def recv(self):
        """(topic, data)."""
        topic, data = self._socket.recv().split(b"::", maxsplit=1)
        return topic.decode(), data

    def stop(self):
        """Closes the socket; a `recv` or `listen` that runs raises Closed."""
        self._running = False
        if self._socket is not None:
            self._socket.close()


class Router:
    """The bus, the thread that listens to it, and the loop for what it hears."""

    def __init__(self, local_id, addresses):
        self.local_id = local_id
        self._bus = Bus(addresses[local_id], addresses[:local_id])  # mesh: each dials those before it
        self._loop = EventLoop("router")
        self._listener = threading.Thread(target=self._listen, name="mq_listener", daemon=True)

    def start(self):
        """Begins to listen."""
        self._listener.start()

    def on(self, topic, fn):
        """Calls fn for every remote event of that topic."""
        self._loop.on(topic, fn)

    def emit(self, topic, *args, **kwargs):
        """Pickles and publishes, in the calling thread."""
        self._bus.publish(topic, pickle.dumps({"a": args, "k": kwargs}, protocol=pickle.HIGHEST_PROTOCOL))

    def stop(self):
        """Closes the bus and waits for the listener."""
        time.sleep(BEFORE_CLOSE_S)
        self._bus.stop()
        self._listener.join(JOIN_S)
        self._loop.stop()

    def _listen(self):
        try:
            self._bus.listen()
            while True:
                topic, data = self._bus.recv()
                if self._loop.listened(topic):
                    payload = pickle.loads(data)
                    self._loop.emit(topic, *payload["a"], **payload["k"])
        except nng.Closed:
            return


class Task:
    """The task-level events of one node."""

    def __init__(self, router):
        self.router = router
        self._loop = EventLoop("task")
        self._pool = ThreadPoolExecutor(SEND_THREADS)

    def on(self, event, fn):
        """A listener of the local loop, and a forwarder from the router."""
        self._loop.on(event, fn)
        self.router.on(f"task.{event}", self._loop.emit)

    def emit_remote(self, event, *args):
        """Queues the send; returns at once."""
        self._pool.submit(self.router.emit, f"task.{event}", event, *args)

    def stop(self):
        """Waits for the sends that are queued, then for the listeners."""
        self._pool.shutdown(wait=True)
        self._loop.stop()


_router = None  # of this worker


class Node:
    """What a measured program sees; ours.py has the same."""

    def __enter__(self):
        self._task = Task(_router)
        self.local_id = _router.local_id
        self.on, self.emit = self._task.on, self._task.emit_remote
        return self

    def __exit__(self, *_):
        self._task.stop()


def run(main, workers, args=(), interval=DEFAULT_INTERVAL_S):
    """Runs main(*args) in that many spawned workers; returns when all have ended."""
    folder = tempfile.gettempdir()
    addresses = [f"ipc://{folder}/divisi_bench_{os.getpid()}_{i}.ipc" for i in range(workers)]
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=_worker, args=(main, args, i, addresses, interval)) for i in range(workers)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    if any(process.exitcode for process in processes):
        raise RuntimeError(f"exit codes {[process.exitcode for process in processes]}")


def _worker(main, args, local_id, addresses, interval):
    global _router
    _router = Router(local_id, addresses)
    time.sleep(local_id * interval)
    _router.start()
    time.sleep(BEFORE_MAIN_S)
    main(*args)
    _router.stop()
