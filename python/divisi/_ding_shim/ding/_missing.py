"""What DI-engine has and divisi does not: asked for, it says so."""

from __future__ import annotations

import pkgutil
import sys
from typing import Any, Callable


def message(module: str, name: str) -> str:
    """That `name` of `module` is not there, and what is."""
    there = list(getattr(sys.modules[module], "__all__", []))
    path = getattr(sys.modules[module], "__path__", [])
    there += [found.name for found in pkgutil.iter_modules(path) if not found.name.startswith("_")]
    known = ", ".join(sorted(set(there) - {"__version__"})) or "nothing"
    return f"divisi has no {module}.{name} yet; of {module} there is: {known}"


def not_built(module: str, *names: str) -> Callable[[str], Any]:
    """A module's `__getattr__` that knows `names` as missing and everything else as unknown."""

    def __getattr__(name: str) -> Any:
        if name in names:
            raise ImportError(message(module, name), name=module)
        raise AttributeError(f"module {module!r} has no attribute {name!r}")

    return __getattr__


class MissingModules:
    """The last finder: whatever is asked of `ding` and was not found. `from package import name` comes
    here as well, when the package has no such name: it looks for a module then."""

    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> None:
        """Raises for every module of `ding`."""
        parent, _, child = name.rpartition(".")
        if parent.split(".")[0] == "ding" and parent in sys.modules:
            # Not under the module's own name: `from package import name` would swallow that.
            raise ModuleNotFoundError(message(parent, child), name=parent)
