#!/usr/bin/env python3
"""python_reference.py OUT_DIR: the Python half of the API reference, by pdoc, into OUT_DIR.

Fails, and says which, if a public name has no docstring, or if pdoc warns. `divisi` must be importable.
"""

import logging
import sys
import types
import warnings
from pathlib import Path

import pdoc
import pdoc.doc
import pdoc.render

MODULES = ["divisi", "divisi.middleware", "divisi.writer", "divisi.launch", "divisi.supervisor", "divisi.ding_mq",
           "divisi.compat"]


def stand_in_for_ding():
    """As much of DI-engine as divisi.ding_mq touches when it is imported."""
    names = ["ding", "ding.framework", "ding.framework.message_queue", "ding.framework.message_queue.mq",
             "ding.framework.parallel", "ding.utils", "ding.utils.registry_factory"]
    modules = {name: types.ModuleType(name) for name in names}
    parallel = type("Parallel", (), {"runner": classmethod(lambda cls, **options: None)})
    registry = type("Registry", (dict,), {"register": dict.__setitem__})
    modules["ding.framework.message_queue.mq"].MQ = type("MQ", (), {})
    modules["ding.framework.parallel"].Parallel = parallel
    modules["ding.utils.registry_factory"].MQ_REGISTRY = registry()
    sys.modules.update(modules)


def describes_itself(member, namespace):
    """Whether a reader is told what it is. `divisi.task`, a ready-made object, is told by its class."""
    if member.docstring.strip():
        return True
    value = getattr(namespace.obj, member.name, None)
    is_module = isinstance(value, types.ModuleType)
    return is_module or (namespace.kind == "module" and type(value).__module__.startswith("divisi."))


def undocumented(namespace):
    """Full names of the public members, at any depth, that say nothing about themselves."""
    for member in namespace.own_members:
        if member.name.startswith("_"):
            continue
        if not describes_itself(member, namespace):
            yield member.fullname
        if member.kind == "class" and member.modulename.startswith("divisi"):
            yield from undocumented(member)


def main():
    out = Path(sys.argv[1])
    stand_in_for_ding()
    warnings.simplefilter("error")
    complaints = []
    handler = logging.Handler()
    handler.emit = lambda record: complaints.append(record.getMessage())
    logging.getLogger().addHandler(handler)

    missing = []
    for name in MODULES:
        module = pdoc.doc.Module.from_name(name)
        if not module.docstring.strip():
            missing.append(name)
        missing += undocumented(module)
    pdoc.render.configure(docformat="restructuredtext")
    pdoc.pdoc(*MODULES, output_directory=out)

    for name in sorted(set(missing)):
        print(f"{name} has no docstring", file=sys.stderr)
    for text in complaints:
        print(f"pdoc: {text}", file=sys.stderr)
    return 1 if missing or complaints else 0


if __name__ == "__main__":
    sys.exit(main())
