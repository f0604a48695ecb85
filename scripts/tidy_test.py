#!/usr/bin/env python3
"""What scripts/tidy.py looks at again, in a small tree, with a clang-tidy that only notes what it was given."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SCRIPT = Path(__file__).resolve().parent / "tidy.py"
LINTER = """#!/bin/sh
for last; do :; done
basename "$last" >> "$LOOKED_AT"
! grep -q wrong "$last"
"""


class Tidy(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name).resolve() / "tree"
        self.cache = Path(folder.name).resolve() / "cache"
        self.write("scripts/tidy.py", SCRIPT.read_text())
        self.write(".clang-tidy", "Checks: x\n")
        self.write("bin/clang-tidy-19", LINTER).chmod(0o755)
        self.write("src/a/low.h", "int low();\n")
        self.write("src/a/high.h", '#include "a/low.h"\n')
        self.write("src/a/one.cc", '#include "high.h"\n#include <vector>\n')
        self.write("src/a/two.cc", "int two();\n")
        self.configure(self.root)

    def write(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def configure(self, root):
        commands = [{"directory": str(root), "file": f"src/a/{name}.cc", "command": "c++"} for name in ("one", "two")]
        (root / "build").mkdir(exist_ok=True)
        (root / "build" / "compile_commands.json").write_text(json.dumps(commands))

    def looked_at(self, *files, root=None, code=0):
        root = root or self.root
        notes = root / "notes"
        notes.write_text("")
        env = {**os.environ, "PATH": f"{self.root}/bin:{os.environ['PATH']}", "LOOKED_AT": str(notes),
               "DIVISI_TIDY_CACHE": str(self.cache)}
        done = subprocess.run([sys.executable, root / "scripts/tidy.py", root / "build", *files], cwd=root, env=env,
                              capture_output=True, text=True)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return sorted(notes.read_text().split())

    def test_what_was_clean_is_looked_at_once(self):
        self.assertEqual(self.looked_at(), ["one.cc", "two.cc"])
        self.assertEqual(self.looked_at(), [])
        self.assertEqual(self.looked_at("src/a/one.cc"), [])

    def test_another_checkout_of_the_same_sources_is_known(self):
        self.looked_at()
        other = self.root.parent / "other"
        shutil.copytree(self.root, other)
        self.configure(other)
        self.assertEqual(self.looked_at(root=other), [])

    def test_a_header_concerns_those_that_include_it_at_any_depth(self):
        self.looked_at()
        self.write("src/a/low.h", "long low();\n")
        self.assertEqual(self.looked_at(), ["one.cc"])

    def test_other_rules_concern_everything(self):
        self.looked_at()
        self.write(".clang-tidy", "Checks: y\n")
        self.assertEqual(self.looked_at(), ["one.cc", "two.cc"])

    def test_what_was_complained_of_is_looked_at_again(self):
        self.write("src/a/two.cc", "int wrong();\n")
        self.assertEqual(self.looked_at(code=1), ["one.cc", "two.cc"])
        self.assertEqual(self.looked_at(code=1), ["two.cc"])

    def test_a_file_is_looked_at_alone(self):
        self.assertEqual(self.looked_at("src/a/two.cc"), ["two.cc"])
        self.assertEqual(self.looked_at(), ["one.cc", "two.cc"], "nobody has looked at all of it")


if __name__ == "__main__":
    unittest.main()
