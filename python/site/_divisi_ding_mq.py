"""The start-up hook of `divisi.ding_mq`: what makes `ditask --mq-type divisi` work without an
import in the program.

Every interpreter of the environment runs this through divisi_ding_mq.pth, so it imports nothing and
only leaves a finder behind that compares names. The finder acts when DI-engine loads one of two
modules; where there is no DI-engine that never happens.
"""

import sys

_WATCHED = {"ding.framework.parallel", "ding.entry.cli_parsers"}


class _Hook:
    """Lets the other finders find a watched module, and adds a step behind its execution."""

    @classmethod
    def find_spec(cls, name, path=None, target=None):
        """Nothing for all modules but the watched."""
        if name not in _WATCHED:
            return None
        _WATCHED.discard(name)
        if not _WATCHED:
            sys.meta_path.remove(cls)
        for finder in list(sys.meta_path):
            find_spec = getattr(finder, "find_spec", None)
            spec = find_spec(name, path, target) if find_spec and finder is not cls else None
            if spec is not None:
                # The compatibility package of divisi has these names too, and the queue already.
                if "_ding_shim" not in (spec.origin or ""):
                    _then_extend(spec.loader)
                return spec
        return None


def _then_extend(loader):
    execute = loader.exec_module

    def exec_module(module):
        del loader.exec_module
        execute(module)
        try:
            import divisi.ding_mq

            # Not there yet when the program's own import of it is what loads DI-engine; it extends
            # at its end.
            getattr(divisi.ding_mq, "extend", lambda: None)()
        except Exception as error:  # DI-engine must work as it would without us
            print(
                f"divisi: the message queue `divisi` is not available: {error!r}", file=sys.stderr
            )

    try:
        loader.exec_module = exec_module
    except AttributeError:
        pass


sys.meta_path.insert(0, _Hook)
