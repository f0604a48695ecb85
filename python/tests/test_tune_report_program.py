"""divisi-report: runs the program of a trial and posts for it, to a di-server that is played here."""

import base64
import http.server
import json
import os
import signal
import subprocess
import sys
import threading

import pytest

from compat_tools import ROOT
from divisi import launch

REPORT = launch.program("divisi-report")
DEADLINE_S = 120
USAGE = "usage: divisi-report [--patience SECONDS] PROGRAM ARGUMENTS..."


class Server:
    """Remembers posts; `status` is what it answers."""

    def __init__(self):
        self.posts, self.status, self.changed = [], 200, threading.Condition()
        server = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                with server.changed:
                    server.posts.append((self.path, self.headers.get("Authorization"), json.loads(body)))
                    server.changed.notify_all()
                text = json.dumps({"message": "no"}).encode()
                self.send_response(server.status)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, *_):
                pass

        self._http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}"
        threading.Thread(target=self._http.serve_forever, daemon=True).start()

    def close(self):
        self._http.shutdown()
        self._http.server_close()

    def bodies(self):
        with self.changed:
            return [body for _, _, body in self.posts]


@pytest.fixture
def server():
    made = Server()
    yield made
    made.close()


@pytest.fixture
def trial(server, tmp_path):
    """The environment of a pod."""
    (tmp_path / "secret").write_text("0123abcd\n")
    os.chmod(tmp_path / "secret", 0o600)
    return {
        **os.environ, "DI_SERVER_URL": server.url, "DI_JOB_ID": "lab/cartpole-3", "DI_RANK": "0",
        "DIVISI_SECRET_FILE": str(tmp_path / "secret"), "HPO_TASK_NAME": "cartpole-3", "HPO_PROJECT": "cartpole",
        "HPO_RESULT_FILE": str(tmp_path / "cartpole-3-result.json"),
        "HPO_METRICS_FILE": str(tmp_path / "cartpole-3-metrics.jsonl"),
    }  # fmt: skip


def run(trial, *command):
    return subprocess.run([REPORT, *command], env=trial, capture_output=True, text=True, timeout=DEADLINE_S)


def test_all_is_posted_with_the_secret_of_the_job(trial, server):
    code = (
        "import json, os; from divisi.tune import report; report(1, {'loss': 0.5}); report(2, float('nan'));"
        "open(os.environ['HPO_RESULT_FILE'], 'w').write('{\"loss\": 1}'); print('done')"
    )
    done = run(trial, sys.executable, "-c", code)
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")
    assert {(path, given) for path, given, _ in server.posts} == {
        ("/v2alpha1/job/lab/cartpole-3/trial", "Bearer 0123abcd")
    }
    reports = {step: values for body in server.bodies() for step, values in body.get("reports", {}).items()}
    assert reports == {"1": {"loss": 0.5}, "2": {"value": None}}
    result = next(body["result"] for body in server.bodies() if "result" in body)
    assert result == {"name": "result.json", "bytes": base64.b64encode(b'{"loss": 1}').decode()}


def test_reports_are_posted_while_the_program_runs(trial, server):
    line = """echo '{"step": 1, "values": {"loss": 2}}' >> "$HPO_METRICS_FILE"; exec sleep 1000"""
    process = subprocess.Popen([REPORT, "sh", "-c", line], env=trial)
    with server.changed:
        assert server.changed.wait_for(lambda: server.posts, DEADLINE_S)
    assert server.bodies() == [{"reports": {"1": {"loss": 2}}}]
    process.send_signal(signal.SIGTERM)  # passed on to the program
    assert process.wait(DEADLINE_S) == 128 + signal.SIGTERM


def test_the_exit_code_is_that_of_the_program(trial):
    assert run(trial, "sh", "-c", "exit 7").returncode == 7
    assert run(trial, "sh", "-c", "kill -9 $$").returncode == 128 + 9
    missing = run(trial, "/no/such/program")
    assert missing.returncode == 127 and missing.stderr.startswith("divisi-report: ") and missing.stderr.count("\n") == 1


def test_a_server_that_is_away_changes_nothing_for_the_program(trial, server):
    server.close()
    line = """echo '{"step": 1, "values": {"loss": 2}}' >> "$HPO_METRICS_FILE"; exit 3"""
    done = run(trial, "--patience", "0", "sh", "-c", line)
    assert done.returncode == 3
    first, second = done.stderr.splitlines()
    assert first.startswith("divisi-report: di-server does not answer (") and first.endswith("it is tried again")
    assert second == f"divisi-report: 1 report not posted to {trial['DI_SERVER_URL']}"


def test_a_wrong_secret_is_told_in_one_line(trial, server):
    server.status = 401
    line = """echo '{"step": 1, "values": {"loss": 2}}' >> "$HPO_METRICS_FILE" """
    done = run(trial, "sh", "-c", line)
    assert done.returncode == 0 and len(server.posts) == 3
    assert done.stderr.splitlines()[0] == "divisi-report: di-server refuses what is posted (401 no)"


def test_outside_of_a_trial_nothing_is_reported(trial, server):
    for name in ("DI_SERVER_URL", "HPO_TASK_NAME"):
        done = run({key: value for key, value in trial.items() if key != name}, "echo", "ran")
        assert (done.returncode, done.stdout) == (0, "ran\n")
        assert "so this is no trial of a DIJob; nothing is reported" in done.stderr and done.stderr.count("\n") == 1
    done = run({**trial, "DI_JOB_ID": "nonsense"}, "echo", "ran")
    assert (done.returncode, done.stdout) == (0, "ran\n") and "DI_JOB_ID: 'nonsense' is not namespace/name" in done.stderr
    assert server.posts == []


@pytest.mark.parametrize("words, complaint", [
    ([], f"which program? {USAGE}"),
    (["--patience"], f"--patience: '' is no number of seconds from 0 to 86400; {USAGE}"),
    (["--patience", "1e9", "ls"], f"--patience: '1e9' is no number of seconds from 0 to 86400; {USAGE}"),
    (["--every", "3", "ls"], f"there is no option --every; {USAGE}"),
])  # fmt: skip
def test_wrong_arguments_are_refused(trial, words, complaint):
    done = run(trial, *words)
    assert (done.returncode, done.stderr) == (2, f"divisi-report: {complaint}\n")


def test_the_command_of_the_package_is_that_program(trial):
    code = "from divisi.launch import report_main; report_main()"
    done = subprocess.run(
        [sys.executable, "-c", code, "sh", "-c", "exit 5"], env=trial, cwd=ROOT, timeout=DEADLINE_S, check=False
    )
    assert done.returncode == 5
