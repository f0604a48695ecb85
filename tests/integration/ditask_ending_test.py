"""How ditask starts and ends where something is against it: closed streams, full disks, signals."""

import os
import pathlib
import signal
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))

from ditask_support import DEADLINE, DITASK, PACKAGES, DitaskTest, eventually, free_port  # noqa: E402


# A forked child lacks its parent's threads, so what they hold looks leaked to LeakSanitizer.
NO_LEAK_CHECK = {"ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":detect_leaks=0"}


class Streams(DitaskTest):
    def shell(self, redirection, *arguments):
        """Exit code and stderr of ditask with its streams as a shell sets them."""
        log = self.directory / "stderr"
        with log.open("wb") as stderr:
            code = subprocess.run(
                ["sh", "-c", f'exec "$@" {redirection}', "sh", DITASK, *map(str, arguments)],
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=stderr, timeout=DEADLINE,
                env={**os.environ, "TMPDIR": str(self.temp)}, check=False,
            ).returncode
        return code, log.read_text()

    def test_closed_streams_are_none(self):
        archive = self.zip_package("actions.zip", {"actions.so": "actions.so"})
        for redirection in (">&-", "<&- >&-", "<&- >&- 2>&-"):
            for package in (PACKAGES, archive):
                with self.subTest(redirection=redirection, package=package.name):
                    code, err = self.shell(
                        redirection, "--package", package, "--main", "actions.print_much",
                        "--parallel-workers", 2, "--protocol", "ipc",
                    )
                    self.assertEqual(code, 0, err)
        self.assert_nothing_left()

    def test_a_text_that_cannot_be_written_is_no_success(self):
        for arguments in (("--help",), ("--package", PACKAGES, "--main", "actions.succeed", "--dry-run")):
            code, err = self.shell(">/dev/full", *arguments)
            self.assertEqual(code, 1, err)
            self.assertIn("writing to stdout: No space left", err)

    def test_output_that_is_lost_on_a_full_disk_is_told_of_once(self):
        code, err = self.shell(
            ">/dev/full", "--package", PACKAGES, "--main", "actions.print_much",
            "--parallel-workers", 2, "--protocol", "ipc",
        )
        self.assertEqual(code, 0, err)
        self.assertEqual(err.count("writing stdout: No space left"), 1, err)

    def test_a_log_file_on_a_full_disk_is_told_of_once(self):
        logs = self.directory / "logs"
        logs.mkdir()
        (logs / "node_0.log").symlink_to("/dev/full")
        code, out, err = self.run_ditask(
            "--package", PACKAGES, "--main", "actions.print_much", "--protocol", "ipc",
            "--log-dir", logs,
        )
        self.assertEqual(code, 0, err)
        self.assertIn("line 999 of many", out)
        self.assertEqual(err.count("node_0.log: No space left"), 1, err)

    def test_a_log_file_that_cannot_be_opened_is_a_usage_error(self):
        (self.directory / "logs" / "node_0.log").mkdir(parents=True)
        error = self.usage_error(
            "--package", PACKAGES, "--main", "actions.print_much", "--protocol", "ipc",
            "--log-dir", self.directory / "logs",
        )
        self.assertIn("node_0.log: Is a directory", error)


class Endings(DitaskTest):
    def test_a_signal_while_a_package_is_loaded_leaves_nothing(self):
        archive = self.zip_package("hangs.zip", {"hangs_when_loaded.so": "hangs_when_loaded.so"})
        for number in (signal.SIGTERM, signal.SIGKILL):
            with self.subTest(signal=number):
                marker = self.directory / f"pid_{number}"
                launcher = self.start(
                    "--package", archive, "--main", "hangs_when_loaded.start",
                    env={"DIVISI_TEST_MARKER": str(marker)},
                )
                eventually(
                    lambda: marker.exists() and marker.read_text().endswith("\n"),
                    lambda: "the package is never loaded",
                )
                probe = pathlib.Path("/proc") / marker.read_text().strip()
                launcher.signal(number)
                code, _, err = launcher.wait()
                eventually(lambda: not probe.exists(), lambda: "the process that loads it is left")
                if number == signal.SIGTERM:
                    self.assertEqual(code, 143, err)
                    self.assert_nothing_left()

    def test_a_signal_while_ditask_itself_loads_a_package_is_answered_by_ditask(self):
        """By a line and an exit code; the default would do nothing where ditask is process 1."""
        for number, expected in ((signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGHUP, 129)):
            with self.subTest(signal=number):
                marker = self.directory / f"pid_{number}"
                launcher = self.start(
                    "--package", PACKAGES, "--main", "hangs_the_second_time.start", "--protocol", "ipc",
                    env={"DIVISI_TEST_MARKER": str(marker)},
                )
                eventually(
                    lambda: marker.exists() and marker.read_text().endswith("\n"),
                    lambda: "the package is never loaded",
                )
                self.assertEqual(int(marker.read_text()), launcher.process.pid)
                launcher.signal(number)
                code, _, err = launcher.wait()
                self.assertEqual(code, expected, err)
                self.assertIn(f"ditask: ended by {number.name}", err.splitlines()[-1])
                self.assert_nothing_left()

    def test_a_handler_that_a_package_brings_is_called_and_main_finishes(self):
        for env in ({}, {"DIVISI_TEST_CHAIN": "1"}):
            with self.subTest(**env):
                launcher = self.start(
                    "--package", PACKAGES, "--main", "brings_a_handler.start", "--protocol", "ipc", env=env
                )
                launcher.wait_until_printed("running")
                launcher.signal(signal.SIGTERM)
                code, out, err = launcher.wait()
                self.assertEqual(code, 143, err)
                self.assertIn("finished, handled=1", out)
                self.assert_nothing_left()

    def test_one_worker_that_calls_exit_has_failed(self):
        for workers in (1, 2):
            with self.subTest(workers=workers):
                code, _, err = self.run_ditask(
                    "--package", PACKAGES, "--main", "actions.leave_by_exit", "--protocol", "ipc",
                    "--parallel-workers", workers,
                )
                self.assertEqual(code, 1, err)
                self.assertRegex(err, r"ditask: node [01]: ended with exit code 3")
                self.assert_nothing_left()

    def test_a_child_of_a_worker_that_calls_exit_is_its_parents_business(self):
        for workers in (1, 2):
            with self.subTest(workers=workers):
                code, out, err = self.run_ditask(
                    "--package", PACKAGES, "--main", "actions.fork_and_exit", "--protocol", "ipc",
                    "--parallel-workers", workers, env=NO_LEAK_CHECK,
                )
                self.assertEqual(code, 0, err)
                self.assertEqual(out.count("child=3 socket=there"), workers, out)
                self.assertNotIn("ditask: ", err)
                self.assert_nothing_left()

    def test_a_child_of_a_worker_that_throws_is_its_parents_business(self):
        for workers in (1, 2):
            with self.subTest(workers=workers):
                code, out, err = self.run_ditask(
                    "--package", PACKAGES, "--main", "actions.fork_and_throw", "--protocol", "ipc",
                    "--parallel-workers", workers, env=NO_LEAK_CHECK,
                )
                self.assertEqual(code, 0, err)
                self.assertEqual(out.count("child=1 socket=there"), workers, out)
                self.assertEqual(err.count("only the child"), workers, err)
                self.assertNotIn("ditask: ", err)
                self.assert_nothing_left()

    def test_a_hangup_is_a_request_to_finish(self):
        for workers in (1, 2):
            with self.subTest(workers=workers):
                launcher = self.start(
                    "--package", PACKAGES, "--main", "actions.wait_for_finish", "--protocol", "ipc",
                    "--parallel-workers", workers,
                )
                launcher.wait_until_printed("running node=", workers)
                launcher.signal(signal.SIGHUP)
                code, out, err = launcher.wait()
                self.assertEqual(code, 129, err)
                self.assertEqual(out.count("finished node="), workers, out)
                self.assert_nothing_left()

    def test_a_single_worker_is_started_again_if_asked_for(self):
        out = self.succeed(
            "--package", PACKAGES, "--main", "actions.die_once", "--worker-lost", "restart",
            "--protocol", "ipc", env={"DIVISI_TEST_MARKER": str(self.directory / "marker")},
        )
        self.assertIn("second life of node=0", out)

    def test_A068_the_others_finish_when_one_is_killed(self):
        code, out, err = self.run_ditask(
            *self.local("actions.lose_node_zero_of_three", free_port(3), "--parallel-workers", 3,
                        "--topology", "mesh")
        )
        self.assertEqual(code, 137, err)
        for node in (1, 2):
            self.assertIn(f"left node={node}", out)

    def test_nobody_waits_for_a_worker_that_died_before_it_came_and_is_ignored(self):
        for protocol in ("ipc", "tcp"):
            code, out, err = self.run_ditask(
                *self.local("dies_early.start", free_port(3), "--parallel-workers", 3, "--topology",
                            "mesh", "--worker-lost", "ignore", "--protocol", protocol)
            )
            self.assertEqual(code, 0, err)
            for node in (0, 2):
                self.assertIn(f"node={node}\n", out)

    def test_programs_start_one_after_the_other(self):
        run = ("--parallel-workers", 2, "--log-level", "debug", "--startup-interval")
        launcher = self.start(*run, 600, "--", "true")
        launcher.wait_until_logged("worker node=0 .*: ended")
        launcher.signal(signal.SIGTERM)
        code, _, err = launcher.wait()
        self.assertEqual(code, 143, err)
        self.assertNotIn("worker node=1 ", err)
        code, _, err = self.run_ditask(*run, "0.1", "--", "true")
        self.assertEqual(code, 0, err)
        self.assertRegex(err, "worker node=1 .*: started")


class Mistakes(DitaskTest):
    def test_what_a_program_cannot_do_is_said(self):
        self.assertIn("--worker-lost restart", self.usage_error("--auto-recover", "--", "true"))

    def test_a_symbol_that_is_no_function(self):
        error = self.usage_error("--package", PACKAGES, "--main", "libsymbol.so:no_function")
        self.assertIn("'no_function'", error)
        self.assertIn("is no function", error)

    def test_a_folder_of_objects_is_no_python_package(self):
        self.package("objects", "train.so")
        error = self.usage_error("--package", "objects", cwd=self.directory)
        self.assertIn("no objects.so", error)

    def test_a_dry_run_of_nothing(self):
        self.assertIn("/nope", self.usage_error("--package", "/nope", "--main", "a.b", "--dry-run"))

    def test_places_that_are_none(self):
        run = ("--package", PACKAGES, "--main", "actions.succeed")
        env = {"DI_NODES": "127.0.0.1,,127.0.0.2", "DI_RANK": "1"}
        self.assertIn("empty place", self.usage_error(*run, "--platform", "k8s", env=env))
        env = {"SLURM_NODELIST": "n[1-", "SLURM_PROCID": "0", "SLURM_NTASKS": "1"}
        self.assertIn("SLURM_NODELIST", self.usage_error(*run, "--platform", "slurm", env=env))
        self.assertIn("has no host", self.usage_error(*run, "--attach-to", ":50515"))
        self.assertIn("has port 0", self.usage_error(*run, "--attach-to", "h:0"))
        env = {"DI_NODES": "127.0.0.1", "DI_RANK": "0"}
        spec = '{"tasks": [{"attach_to": "h:0"}]}'
        self.assertIn(
            "has port 0",
            self.usage_error(*run, "--platform", "k8s", "--platform-spec", spec, env=env),
        )


if __name__ == "__main__":
    unittest.main()
