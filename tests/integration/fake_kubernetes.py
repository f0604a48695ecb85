"""An API server of Kubernetes for one process under test: objects in memory, lists, watches, merge patches.

    with FakeKubernetes() as cluster:
        cluster.put("/apis/diengine.opendilab.org/v2alpha1", "dijobs", {...})
        start(["di-server", "--kubeconfig", cluster.kubeconfig(folder)])

A test may say what commands in pods print (`execute`), what their logs are (`logs`), which rights
are missing (`denied`), and which requests fail (`fault`).

No schemas, no admission. What a real API server does is shown by tests/kubernetes.
"""

import base64
import hashlib
import http.server
import json
import pathlib
import struct
import threading
import urllib.parse
import uuid


class FakeKubernetes:
    def __init__(self):
        self.objects = {}  # (collection, space, name) -> object
        self.changes = []  # (version, collection, type, object)
        self.changed = threading.Condition()
        self.closing = False
        self.generation = 0  # of watches: those of an older one end
        self.execute = None  # (pod, command) -> (standard output, exit code)
        self.logs = {}  # by pod
        self.denied = set()  # "verb resource" or "verb resource/subresource"
        self.fault = None  # (method, path) -> None, a status, or "drop"
        self.requests = []  # (method, path without query)
        cluster = self

        class Handler(_Handler):
            owner = cluster

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        with self.changed:
            self.closing = True
            self.changed.notify_all()
        self.server.shutdown()
        self.server.server_close()

    def kubeconfig(self, folder):
        path = pathlib.Path(folder, "kubeconfig")
        path.write_text(json.dumps({
            "apiVersion": "v1", "kind": "Config", "current-context": "fake",
            "clusters": [{"name": "fake", "cluster": {"server": f"http://127.0.0.1:{self.server.server_port}"}}],
            "users": [{"name": "fake", "user": {}}],
            "contexts": [{"name": "fake", "context": {"cluster": "fake", "user": "fake"}}],
        }))
        return str(path)

    def put(self, prefix, plural, thing):
        metadata = thing.setdefault("metadata", {})
        key = (f"{prefix}/{plural}", metadata.get("namespace", ""), metadata["name"])
        with self.changed:
            return self._store(key, thing)

    def remove(self, prefix, plural, space, name):
        with self.changed:
            return self._delete((f"{prefix}/{plural}", space, name))

    def names(self, collection):
        with self.changed:
            return sorted(name for (of, _, name) in self.objects if of.endswith(f"/{collection}"))

    def wait_for(self, condition, seconds=60):
        """Until `condition(self)` is true, looked at whenever something has changed."""
        with self.changed:
            assert self.changed.wait_for(lambda: condition(self), seconds), "it did not happen"

    def cut_watches(self):
        with self.changed:
            self.generation += 1
            self.changed.notify_all()

    def pods(self, role):
        with self.changed:
            return [each for (collection, _, _), each in sorted(self.objects.items())
                    if collection == "/api/v1/pods" and each["metadata"].get("labels", {}).get("replica-type") == role]

    # --- with self.changed held ---

    def _store(self, key, thing):
        version = len(self.changes) + 1
        known = key in self.objects
        metadata = thing["metadata"]
        metadata["resourceVersion"] = str(version)
        metadata.setdefault("uid", str(uuid.uuid4()))
        metadata.setdefault("creationTimestamp", "2026-01-01T00:00:00Z")
        self.objects[key] = thing
        self.changes.append((version, key[0], "MODIFIED" if known else "ADDED", json.loads(json.dumps(thing))))
        self.changed.notify_all()
        return thing

    def _delete(self, key):
        thing = self.objects.pop(key)
        version = len(self.changes) + 1
        thing["metadata"]["resourceVersion"] = str(version)
        self.changes.append((version, key[0], "DELETED", thing))
        self.changed.notify_all()
        return thing


def _websocket_length(size):
    if size < 126:
        return bytes([size])
    return b"\x7e" + struct.pack(">H", size) if size < 1 << 16 else b"\x7f" + struct.pack(">Q", size)


def _merge(onto, patch):
    for key, value in patch.items():
        if value is None:
            onto.pop(key, None)
        elif isinstance(value, dict):
            _merge(onto.setdefault(key, {}), value)
        else:
            onto[key] = value


def _selected(thing, selector):
    labels = thing["metadata"].get("labels", {})
    return all(labels.get(key) == value for key, _, value in (part.partition("=") for part in selector.split(",") if part))


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def _target(self):
        url = urllib.parse.urlsplit(self.path)
        parts = [urllib.parse.unquote(part) for part in url.path.strip("/").split("/")]
        prefix, rest = ("/" + "/".join(parts[:2]), parts[2:]) if parts[0] == "api" else ("/" + "/".join(parts[:3]), parts[3:])
        space = ""
        if len(rest) > 2 and rest[0] == "namespaces":
            space, rest = rest[1], rest[2:]
        name = rest[1] if len(rest) > 1 else ""
        self.subresource = rest[2] if len(rest) > 2 else ""
        return f"{prefix}/{rest[0]}", space, name, dict(urllib.parse.parse_qsl(url.query))

    def _faulty(self):
        cluster, path = self.owner, self.path.split("?")[0]
        with cluster.changed:
            cluster.requests.append((self.command, path))
            fault = cluster.fault(self.command, path) if cluster.fault else None
        if fault is None:
            return False
        if fault == "drop":
            self.close_connection = True
        else:
            self._body()
            self._fail(fault, "", f"{self.command} {path}: a fault of the test")
        return True

    def _body(self):
        return json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or b"{}")

    def _answer(self, status, thing):
        text = json.dumps(thing).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def _fail(self, status, reason, message):
        self._answer(status, {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "message": message,
                              "code": status})

    def _exec(self, pod, query):
        """A WebSocket of v5.channel.k8s.io: the output, then the status."""
        key = self.headers["Sec-WebSocket-Key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
        self.send_response(101)
        self.send_header("Upgrade", "websocket")
        self.send_header("Connection", "Upgrade")
        self.send_header("Sec-WebSocket-Accept", base64.b64encode(hashlib.sha1(key.encode()).digest()).decode())
        self.send_header("Sec-WebSocket-Protocol", "v5.channel.k8s.io")
        self.end_headers()
        command = [value for name, value in urllib.parse.parse_qsl(urllib.parse.urlsplit(self.path).query) if name == "command"]
        output, code = self.owner.execute(pod, command)
        status = {"status": "Success"} if code == 0 else {
            "status": "Failure", "reason": "NonZeroExitCode",
            "details": {"causes": [{"reason": "ExitCode", "message": str(code)}]}}
        frames = b""
        for channel, data in ((1, output), (3, json.dumps(status).encode())):
            payload = bytes([channel]) + data
            frames += b"\x82" + _websocket_length(len(payload)) + payload
        self.close_connection = True
        try:
            self.wfile.write(frames + b"\x88\x02\x03\xe8")
        except OSError:  # who asked does not want to know any more
            pass

    def _log(self, pod):
        text = self.owner.logs.get(pod, "").encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/plain")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def _review(self, asked):
        attributes = asked["spec"]["resourceAttributes"]
        right = "/".join(filter(None, [attributes["resource"], attributes.get("subresource")]))
        asked["status"] = {"allowed": f"{attributes['verb']} {right}" not in self.owner.denied}
        self._answer(201, asked)

    def do_GET(self):
        if self._faulty():
            return
        if self.path == "/version":
            return self._answer(200, {"gitVersion": "fake"})
        collection, space, name, query = self._target()
        if self.subresource == "exec":
            return self._exec(name, query)
        if self.subresource == "log":
            return self._log(name)
        if query.get("watch") == "true":
            return self._watch(collection, space, query)
        cluster = self.owner
        with cluster.changed:
            if name:
                found = cluster.objects.get((collection, space, name))
                answer = json.loads(json.dumps(found)) if found else None
            else:
                items = [each for (of, within, _), each in sorted(cluster.objects.items())
                         if of == collection and space in ("", within) and _selected(each, query.get("labelSelector", ""))]
                answer = {"kind": "List", "metadata": {"resourceVersion": str(len(cluster.changes))},
                          "items": json.loads(json.dumps(items))}
        if answer is None:
            return self._fail(404, "NotFound", f"{name} not found")
        self._answer(200, answer)

    def _watch(self, collection, space, query):
        if query.get("sendInitialEvents") == "true":
            return self._fail(422, "Invalid", "no initial events here")
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        cluster, at = self.owner, int(query.get("resourceVersion") or 0)
        generation = cluster.generation
        while True:
            with cluster.changed:
                cluster.changed.wait_for(
                    lambda: cluster.closing or cluster.generation != generation or len(cluster.changes) > at)
                if cluster.closing or cluster.generation != generation:
                    return
                fresh, at = cluster.changes[at:], len(cluster.changes)
            for _, of, kind, thing in fresh:
                within = thing["metadata"].get("namespace", "")
                if of == collection and space in ("", within) and _selected(thing, query.get("labelSelector", "")):
                    try:
                        self.wfile.write(json.dumps({"type": kind, "object": thing}).encode() + b"\n")
                        self.wfile.flush()
                    except OSError:
                        return

    def do_POST(self):
        if self._faulty():
            return
        collection, space, _, _ = self._target()
        thing = self._body()
        if collection.endswith("/selfsubjectaccessreviews"):
            return self._review(thing)
        thing["metadata"].setdefault("namespace", space)
        key = (collection, space, thing["metadata"]["name"])
        with self.owner.changed:
            if key in self.owner.objects:
                return self._fail(409, "AlreadyExists", f"{key[2]} already exists")
            thing.setdefault("status", {"phase": "Pending"})
            made = json.loads(json.dumps(self.owner._store(key, thing)))
        self._answer(201, made)

    def do_PATCH(self):
        key, patch = self._target()[:3], self._body()
        with self.owner.changed:
            thing = self.owner.objects.get(key)
            if thing is None:
                return self._fail(404, "NotFound", f"{key[2]} not found")
            version = patch.get("metadata", {}).get("resourceVersion")
            if version not in (None, thing["metadata"]["resourceVersion"]):
                return self._fail(409, "Conflict", "the object has been modified")
            _merge(thing, patch)
            made = json.loads(json.dumps(self.owner._store(key, thing)))
        self._answer(200, made)

    def do_DELETE(self):
        if self._faulty():
            return
        key, options = self._target()[:3], self._body()
        with self.owner.changed:
            thing = self.owner.objects.get(key)
            if thing is None:
                return self._fail(404, "NotFound", f"{key[2]} not found")
            if options.get("preconditions", {}).get("uid") not in (None, thing["metadata"]["uid"]):
                return self._fail(409, "Conflict", "the uid in the precondition does not match")
            made = json.loads(json.dumps(self.owner._delete(key)))
        self._answer(200, made)
