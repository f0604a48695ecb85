#!/usr/bin/env python3
"""Runs clang-tidy over the sources that changed since the previous commit.

    scripts/tidy_changed.py BUILD_DIR [--jobs N] [--most N] [--all]

Changed means: differs from HEAD~1, or is not committed yet; a changed header stands for the source of
the same name. clang-tidy takes half a minute a file, so at most --most files are looked at, chosen by a
hash of commit and name so that every commit looks at others; the rest is counted. A file is not looked at
twice while it, the headers and .clang-tidy stay as they are.
"""

import argparse
import concurrent.futures
import hashlib
import json
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# Tests are looked at for bugs, not for taste: gtest's ASSERT_ is not understood as a check of an optional,
# and listeners that take their parameters by value are what is being tested.
LESS_FOR_TESTS = ("-performance-*,-modernize-*,-cppcoreguidelines-*,"
                  "-bugprone-unchecked-optional-access,-bugprone-empty-catch")


def git(*arguments):
    done = subprocess.run(["git", "-C", ROOT, *arguments], capture_output=True, text=True, check=False)
    return done.stdout.split("\n")[:-1] if done.returncode == 0 else None


def changed_files():
    # The first commit, and a shallow clone, have no previous one: then everything is new.
    tracked = git("diff", "--name-only", "--diff-filter=d", "HEAD~1") if git("rev-parse", "-q", "--verify", "HEAD~1") else None
    if tracked is None:
        tracked = git("ls-files") or []
    return set(tracked) | set(git("ls-files", "--others", "--exclude-standard") or [])


def sources_to_check(known, everything):
    if everything:
        return sorted(known)
    wanted = set()
    for name in changed_files():
        if name.endswith((".cc", ".h")):
            wanted.add(name if name.endswith(".cc") else name[:-2] + ".cc")
            if name.startswith("include/divisi/"):
                wanted |= {k for k in known if Path(k).name == Path(name).stem + ".cc"}
    return sorted(wanted & known)


def digest(*parts):
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def state_of_headers():
    names = sorted(p for top in ("src", "include") for p in (ROOT / top).rglob("*.h"))
    return digest((ROOT / ".clang-tidy").read_text(), *(str(p.relative_to(ROOT)) + p.read_text() for p in names))


def extra_checks(name):
    is_test = name.endswith("_test.cc") or name.startswith("tests/")
    return [f"--checks={LESS_FOR_TESTS}"] if is_test else []


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("build", type=Path)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--most", type=int, default=12)
    parser.add_argument("--all", action="store_true", help="every source, changed or not")
    options = parser.parse_args()

    database = json.loads((options.build / "compile_commands.json").read_text())
    paths = [(Path(entry["directory"]) / entry["file"]).resolve() for entry in database]
    known = {str(p.relative_to(ROOT)) for p in paths if p.is_relative_to(ROOT) and "build" not in p.relative_to(ROOT).parts}
    headers = state_of_headers()
    stamps = options.build / "tidy"
    stamps.mkdir(exist_ok=True)

    def stamp(name):
        return stamps / digest(headers, name, *extra_checks(name), (ROOT / name).read_text())

    wanted = sources_to_check(known, options.all)
    todo = [name for name in wanted if not stamp(name).exists()]
    commit = (git("rev-parse", "HEAD") or ["none"])[0]
    todo.sort(key=lambda name: digest(commit, name))
    left_out = [] if options.all else todo[options.most:]
    todo = todo if options.all else todo[:options.most]
    print(f"    {len(wanted)} changed sources, {len(wanted) - len(todo) - len(left_out)} looked at before, {len(todo)} now")
    if left_out:
        named = ", ".join(sorted(left_out)[:5]) + (", ..." if len(left_out) > 5 else "")
        print(f"    {len(left_out)} left out this time (--all looks at every source): {named}")

    def check(name):
        done = subprocess.run(["clang-tidy-19", "-p", options.build, "--quiet", *extra_checks(name), ROOT / name],
                              capture_output=True, text=True, check=False)
        noise = re.compile(r"\d+ warnings? (generated|treated as errors?)\.?$")
        said = done.stdout.splitlines() + ([] if done.returncode == 0 else done.stderr.splitlines())
        return name, done.returncode, "\n".join(line for line in said if not noise.match(line))

    failed = []
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for number, (name, code, output) in enumerate(pool.map(check, todo), 1):
            print(f"    [{number}/{len(todo)}] {name}", flush=True)
            if output.strip():
                print(output, flush=True)
            if code == 0:
                stamp(name).touch()
            else:
                failed.append(name)
    if failed:
        print(f"    clang-tidy complains about: {' '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
