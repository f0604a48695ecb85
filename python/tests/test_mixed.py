"""C++ and Python in one job, and in one process."""

import ctypes
import os
import re
import subprocess
import sys
from pathlib import Path

from divisi import _native, launch

BUILD = Path(os.environ["DIVISI_BUILD"])
PACKAGES = BUILD / "tests" / "packages"
DEADLINE = 120

WORKER = """
import numpy as np
from divisi import task

def main():
    with task.start():
        me = task.router.node_id
        mine = [
            np.random.default_rng(me).random((300, 1000)).astype(np.float32),
            np.arange(7, dtype=np.int8).reshape(7, 1),
            np.array(3.5),
            np.zeros((0, 4), np.uint16),
        ]
        back, theirs = [], []
        task.on("reversed", back.append)
        task.on("from_cpp", lambda large, small: theirs.extend((large, small)))
        task.on("from_cpp", lambda *arrays: task.emit("echo", me, *arrays, to=0))
        task.emit("hello", me, to=0)
        for array in mine:
            task.emit("from_python", me, array, to=0)
        while len(back) < len(mine) or len(theirs) < 2:
            task.wait_for("reversed", timeout=0.05)
        for sent, came in zip(mine, back):
            assert came.dtype == sent.dtype and came.shape == sent.shape, (sent, came)
            assert came.tobytes() == sent.tobytes()[::-1]
            assert not came.flags.writeable
        large, small = theirs
        assert large.shape == (500, 400) and small.shape == (2, 3)
        assert (large.ravel() == np.arange(500 * 400) + 0.5).all()
        print("node", me, "checked", len(mine), "and 2 arrays")
        task.emit("done", me, to=0)
        task.router.flush(60)
"""


def start(tmp_path, *arguments):
    return subprocess.Popen(
        [launch.program(), "--protocol", "tcp", "--address", "127.0.0.1", *map(str, arguments)],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=tmp_path,
        env=dict(os.environ, DIVISI_PYTHON=sys.executable),
    )


def test_a_cpp_worker_and_two_python_workers_exchange_arrays_both_ways(tmp_path, free_ports):
    (tmp_path / "worker.py").write_text(WORKER)
    cpp_port, python_port, _ = free_ports(3)  # the second worker counts up
    cpp = start(
        tmp_path, "--package", PACKAGES, "--main", "arrays.main", "--ports", cpp_port, "--node-ids", 0
    )
    python = start(
        tmp_path, "--package", tmp_path, "--main", "worker.main", "--parallel-workers", 2,
        "--topology", "mesh", "--ports", python_port, "--node-ids", 1,
        "--attach-to", f"127.0.0.1:{cpp_port}",
    )
    try:
        heard = python.communicate(timeout=DEADLINE)[0]
        said = cpp.communicate(timeout=DEADLINE)[0]
    finally:
        for process in (cpp, python):
            process.kill()
    assert python.returncode == 0, heard
    assert cpp.returncode == 0, said
    assert sorted(re.findall(r"node \d checked 4 and 2 arrays", heard)) == [
        "node 1 checked 4 and 2 arrays", "node 2 checked 4 and 2 arrays"
    ]
    assert sorted(re.findall(r"node \d sent both arrays back", said)) == [
        "node 1 sent both arrays back", "node 2 sent both arrays back"
    ]
    assert "2 nodes done, 0 wrong" in said


def test_the_router_is_one_object_for_cpp_and_python():
    package = ctypes.CDLL(str(PACKAGES / "singleton.so"))
    package.divisi_test_router_address.restype = ctypes.c_void_p
    assert package.divisi_test_router_address() == _native.router_identity()
