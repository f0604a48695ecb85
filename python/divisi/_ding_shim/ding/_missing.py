"""Names of DI-engine that divisi does not have yet: asked for, they say so."""

from __future__ import annotations

import sys
from typing import Any, Callable


def not_built(module: str, *names: str) -> Callable[[str], Any]:
    """A module's `__getattr__` that knows `names` as missing and everything else as unknown."""

    def __getattr__(name: str) -> Any:
        if name in names:
            there = ", ".join(getattr(sys.modules[module], "__all__", [])) or "nothing"
            raise ImportError(
                f"divisi has no {module}.{name} yet; of {module} there is: {there}", name=module
            )
        raise AttributeError(f"module {module!r} has no attribute {name!r}")

    return __getattr__
