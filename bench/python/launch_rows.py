"""The rows of `bench/run --launch`: from Enter to the first line of code that has just changed, beside Ray's jobs."""
import os
from pathlib import Path

from rows import Probe, Row

BENCH = Path(__file__).resolve().parent / "launch_bench.py"
PEERS = ["ray[default]==2.60.0"]
TARGETS = ("divisi_program", "ditask", "divisi_trial")
BAR = 1 / 3


def launch_rows(_quick):
    return [Row("one line of 2,000 files changed, local: time to the first line", Probe(("launch", "ours"), "first_line_ms"),
                Probe(("launch", "ray"), "first_line_ms"), "ray job submit, its cluster up", "ms", BAR, True)]


def program(tree, python, command):
    binaries = tree / "bin" if command[1] == "ours" else python.parent
    variables = dict(os.environ, PYTHONDONTWRITEBYTECODE="1")
    if command[1] == "ours":
        variables |= {"PYTHONPATH": str(tree / "python"), "DIVISI_PYTHON": str(tree.parent / "venv" / "bin" / "python")}
    else:
        variables["PATH"] = f"{python.parent}:{variables['PATH']}"  # `python` of its jobs
    return [str(python), str(BENCH), command[1], str(binaries)], variables
