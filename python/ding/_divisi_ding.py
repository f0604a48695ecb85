"""Where `import ding` leads to when there is no DI-engine.

divisi-ding installs no folder `ding`: a real DI-engine owns that one, and pip would mix the two
without a word. The package is part of divisi, and this finder leads to it. A package `ding` that is
anywhere on the search path goes before; a bare folder of that name, which Python would take for a
namespace package, does not. It costs nothing at start, and one comparison for an import.
"""

import sys


class _Ding:
    """Finds `ding` and nothing else."""

    @classmethod
    def find_spec(cls, name, path=None, target=None):
        """Another package of that name, or the one inside divisi."""
        if name != "ding":
            return None
        for finder in sys.meta_path:
            find = getattr(finder, "find_spec", None)
            if finder is cls or find is None:
                continue
            spec = find(name, path, target)
            if spec is not None and spec.origin:
                return spec
        from importlib.machinery import PathFinder

        from divisi.compat import SHIM

        return PathFinder.find_spec(name, [SHIM])


sys.meta_path.insert(0, _Ding)
