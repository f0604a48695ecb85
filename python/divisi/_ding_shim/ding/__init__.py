"""The import paths of DI-engine's distributed runtime, served by divisi.

Programs written against `ding.framework` find here what divisi has of it, under the old names. This
package never takes the place of a real DI-engine: where one is installed, importing this one is an
error.
"""

import sys as _sys

from divisi.compat import installed as _installed

_reason = _installed()
if _reason:
    raise ImportError(_reason)

from divisi import __version__  # noqa: E402

__all__ = ["__version__"]

from ._missing import MissingModules as _MissingModules  # noqa: E402

_sys.meta_path.append(_MissingModules)
