"""The command line of ditask, end to end: acceptance behaviours A122 to A128 and A130."""

import itertools
import json
import os
import re
import signal
import socket
import stat
import struct
import unittest
import zipfile

from ditask_support import PACKAGES, DitaskTest, free_port, wait_until_it_listens


class Nodes(DitaskTest):
    def test_A122_one_worker_on_kubernetes_runs_main(self):
        out = self.succeed(
            "--package", PACKAGES, "--main", "actions.report", "--platform", "k8s",
            "--topology", "mesh", "--ports", free_port(), "--parallel-workers", 1,
            env={"DI_NODES": "127.0.0.1", "DI_RANK": "0"},
        )
        self.assertIn("node=0 local=0 of=1", out)

    def test_A125_an_address_without_scheme_connects(self):
        first, second = free_port(), free_port()
        meet = {"DIVISI_TEST_PEERS": "1"}
        a = self.start(*self.local("meeting.main", first), env=meet)
        b = self.start(
            *self.local("meeting.main", second, "--node-ids", 1, "--attach-to", f"127.0.0.1:{first}"),
            env=meet,
        )
        for launcher, heard in ((a, "node 0 heard 1"), (b, "node 1 heard 0")):
            code, out, err = launcher.wait()
            self.assertEqual(code, 0, err)
            self.assertIn(heard, out)

    def test_A126_labels_and_node_ids_of_the_command_line(self):
        out = self.succeed(
            *self.local("actions.report", free_port(), "--labels", "a, b", "--node-ids", 5)
        )
        self.assertIn("node=5 local=0 of=1 labels=a,b", out)

    def test_A127_two_workers_with_a_list_of_ports(self):
        base = free_port(3)
        out = self.succeed(
            *self.local("actions.report", f"{base},{base + 2}", "--parallel-workers", 2,
                        "--topology", "mesh")
        )
        self.assertIn(f"node=0 local=0 of=2 labels= listen=tcp://127.0.0.1:{base}\n", out)
        self.assertIn(f"node=1 local=1 of=2 labels= listen=tcp://127.0.0.1:{base + 2}\n", out)

    def test_A128_the_guides_pod_command_makes_one_job_of_six_nodes(self):
        hosts = ("127.0.0.1", "127.0.0.2", "127.0.0.3")
        port = free_port(2, hosts)
        pods = [
            self.start(
                "--package", PACKAGES, "--main", "meeting.main", "--parallel-workers", 2,
                "--ports", port,
                env={"DI_NODES": ",".join(hosts), "DI_RANK": str(rank), "DIVISI_TEST_PEERS": "5"},
            )
            for rank in (2, 0, 1)
        ]
        heard = {}
        for pod in pods:
            code, out, err = pod.wait()
            self.assertEqual(code, 0, err)
            for node, others in re.findall(r"node (\d) heard ([\d,]+)", out):
                heard[int(node)] = [int(other) for other in others.split(",")]
        everybody = set(range(6))
        self.assertEqual(heard, {node: sorted(everybody - {node}) for node in everybody})

    def test_A130_three_servers_in_any_start_order(self):
        servers = {0: "127.0.0.1", 1: "127.0.0.2", 2: "127.0.0.3"}
        for order in itertools.permutations(servers):
            with self.subTest(order=order):
                port = free_port(1, tuple(servers.values()))
                started = {}
                for node in order:
                    attach = ["--attach-to", f"127.0.0.1:{port}"] if node else []
                    started[node] = self.start(
                        "--package", PACKAGES, "--main", "meeting.main", "--parallel-workers", 1,
                        "--protocol", "tcp", "--address", servers[node], "--ports", port,
                        "--node-ids", node, *attach,
                        env={"DIVISI_TEST_PEERS": "2,1,1"},
                    )
                    # One that dials listens before that: it is refused until the dialled one is there.
                    wait_until_it_listens(started[node].process, servers[node], port)
                heard = {}
                for node, launcher in started.items():
                    code, out, err = launcher.wait()
                    self.assertEqual(code, 0, err)
                    heard[node] = re.search(r"heard ([\d,]*)", out)[1]
                self.assertEqual(heard, {0: "1,2", 1: "0", 2: "0"})

    def test_two_workers_over_ipc_meet_and_leave_no_file(self):
        out = self.succeed(
            "--package", PACKAGES, "--main", "meeting.main", "--parallel-workers", 2,
            "--topology", "mesh", "--protocol", "ipc", env={"DIVISI_TEST_PEERS": "1"},
        )
        self.assertIn("[node 0] node 0 heard 1\n", out)
        self.assertIn("[node 1] node 1 heard 0\n", out)
        self.assert_nothing_left()

    def test_slurm_tasks_of_one_host_share_its_ports(self):
        base = free_port(2)
        tasks = [
            self.start(
                "--package", PACKAGES, "--main", "meeting.main", "--platform", "slurm",
                "--topology", "mesh", "--ports", base,
                env={
                    "SLURM_NTASKS": "2", "SLURM_TASKS_PER_NODE": "2", "SLURM_NODELIST": "127.0.0.1",
                    "SLURM_PROCID": str(rank), "SLURM_LOCALID": str(rank), "SLURM_NODEID": "0",
                    "DIVISI_TEST_PEERS": "1",
                },
            )
            for rank in (0, 1)
        ]
        for rank, task in enumerate(tasks):
            code, out, err = task.wait()
            self.assertEqual(code, 0, err)
            self.assertIn(f"node {rank} heard {1 - rank}", out)

    def test_nodes_with_one_secret_meet_and_others_are_refused(self):
        secrets = []
        for name in ("right", "wrong"):
            path = self.directory / name
            path.write_text(name + "\n")
            path.chmod(0o600)
            secrets.append(path)
        port = free_port()
        hub = self.start(
            *self.local("meeting.main", port, "--secret-file", secrets[0]),
            env={"DIVISI_TEST_PEERS": "1"},
        )
        attach = ("--attach-to", f"127.0.0.1:{port}", "--join-timeout", 20)
        code, _, err = self.run_ditask(
            *self.local("meeting.main", free_port(), "--node-ids", 1, *attach),
            env={"DIVISI_SECRET_FILE": str(secrets[1])},
        )
        self.assertEqual(code, 3, err)
        self.assertNotIn("right", err)
        code, _, err = self.run_ditask(
            *self.local("meeting.main", free_port(), "--node-ids", 2, *attach),
            env={"DIVISI_SECRET_FILE": str(secrets[0]), "DIVISI_TEST_PEERS": "1"},
        )
        self.assertEqual(code, 0, err)
        self.assertEqual(hub.wait()[0], 0)


class Entries(DitaskTest):
    LOCAL = "entered my_module.main of the local copy\n"

    def enter(self, *arguments, **options):
        return self.succeed("--protocol", "ipc", *arguments, **options)

    def test_A123_a_package_that_holds_the_folder_of_the_module(self):
        self.package("pk", "my_module", "my_module.so")
        out = self.enter("--package", "pk", "--main", "my_module.main", cwd=self.directory)
        self.assertEqual(out, self.LOCAL)

    def test_A123_a_package_that_holds_the_module(self):
        self.package("pk", "libmy_module.so")
        out = self.enter("--package", "pk", "--main", "my_module.main", cwd=self.directory)
        self.assertEqual(out, self.LOCAL)

    def test_A123_an_archive_with_main(self):
        for entry in ("my_module/my_module.so", "my_module.so"):
            self.zip_package("my_module.zip", {entry: "my_module.so"})
            out = self.enter(
                "--package", "my_module.zip", "--main", "my_module.main", cwd=self.directory
            )
            self.assertEqual(out, "[node 0] " + self.LOCAL)
            self.assert_nothing_left()

    def test_A123_an_archive_without_main(self):
        self.zip_package("my_module.zip", {"my_module/my_module.so": "my_module.so"})
        out = self.enter("--package", "my_module.zip", cwd=self.directory)
        self.assertEqual(out, "[node 0] " + self.LOCAL)

    def test_A123_the_guides_own_command_in_the_parent_directory(self):
        self.package("my_module", "my_module.so")
        out = self.enter("--package", "my_module", "--main", "my_module.main", cwd=self.directory)
        self.assertEqual(out, self.LOCAL)

    def test_A123_a_module_beside_the_folder_of_the_package(self):
        (self.directory / "my_module").mkdir()
        self.package("my_module.so")
        out = self.enter("--package", "my_module", "--main", "my_module.main", cwd=self.directory)
        self.assertEqual(out, self.LOCAL)

    def test_A123_a_path_without_main(self):
        self.package("pk", "my_module", "my_module.so")
        out = self.enter("--package", "pk/my_module", cwd=self.directory)
        self.assertEqual(out, self.LOCAL)

    def test_A123_the_local_module_wins_over_an_installed_one(self):
        installed = self.package("installed", "libmy_module.so", copy="my_module_installed.so")
        self.package("work", "libmy_module.so")
        paths = [str(installed.parent), os.environ.get("LD_LIBRARY_PATH", "")]
        out = self.enter(
            "--package", ".", "--main", "my_module.main", cwd=self.directory / "work",
            env={"LD_LIBRARY_PATH": ":".join(filter(None, paths))},
        )
        self.assertEqual(out, self.LOCAL)

    def test_a_C_symbol_of_a_shared_object(self):
        out = self.enter("--package", PACKAGES, "--main", "libsymbol.so:run")
        self.assertEqual(out, "run(1, run)\n")
        out = self.enter("--main", f"{PACKAGES}/libsymbol.so:run", "--parallel-workers", 2,
                         "--topology", "alone")
        self.assertEqual(out.count("run(1, run)\n"), 2)

    def test_any_program_gets_its_configuration_in_the_environment(self):
        port = free_port(2)
        out = self.succeed(
            "--parallel-workers", 2, "--topology", "star", "--address", "127.0.0.1", "--ports", port,
            "--labels", "b,a", "--job-id", "lab/7", "--node-ids", 4, "--attach-to", "10.0.0.1:9",
            "--", "sh", "-c",
            'echo "$DITASK_NODE_ID $DITASK_LOCAL_ID $DITASK_N_WORKERS $DITASK_LISTEN '
            '$DITASK_ATTACH_TO $DITASK_LABELS $DITASK_JOB_ID $1"', "sh", "argument",
        )
        hub = f"tcp://127.0.0.1:{port}"
        self.assertEqual(
            sorted(out.splitlines()),
            [
                f"[node 4] 4 0 2 {hub} tcp://10.0.0.1:9 a,b lab/7 argument",
                f"[node 5] 5 1 2 tcp://127.0.0.1:{port + 1} {hub},tcp://10.0.0.1:9 a,b lab/7 argument",
            ],
        )

    def test_output_carries_the_node_id_and_goes_to_the_log_directory(self):
        logs = self.directory / "logs"
        out = self.succeed(
            *self.local("actions.report", free_port(2), "--parallel-workers", 2, "--topology", "mesh",
                        "--log-dir", logs)
        )
        self.assertRegex(out, r"(?m)^\[node 1\] node=1 local=1")
        self.assertRegex((logs / "node_0.log").read_text(), r"(?m)^node=0 local=0")
        self.assertRegex((logs / "node_1.log").read_text(), r"(?m)^node=1 local=1")

    def test_dry_run_prints_every_worker_and_no_secret(self):
        secret = self.directory / "secret"
        secret.write_text("do-not-show")
        secret.chmod(0o600)
        code, out, err = self.run_ditask(
            "--dry-run", "--main", "a.main", "--parallel-workers", 2, "--secret-file", secret,
            "--topology", "mesh", "--labels", "x",
            env={"DI_NODES": "h0,h1", "DI_RANK": "1", "DI_JOB_ID": "ns/job"},
        )
        self.assertEqual(code, 0, err)
        self.assertNotIn("do-not-show", out + err)
        plan = json.loads(out)
        self.assertEqual(plan["platform"], "k8s")
        self.assertEqual(plan["job_id"], "ns/job")
        self.assertEqual(plan["secret"], "set")
        self.assertEqual(plan["job_nodes"], 4)
        self.assertEqual([worker["node_id"] for worker in plan["workers"]], [2, 3])
        self.assertEqual(plan["workers"][0]["attach_to"], ["tcp://h0:50515", "tcp://h0:50516"])
        self.assertEqual(plan["workers"][1]["dial"], ["tcp://h1:50515"])
        self.assertEqual(plan["workers"][1]["labels"], ["x"])


class ExitCodes(DitaskTest):
    """A124, row by row."""

    def test_A124_success_version_and_help_are_0(self):
        self.assertIn("compatible with DI-engine v0.5.3", self.succeed("--version"))
        self.assertIn("Examples:", self.succeed("--help"))
        self.succeed(*self.local("actions.succeed", free_port()))

    def test_A124_usage_errors_are_2_and_one_line(self):
        for arguments, part in (
            (["--topologi", "mesh"], "did you mean --topology?"),
            (["--topology", "ring"], "--topology"),
            (["--protocol", "udp"], "--protocol"),
            (["--platform", "cloud"], "'cloud' is not one of k8s, slurm, none"),
            (["--platform", "k8s"], "DI_NODES is not set"),
            (["--platform", "slurm"], "SLURM_NODELIST"),
            (["--parallel-workers", "0"], "--parallel-workers"),
            (["--parallel-workers", "3", "--ports", "1,2"], "2 ports were given for 3 workers"),
            (["--mq-type", "redis"], "not part of this version"),
            (["--mq-type", "kafka"], "--mq-type"),
            (["--main", "greet"], "has no dot"),
            (["--main", "no_such.main", "--package", PACKAGES], "no no_such.so, libno_such.so or no_such.py in"),
            (["--package", "no/such/path"], "No such file or directory"),
            (["--secret-file", "no/such/file"], "--secret-file"),
            (["--platform-spec", "no/such.json", "--platform", "k8s"], "--platform-spec"),
        ):
            with self.subTest(arguments=arguments):
                self.assertIn(part, self.usage_error(*arguments, cwd=self.directory))

    def test_A124_a_platform_spec_that_is_no_json_is_2(self):
        error = self.usage_error("--platform", "k8s", "--platform-spec", "{oops",
                                 env={"DI_NODES": "a", "DI_RANK": "0"})
        self.assertIn("not valid JSON at line 1, column 2", error)

    def test_A124_a_function_that_is_not_there_is_2_and_names_the_nearest(self):
        error = self.usage_error("--package", PACKAGES, "--main", "actions.sucseed")
        self.assertIn("did you mean succeed?", error)
        error = self.usage_error("--package", PACKAGES, "--main", "libsymbol.so:runn")
        self.assertIn("exports no symbol 'runn'", error)

    def test_A124_main_that_throws_is_1_with_its_message_and_node(self):
        for workers, topology in ((1, "alone"), (2, "mesh")):
            with self.subTest(workers=workers):
                code, _, err = self.run_ditask(
                    *self.local("actions.fail", free_port(2), "--parallel-workers", workers,
                                "--topology", topology, "--node-ids", 3)
                )
                self.assertEqual(code, 1, err)
                self.assertIn("the reward is not a number", err)
                self.assertRegex(err.splitlines()[-1], r"^ditask: node [34]\b")

    def test_A124_main_that_returns_an_error_is_1(self):
        code, _, err = self.run_ditask(*self.local("actions.refuse", free_port()))
        self.assertEqual(code, 1, err)
        self.assertIn("returned 7", err)

    def test_A124_a_port_in_use_is_3(self):
        port = free_port(2)
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", port))
            taken.listen()
            for workers, topology in ((1, "alone"), (2, "mesh")):
                code, _, err = self.run_ditask(
                    *self.local("actions.succeed", port, "--parallel-workers", workers,
                                "--topology", topology)
                )
                self.assertEqual(code, 3, err)
                self.assertIn(str(port), err)

    def test_A124_an_address_that_is_not_ours_is_3(self):
        code, _, err = self.run_ditask(
            "--package", PACKAGES, "--main", "actions.succeed", "--address", "203.0.113.1",
            "--ports", free_port(),
        )
        self.assertEqual(code, 3, err)
        self.assertIn("203.0.113.1", err)

    def test_A124_a_peer_that_never_comes_is_3(self):
        nobody = free_port()
        code, _, err = self.run_ditask(
            *self.local("actions.succeed", free_port(), "--attach-to", f"127.0.0.1:{nobody}",
                        "--join-timeout", 1)
        )
        self.assertEqual(code, 3, err)
        self.assertIn(str(nobody), err)

    def test_A124_a_duplicate_node_id_is_3(self):
        port = free_port()
        hub = self.start(*self.local("actions.wait_for_finish", port))
        hub.wait_until_printed("running node=0")
        code, _, err = self.run_ditask(
            *self.local("actions.succeed", free_port(), "--attach-to", f"127.0.0.1:{port}",
                        "--join-timeout", 20)
        )
        self.assertEqual(code, 3, err)
        self.assertIn("node id 0", err)

    def test_A124_signals_are_130_and_143_after_cleanup(self):
        for number, expected in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
            for workers in (1, 2):
                with self.subTest(signal=number, workers=workers):
                    launcher = self.start(
                        "--package", PACKAGES, "--main", "actions.wait_for_finish",
                        "--parallel-workers", workers, "--topology", "mesh", "--protocol", "ipc",
                    )
                    launcher.wait_until_printed("running node=", workers)
                    launcher.signal(number)
                    code, out, err = launcher.wait()
                    self.assertEqual(code, expected, err)
                    self.assertEqual(out.count("finished node="), workers, out)
                    self.assert_nothing_left()

    def test_an_archive_is_removed_after_a_signal(self):
        archive = self.zip_package("actions.zip", {"actions.so": "actions.so"})
        launcher = self.start("--package", archive, "--main", "actions.wait_for_finish",
                              "--protocol", "ipc")
        launcher.wait_until_printed("running node=")
        launcher.signal(signal.SIGTERM)
        self.assertEqual(launcher.wait()[0], 143)
        self.assert_nothing_left()

    def test_A124_a_worker_killed_by_a_signal_is_128_and_its_number(self):
        code, _, err = self.run_ditask(
            *self.local("actions.lose_node_zero", free_port(2), "--parallel-workers", 2,
                        "--topology", "mesh")
        )
        self.assertEqual(code, 137, err)
        self.assertIn("node 0", err)

    def test_a_lost_worker_is_started_again_if_asked_for(self):
        out = self.succeed(
            "--package", PACKAGES, "--main", "actions.die_once", "--worker-lost", "restart",
            "--protocol", "ipc", "--log-dir", self.directory / "logs",
            env={"DIVISI_TEST_MARKER": str(self.directory / "marker")},
        )
        self.assertIn("second life of node=0", out)

    def test_auto_recover_calls_main_again(self):
        out = self.succeed(*self.local("actions.recover", free_port(), "--auto-recover"))
        self.assertIn("recovered after 2 retries", out)
        code, _, err = self.run_ditask(
            *self.local("actions.recover", free_port(), "--auto-recover", "--max-retries", 1)
        )
        self.assertEqual(code, 1, err)
        self.assertIn("not yet", err)


class BadPackages(DitaskTest):
    def write_zip(self, name, *entries):
        path = self.directory / name
        with zipfile.ZipFile(path, "w") as archive:
            for info, content in entries:
                archive.writestr(info, content)
        return path

    def refused(self, archive):
        error = self.usage_error("--package", archive, "--main", "a.main")
        self.assert_nothing_left()
        return error

    def test_an_archive_that_climbs_out_is_refused(self):
        for name, part in (("../evil", "leaves the directory"), ("/evil", "is absolute")):
            archive = self.write_zip("climb.zip", (name, "x"))
            self.assertIn(part, self.refused(archive))
        self.assertFalse((self.directory / "evil").exists())

    def test_an_archive_with_a_link_is_refused(self):
        info = zipfile.ZipInfo("link")
        info.create_system = 3
        info.external_attr = (stat.S_IFLNK | 0o777) << 16
        self.assertIn("symbolic link", self.refused(self.write_zip("l.zip", (info, "/etc/passwd"))))

    def test_an_archive_with_too_many_entries_is_refused(self):
        archive = self.write_zip("many.zip", *((f"f{i}", "") for i in range(10_001)))
        self.assertIn("more than 10000", self.refused(archive))

    def test_a_damaged_archive_is_refused(self):
        good = self.zip_package("my_module.zip", {"my_module.so": "my_module.so"}).read_bytes()
        bad = self.directory / "my_module.zip"
        bad.write_bytes(good[: len(good) // 2])
        self.assertIn("not a usable zip archive", self.refused(bad))
        middle = len(good) // 2
        bad.write_bytes(good[:middle] + bytes(64) + good[middle + 64 :])
        self.assertIn("is damaged", self.refused(bad))

    def test_a_file_that_is_no_archive_is_refused(self):
        path = self.directory / "my_module.zip"
        path.write_text("hello")
        self.assertIn("neither a directory nor a zip archive", self.refused(path))

    def test_an_object_of_another_abi_names_both_versions(self):
        error = self.usage_error("--package", PACKAGES, "--main", "other_abi.start")
        self.assertRegex(error, r"ABI version 999, this libdivisi has version \d+")

    def test_an_object_with_an_unresolved_symbol_names_it(self):
        error = self.usage_error("--package", PACKAGES, "--main", "unresolved.start")
        self.assertIn("a_function_that_does_not_exist", error)

    def test_an_object_that_crashes_the_loader_is_a_message(self):
        error = self.usage_error("--package", PACKAGES, "--main", "crashes_when_loaded.start")
        self.assertIn("loading it", error)

    def test_a_cut_off_object_is_a_message(self):
        whole = (PACKAGES / "my_module.so").read_bytes()
        offset, count = struct.unpack_from("<Q", whole, 32)[0], struct.unpack_from("<H", whole, 56)[0]
        headers = (struct.unpack_from("<IIQQQQ", whole, offset + 56 * i) for i in range(count))
        loaded = max(at + size for kind, _, at, _, _, size in headers if kind == 1)
        for size in (0, 10, 100, 1000, loaded // 2):
            with self.subTest(size=size):
                (self.directory / "cut.so").write_bytes(whole[:size])
                self.usage_error("--package", self.directory, "--main", "cut.main")


if __name__ == "__main__":
    unittest.main()
