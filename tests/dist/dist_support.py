"""Processes of a first-generation job on this machine, and as much of a di-server as they see."""

import http.server
import json
import os
import pathlib
import signal
import subprocess
import threading
import time

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
BUILD = REPOSITORY / os.environ.get("DIVISI_BUILD", "build/release")
DING = BUILD / "bin" / "ding"
DEADLINE = 120  # seconds; only a hang ever waits for it

CARTPOLE = """
from easydict import EasyDict

main_config = EasyDict(dict(
    env=dict(collector_env_num=8, collector_episode_num=2, evaluator_env_num=5, evaluator_episode_num=1,
             stop_value={stop_value}),
    policy=dict(
        cuda=False,
        model=dict(obs_shape=4, action_shape=2, encoder_hidden_size_list=[128, 128, 64], dueling=True),
        nstep=3,
        discount_factor=0.97,
        learn=dict(batch_size=64, learning_rate=0.001, learner=dict(learner_num=1, send_policy_freq=1)),
        collect=dict(n_sample=16, collector=dict(collector_num=2, update_policy_second=3)),
        eval=dict(evaluator=dict(eval_freq=50)),
        other=dict(
            eps=dict(type='exp', start=0.95, end=0.1, decay=10000),
            replay_buffer=dict(replay_buffer_size=20000, enable_track_used_data=False),
            commander=dict(collector_task_space=0, learner_task_space=1, eval_interval={eval_interval}),
        ),
    ),
))
create_config = EasyDict(dict(
    env=dict(type='cartpole', import_names=['dizoo.classic_control.cartpole.envs.cartpole_env']),
    env_manager=dict(type='base'),
    policy=dict(type='dqn_command'),
))
system_config = EasyDict(dict(
    coordinator=dict(operator_server=dict(
        system_addr='di-server.di-system:8080',
        api_version='/v1alpha1',
        init_replicas_request=dict(collectors={{'replicas': {collectors}}}, learners={{'gpus': '0', 'replicas': {learners}}}),
        collector_target_num={collectors},
        learner_target_num={learners},
    )),
    path_data='./data',
    path_policy='./policy',
    communication_mode='auto',
    learner_gpu_num=1,
))
{more}
"""


def cartpole(stop_value=195, eval_interval=1, collectors=2, learners=2, more=""):
    return CARTPOLE.format(stop_value=stop_value, eval_interval=eval_interval, collectors=collectors, learners=learners, more=more)


def ding(folder, *arguments, env=None, **more):
    """`ding` until it has ended."""
    return subprocess.run([DING, *map(str, arguments)], cwd=folder, capture_output=True, text=True, timeout=DEADLINE,
                          env={**os.environ, **(env or {})}, **more)


def prepare(folder, text):
    """The configuration as a job's coordinator prepares it: the name of the pickle."""
    (folder / "config.py").write_text(text)
    done = ding(folder, "-m", "dist", "--module", "config", "-P", "k8s", "-c", "config.py", "-s", "0")
    assert done.returncode == 0, done.stderr
    return "config.py.pkl"


class FakeDiServer:
    """Answers with the workers it was given; keeps what it was asked. Any thread."""

    def __init__(self, collectors=(), learners=(), as_objects=False):
        self.lock = threading.Lock()
        self.collectors, self.learners = list(collectors), list(learners)
        self.as_objects = as_objects
        self.requests = []  # (method, path, body)
        owner = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def answer(self):
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                text = json.dumps(owner.take(self.command, self.path, body)).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            do_GET = do_POST = do_DELETE = answer

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()

    @property
    def url(self):
        return f"127.0.0.1:{self.server.server_address[1]}"

    def take(self, method, path, body):
        with self.lock:
            self.requests.append((method, path, json.loads(body or b"null")))
            shape = (lambda urls: {url: {} for url in urls}) if self.as_objects else list
            data = {"namespace": "default", "coordinator": "job-coordinator",
                    "collectors": shape(self.collectors), "learners": shape(self.learners)}
            return {"success": True, "code": 0, "message": "successfully get replicas", "data": data}

    def replace(self, collectors=None, learners=None):
        with self.lock:
            self.collectors = list(collectors if collectors is not None else self.collectors)
            self.learners = list(learners if learners is not None else self.learners)


class Job:
    """Processes that end with the test; their output is in the folder."""

    def __init__(self, folder, server_url):
        self.folder = folder
        self.environment = {
            **os.environ,
            "KUBERNETES_SERVER_URL": server_url,
            "KUBERNETES_POD_NAME": "job-coordinator",
            "KUBERNETES_POD_NAMESPACE": "default",
        }
        self.processes = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self.processes:
            process.kill()
        for process in self.processes:
            process.wait()

    def start(self, name, *arguments, env=None):
        with open(self.folder / f"{name}.log", "ab") as output:
            process = subprocess.Popen([DING, "-m", "dist", *map(str, arguments)], cwd=self.folder, stdout=output,
                                       stderr=subprocess.STDOUT, env={**self.environment, **(env or {})})
        self.processes.append(process)
        return process

    def log(self, name):
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def wait_for_line(self, name, text, process=None, seconds=DEADLINE):
        """Until the log has `text`; the log."""
        deadline = time.monotonic() + seconds
        while text not in (log := self.log(name)):
            assert process is None or process.poll() is None, f"{name} has ended:\n{log[-3000:]}"
            assert time.monotonic() < deadline, f"no '{text}' in {name}:\n{log[-3000:]}"
            time.sleep(0.01)
        return log

    def wait_for_end(self, process, name, seconds=DEADLINE):
        """The exit code, and the log."""
        try:
            code = process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{name} does not end:\n{self.log(name)[-3000:]}") from None
        return code, self.log(name)


def end(process, seconds=60):
    """Asks it to end, as Kubernetes does; the exit code."""
    process.send_signal(signal.SIGTERM)
    return process.wait(seconds)
