"""As much of a di-server as workers see: members as server-sent events, profilings that are posted."""

import http.server
import json
import threading


class FakeDiServer:
    """Listens on loopback from its construction to close(). All members may be called from any thread."""

    def __init__(self):
        self.changed = threading.Condition()
        self.members = None  # the data of an event; None: there is no di-server to speak of
        self.version = 0
        self.posts = []  # (path, Authorization, body)
        self.closing = False
        owner = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def do_GET(self):
                owner.stream(self)

            def do_POST(self):
                owner.take(self)

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server.server_address[1]}"

    def set_members(self, hosts):
        """`hosts`: rank -> host; ranks that are missing are not in the job."""
        data = [
            {"rank": rank, "task": "t", "index": rank, "pod": f"p-{rank}", "host": host, "ip": host,
             "port": 22270, "ready": True}
            for rank, host in sorted(hosts.items())
        ]
        with self.changed:
            self.members = json.dumps({"members": data})
            self.version += 1
            self.changed.notify_all()

    def wait_for_posts(self, enough, deadline=60):
        """Until `enough(posts)`; the posts."""
        with self.changed:
            if not self.changed.wait_for(lambda: enough(self.posts), deadline):
                raise AssertionError(f"not enough: {self.posts}")
            return list(self.posts)

    def stream(self, request):
        if not request.path.endswith("/members?watch=true"):
            return request.send_error(404)
        request.send_response(200)
        request.send_header("Content-Type", "text/event-stream")
        request.send_header("Connection", "close")
        request.end_headers()
        request.close_connection = True
        seen = 0
        try:
            while not self.closing:
                with self.changed:
                    self.changed.wait_for(lambda: self.closing or self.version > seen, 15)
                    data = self.members if self.version > seen else None
                    seen = self.version
                text = ": still here\n\n" if data is None else f"event: members\ndata: {data}\n\n"
                request.wfile.write(text.encode())
                request.wfile.flush()
        except OSError:
            pass  # the worker has ended

    def take(self, request):
        body = json.loads(request.rfile.read(int(request.headers["Content-Length"])))
        answer = json.dumps({"success": True, "code": 0, "message": "", "data": None}).encode()
        request.send_response(200)
        request.send_header("Content-Type", "application/json")
        request.send_header("Content-Length", str(len(answer)))
        request.end_headers()
        request.wfile.write(answer)
        with self.changed:
            self.posts.append((request.path, request.headers.get("Authorization"), body))
            self.changed.notify_all()

    def close(self):
        with self.changed:
            self.closing = True
            self.changed.notify_all()
        self.server.shutdown()
        self.server.server_close()
