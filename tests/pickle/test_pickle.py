"""Our reader and writer of pickles against CPython's module.

DIVISI_BUILD names the build to test (default: build/release of this checkout).
"""

import collections
import json
import os
import pathlib
import pickle
import random
import subprocess

import pytest

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
TOOL = REPOSITORY / os.environ.get("DIVISI_BUILD", "build/release") / "tests" / "pickle_tool"
PROTOCOLS = range(6)


def convert(data, *arguments):
    done = subprocess.run([TOOL, *arguments], input=data, capture_output=True, timeout=60)
    return done.returncode, done.stdout, done.stderr.decode()


def random_document(numbers, depth):
    """Anything that JSON can say."""
    kind = numbers.randrange(8 if depth > 0 else 6)
    if kind == 0:
        return None
    if kind == 1:
        return numbers.random() < 0.5
    if kind == 2:
        return numbers.choice([0, 1, -1, 255, 256, 65535, 65536, 2**31 - 1, 2**31, -(2**31), -(2**31) - 1, 2**63 - 1, -(2**63)])
    if kind == 3:
        return numbers.uniform(-1e6, 1e6)
    if kind in (4, 5):
        return "".join(numbers.choice("ab\n\\'\"ü😀\x7f ") for _ in range(numbers.randrange(300)))
    if kind == 6:
        return [random_document(numbers, depth - 1) for _ in range(numbers.randrange(5))]
    return {f"k{i}": random_document(numbers, depth - 1) for i in range(numbers.randrange(5))}


def test_what_cpython_writes_is_read_the_same():
    numbers = random.Random(13)
    documents = [random_document(numbers, 5) for _ in range(30)]
    for protocol in PROTOCOLS:
        code, out, err = convert(pickle.dumps(documents, protocol), "load")
        assert code == 0, err
        assert json.loads(out) == documents


def test_what_we_write_cpython_loads():
    numbers = random.Random(14)
    documents = [random_document(numbers, 5) for _ in range(30)]
    for protocol in (2, 3, 4):
        code, out, err = convert(json.dumps(documents).encode(), "save", str(protocol))
        assert code == 0, err
        assert pickle.loads(out) == documents


def test_shared_containers_and_ordered_dicts_are_read():
    shared = {"a": (1, 2)}
    value = collections.OrderedDict([("x", shared), ("y", [shared, shared])])
    for protocol in PROTOCOLS:
        code, out, err = convert(pickle.dumps(value, protocol), "load")
        assert code == 0, err
        assert json.loads(out) == {"x": {"a": [1, 2]}, "y": [{"a": [1, 2]}, {"a": [1, 2]}]}


class Touches:
    """Unpickling one creates a file: the usual attack."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (open, (str(self.path), "w"))


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_malicious_pickle_does_nothing_and_is_refused_by_name(tmp_path, protocol):
    trace = tmp_path / "trace"
    attack = pickle.dumps({"policy": [Touches(trace)]}, protocol)
    code, _, err = convert(attack, "load")
    assert code == 2
    assert "io.open" in err or "_io.open" in err, err
    assert err.count("\n") == 1
    assert not trace.exists()
    pickle.loads(attack)["policy"][0].close()
    assert trace.exists(), "the sample itself must be able to do harm"


def test_functions_and_objects_are_refused_by_name():
    for value, name in [(os.system, "system"), (random.Random(1), "random"), (len, "builtins.len"), (json.JSONDecoder, "JSONDecoder")]:
        code, _, err = convert(pickle.dumps({"x": value}), "load")
        assert code == 2 and name in err and err.count("\n") == 1, (value, err)


def test_a_cyclic_structure_is_refused():
    cycle = []
    cycle.append(cycle)
    for protocol in PROTOCOLS:
        code, _, err = convert(pickle.dumps(cycle, protocol), "load")
        assert code == 2 and "contains itself" in err
