#!/usr/bin/env python3
"""Runs clang-tidy over the sources of a build folder that clang configured.

    scripts/tidy.py BUILD_DIR [--jobs N] [FILE...]

Sources that are compiled together (DIVISI_UNITY) are looked at together: their headers are read once, which
takes a fifth of the time. With FILE only the units that hold one of these are looked at, and only what they say
about these; a FILE that is not compiled is passed over. What was looked at and found clean is not looked at again
while it, what it includes of this tree and .clang-tidy stay as they are; that is remembered in
~/.cache/divisi/tidy (or DIVISI_TIDY_CACHE), for every checkout of this machine.
"""

import argparse
import concurrent.futures
import hashlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# The first is right for a unit of several sources. The complexity of a function is for its reader to judge.
# Eigen's buffers, on the stack or not, look like leaks to the analyser; LeakSanitizer sees real ones.
NEVER = "-bugprone-suspicious-include,-readability-function-cognitive-complexity,-clang-analyzer-unix.Malloc"

# Tests are looked at for bugs, not for taste: gtest's ASSERT_ is not understood as a check of an optional,
# and listeners that take their parameters by value are what is being tested.
LESS_FOR_TESTS = ("-performance-*,-modernize-*,-cppcoreguidelines-*,"
                  "-bugprone-unchecked-optional-access,-bugprone-empty-catch")

def header_filter(wanted):
    """The sources of a unit are headers in the eyes of clang-tidy."""
    ours = "|".join(map(re.escape, sorted(wanted))) or r"(src|include/divisi|apps|examples|python|tests)/[^ ]*\.(h|cc)"
    return f"--header-filter=^{re.escape(str(ROOT))}/({ours})$"

def is_test(name):
    return name.endswith("_test.cc") or name.startswith("tests/") or "/testing/" in name

def units(build):
    """The files that clang-tidy is given, each with the names of the sources in it."""
    found = {}
    for entry in json.loads((build / "compile_commands.json").read_text()):
        path = (Path(entry["directory"]) / entry["file"]).resolve()
        paths = [Path(p) for p in re.findall(r'#include "(.+)"', path.read_text())] if "Unity" in path.parts else [path]
        names = [str(p.relative_to(ROOT)) for p in paths if p.is_relative_to(ROOT) and "build" not in p.relative_to(ROOT).parts]
        if names:
            found[path] = names
    return found

def digest(*parts):
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()

INCLUDE = re.compile(r'^\s*#\s*include\s+["<]([^">]+)[">]', re.MULTILINE)

class Tree:
    """What the sources include of this tree, directly or not. Read from the text: more than the compiler sees at
    worst, and without asking it."""

    TOPS = [ROOT / top for top in ("src", "include", "tests", "")]

    def __init__(self):
        self.rules = digest((ROOT / ".clang-tidy").read_text(), Path(__file__).read_text())
        self.texts, self.direct = {}, {}

    def text(self, path):
        if path not in self.texts:
            self.texts[path] = path.read_text()
        return self.texts[path]

    def includes(self, path):
        if path not in self.direct:
            places = ([folder / name for folder in (path.parent, *self.TOPS)] for name in INCLUDE.findall(self.text(path)))
            found = (next((p for p in several if p.is_file()), None) for several in places)
            self.direct[path] = {p.resolve() for p in found if p is not None}
        return self.direct[path]

    def state_of(self, names):
        todo, seen = [ROOT / name for name in names], set()
        while todo:
            path = todo.pop()
            if path not in seen:
                seen.add(path)
                todo += self.includes(path)
        parts = (f"{os.path.relpath(path, ROOT)}\0{self.text(path)}" for path in sorted(seen))
        return digest(self.rules, *names, *parts)

def checks(names):
    return f"--checks={NEVER}" + ("," + LESS_FOR_TESTS if all(map(is_test, names)) else "")

def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=Path)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("files", nargs="*", metavar="FILE")
    options = parser.parse_intermixed_args()

    wanted = {str(Path(f).resolve().relative_to(ROOT)) for f in options.files}
    everything = units(options.build)
    tree = Tree()
    stamps = Path(os.environ.get("DIVISI_TIDY_CACHE") or Path.home() / ".cache" / "divisi" / "tidy")
    stamps.mkdir(parents=True, exist_ok=True)

    def stamp(names, of):
        return stamps / digest(tree.state_of(names), *sorted(of & set(names)))

    def is_clean(names):
        return stamp(names, wanted).exists() or stamp(names, set()).exists()  # as asked for, or as a whole

    chosen = [u for u, names in everything.items() if not options.files or wanted & set(names)]
    todo = [u for u in chosen if not is_clean(everything[u])]
    print(f"    {len(chosen) - len(todo)} units looked at before, {len(todo)} now")

    def check(unit):
        done = subprocess.run(["clang-tidy-19", "-p", options.build, "--quiet", header_filter(wanted),
                               checks(everything[unit]), unit], capture_output=True, text=True, check=False)
        noise = re.compile(r"\d+ warnings? (generated|treated as errors?)\.?$")
        said = done.stdout.splitlines() + ([] if done.returncode == 0 else done.stderr.splitlines())
        return unit, done.returncode, "\n".join(line for line in said if not noise.match(line))

    failed = 0
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for number, (unit, code, output) in enumerate(pool.map(check, todo), 1):
            names = everything[unit]
            more = f" and {len(names) - 1} more" if len(names) > 1 else ""
            print(f"    [{number}/{len(todo)}] {names[0]}{more}", flush=True)
            if output.strip():
                print(output, flush=True)
            if code == 0:
                stamp(names, wanted).touch()
            failed += code != 0
    return 1 if failed else 0

if __name__ == "__main__":
    sys.exit(main())
