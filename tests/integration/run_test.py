"""divisi run and the commands around it, end to end on this machine: A129 and the local backend."""

import http.server
import json
import os
import pathlib
import random
import signal
import subprocess
import threading
import unittest

from ditask_support import DEADLINE, PACKAGES, DitaskTest, Launcher, eventually

DIVISI = os.environ["DIVISI"]
DITASK = os.environ["DITASK"]
# Every worker writes its number, says that it is there, and waits for its end.
WAIT = 'echo $$ > "$FOLDER/pid_$DITASK_NODE_ID"; echo waiting; exec sleep 600'


def alive(pid):
    try:
        state = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return False
    return state != "Z"


class RunTest(DitaskTest):
    def setUp(self):
        super().setUp()
        self.env = {
            "HOME": str(self.directory),
            "XDG_STATE_HOME": str(self.directory / "state"),
            "XDG_CONFIG_HOME": str(self.directory / "config"),
            "XDG_CACHE_HOME": str(self.directory / "cache"),
            "KUBECONFIG": str(self.directory / "no_kubeconfig"),
            "FOLDER": str(self.directory),
        }
        self.addCleanup(self.end_jobs)

    def end_jobs(self):
        names = self.divisi("jobs", "-o", "name")[1].split()
        if names:
            self.divisi("delete", "--now", *names)

    def start(self, *arguments, **options):
        """`divisi ...`; what the tests of ditask start is another program."""
        env = {**self.env, **options.pop("env", {})}
        launcher = Launcher(self.temp, arguments, env=env, program=DIVISI, **options)
        self.addCleanup(launcher.close)
        return launcher

    def divisi(self, *arguments, **options):
        return self.start(*arguments, **options).wait()

    def mistake(self, *arguments):
        """Exit code 2 and exactly one line, which is returned."""
        code, out, err = self.divisi(*arguments)
        self.assertEqual((code, out, len(err.splitlines())), (2, "", 1), err)
        return err

    def record(self, name):
        code, out, err = self.divisi("describe", name, "-o", "json")
        self.assertEqual(code, 0, err)
        return json.loads(out)

    def pids(self, count):
        """The numbers of the workers that WAIT, once all are there."""
        files = [self.directory / f"pid_{i}" for i in range(count)]
        eventually(
            lambda: all(f.exists() and f.read_text().strip() for f in files), lambda: "no workers"
        )
        return [int(f.read_text()) for f in files]

    def ours(self):
        """All processes that this test has started, by their environment."""
        mark, found = f"FOLDER={self.directory}".encode(), []
        for process in pathlib.Path("/proc").iterdir():
            try:
                if process.name.isdigit() and mark in (process / "environ").read_bytes().split(b"\0"):
                    found.append(process.name)
            except OSError:
                pass
        return found

    def wait_until_gone(self, pids):
        eventually(lambda: not any(map(alive, pids)), lambda: f"still there: {list(filter(alive, pids))}")


class DryRun(RunTest):
    def setUp(self):
        super().setUp()
        package = self.package("pkg", "actions.so", copy="actions.so").parent
        self.line = ("--workers", 3, "--gpus", 2, "--package", package, "--main", "actions.report", "--topology", "star",
                     "--name", "t", "--dry-run")

    def resolved(self, arguments, env=None):
        """What ditask makes of the arguments: (node id, labels, whom it dials)."""
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("DI_", "SLURM"))}
        out = subprocess.run(
            [DITASK, *arguments, "--dry-run"], env={**environment, **(env or {})}, capture_output=True, check=True
        ).stdout
        plan = json.loads(out)
        worker = plan["workers"][0]
        return worker["node_id"], sorted(worker["labels"]), worker["attach_to"]

    def table(self, hosts):
        """Section 6.9 of the specification."""
        centre = [f"tcp://{hosts[0]}:50515"]
        return [(0, ["gpu"], []), (1, ["gpu"], centre), (2, [], centre)]

    def test_A129_local_processes_get_the_arguments_of_the_table(self):
        code, out, err = self.divisi("run", *self.line, "--backend", "local", "-o", "json")
        self.assertEqual(code, 0, err)
        workers = json.loads(out)["workers"]
        rows = [self.resolved(w["command"][1:]) for w in workers]
        self.assertEqual(rows, self.table(["127.0.0.1"]))
        self.assertEqual([w["environment"]["CUDA_VISIBLE_DEVICES"] for w in workers], ["0", "1", ""])
        for worker in workers:
            self.assertIn("--topology star", " ".join(worker["command"]))

    def test_A129_ssh_hosts_get_the_arguments_of_the_table(self):
        code, out, err = self.divisi("run", *self.line, "--hosts", "a,b,c", "-o", "json")
        self.assertEqual(code, 0, err)
        rows = [self.resolved(w["command"][1:]) for w in json.loads(out)["workers"]]
        self.assertEqual(rows, self.table(["a"]))
        devices = [w["environment"]["CUDA_VISIBLE_DEVICES"] for w in json.loads(out)["workers"]]
        self.assertEqual(devices, ["0", "0", ""])  # every host counts its own
        self.assertIn("a is there twice", self.mistake("run", *self.line, "--hosts", "a,b,me@a"))

    def test_A129_a_slurm_step_resolves_to_the_table(self):
        code, script, err = self.divisi("run", *self.line, "--backend", "slurm", "-o", "sh")
        self.assertEqual(code, 0, err)
        self.assertIn("#SBATCH --ntasks=3\n", script)
        stand_in = self.directory / "bin"
        stand_in.mkdir()
        # Without Slurm itself: srun starts its command once a task, with Slurm's variables.
        (stand_in / "srun").write_text(
            "#!/bin/sh\nshift 2\nfor id in 0 1 2; do SLURM_NTASKS=3 SLURM_NTASKS_PER_NODE=1 SLURM_NODELIST='n[0-2]' "
            "SLURM_PROCID=$id SLURM_LOCALID=0 SLURMD_NODENAME=n$id \"$@\"; done\n"
        )
        (stand_in / "ditask").write_text(
            f"#!/bin/sh\necho devices=$CUDA_VISIBLE_DEVICES >&2\nexec {DITASK} \"$@\" --dry-run\n"
        )
        for tool in stand_in.iterdir():
            tool.chmod(0o755)
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("DI_", "SLURM", "CUDA"))}
        ran = subprocess.run(
            ["sh"], input=script, env={**environment, "PATH": f"{stand_in}:{os.environ['PATH']}"},
            capture_output=True, text=True, check=True,
        )
        decoder, rows, rest = json.JSONDecoder(), [], ran.stdout
        while rest.strip():
            plan, end = decoder.raw_decode(rest.lstrip())
            rest = rest.lstrip()[end:]
            worker = plan["workers"][0]
            rows.append((worker["node_id"], sorted(worker["labels"]), worker["attach_to"]))
        self.assertEqual(rows, self.table(["n0"]))
        devices = [line for line in ran.stderr.splitlines() if line.startswith("devices=")]
        self.assertEqual(devices, ["devices=0", "devices=0", "devices="])

    def cluster_rows(self, backend):
        code, out, err = self.divisi("run", *self.line, "--backend", backend, "-o", "json")
        self.assertEqual(code, 0, err)
        return json.loads(out)["items"]

    def test_A129_the_tasks_of_a_dijob_resolve_to_the_table(self):
        items = self.cluster_rows("dijob")
        self.assertEqual([item["kind"] for item in items], ["ConfigMap", "DIJob"])
        rows, gpus = [], []
        nodes = ",".join(f"h_{i}" for i in range(3))
        for task in items[1]["spec"]["tasks"]:
            container = task["template"]["spec"]["containers"][0]
            for _ in range(task["replicas"]):
                env = {"DI_NODES": nodes, "DI_RANK": str(len(rows))}
                arguments = [PACKAGES if a.startswith("/divisi/") else a for a in container["command"][1:]]
                rows.append(self.resolved(arguments, env))
                gpus.append(container.get("resources", {}).get("limits", {}).get("nvidia.com/gpu", 0))
        self.assertEqual(rows, self.table(["h_0"]))
        self.assertEqual(gpus, [1, 1, 0])

    def test_A129_indexed_jobs_resolve_to_the_table(self):
        items = self.cluster_rows("job")
        self.assertEqual([item["kind"] for item in items], ["ConfigMap", "Service", "Job", "Job"])
        rows = []
        for job in items[2:]:
            container = job["spec"]["template"]["spec"]["containers"][0]
            nodes = {e["name"]: e["value"] for e in container["env"]}["DI_NODES"]
            for index in range(job["spec"]["completions"]):
                command = [str(PACKAGES) if a.startswith("/divisi/") else a for a in container["command"]]
                command[command.index("ditask")] = DITASK
                out = subprocess.run(
                    [*command, "--dry-run"], capture_output=True, check=True,
                    env={"PATH": os.environ["PATH"], "DI_NODES": nodes, "JOB_COMPLETION_INDEX": str(index)},
                ).stdout
                worker = json.loads(out)["workers"][0]
                rows.append((worker["node_id"], sorted(worker["labels"]), worker["attach_to"]))
        self.assertEqual(rows, self.table(["t-gpu-0.t"]))

    def test_the_default_backend_is_said_with_its_reason(self):
        code, out, err = self.divisi("run", *self.line)
        self.assertEqual(code, 0, err)
        self.assertRegex(err, r"\Adivisi run: backend local, because .+\n\Z")
        self.assertIn("backend: local", out)

    def test_a_cluster_with_dijobs_takes_the_job(self):
        class Answer(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                body = b'{"kind": "APIResourceList"}'
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answer)
        self.addCleanup(server.server_close)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.addCleanup(server.shutdown)
        config = self.directory / "kubeconfig"
        config.write_text(json.dumps({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{server.server_port}"}}],
            "users": [{"name": "u", "user": {}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        }))
        code, out, err = self.divisi("run", "--workers", 1, "--", "echo", "here", env={"KUBECONFIG": str(config)})
        self.assertEqual((code, out), (2, ""), err)
        chosen, needed = err.splitlines()
        self.assertEqual(chosen, "divisi run: backend dijob, because the cluster c has the type DIJob")
        self.assertIn("--backend dijob needs --image", needed)

    def test_ditask_launch_is_divisi_run(self):
        launcher = Launcher(self.temp, ("launch", *self.line, "--backend", "local", "-o", "sh"), env=self.env)
        self.addCleanup(launcher.close)
        code, out, err = launcher.wait()
        self.assertEqual(code, 0, err)
        self.assertIn("--node-ids 2 --attach-to tcp://127.0.0.1:50515", out)

    def test_explain_says_where_each_value_comes_from(self):
        (self.directory / "config" / "divisi").mkdir(parents=True)
        file = self.directory / "config" / "divisi" / "config.yaml"
        file.write_text("image: site/image:1\nbackend: local\n")
        code, out, err = self.divisi("run", *self.line, "--explain")
        self.assertEqual(code, 0, err)
        rows = {line.split()[0]: line for line in out.splitlines()}
        self.assertIn(str(file), rows["image"])
        self.assertIn("the command line", rows["workers"])
        self.assertIn("default", rows["port"])

    def test_mistakes_are_one_line(self):
        self.assertIn("did you mean --workers?", self.mistake("run", "--worker", 3))
        here = ("run", "--workers", 2, "--backend", "local", "-p", PACKAGES, "-m")
        self.assertIn("no_such", self.mistake(*here, "no_such.main"))
        self.assertIn("ABI version 999", self.mistake(*here, "other_abi.start"))
        self.assertIn("there is no job", self.mistake("logs", "nobody"))
        self.assertIn("did you mean", self.mistake("run", "--workers", 2, "--backend", "lokal"))


class Local(RunTest):
    def run_program(self, program, *flags, workers=3, **options):
        line = ("run", "--workers", workers, "--backend", "local", *flags, "--", "sh", "-c", program)
        return self.divisi(*line, **options)

    def start_waiting(self, *flags, workers=3):
        return self.start("run", "--workers", workers, "--backend", "local", *flags, "--", "sh", "-c", WAIT)

    def test_workers_meet_in_a_star_and_their_lines_are_merged(self):
        code, out, err = self.divisi(
            "run", "--workers", 3, "--gpus", 2, "--backend", "local", "--package", PACKAGES, "--main", "meeting.main",
            "--topology", "star", "--name", "meet", "--env", "DIVISI_TEST_PEERS=2,1,1",
        )
        self.assertEqual(code, 0, f"{out}\n{err}")
        for line in ("[node 0] node 0 heard 1", "[node 1] node 1 heard 0", "[node 2] node 2 heard 0"):
            self.assertIn(line, out)
        self.assertNotIn("\x1b", out)
        self.assertEqual(sorted(self.divisi("logs", "meet")[1].splitlines()), sorted(out.splitlines()))
        record = self.record("meet")
        self.assertEqual((record["state"], record["exitCode"]), ("Succeeded", 0))
        self.assertIn("meet", self.divisi("jobs")[1])

    def test_labels_and_devices_are_those_of_the_rank(self):
        code, out, err = self.run_program(
            'echo "labels=$DITASK_LABELS devices=$CUDA_VISIBLE_DEVICES"', "--gpus", 2, "--labels", "x",
        )
        self.assertEqual(code, 0, err)
        self.assertIn("[node 0] labels=gpu,x devices=0\n", out)
        self.assertIn("[node 1] labels=gpu,x devices=1\n", out)
        self.assertIn("[node 2] labels=x devices=\n", out)

    def test_workers_get_only_the_devices_that_may_be_used(self):
        for visible, devices in (("4,5", ["4", "5", ""]), ("", ["", "", ""])):
            code, out, err = self.run_program('echo "devices=$CUDA_VISIBLE_DEVICES"', "--gpus", 3,
                                              env={"CUDA_VISIBLE_DEVICES": visible})
            self.assertEqual(code, 0, err)
            self.assertEqual(sorted(out.splitlines()), [f"[node {i}] devices={d}" for i, d in enumerate(devices)])
            self.assertIn(f"CUDA_VISIBLE_DEVICES has {len(visible.split(',')) if visible else 0}", err)

    def test_a_file_of_a_flag_or_a_program_is_no_manifest(self):
        config = self.directory / "none.yaml"
        code, out, err = self.divisi("run", "--workers", 1, "--kubeconfig", config, "--", "echo", "settings.yaml")
        self.assertEqual((code, out), (0, "[node 0] settings.yaml\n"), err)
        line = ("run", "--workers", 1, "--backend", "local", "-p", PACKAGES, "-m", "my_module.main", "--dry-run")
        code, out, err = self.divisi(*line, "--kubeconfig", config)
        self.assertEqual(code, 0, err)
        self.assertIn("no_such.yaml", self.mistake("run", "no_such.yaml", "--folder", self.directory))

    def test_the_secret_is_a_file_and_in_no_argument(self):
        code, out, err = self.run_program('cat "$DIVISI_SECRET_FILE"; stat -c %a "$DIVISI_SECRET_FILE"', workers=1)
        self.assertEqual(code, 0, err)
        secret, mode = [line.split()[-1] for line in out.splitlines()]
        self.assertEqual((len(secret), mode), (64, "600"))
        self.assertNotIn("no secret", err)

    def test_the_first_failure_is_the_jobs_and_ends_the_others(self):
        code, out, err = self.run_program(
            'if [ "$DITASK_NODE_ID" = 1 ]; then exit 3; fi; ' + WAIT, "--name", "fails", "--grace", "5s")
        self.assertEqual(code, 3, f"{out}\n{err}")
        record = self.record("fails")
        self.assertEqual((record["state"], record["exitCode"]), ("Failed", 3))
        self.assertIn("worker 1", record["reason"])
        self.wait_until_gone([w["process"]["pid"] for w in record["workers"]])

    def test_a_worker_that_is_killed_gives_its_signal(self):
        code, out, err = self.run_program(
            'if [ "$DITASK_NODE_ID" = 2 ]; then kill -9 $$; fi; ' + WAIT, "--name", "killed")
        self.assertEqual(code, 128 + signal.SIGKILL, f"{out}\n{err}")
        self.assertIn("SIGKILL", self.record("killed")["reason"])

    def test_an_interrupt_asks_and_ends_everything(self):
        for number, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
            job = self.start_waiting("--name", f"signal-{code}")
            pids = self.pids(3)
            job.wait_until_printed("waiting", 3)
            job.signal(number)
            self.assertEqual(job.wait()[0], code)
            self.wait_until_gone(pids)
            self.assertEqual(self.record(f"signal-{code}")["state"], "Stopped")
            for i in range(3):
                (self.directory / f"pid_{i}").unlink()

    def test_workers_end_with_an_attached_run_that_is_killed(self):
        job = self.start_waiting("--name", "attached")
        pids = self.pids(3)
        job.signal(signal.SIGKILL)
        job.process.wait(DEADLINE)
        self.wait_until_gone(pids)
        eventually(lambda: self.record("attached")["state"] == "Stopped", lambda: str(self.record("attached")))

    def test_nothing_is_left_of_a_run_that_is_killed_at_any_moment(self):
        for i in range(50 if os.environ.get("DIVISI_SOAK") == "1" else 8):
            job = self.start("run", "--workers", 2, "--backend", "local", "--name", f"k{i}", "--", "sleep", 600)
            try:
                job.process.wait(random.uniform(0, 0.25))
            except subprocess.TimeoutExpired:
                job.signal(signal.SIGKILL)
        eventually(lambda: not self.ours(), lambda: f"left behind: {self.ours()}")
        for job in json.loads(self.divisi("jobs", "-o", "json")[1]):
            self.assertIn(job["state"], ("Stopped", "Failed"), job)

    def test_nothing_is_left_of_a_start_that_fails_halfway(self):
        few_files = ("sh", "-c", 'ulimit -n 40; exec "$@"', "sh")
        code, out, err = self.divisi(
            "run", "--workers", 20, "--backend", "local", "--", "sleep", 600, prefix=few_files)
        self.assertEqual((code, out), (125, ""), err)
        # UndefinedBehaviorSanitizer needs descriptors itself, and ends the supervisor when there are none.
        if b"__ubsan_" not in pathlib.Path(DIVISI).read_bytes():
            self.assertIn("starting worker", err)
        eventually(lambda: not self.ours(), lambda: f"left behind: {self.ours()}")

    def test_a_detached_job_goes_on_and_is_known(self):
        code, out, err = self.divisi("run", "--workers", 2, "--backend", "local", "--detach", "--name", "detached",
                                     "--", "sh", "-c", WAIT)
        self.assertEqual((code, out), (0, "detached\n"), err)
        pids = self.pids(2)
        self.assertEqual(self.record("detached")["state"], "Running")
        self.assertIn("a job detached is Running", self.mistake(
            "run", "--workers", 1, "--backend", "local", "--name", "detached", "--", "true"))
        self.assertTrue(all(map(alive, pids)))
        follower = self.start("logs", "-f", "detached", "--task", "1")
        follower.wait_until_printed("[node 1] waiting")
        self.assertEqual(self.divisi("delete", "detached")[0], 0)
        self.wait_until_gone(pids)
        self.assertEqual(self.divisi("jobs", "-o", "name")[1], "")
        follower.wait()
        self.assertNotIn("[node 0]", follower.text(follower.out))

    def test_workers_end_with_their_supervisor_and_jobs_knows(self):
        self.divisi("run", "--workers", 2, "--backend", "local", "--detach", "--name", "orphans", "--", "sh", "-c", WAIT)
        pids = self.pids(2)
        os.kill(self.record("orphans")["supervisor"]["pid"], signal.SIGKILL)
        self.wait_until_gone(pids)
        eventually(lambda: self.record("orphans")["state"] == "Failed", lambda: str(self.record("orphans")))
        self.assertIn("was killed", self.record("orphans")["reason"])

    def test_a_timeout_ends_the_job(self):
        code, out, err = self.run_program(WAIT, "--timeout", "300ms", "--name", "slow", workers=1)
        self.assertEqual(code, 124, f"{out}\n{err}")
        self.assertIn("--timeout", self.record("slow")["reason"])

    def test_two_jobs_at_once_take_different_ports(self):
        first = self.start_waiting("--name", "first", workers=1)
        self.pids(1)
        code, out, err = self.run_program("echo $DITASK_LISTEN", "--name", "second", workers=1)
        self.assertEqual(code, 0, err)
        self.assertNotEqual(self.record("first")["data"]["port"], self.record("second")["data"]["port"])
        taken = self.record("first")["data"]["port"]
        if taken == 50515:  # otherwise another program of this machine holds it, and may let go of it
            self.assertIn("is taken instead", err)
        code, out, err = self.run_program("true", "--port", taken, workers=1)
        self.assertEqual((code, len(err.splitlines())), (125, 1), err)
        first.signal(signal.SIGTERM)
        first.wait()

    def test_a_start_that_fails_keeps_the_log_of_the_job_before(self):
        self.assertEqual(self.run_program("echo precious", "--name", "kept", workers=1)[0], 0)
        for failure in (
            self.divisi("run", "--workers", 1, "--backend", "dijob", "--image", "i", "--name", "kept", "--", "true"),
            self.divisi("run", "--workers", 20, "--backend", "local", "--name", "kept", "--", "sleep", 600,
                        prefix=("sh", "-c", 'ulimit -n 40; exec "$@"', "sh")),
        ):
            self.assertEqual(failure[0], 125, failure)
            self.assertEqual(self.divisi("logs", "kept")[1], "[node 0] precious\n")
        self.assertEqual(self.run_program("echo new", "--name", "kept", workers=1)[0], 0)
        self.assertEqual(self.divisi("logs", "kept")[1], "[node 0] new\n")
        left = sorted(p.name for p in (self.directory / "state/divisi/jobs").iterdir())
        self.assertEqual(left, [".lock", "kept"])

    def test_environment_wait_and_delete(self):
        code, out, err = self.run_program('echo "A=$A"', "--env", "A=b c", "--delete", "--name", "gone", workers=1)
        self.assertEqual((code, out), (0, "[node 0] A=b c\n"), err)
        self.assertEqual(self.divisi("jobs", "-o", "name")[1], "")
        code, out, err = self.run_program("echo quiet", "--wait", workers=1)
        self.assertEqual((code, out), (0, ""), err)

    def test_a_reader_that_goes_away_ends_the_job(self):
        env = {**os.environ, **self.env}
        ran = subprocess.run(
            ["sh", "-c", f"{{ {DIVISI} run --workers 1 --backend local --name piped -- sh -c "
             "'while echo line; do sleep 0.05; done'; echo code=$? >&2; } | head -1"],
            env=env, capture_output=True, text=True, timeout=DEADLINE)
        self.assertEqual(ran.stdout, "[node 0] line\n")
        self.assertIn("code=141", ran.stderr)

    def test_restart_starts_the_same_again(self):
        code, out, err = self.divisi(
            "run", "--workers", 1, "--backend", "local", "--name", "again", "--detach", "--", "sh", "-c", WAIT)
        self.assertEqual(code, 0, err)
        before = self.pids(1)
        (self.directory / "pid_0").unlink()
        self.assertEqual(self.divisi("restart", "again")[0], 0)
        after = self.pids(1)
        self.wait_until_gone(before)
        self.assertTrue(alive(after[0]))
        self.assertEqual(self.record("again")["restarts"], 1)

    def test_watch_starts_again_with_the_new_code(self):
        package = self.directory / "pkg"
        package.mkdir()
        module = package / "my_module.so"
        module.write_bytes((PACKAGES / "my_module.so").read_bytes())
        job = self.start("run", "--workers", 1, "--backend", "local", "--watch", "--name", "watched",
                         "-p", package, "-m", "my_module.main")
        job.wait_until_printed("of the local copy")
        job.wait_until_logged("waiting for a change")
        fresh = package / "fresh"
        fresh.write_bytes((PACKAGES / "my_module_installed.so").read_bytes())
        fresh.replace(module)
        job.wait_until_printed("of the installed copy")
        job.signal(signal.SIGINT)
        self.assertEqual(job.wait()[0], 130)

    def test_watch_is_not_deafened_by_a_file_that_is_written_all_the_time(self):
        package = self.directory / "pkg"
        package.mkdir()
        (package / ".gitignore").write_text("noise\n")
        (package / "my_module.so").write_bytes((PACKAGES / "my_module.so").read_bytes())
        noise = subprocess.Popen(["sh", "-c", f"while sleep 0.03; do echo > {package}/noise; done"])
        self.addCleanup(noise.wait)
        self.addCleanup(noise.kill)
        job = self.start("run", "--workers", 1, "--backend", "local", "--watch", "-p", package, "-m", "my_module.main")
        job.wait_until_logged("waiting for a change")
        fresh = package / "fresh"
        fresh.write_bytes((PACKAGES / "my_module_installed.so").read_bytes())
        fresh.replace(package / "my_module.so")
        job.wait_until_printed("of the installed copy")
        job.signal(signal.SIGINT)
        self.assertEqual(job.wait()[0], 130)

    def test_without_inotify_watch_says_so_and_a_job_is_followed_all_the_same(self):
        limit = "/proc/sys/user/max_inotify_instances"  # of a user name space
        prefix = ("unshare", "-Ur", "sh", "-c", f'echo 0 > {limit} && exec "$@"', "sh")
        if subprocess.run([*prefix, "true"], capture_output=True).returncode != 0:
            self.skipTest("no user name spaces here")
        package = self.directory / "pkg"
        package.mkdir()
        (package / "my_module.so").write_bytes((PACKAGES / "my_module.so").read_bytes())
        code, out, err = self.divisi("run", "--workers", 1, "--backend", "local", "--watch", "-p", package,
                                     "-m", "my_module.main", prefix=prefix)
        self.assertEqual((code, out, len(err.splitlines())), (125, "", 1), err)
        self.assertIn("--watch cannot see changes of files", err)
        job = self.start("run", "--workers", 1, "--backend", "local", "--", "sh", "-c", WAIT, prefix=prefix)
        job.wait_until_printed("waiting")
        job.signal(signal.SIGINT)
        self.assertEqual(job.wait()[0], 130)

    def test_watch_honours_yes_for_a_package_that_is_too_large(self):
        package = self.directory / "pkg"
        package.mkdir()
        (package / "my_module.so").write_bytes((PACKAGES / "my_module.so").read_bytes())
        job = self.start("run", "--workers", 1, "--backend", "local", "--watch", "--yes", "--max-package", "1Ki",
                         "-p", package, "-m", "my_module.main")
        job.wait_until_logged("waiting for a change")
        fresh = package / "fresh"
        fresh.write_bytes((PACKAGES / "my_module_installed.so").read_bytes())
        fresh.replace(package / "my_module.so")
        job.wait_until_printed("of the installed copy")
        job.signal(signal.SIGINT)
        self.assertEqual(job.wait()[0], 130)

    def test_jobs_prints_all_formats(self):
        self.assertEqual(self.run_program("true", "--name", "one", workers=1)[0], 0)
        self.assertEqual(json.loads(self.divisi("jobs", "-o", "json")[1])[0]["name"], "one")
        self.assertIn("name: one", self.divisi("jobs", "-o", "yaml")[1])
        self.assertRegex(self.divisi("jobs")[1], r"(?m)^one +local +Succeeded +1 +0 ")
        self.assertIn("ENTRY", self.divisi("jobs", "-o", "wide")[1])
        self.assertEqual(self.divisi("jobs", "--running", "-o", "name")[1], "")
        self.assertIn("Workers:", self.divisi("describe", "one")[1])

    def test_completion_and_version(self):
        for shell in ("bash", "zsh"):
            script = self.divisi("completion", shell)[1]
            self.assertIn("--parallel-workers", script)
        subprocess.run(["bash", "-n"], input=self.divisi("completion", "bash")[1], text=True, check=True)
        self.assertIn("divisi ", self.divisi("version")[1])
        self.assertIn("abi", json.loads(self.divisi("version", "-o", "json")[1]))


if __name__ == "__main__":
    unittest.main()
