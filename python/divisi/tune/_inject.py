"""How a configuration reaches the program of a trial."""

from __future__ import annotations

import json
import math
import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Dict, List, Mapping, Sequence

from . import _templates

WAYS = ["python", "json", "yaml", "env", "argv"]
"""`python`: source in front of the main guard. `json`, `yaml`: a file that HPO_CONFIG names. `env`:
variables. `argv`: options."""
ENV_PREFIX = "HPO_PARAM_"
"""Of the variables of `env`; behind it stands the path of the value."""


@dataclass
class Start:
    """How a trial's program is started."""

    command: List[str]
    env: Dict[str, str] = field(default_factory=dict)
    files: List[Path] = field(default_factory=list)  # written for it


def check(way: str, config: Mapping[Any, Any]) -> None:
    """Raises ValueError for a configuration that cannot be handed over that way."""
    if way == "python":
        _templates.overrides(dict(config), "")
    else:
        _json(config)
    if way in ("env", "argv"):
        for path, value in _templates.leaves(dict(config)):
            text = value_text(value)
            if "\0" in text or any("=" in str(part) or "\0" in str(part) for part in path):
                raise ValueError(f"{'.'.join(map(str, path))} cannot be handed over with inject={way!r}")
    if way == "env":
        _check_env_names(config)


def env_name(path: Sequence[Any]) -> str:
    """``HPO_PARAM_policy__lr`` for ``policy.lr``: the parts are joined by two underscores, and what is no
    letter, digit or underscore becomes an underscore. src/tune_run/command_template.cc has the same rule."""
    joined = "__".join(map(str, path)).encode("utf-8", "surrogateescape")
    return ENV_PREFIX + re.sub(rb"[^A-Za-z0-9_]", b"_", joined).decode("ascii")


def _check_env_names(config: Mapping[Any, Any]) -> None:
    taken: Dict[str, str] = {"" if "exp_name" in config else env_name(["exp_name"]): "exp_name"}
    for path, _ in _templates.leaves(dict(config)):
        name, shown = env_name(path), ".".join(map(str, path))
        if name in taken:
            raise ValueError(
                f"{taken[name]!r} and {shown!r} would both be {name}: rename one, or choose another inject"
            )
        taken[name] = shown


def prepare(way: str, template: str, python: str, main: Path, config: Mapping[Any, Any], name: str) -> Start:
    """Writes what the program needs; `main` is its file without a suffix."""
    if way == "python":
        source = main.with_name(main.name + ".py")
        text = Path(template).read_text(encoding="utf-8")
        source.write_text("".join(_templates.generate(text, dict(config), name)), encoding="utf-8")
        return Start([python, source.name], files=[source])
    command = [python, template] if template.endswith(".py") else [template]
    named = dict(config) if "exp_name" in config else {**config, "exp_name": name}
    leaves = list(_templates.leaves(named))
    if way == "env":
        return Start(command, {env_name(path): value_text(value) for path, value in leaves})
    if way == "argv":
        return Start([*command, *(f"--{'.'.join(map(str, path))}={value_text(v)}" for path, v in leaves)])
    file = main.with_name(f"{main.name}.{way}")
    file.write_text(_json(named) + "\n" if way == "json" else yaml_text(named), encoding="utf-8")
    return Start(command, {"HPO_CONFIG": str(file)}, [file])


def check_program(template: str) -> None:
    """Raises ValueError for a program that is not Python and cannot be started."""
    if not template.endswith(".py") and not os.access(template, os.X_OK):
        raise ValueError(f"{template} is neither a Python file nor executable")


def _json(config: Mapping[Any, Any]) -> str:
    try:
        return json.dumps(config, indent=2, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ValueError(f"a configuration that is not JSON: {error}") from None


def value_text(value: Any) -> str:
    """Text as it is; everything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value)


def yaml_text(value: Mapping[Any, Any], indent: str = "") -> str:
    """A mapping in YAML's block style. Texts are quoted, so that none is taken for something else."""
    lines = []
    for key, item in value.items():
        if isinstance(item, Mapping) and item:
            lines.append(f"{indent}{json.dumps(str(key))}:\n{yaml_text(item, indent + '  ')}")
        else:
            lines.append(f"{indent}{json.dumps(str(key))}: {_yaml_flow(item)}\n")
    return "".join(lines)


def _yaml_flow(value: Any) -> str:
    if isinstance(value, float):
        return _yaml_float(value)
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{json.dumps(str(k))}: {_yaml_flow(v)}" for k, v in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_yaml_flow, value)) + "]"
    return json.dumps(value)


def _yaml_float(value: float) -> str:
    """With a point and a signed exponent: readers of YAML 1.1 take 1e-05 for a text."""
    if not math.isfinite(value):
        return ".nan" if math.isnan(value) else ".inf" if value > 0 else "-.inf"
    digits, mark, exponent = repr(value).partition("e")
    point = "" if "." in digits else ".0"
    sign = "+" if mark and exponent[0] not in "+-" else ""
    return f"{digits}{point}{mark}{sign}{exponent}"
