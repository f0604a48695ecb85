"""di-operator as a process: killed, elected, probed, started wrongly. On a real API server, without a kubelet."""

import json
import os
import re
import signal
import time
import urllib.request

import pytest
from ports import free_port

from dijob.jobs import Jobs, job, task
from dijob.kubelet import Kubelet, Obedient
from dijob.programs import Program, operator
from harness import wait_for

SOAK = bool(os.environ.get("DIVISI_SOAK"))


def test_many_jobs_end_right_while_the_operator_is_killed_every_second(control_plane):
    """One pod of each job fails once. Every job ends with one restart, and no pod was made twice."""
    space = "storm"
    control_plane.kubectl("create", "namespace", space)
    jobs, failed = Jobs(control_plane, space), set()

    def script(pod):
        name = pod["metadata"]["name"]
        if name.endswith("-collector-1") and name not in failed:
            failed.add(name)
            return ["Running", "Failed"]
        return ["Running"] if name.endswith("-learner-0") else ["Running", "Succeeded"]

    with operator(control_plane, f"--namespace={space}") as process, Obedient(jobs, script) as kubelet:
        names = [f"job-{i}" for i in range(200 if SOAK else 20)]
        jobs.submit(*(job(name, task("learner"), task("collector", 3)) for name in names))
        learners, deadline = set(), time.monotonic() + (3000 if SOAK else 300)
        while len(learners) < len(names) or any(jobs.status(n).get("phase") != "Succeeded" for n in names):
            assert time.monotonic() < deadline, {n: jobs.status(n).get("phase") for n in names}
            time.sleep(1)  # the pace of the killing, not a wait for anything
            process.kill()
            process.start()
            for name in set(names) - learners:  # the learner ends when the failed one was replaced
                if jobs.status(name).get("restarts") == 1:
                    learner = next(p for p in jobs.pods(name) if p["metadata"]["name"].endswith("-learner-0"))
                    Kubelet(jobs).set(learner, "Succeeded")
                    learners.add(name)
        for name in names:
            status = jobs.status(name)
            assert (status["restarts"], status.get("reschedules", 0)) == (1, 0), (name, status)
            all_made = (pod["metadata"]["name"] for pod in kubelet.seen.values())
            made = [pod for pod in all_made if pod.startswith(name + "-")]
            assert sorted(made) == sorted([f"{name}-learner-0", *(f"{name}-collector-{i}" for i in (0, 1, 1, 2))])


def test_a_second_operator_waits_for_the_lease_and_takes_over(control_plane):
    control_plane.kubectl("create", "namespace", "election")
    flags = ["--leader-elect", "--lease-lock-namespace=election", "--namespace=election"]
    with operator(control_plane, *flags) as first:
        first.says("this operator leads")
        with operator(control_plane, *flags) as second:
            second.says("leader=")
            assert "this operator leads" not in second.output.text()
            assert first.end(signal.SIGTERM) == 0
            second.says("this operator leads")  # at once: the lease was given back
            control_plane.kubectl("patch", "lease", "12841a5d.opendilab.org", "-n", "election", "--type=merge", "-p",
                            json.dumps({"spec": {"holderIdentity": "somebody-else"}}))
            assert second.process.wait(60) == 1
            assert "the lease was lost" in second.output.text()


def test_probes_and_metrics_are_answered(control_plane):
    port = free_port()
    with Program("di-operator", control_plane, f"--probe-addr=127.0.0.1:{port}", "--namespace=nowhere",
                 "--leader-elect", "--lease-lock-namespace=default") as process:
        def probe(path):
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
                    return answer.read().decode()
            except OSError:
                return None

        wait_for("the operator to be ready", lambda: probe("/readyz") == "ok")
        assert probe("/healthz") == "ok"
        leads = 'leader_election_master_status{name="12841a5d.opendilab.org"} 1'
        wait_for("it to lead", lambda: leads in probe("/metrics"))
        metrics = probe("/metrics")
        for part in ("# TYPE controller_runtime_reconcile_total counter",
                     'controller_runtime_reconcile_total{controller="dijob",result="success"} 0',
                     'controller_runtime_reconcile_time_seconds_count{controller="dijob"} 0',
                     'workqueue_queue_duration_seconds_count{name="dijob"} 0'):
            assert part in metrics, metrics
        assert re.search(r'rest_client_requests_total\{code="200",method="GET"\} [1-9]', metrics), metrics
        resident = next(float(line.split()[1]) for line in metrics.splitlines()
                        if line.startswith("process_resident_memory_bytes "))
        assert resident < 15 << 20, "an idle operator is small"
        assert process.end() == 0


@pytest.mark.parametrize("arguments, code, part", [
    (["--bogus"], 2, "--bogus"), (["--sync-period=soon"], 2, "'soon' is no duration"),
    (["--kubeconfig=/nowhere"], 1, "/nowhere"), (["--probe-addr=192.0.2.1:1"], 1, "192.0.2.1")])
def test_what_the_operator_cannot_begin_with_is_one_line(control_plane, arguments, code, part):
    process = Program("di-operator", control_plane, *arguments).start()
    assert process.process.wait(60) == code, process.output.text()
    complaint = [line for line in process.output.text().splitlines() if line.startswith("di-orchestrator: ")]
    assert len(complaint) == 1 and part in complaint[0], process.output.text()
