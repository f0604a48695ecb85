"""TensorBoard reads the event files of C++, and C++ and Python nodes train together.

DIVISI_BUILD names the build to test (default: build/release of this checkout).
"""

import os
import pathlib
import subprocess
import sys

import pytest
from ports import free_ports

# Only what reads files: the rest of TensorBoard needs packages that are not installed here.
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
BUILD = REPOSITORY / os.environ.get("DIVISI_BUILD", "build/release")
PACKAGES = BUILD / "tests" / "packages"
DEADLINE = 120  # seconds; only a hang ever waits for it

COMMON = """
import numpy as np
from divisi import OnlineRLContext, task
from divisi.middleware import ContextExchanger, ModelExchanger, PeriodicalModelExchanger
from divisi.writer import DistributedWriter

class Model:
    w = np.zeros(4)
    def state_dict(self):
        return {"w": self.w.copy()}
    def load_state_dict(self, state):
        self.w = np.array(state["w"])

model = Model()
"""

COLLECTOR = COMMON + """
def main():
    with task.start(ctx=OnlineRLContext()):
        task.add_role(task.role.COLLECTOR)
        writer = DistributedWriter("log.python").plugin(task.router, is_writer=False)
        task.use(ContextExchanger(skip_n_iter=1))
        task.use(ModelExchanger(model))
        seen = []

        def collect(ctx):
            if ctx.total_step > 0:
                assert ctx.train_iter > 0
                assert not seen or model.w[0] > seen[-1], (model.w, seen)
                seen.append(model.w[0])
            yield
            step = ctx.total_step
            ctx.trajectories = [
                {"obs": np.full(3, i, np.float32), "action": i, "reward": 0.5} for i in (step, step + 1)
            ]
            ctx.trajectory_end_idx = [1]
            ctx.env_step += 2
            writer.add_scalar("python/env_step", np.float32(ctx.env_step), global_step=step)

        task.use(collect)
        task.run(5)
        print("collector used", seen)
"""

LEARNER = COMMON + """
def main():
    with task.start(ctx=OnlineRLContext()):
        task.add_role(task.role.LEARNER)
        writer = DistributedWriter("log").plugin(task.router, is_writer=True)
        task.use(ContextExchanger())
        task.use(PeriodicalModelExchanger(model, "send", event_name="weights"))

        def learn(ctx):
            if ctx.trajectories is None:
                return
            first, second = ctx.trajectories
            assert first["obs"].dtype == np.float32 and first["obs"][0] == first["action"], first
            assert first["reward"] == 0.5 and second["action"] == 0
            assert ctx.trajectory_end_idx == [1]
            assert ctx.env_step == 2 * (ctx.total_step + 1)
            yield
            ctx.train_iter += 1
            model.w = model.w + 1
            writer.add_scalar("python/train_iter", ctx.train_iter, ctx.train_iter)

        task.use(learn)
        task.run()
        print("learner did", task.ctx.train_iter)
"""


def read(folder):
    """What TensorBoard finds in the one event file of the folder."""
    files = list(folder.iterdir())
    assert len(files) == 1, files
    assert files[0].name.startswith("events.out.tfevents.")
    events = EventAccumulator(str(files[0]), size_guidance={"scalars": 0, "tensors": 0, "histograms": 0})
    events.Reload()
    return events


def scalars(events, tag):
    return [(event.step, event.value) for event in events.Scalars(tag)]


def start(folder, *arguments):
    return subprocess.Popen(
        [BUILD / "bin" / "ditask", "--protocol", "tcp", "--address", "127.0.0.1", *map(str, arguments)],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=folder,
        env=dict(os.environ, DIVISI_PYTHON=sys.executable),
    )


def run(folder, cpp_main, python_program):
    (folder / "worker.py").write_text(python_program)
    ports = free_ports(2)
    cpp = start(
        folder, "--package", PACKAGES, "--main", f"training.{cpp_main}", "--ports", ports[0], "--node-ids", 0
    )
    python = start(
        folder, "--package", folder, "--main", "worker.main", "--ports", ports[1], "--node-ids", 1,
        "--attach-to", f"127.0.0.1:{ports[0]}",
    )
    try:
        heard = python.communicate(timeout=DEADLINE)[0]
        said = cpp.communicate(timeout=DEADLINE)[0]
    finally:
        for process in (cpp, python):
            process.kill()
    assert python.returncode == 0, heard + said
    assert cpp.returncode == 0, said + heard
    return said, heard


def test_tensorboard_reads_an_event_file_of_cpp(tmp_path):
    done = start(tmp_path, "--package", PACKAGES, "--main", "training.write")
    assert done.wait(DEADLINE) == 0, done.communicate()[0]
    done.stdout.close()
    events = read(tmp_path / "log")
    assert events.file_version == 2.0
    loss = scalars(events, "loss")
    assert [step for step, _ in loss] == list(range(1000))
    assert loss[3][1] == 0.25
    assert scalars(events, "wörter/größe") == [(7, -2.5)]
    assert scalars(events, "large step") == [(2**40, 1.0)]
    (note,) = events.Tensors("note")
    assert note.step == 3
    assert note.tensor_proto.string_val[0].decode() == "**bold** ü"
    assert events.SummaryMetadata("note").plugin_data.plugin_name == "text"
    (weights,) = events.Histograms("weights")
    histogram = weights.histogram_value
    assert (histogram.min, histogram.max, histogram.num) == (-1.0, 1e300, 6.0)
    assert sum(histogram.bucket) == 6.0
    counts = dict(zip(histogram.bucket_limit, histogram.bucket))
    assert sum(count for limit, count in counts.items() if limit <= 0) == 2


def test_a_cpp_learner_and_a_python_collector(tmp_path):
    said, heard = run(tmp_path, "learner", COLLECTOR)
    assert "collector used" in heard
    assert "learner saw " in said
    events = read(tmp_path / "log")
    assert scalars(events, "python/env_step") == [(step, 2.0 * (step + 1)) for step in range(5)]
    assert scalars(events, "cpp/train_iter")[:3] == [(1, 1.0), (2, 2.0), (3, 3.0)]
    assert not (tmp_path / "log.python").exists()


def test_a_python_learner_and_a_cpp_collector(tmp_path):
    said, heard = run(tmp_path, "collector", LEARNER)
    assert "collector used model " in said
    assert "learner did " in heard
    events = read(tmp_path / "log")
    assert scalars(events, "cpp/env_step") == [(step, 2.0 * (step + 1)) for step in range(5)]
    assert len(events.Histograms("cpp/weights")) == 5
    assert not (tmp_path / "log.cpp").exists()


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
