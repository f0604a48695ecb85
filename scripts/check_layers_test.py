#!/usr/bin/env python3
"""Plants one violation of each rule in a small tree and looks for the complaint."""

import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SCRIPT = Path(__file__).resolve().parent / "check_layers.py"

CLEAN = {
    "src/base/status.h": "#include <fmt/format.h>\n#include <string>\n",
    "src/json/value.cc": '#include "json/value.h"\n#include "base/status.h"\n#include <boost/json.hpp>\n',
    "src/event/payload.cc": '#include "divisi/payload.h"\n#include <msgpuck.h>\n',
    "src/mesh/link.cc": '#include "event/loop_core.h"\n#include "io/reactor.h"\n',
    "include/divisi/payload.h": '#include <vector>\n#include "divisi/export.h"\n',
    "apps/ditask.cc": '#include "launch/ditask.h"\n#include <CLI/CLI.hpp>\n',
}


class CheckLayers(unittest.TestCase):
    def check(self, extra=None):
        with tempfile.TemporaryDirectory() as folder:
            for name, text in {**CLEAN, **(extra or {})}.items():
                path = Path(folder) / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, encoding="utf-8")
            done = subprocess.run([sys.executable, SCRIPT, folder], capture_output=True, text=True, check=False)
            return done.returncode, done.stdout

    def refuses(self, name, text, complaint):
        code, output = self.check({name: text})
        self.assertEqual(code, 1, output)
        self.assertIn(name + ":", output)
        self.assertIn(complaint, output)
        self.assertEqual(len(output.splitlines()), 1, output)

    def test_a_clean_tree_passes_without_a_word(self):
        self.assertEqual(self.check(), (0, ""))

    def test_a_module_may_not_use_one_above_it(self):
        self.refuses("src/base/clock.cc", '#include "mesh/link.h"\n', "base may not use mesh")
        self.refuses("src/event/loop.cc", '  #  include "io/reactor.h"\n', "event may not use io")

    def test_a_header_is_named_from_the_root_of_the_sources(self):
        self.refuses("src/base/clock.cc", '#include "clock.h"\n', "must be named from src/")

    def test_a_library_stays_behind_its_owner(self):
        self.refuses("src/mesh/a.cc", "#include <boost/asio/ip/tcp.hpp>\n", "belongs behind io")
        self.refuses("src/launch/a.cc", "#include <openssl/evp.h>\n", "belongs behind io")
        self.refuses("src/mesh/a.cc", "#include <zip.h>\n", "belongs behind launch or run or io")
        self.refuses("src/runtime/a.cc", "#include <msgpuck.h>\n", "belongs behind event")
        self.refuses("src/launch/a.cc", "#include <boost/json.hpp>\n", "belongs behind json")
        self.refuses("src/io/a.cc", "#include <spdlog/spdlog.h>\n", "belongs behind base")
        self.refuses("src/mesh/a.cc", "#include <CLI/CLI.hpp>\n", "belongs behind launch or run or apps")
        self.refuses("src/base/a.cc", "#include <boost/algorithm/string.hpp>\n", "no module")
        self.refuses("examples/a.cc", "#include <boost/asio.hpp>\n", "not in examples")

    def test_a_public_header_sees_the_standard_library_and_its_like_only(self):
        self.refuses("include/divisi/a.h", "#include <fmt/format.h>\n", "standard library only")
        self.refuses("include/divisi/a.h", '#include "base/status.h"\n', "may not include")
        self.refuses("include/divisi/a.h", "#include <boost/asio.hpp>\n", "standard library only")

    def test_a_new_module_must_enter_the_table(self):
        code, output = self.check({"src/fresh/a.cc": ""})
        self.assertEqual(code, 1)
        self.assertIn("src/fresh:0: this module is not in the table", output)


if __name__ == "__main__":
    unittest.main()
