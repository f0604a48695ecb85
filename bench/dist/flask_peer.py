"""flask_peer.py WORKERS SECONDS: what `bench_dist trips` measures, over Flask and requests.

A master and WORKERS slaves, each a process with Flask's own server (threaded, as `app.run` starts it) and one
requests.Session for each peer. A slave has a thread for its task, as the reference has; the master one for each slave.
"""
import json
import logging
import multiprocessing
import queue
import secrets
import socket
import sys
import threading
import time
import uuid
from statistics import quantiles

import requests
from flask import Flask, request

CPUS = 20
logging.getLogger("werkzeug").setLevel(logging.ERROR)


def success(message):
    return {"success": True, "code": 0, "message": message, "data": None}


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def serve(app, port):
    """The server of `app.run`, on a thread; returns when it answers."""
    run = {"host": "127.0.0.1", "port": port, "threaded": True}
    sys.modules["flask.cli"].show_server_banner = lambda *_: None
    threading.Thread(target=app.run, kwargs=run, daemon=True).start()
    end = time.monotonic() + 60
    while time.monotonic() < end:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
    sys.exit("flask_peer.py: the server does not answer")


class Peer:
    """Calls to one other process."""

    def __init__(self, address, token):
        self.session, self.address = requests.Session(), address
        self.headers = {"Channel": "0", "Token": token}

    def call(self, method, path, body):
        answer = self.session.request(method, self.address + path, data=json.dumps(body), headers=self.headers)
        answer.raise_for_status()
        if not answer.json()["success"]:
            sys.exit(f"flask_peer.py: {answer.json()}")


def slave(ports):
    app, tasks = Flask("slave"), queue.Queue()
    master = {}

    @app.post("/connect")
    def connect():
        master["token"] = request.headers["Token"]
        master["peer"] = Peer(json.loads(request.data)["master"]["address"], master["token"])
        return success("Connect success.")

    @app.post("/task/new")
    def new_task():
        if request.headers.get("Channel") != "0" or request.headers.get("Token") != master.get("token"):
            return {"success": False, "code": 302, "message": "Master token does not match.", "data": None}, 403
        tasks.put(json.loads(request.data))
        return success("Task received!")

    port = free_port()
    serve(app, port)
    ports.put(port)
    while True:
        task = tasks.get()
        known = task["data"]["name"] == "resource"
        result = {"gpu": 1, "cpu": CPUS} if known else {"message": "task name error"}
        master["peer"].call("PUT", f"/slave/task/{'complete' if known else 'fail'}",
                            {"task": {"id": task["task"]["id"]}, "result": result})


class Master:
    def __init__(self):
        app, self.results = Flask("master"), {}
        self.tokens = set()

        @app.put("/slave/task/complete")
        def complete():
            if request.headers.get("Channel") != "0" or request.headers.get("Token") not in self.tokens:
                return {"success": False, "code": 502, "message": "Slave token is unknown.", "data": None}, 403
            body = json.loads(request.data)
            self.results.pop(body["task"]["id"]).put(body["result"])
            return success("Result received!")

        self.address = f"http://127.0.0.1:{(port := free_port())}"
        serve(app, port)

    def connect(self, port):
        token = secrets.token_hex(32)
        self.tokens.add(token)
        peer = Peer(f"http://127.0.0.1:{port}", token)
        peer.call("POST", "/connect", {"master": {"address": self.address}, "data": {}})
        return peer

    def trips(self, peer, seconds, sent, times, wrong):
        end = time.perf_counter() + seconds
        while (begin := time.perf_counter()) < end:
            task, result = str(uuid.uuid4()), queue.SimpleQueue()
            self.results[task] = result
            sent.append(task)
            peer.call("POST", "/task/new", {"task": {"id": task}, "data": {"name": "resource"}})
            if result.get(timeout=60)["cpu"] != CPUS:
                wrong.append(task)
            times.append(time.perf_counter() - begin)


def main():
    workers, seconds = int(sys.argv[1]), float(sys.argv[2])
    context = multiprocessing.get_context("spawn")
    ports = context.Queue()
    for _ in range(workers):
        context.Process(target=slave, args=(ports,), daemon=True).start()
    master = Master()
    peers = [master.connect(ports.get(timeout=60)) for _ in range(workers)]
    for length in (seconds / 10, seconds):  # the first one warms up
        sent, times, wrong, begin = [], [], [], time.perf_counter()
        threads = [threading.Thread(target=master.trips, args=(peer, length, sent, times, wrong)) for peer in peers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        whole = time.perf_counter() - begin
    cuts = quantiles(times, n=100)
    print(json.dumps({"per_s": len(times) / whole, "p50_us": 1e6 * cuts[49], "p99_us": 1e6 * cuts[98],
                      "sent": len(sent), "received": len(times), "disordered": len(wrong)}))


if __name__ == "__main__":
    main()
