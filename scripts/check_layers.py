#!/usr/bin/env python3
"""Checks that no file includes what its folder may not use.

    scripts/check_layers.py [ROOT]

Three rules, each with its table below: a module includes only modules it may use; a third-party
library is seen only by its owner; a public header includes only the standard library and other
public headers. Prints one line a violation (file:line: what and why) and exits 1 if there is one.
"""

import re
import sys
from pathlib import Path

# A module may use those listed, and itself. The order is the order of the build.
MODULES = {
    "base": [],
    "json": ["base"],
    "io": ["base", "json"],
    "http": ["base", "json", "io"],
    "event": ["base"],
    "mesh": ["base", "json", "io", "event"],
    "runtime": ["base", "json", "io", "http", "event", "mesh"],
    "launch": ["base", "json", "io", "http", "event", "mesh", "runtime"],
    "study": ["base", "json"],
    "tune": ["base", "json", "event", "study"],
    "kube": ["base", "json", "io", "http"],
    # Trials of the tuner as jobs of a cluster.
    "trials": ["base", "json", "io", "http", "kube"],
    # In the pod of such a trial: posts its reports and its result.
    "trial_report": ["base", "json", "io", "http", "runtime", "kube"],
    # The command `divisi run`: one job on this machine, on hosts, on Slurm, on a cluster.
    "run": ["base", "json", "io", "http", "kube", "launch"],
    "dijob": ["base", "json", "io", "http", "kube"],
    "server": ["base", "json", "io", "http", "kube", "dijob"],
    # DIJobs without a cluster: the operator over an API server in memory, pods as processes.
    "local": ["base", "json", "io", "http", "kube", "dijob", "server"],
    "pickle": ["base", "json"],
    # Trials of the tuner as processes, and the command `divisi tune`.
    "local_trials": ["base", "json", "io", "pickle"],
    "tune_run": ["base", "json", "io", "tune", "local_trials"],
    "dist": ["base", "json", "io", "http"],
    # The runtime's first user: it sees the others as any program does, through include/divisi.
    "rl": ["base", "json"],
    # What the workers of a first-generation job do, and the command that starts them.
    "dist_rl": ["base", "json", "io", "dist", "rl"],
    "ding": ["base", "json", "io", "http", "pickle", "dist", "rl", "dist_rl"],
}

# Third-party headers by prefix, and the modules that may see them. Longest prefix wins; what is
# not listed here may be used by every module (fmt and tl::expected, behind base).
OWNERS = {
    "boost/asio": ["io", "http"],
    "boost/beast": ["io", "http"],
    "boost/context": ["runtime"],
    "boost/json": ["json"],
    "yaml.h": ["json"],
    "Eigen/": ["tune"],
    "boost/": [],
    "openssl/": ["io"],
    "zip.h": ["launch", "run", "io"],
    "zlib.h": ["http"],
    "msgpuck.h": ["event"],
    "spdlog/": ["base"],
    "CLI/": ["launch", "run", "apps"],
    "sqlite3.h": ["study"],
    "hiredis/": ["mesh"],
    "zmq": [],
    "nng/": [],
}

# Folders outside src/ whose files are checked against OWNERS too: they use all modules.
PROGRAMS = ["apps", "examples"]

# Headers with an extension that belong to the system, not to a library.
SYSTEM = re.compile(r"^(sys|netinet|arpa|linux|net|asm)/|^(unistd|fcntl|poll|dlfcn|pthread|signal|spawn)\.h$")

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^">]+)[">]')


def includes(path):
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        match = INCLUDE.match(line)
        if match:
            yield number, match.group(1), match.group(2)


def sources(folder):
    return sorted(p for p in folder.rglob("*") if p.suffix in (".h", ".cc", ".inl"))


def owner_violation(header, user):
    prefixes = [p for p in OWNERS if header.startswith(p)]
    if not prefixes:
        return None
    owners = OWNERS[max(prefixes, key=len)]
    if user in owners:
        return None
    return f"<{header}> belongs behind {' or '.join(owners) if owners else 'no module'}, not in {user}"


def check_module(root, module):
    for path in sources(root / "src" / module):
        for number, quote, header in includes(path):
            first = header.split("/")[0]
            if quote == '"' and first in MODULES and first != module and first not in MODULES[module]:
                yield path, number, f"{module} may not use {first} (\"{header}\")"
            elif quote == '"' and first not in MODULES and first not in ("divisi", "testing"):
                yield path, number, f"\"{header}\" must be named from src/ or include/"
            problem = owner_violation(header, module)
            if problem:
                yield path, number, problem


def check_public(root):
    for path in sources(root / "include"):
        for number, quote, header in includes(path):
            if quote == '"' and not header.startswith("divisi/"):
                yield path, number, f"a public header may not include \"{header}\""
            elif quote == "<" and "." in header and not SYSTEM.match(header):
                yield path, number, f"a public header may not include <{header}>: standard library only"
            elif quote == "<" and "/" in header and not SYSTEM.match(header):
                yield path, number, f"a public header may not include <{header}>: standard library only"


def check_programs(root, folder):
    for path in sources(root / folder):
        for number, _, header in includes(path):
            problem = owner_violation(header, folder)
            if problem:
                yield path, number, problem


def violations(root):
    src = root / "src"
    for folder in sorted(p.name for p in src.iterdir() if p.is_dir()):
        if folder not in MODULES:
            yield src / folder, 0, "this module is not in the table of scripts/check_layers.py"
        else:
            yield from check_module(root, folder)
    yield from check_public(root)
    for folder in PROGRAMS:
        yield from check_programs(root, folder)


def main():
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parent.parent
    found = list(violations(root))
    for path, number, problem in found:
        print(f"{path.relative_to(root)}:{number}: {problem}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
