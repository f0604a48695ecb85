"""Where `import ding`, `import ditk`, `import lighttuner` and `import easydict` lead to when there is
no DI-engine, no DI-toolkit, no LightTuner and no easydict.

divisi-ding installs no folder `ding`: a real DI-engine owns that one, and pip would mix the two
without a word. The package is part of divisi, and this finder leads to it; the same for the
others. A package of that name that is anywhere on the search path goes before; a bare folder, which
Python would take for a namespace package, does not. Beside a real DI-toolkit, which DI-engine
requires, `ditk.hpo` and `ditk.scheduler` are added. It costs nothing at start, and one comparison
for an import.
"""

import sys


class _Ding:
    """Finds these and nothing else."""

    _NAMES = ("ding", "ditk", "easydict", "lighttuner", "ditk.hpo", "ditk.scheduler")

    @classmethod
    def find_spec(cls, name, path=None, target=None):
        """Another module of that name, or the one inside divisi."""
        if name not in cls._NAMES:
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

        parent = name.rpartition(".")[0]
        return PathFinder.find_spec(name, [f"{SHIM}/{parent}" if parent else SHIM])


sys.meta_path.insert(0, _Ding)
