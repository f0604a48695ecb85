"""examples/hpo runs with one command."""

import re
import sys

from compat_tools import ROOT, environment, run


def test_example_prints_the_best_of_each_algorithm(tmp_path):
    program = ROOT / "examples" / "hpo" / "hpo_example.py"
    out = run([sys.executable, program, "--steps", "12"], env=environment(), cwd=tmp_path).stdout
    assert re.findall(r"^ *(\w+): loss \d\.\d+, accuracy \d\.\d+ with \{", out, re.M) == [
        "grid", "random", "bayes",
    ]  # fmt: skip
