"""The last place where `import ding` looks.

divisi-ding installs no folder `ding`: a real DI-engine owns that one, and pip would mix the two without a word. The
package is part of divisi, and this finder, behind all others, leads to it. So a `ding` that is anywhere on the search
path is found first and this does nothing. It costs nothing at start, and one comparison for an import that fails.
"""

import sys


class _Last:
    """Finds `ding` and nothing else."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        """The package inside divisi."""
        if name != "ding":
            return None
        from importlib.machinery import PathFinder

        from divisi.compat import SHIM

        return PathFinder.find_spec(name, [SHIM])


sys.meta_path.append(_Last)
