"""Peers of the interaction protocol written from its text, with nothing but http.server, http.client and json.

A ForeignMaster drives slaves, a ForeignSlave serves masters, a FakeDiServer lists workers. Program runs one of ours.
"""

import contextlib
import http.client
import http.server
import json
import os
import pathlib
import secrets
import subprocess
import threading
import time
import uuid

BUILD = pathlib.Path(os.environ.get("DIVISI_BUILD", pathlib.Path(__file__).parents[2] / "build" / "release"))
DEADLINE = 60  # seconds; only a hang ever waits for it


def eventually(holds, complaint):
    end = time.monotonic() + DEADLINE
    while not holds():
        assert time.monotonic() < end, complaint
        time.sleep(0.01)


class Program:
    """One of our test programs; what it prints is kept line by line."""

    def __init__(self, name, **arguments):
        self.process = subprocess.Popen(
            [BUILD / "tests" / name, *(f"{key}={value}" for key, value in arguments.items())],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.lines, self.errors = [], []
        self._readers = [threading.Thread(target=self._read, args=pair, daemon=True)
                         for pair in ((self.process.stdout, self.lines), (self.process.stderr, self.errors))]
        for reader in self._readers:
            reader.start()
        eventually(lambda: self.said("listening ") or self.process.poll() is not None, "it does not listen")
        assert self.said("listening "), self.errors
        words = next(line for line in self.lines if line.startswith("listening ")).split()
        self.port = int(words[1])
        self.self_token = words[2] if len(words) > 2 else None
        self.url = f"127.0.0.1:{self.port}"

    def _read(self, stream, lines):
        for line in stream:
            lines.append(line.rstrip("\n"))

    def said(self, text):
        return any(text in line for line in list(self.lines))

    def place(self, text):
        return next(i for i, line in enumerate(self.lines) if text in line)

    def wait(self):
        code = self.process.wait(DEADLINE)
        for reader in self._readers:
            reader.join(DEADLINE)
        return code

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(DEADLINE)


def request(url, method, path, body=None, token=None, channel=0, raw=None, timeout=30):
    """(HTTP status, decoded answer) of one request; a header whose value is None is left out."""
    host, port = url.rsplit("/", 1)[-1].split(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=timeout)
    headers = {}
    if channel is not None:
        headers["Channel"] = str(channel)
    if token is not None:
        headers["Token"] = token
    with contextlib.closing(connection):
        connection.request(method, path, raw if raw is not None else json.dumps(body or {}), headers)
        answer = connection.getresponse()
        text = answer.read()
        return answer.status, json.loads(text) if text.startswith(b"{") else text


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128


class Served:
    """An HTTP server on a free port of 127.0.0.1; answer(method, path, headers, body) gives (status, object)."""

    def __init__(self):
        served = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def _serve(self):
                length = int(self.headers.get("Content-Length") or 0)
                body = json.loads(self.rfile.read(length) or b"{}")
                status, answer = served.answer(self.command, self.path, self.headers, body)
                if status is None:
                    return  # it goes away without a word
                text = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            do_GET = do_POST = do_PUT = do_DELETE = _serve

            def log_message(self, *_):
                pass

        self.server = _Server(("127.0.0.1", 0), Handler)
        self.port = self.server.server_address[1]
        self.url = f"127.0.0.1:{self.port}"
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True)
        self.thread.start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def good(message="Success.", data=None):
    return 200, {"success": True, "code": 0, "message": message, "data": data}


def bad(status, code, message="Failed."):
    return status, {"success": False, "code": code, "message": message, "data": None}


class ForeignMaster(Served):
    """Section 7.3: heartbeats and results of slaves that it connected to."""

    def __init__(self, channel=0):
        super().__init__()
        self.channel = channel
        self.tokens = {}  # token -> url of the slave
        self.heartbeats = []
        self.results = {}  # task id -> ("complete" or "fail", result)
        self.forgets = False  # every slave token is unknown

    def answer(self, method, path, headers, body):
        if headers.get("Channel") is None:
            return bad(400, 201)
        if int(headers["Channel"]) != self.channel:
            return bad(403, 202)
        token = headers.get("Token")
        if token is None:
            return bad(400, 501)
        if self.forgets or token not in self.tokens:
            return bad(403, 502)
        if (method, path) == ("GET", "/slave/heartbeat"):
            assert body == {}
            self.heartbeats.append(token)
            return good("Received!")
        if method == "PUT" and path in ("/slave/task/complete", "/slave/task/fail"):
            if "id" not in body.get("task", {}):
                return bad(200, 601)
            self.results[body["task"]["id"]] = (path.rsplit("/", 1)[1], body["result"])
            return good("Result received!")
        return bad(404, 1)

    def connect(self, url, token=None):
        token = token or secrets.token_hex(32)
        self.tokens[token] = url
        status, answer = request(url, "POST", "/connect", token=token, channel=self.channel, body={
            "master": {"address": f"http://127.0.0.1:{self.port}"}, "data": {}})
        return token, status, answer

    def task(self, token, data):
        """Its end: ("complete" or "fail", result)."""
        task_id = self.start(token, data)
        eventually(lambda: task_id in self.results, f"no result of {data}")
        return self.results[task_id]

    def start(self, token, data):
        task_id = str(uuid.uuid4())
        status, answer = request(self.tokens[token], "POST", "/task/new", token=token, channel=self.channel,
                                 body={"task": {"id": task_id}, "data": data})
        assert (status, answer["message"]) == (200, "Task received!"), answer
        return task_id

    def disconnect(self, token):
        return request(self.tokens[token], "DELETE", "/disconnect", {"data": {}}, token, self.channel)


class ForeignSlave(Served):
    """Section 7.2: one master, one task at a time, heartbeats. work(data) gives (completed, result)."""

    def __init__(self, work, heartbeat=0.2):
        super().__init__()
        self.work = work
        self.interval = heartbeat
        self.master = None  # (url, token)
        self.busy = False
        self.connections = 0
        self.names = []
        self.dead = False
        self.lock = threading.Lock()

    def answer(self, method, path, headers, body):
        if self.dead:
            return None, None
        if headers.get("Channel") != "0":
            return bad(403, 202)
        token = headers.get("Token")
        assert len(token) == 64 and all(c in "0123456789abcdefABCDEF" for c in token)
        with self.lock:
            if (method, path) == ("POST", "/connect"):
                if self.master:
                    return bad(400, 501)
                self.master = (body["master"]["address"], token)
                self.connections += 1
                threading.Thread(target=self._beat, args=(self.master,), daemon=True).start()
                return good("Connect success.")
            if self.master is None:
                return bad(400, 502)
            if token != self.master[1]:
                return bad(403, 302)
            if (method, path) == ("DELETE", "/disconnect"):
                self.master = None
                return good("Disconnect success.")
            if (method, path) == ("POST", "/task/new"):
                if self.busy:
                    return bad(400, 601)
                self.busy = True
                threading.Thread(target=self._run, args=(self.master, body), daemon=True).start()
                return good("Task received!")
        return bad(404, 1)

    def _run(self, master, body):
        self.names.append(body["data"]["name"])
        completed, result = self.work(body["data"])
        with self.lock:
            self.busy = False
        if completed is None or self.dead:
            return
        with contextlib.suppress(OSError):
            request(master[0], "PUT", "/slave/task/complete" if completed else "/slave/task/fail",
                    {"task": {"id": body["task"]["id"]}, "result": result}, master[1])

    def _beat(self, master):
        while not self.dead and self.master == master:
            time.sleep(self.interval)
            try:
                status, _ = request(master[0], "GET", "/slave/heartbeat", token=master[1])
            except OSError:
                status = None
            if status != 200:
                with self.lock:
                    if self.master == master:
                        self.master = None
                return


def collector(records, pace=0.0):
    """work() of a collector whose tasks have so many records."""
    state = {}

    def work(data):
        name = data["name"]
        if name == "resource":
            return True, {"gpu": 1, "cpu": 20}
        if name == "collector_start_task":
            state.update(task=data["task_info"], sent=0)
            assert {"task_id", "buffer_id", "collector_id", "resource_info"} <= set(data["task_info"])
            return True, {"message": "collector task has started"}
        if name == "collector_data_task":
            time.sleep(pace)
            common = {"task_id": state["task"]["task_id"], "buffer_id": state["task"]["buffer_id"]}
            if state["sent"] >= records:
                return True, {"collector_done": True, "cur_sample": state["sent"], **common}
            state["sent"] += 1
            return True, {"data_id": str(uuid.uuid4()), "policy_iter": 0, "env_id": 0, "unroll_len": 1,
                          "priority": 1.0, **common}
        if name == "collector_close_task":
            return True, {"eval_flag": False, "train_iter": 0, "real_episode_count": 1, "step_count": state["sent"],
                          "reward_mean": 0.5, "task_id": state["task"]["task_id"]}
        return False, {"message": "task name error"}

    return work


def learner(iterations, batch=4):
    """work() of a learner that is done after so many batches."""
    state = {}

    def work(data):
        name = data["name"]
        if name == "resource":
            return True, {"gpu": 1}
        if name == "learner_start_task":
            state.update(task=data["task_info"], step=0)
            assert {"task_id", "policy_id", "buffer_id"} <= set(data["task_info"])
            return True, {"message": "learner task has started"}
        common = {"task_id": state["task"]["task_id"], "buffer_id": state["task"]["buffer_id"]}
        if name == "learner_get_data_task":
            return True, {"batch_size": batch, "cur_learner_iter": state["step"], **common}
        if name == "learner_learn_task":
            assert len(data["data"]) == batch and all("data_id" in record for record in data["data"])
            state["step"] += 1
            return True, {"info": {"learner_step": state["step"], "priority_info": {"p": [1.0] * batch},
                                   "learner_done": state["step"] >= iterations}, **common}
        if name == "learner_close_task":
            return True, common
        return False, {"message": "task name error"}

    return work


class FakeDiServer(Served):
    """/v1alpha1/replicas from two lists; `keyed` answers objects keyed by URL."""

    def __init__(self, collectors, learners, keyed=False):
        super().__init__()
        self.collectors = list(collectors)
        self.learners = list(learners)
        self.keyed = keyed
        self.broken = 0  # so many requests are answered 404, as by a server whose cache is empty
        self.requests = []

    def replicas(self, collectors, learners):
        shape = (lambda urls: {url: {} for url in urls}) if self.keyed else list
        return {"namespace": "default", "coordinator": "dijob-example-1-coordinator",
                "collectors": shape(collectors), "learners": shape(learners)}

    def answer(self, method, path, headers, body):
        self.requests.append((method, path, body))
        if self.broken > 0:
            self.broken -= 1
            return 404, {"success": False, "code": 1, "message": "pod: default/x not exists in cache",
                         "data": {"namespace": "", "coordinator": "", "collectors": None, "learners": None}}
        if method == "POST" and path == "/v1alpha1/replicas/failed":
            return good("successfully recreate replicas", self.replicas([], []))
        if method == "DELETE":
            gone = [self.collectors.pop() for _ in range(body["collectors"]["replicas"])]
            return good("successfully delete replicas", self.replicas(gone, []))
        return good("successfully get replicas", self.replicas(self.collectors, self.learners))
