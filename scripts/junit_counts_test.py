#!/usr/bin/env python3
"""What ctest and pytest write, and what it counts as."""

import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SCRIPT = Path(__file__).resolve().parent / "junit_counts.py"


class JUnitCounts(unittest.TestCase):
    def count(self, *cases):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "results.xml"
            path.write_text(f"<testsuite>{''.join(cases)}</testsuite>", encoding="utf-8")
            done = subprocess.run([sys.executable, SCRIPT, path], capture_output=True, text=True, check=True)
            return done.stdout.splitlines()

    def test_no_tests_are_no_passes(self):
        self.assertEqual(self.count(), ["0 0"])

    def test_passes_and_failures(self):
        self.assertEqual(
            self.count('<testcase name="a" status="run"/>', '<testcase name="b"/>',
                       '<testcase name="c" status="fail"><failure message=""/></testcase>',
                       '<testcase name="d"><error message="in the teardown"/></testcase>'),
            ["2 2", "c", "d"])

    def test_what_did_not_run_has_failed(self):
        self.assertEqual(
            self.count('<testcase name="a" status="notrun"><skipped message="SKIP_REGULAR_EXPRESSION_MATCHED"/></testcase>',
                       '<testcase name="b" status="disabled"><skipped message="Disabled"/></testcase>',
                       '<testcase name="c"><skipped type="pytest.skip" message="two&#10;lines"/></testcase>',
                       '<testcase name="d" status="notrun"/>'),
            ["0 4", "a (skipped: SKIP_REGULAR_EXPRESSION_MATCHED)", "b (skipped: Disabled)", "c (skipped: two lines)",
             "d (skipped: no reason given)"])


if __name__ == "__main__":
    unittest.main()
