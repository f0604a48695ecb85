"""Running the real ditask: processes with deadlines, free ports, packages in the shapes users have."""

import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import zipfile

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "shared"))

from ports import free_port, wait_until_it_listens  # noqa: E402, F401 (for the tests)

DITASK = os.environ["DITASK"]
PACKAGES = pathlib.Path(os.environ["DITASK_PACKAGES"])
DEADLINE = 60  # seconds; only a hang ever waits for it


def eventually(holds, complaint):
    """Until it holds, with a deadline that only a hang reaches; then `complaint()` is the error."""
    end = time.monotonic() + DEADLINE
    while not holds():
        if time.monotonic() > end:
            raise AssertionError(complaint())
        time.sleep(0.01)


class Launcher:
    """One ditask that was started; its output goes to files, so it never blocks."""

    def __init__(self, directory, arguments, env=None, cwd=None, prefix=(), program=DITASK):
        self.out = tempfile.TemporaryFile(dir=directory)
        self.err = tempfile.TemporaryFile(dir=directory)
        environment = {
            k: v for k, v in os.environ.items() if not k.startswith(("DI_", "SLURM", "DITASK", "DIVISI"))
        }
        environment["TMPDIR"] = str(directory)
        environment.update(env or {})
        self.process = subprocess.Popen(
            [*prefix, program, *map(str, arguments)],
            stdin=subprocess.DEVNULL,
            stdout=self.out,
            stderr=self.err,
            env=environment,
            cwd=cwd,
        )

    def text(self, stream):
        stream.seek(0)
        return stream.read().decode(errors="replace")

    def wait(self):
        code = self.process.wait(DEADLINE)
        return code, self.text(self.out), self.text(self.err)

    def wait_until_printed(self, text, times=1):
        """Until standard output holds the text so often; the process must still run."""
        self._wait_while_it_runs(
            lambda: self.text(self.out).count(text) >= times, f"never printed {text!r}"
        )

    def wait_until_logged(self, pattern):
        """Until a line of standard error matches; the process must still run."""
        self._wait_while_it_runs(
            lambda: re.search(pattern, self.text(self.err)), f"never logged {pattern!r}"
        )

    def wait_until_last_line(self, line):
        """Until the last line of standard output is this one; the process must still run."""
        self._wait_while_it_runs(
            lambda: self.text(self.out).splitlines()[-1:] == [line], f"the last line is not {line!r}"
        )

    def _wait_while_it_runs(self, holds, what):
        def complaint():
            return f"{what}: {self.text(self.out)}\n{self.text(self.err)}"

        def holds_or_fails():
            if holds():
                return True
            if self.process.poll() is not None:
                raise AssertionError(complaint())
            return False

        eventually(holds_or_fails, complaint)

    def signal(self, number):
        self.process.send_signal(number)

    def close(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self.out.close()
        self.err.close()


class DitaskTest(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="ditask_test_"))
        self.temp = self.directory / "tmp"
        self.temp.mkdir()
        self.addCleanup(shutil.rmtree, self.directory, ignore_errors=True)

    def start(self, *arguments, **options):
        launcher = Launcher(self.temp, arguments, **options)
        self.addCleanup(launcher.close)
        return launcher

    def run_ditask(self, *arguments, **options):
        return self.start(*arguments, **options).wait()

    def succeed(self, *arguments, **options):
        code, out, err = self.run_ditask(*arguments, **options)
        self.assertEqual(code, 0, f"{out}\n{err}")
        return out

    def usage_error(self, *arguments, **options):
        """Exit code 2 and exactly one line, which is returned."""
        code, out, err = self.run_ditask(*arguments, **options)
        self.assertEqual(code, 2, f"{out}\n{err}")
        self.assertEqual(len(err.splitlines()), 1, err)
        self.assertTrue(err.startswith("ditask: "), err)
        self.assertEqual(out, "")
        return err

    def package(self, *parts, copy="my_module.so"):
        """A copy of a built package under the test's directory; returns its path."""
        target = self.directory.joinpath(*parts)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(PACKAGES / copy, target)
        return target

    def zip_package(self, name, entries):
        path = self.directory / name
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for entry, source in entries.items():
                archive.write(PACKAGES / source, entry)
        return path

    def local(self, main, port, *more):
        """Arguments for one of the built packages on loopback."""
        return ("--package", PACKAGES, "--main", main, "--address", "127.0.0.1", "--ports", port, *more)

    def assert_nothing_left(self):
        self.assertEqual(sorted(path.name for path in self.temp.iterdir()), [])
