"""The stub of the native module names what the module has. (That everything public is documented, and
that the package's types are right, is checked by scripts/api_reference and mypy.)"""

import ast
import re
from pathlib import Path

from divisi import _native

STUB = Path(__file__).parents[1] / "divisi" / "_native.pyi"


def declared(nodes):
    """Functions of the stub by name, with the names of their parameters."""
    return {
        node.name: [one.arg for one in node.args.posonlyargs + node.args.args if one.arg != "self"]
        for node in nodes
        if isinstance(node, ast.FunctionDef)
    }


def parameters(function):
    """How many parameters the native function says that it has."""
    inside = re.search(r"\((.*)\)", function.__doc__.split("\n")[0])[1]
    inside = re.sub(r"\[[^][]*\]|\([^()]*\)", "", inside)
    return len([one for one in inside.split(", ") if one not in ("", "self", "/")])


def test_the_stub_has_every_function_with_its_parameters():
    stub = declared(ast.parse(STUB.read_text()).body)
    native = {
        name: parameters(value)
        for name, value in vars(_native).items()
        if type(value).__name__ == "nb_func" and not name.startswith("__")
    }
    assert {name: len(names) for name, names in stub.items()} == native


def test_the_stub_has_every_class_with_its_methods():
    classes = {node.name: node for node in ast.parse(STUB.read_text()).body if isinstance(node, ast.ClassDef)}
    native = {name: value for name, value in vars(_native).items() if isinstance(value, type)}
    assert set(classes) == set(native)
    for name in ("Loop", "TaskEvents"):
        stub = {key: len(names) for key, names in declared(classes[name].body).items()}
        methods = {
            key: parameters(value)
            for key, value in vars(native[name]).items()
            if type(value).__name__ == "nb_method" and (key == "__init__" or not key.startswith("_"))
        }
        assert stub == methods
