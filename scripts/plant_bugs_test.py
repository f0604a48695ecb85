"""The list of scripts/plant_bugs can be planted in this tree, and mistakes in such a list are named."""

import importlib.machinery
import importlib.util
import pathlib
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
loader = importlib.machinery.SourceFileLoader("plant_bugs", str(HERE / "plant_bugs"))
plant_bugs = importlib.util.module_from_spec(importlib.util.spec_from_loader("plant_bugs", loader))
loader.exec_module(plant_bugs)

GOOD = {"name": "a", "file": "src/a.cc", "old": "one();", "new": "two();", "target": "a_test"}


class PlantBugsTest(unittest.TestCase):
    def mistakes(self, *bugs):
        """In a tree of one file."""
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            (root / "src").mkdir()
            (root / "src" / "a.cc").write_text("  one();\n  three();\n  three();\n")
            (root / "src" / "CMakeLists.txt").write_text("divisi_test(a_test SOURCES a_test.cc)\n")
            (root / "test_a.py").write_text("")
            return plant_bugs.mistakes(bugs, root)

    def test_every_planted_line_stands_exactly_once_in_the_tree(self):
        bugs = plant_bugs.read_list()
        self.assertGreaterEqual(len(bugs), 40)
        self.assertEqual(plant_bugs.mistakes(bugs), [])

    def test_a_good_entry_is_taken(self):
        self.assertEqual(self.mistakes(GOOD), [])
        self.assertEqual(self.mistakes({**GOOD, "target": "test_a.py", "filter": "one"}), [])

    def test_mistakes_are_named(self):
        for change, words in [
            ({"old": "four();"}, "stands 0 times in src/a.cc"),
            ({"old": "three();"}, "stands 2 times in src/a.cc"),
            ({"old": "two();"}, "`new` another one"),
            ({"old": "one();\n"}, "`old` is one line"),
            ({"file": "src/b.cc"}, "there is no src/b.cc"),
            ({"target": "b_test"}, "there is no test program b_test"),
            ({"target": "a_tes"}, "there is no test program a_tes"),
            ({"target": "test_b.py"}, "there is no test program test_b.py"),
            ({"tests": "x"}, "unknown keys ['tests']"),
        ]:
            found = self.mistakes({**GOOD, **change})
            self.assertTrue(any(words in line for line in found), (words, found))
        self.assertIn("stands twice", self.mistakes(GOOD, GOOD)[0])


if __name__ == "__main__":
    unittest.main()
