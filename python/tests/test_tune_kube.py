"""Trials as DIJobs: divisi.tune.scheduler in the mode "k8s", over an API server in memory with faults."""

import base64
import json
import logging
import os
import pickle
import subprocess
import sys
import threading
import time

import pytest
import yaml

from compat_tools import write
from divisi.tune import MedianPruner, R, choice, hpo, uniform
from divisi.tune.scheduler import (
    Scheduler, SchedulerError, SchedulerStopped, TrialFailed, run_scheduler, run_scheduler_k8s,
)  # fmt: skip
from trial_cluster import JOBS, MAIN, REMOTE, TrialCluster, template

DEADLINE_S = 120
DIJOBS = f"{JOBS}/dijobs"


@pytest.fixture
def cluster(tmp_path, monkeypatch):
    (tmp_path / "pod").mkdir()
    with TrialCluster(tmp_path / "pod") as made:
        monkeypatch.setenv("KUBECONFIG", made.kubeconfig(tmp_path))
        yield made


@pytest.fixture
def scheduler_of(tmp_path, cluster):
    """scheduler_of(**settings): a scheduler over the document's template; stopped at the end."""
    made = []

    def make(project="cartpole", text=None, main=MAIN, **settings):
        jobs = write(tmp_path, text or template(), "dijob.yml")
        settings = {"poll_interval": 0.02, "workdir": str(tmp_path), "missing": "ok", "grace": 30, **settings}
        made.append(run_scheduler_k8s(str(write(tmp_path, main, "template.py")), str(jobs), project, **settings))
        return made[-1]

    yield make
    for scheduler in made:
        cluster.fault = None
        scheduler.stop()


def start_of(value):
    return {"policy": {"other": {"eps": {"start": value}}}}


def until(scheduler, condition):
    with scheduler.lock:
        assert scheduler.lock.wait_for(condition, DEADLINE_S)


def eventually(condition):
    """For what nothing tells of."""
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


# --- settings ---


def test_H078_configuration_for_a_cluster(cluster, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    main, jobs = write(tmp_path, MAIN, "template.py"), write(tmp_path, template(), "dijob.yml")
    limits = {"max_number_of_running_task": 20, "max_number_of_tasks": 10000, "time_out": 2000}
    scheduler = Scheduler().config(
        str(main), "cartpole", mode="k8s", k8s_dijob_yaml_file_path=str(jobs), **limits
    )
    try:
        assert (tmp_path / "cartpole").is_dir()
        assert scheduler._mode == "k8s" and scheduler._project == "cartpole"
        assert (scheduler._max_running, scheduler._max_tasks, scheduler._time_out) == (20, 10000, 2000)
        queues = scheduler.get_mp_queues()
        assert None not in queues and scheduler.get_mp_queues() == queues
    finally:
        scheduler.stop()


# --- states ---


def test_H090_a_pending_pod_has_not_started(scheduler_of, cluster):
    scheduler = scheduler_of()
    scheduler.submit(start_of(0.5))
    cluster.wait_for_job("cartpole-0")
    task = scheduler.task_list[0]
    cluster.pod("cartpole-0", "Pending")
    scheduler.submit(start_of(0.6))
    cluster.wait_for_job("cartpole-1")
    cluster.pod("cartpole-1", "Running")
    eventually(lambda: scheduler.task_list[1].start_time is not None)  # so the first pod was seen
    assert task.start_time is None and scheduler.task_running_id == [0, 1]
    cluster.pod("cartpole-0", "Running")
    eventually(lambda: task.start_time is not None)


@pytest.mark.parametrize("phase, alive", [
    ("", False), ("Pending", True), ("Running", True), ("Succeeded", False), ("Failed", False), ("Unknown", False),
])  # fmt: skip
def test_H091_alive_is_what_is_pending_or_running(scheduler_of, cluster, phase, alive):
    scheduler = scheduler_of()
    scheduler.submit(start_of(0.5))
    cluster.wait_for_job("cartpole-0")
    cluster.pod("cartpole-0", "Running")
    cluster.wait_for_searches(1)
    if phase:
        cluster.pod("cartpole-0", phase)
    else:
        cluster.no_pod("cartpole-0")
    if alive:
        scheduler.submit(start_of(0.6))
        cluster.wait_for_job("cartpole-1")
        cluster.pod("cartpole-1", "Unknown")
        eventually(lambda: scheduler.task_finished_id == [1])
        assert scheduler.task_running_id == [0]
        assert not scheduler.check_task_alive(scheduler.task_list[1])
    else:
        eventually(lambda: scheduler.task_running_id == [])
        assert scheduler.task_finished_id == [0]
    assert scheduler.check_task_alive(scheduler.task_list[0]) == alive


def test_H092_a_result_is_fetched_out_of_the_pod(scheduler_of, cluster):
    scheduler = scheduler_of()
    future = scheduler.submit(start_of(0.5))
    cluster.wait_for_job("cartpole-0")
    cluster.pod("cartpole-0", "Running")
    cluster.wait_for_searches(2)
    task = scheduler.task_list[0]
    assert not future.done() and scheduler.load_task_result(task) == (None, None)
    cluster.result("cartpole-0", {"eval_value": 50.0, "steps": [1, 2]})
    assert future.result(DEADLINE_S) == {"eval_value": 50.0, "steps": [1, 2]}
    assert scheduler.load_task_result(task) == ({"eval_value": 50.0, "steps": [1, 2]}, None)


def test_H093_results_end_their_tasks_and_delete_their_jobs(scheduler_of, cluster):
    scheduler = scheduler_of()
    futures = [scheduler.submit(start_of(value)) for value in (0.5, 0.6)]
    for name in ("cartpole-0", "cartpole-1"):
        cluster.wait_for_job(name)
        cluster.pod(name, "Running")
    cluster.wait_for_searches(6)
    assert (scheduler.task_running_id, scheduler.task_finished_id) == ([0, 1], [])
    for number, name in enumerate(("cartpole-0", "cartpole-1")):
        cluster.result(name, {"eval_value": number})
    assert [future.result(DEADLINE_S)["eval_value"] for future in futures] == [0, 1]
    assert (scheduler.task_running_id, sorted(scheduler.task_finished_id)) == ([], [0, 1])
    assert sorted(scheduler.task_success_id) == [0, 1]
    deletes = [path for method, path in cluster.requests if method == "DELETE" and "/dijobs/" in path]
    assert len(deletes) == 2
    assert cluster.names("dijobs") == [] and cluster.names("configmaps") == []


def test_H094_a_pod_over_its_time_is_ended(scheduler_of, cluster):
    scheduler = scheduler_of(time_out=0.05)
    future = scheduler.submit(start_of(0.5))
    cluster.wait_for_job("cartpole-0")
    cluster.pod("cartpole-0", "Running")
    with pytest.raises(TrialFailed, match="current status is: time out") as raised:
        future.result(DEADLINE_S)
    assert raised.value.final and raised.value.status == "time out"
    assert (scheduler.task_running_id, scheduler.task_abnormal_id) == ([], [0])
    assert scheduler.task_reports[0]["result"] == {"status": "time out"}
    assert cluster.names("dijobs") == []


def test_H095_a_vanished_pod_is_a_suspect_and_may_come_back(scheduler_of, cluster, caplog):
    scheduler = scheduler_of()
    future = scheduler.submit(start_of(0.5))
    cluster.wait_for_job("cartpole-0")
    cluster.pod("cartpole-0", "Running")
    cluster.wait_for_searches(1)
    cluster.no_pod("cartpole-0")
    eventually(lambda: scheduler.task_finished_id == [0])
    assert (scheduler.task_running_id, scheduler.task_abnormal_id) == ([], [])
    assert not future.done()
    eventually(lambda: "Status of k8s job: cartpole-0, seems to meet some problem." in caplog.text)
    cluster.pod("cartpole-0", "Running")
    eventually(lambda: scheduler.task_running_id == [0])
    assert scheduler.task_finished_id == []
    cluster.result("cartpole-0", {"eval_value": 1})
    assert future.result(DEADLINE_S) == {"eval_value": 1}
    assert (scheduler.task_finished_id, scheduler.task_success_id) == ([0], [0])


def test_H095_a_pod_that_stays_away_is_lost(scheduler_of, cluster):
    scheduler = scheduler_of(lost_after=0.05)
    future = scheduler.submit(start_of(0.5))
    cluster.wait_for_job("cartpole-0")
    cluster.pod("cartpole-0", "Running")
    cluster.wait_for_searches(1)
    cluster.no_pod("cartpole-0")
    with pytest.raises(TrialFailed) as raised:
        future.result(DEADLINE_S)
    assert "cartpole-0-serial-0 is gone" in raised.value.log_tail
    assert (scheduler.task_abnormal_id, scheduler.task_finished_id) == ([0], [0])
    assert cluster.names("dijobs") == []


# --- the objects ---


def test_H096_the_filled_documents(scheduler_of, cluster, tmp_path):
    scheduler = scheduler_of(text=template(role="trainer"))
    scheduler.submit(start_of('a"b: |\n\ttab'))
    cluster.wait_for_job("cartpole-0")
    main = (tmp_path / "cartpole" / "0.py").read_text()
    job, config_map = yaml.safe_load_all((tmp_path / "cartpole" / "0.yml").read_text())
    assert job["metadata"]["name"] == "cartpole-0"
    pod = job["spec"]["tasks"][0]["template"]["spec"]
    assert pod["volumes"][0] == {"name": "config-py", "configMap": {"name": "config-py-cartpole-0"}}
    assert config_map["metadata"]["name"] == "config-py-cartpole-0"
    assert config_map["data"]["config.py"] == main
    assert 'main_config["exp_name"] = "cartpole-0"\n' in main
    # What the resource does not have is gone; what stood behind an anchor keeps the template's text.
    assert set(job) == {"apiVersion", "kind", "metadata", "spec"} and "projectPath" not in job["spec"]
    assert {"name": "JOB_NAME", "value": "cartpole-dqn-hpo-k8s"} in pod["containers"][0]["env"]
    with cluster.changed:
        made = cluster.objects[(DIJOBS, "default", "cartpole-0")]
        stored = cluster.objects[("/api/v1/configmaps", "default", "config-py-cartpole-0")]
    assert made["spec"] == job["spec"] and stored["data"] == config_map["data"]
    for thing in (made, stored, made["spec"]["tasks"][0]["template"]):
        assert thing["metadata"]["labels"] == {"hpo/study": "cartpole", "hpo/trial": "1", "hpo/project": "cartpole"}
    assert scheduler._backend._cluster.pod_name("cartpole-0") == "cartpole-0-trainer-0"


@pytest.mark.parametrize("place", ["spec", "metadata", "argument"])
def test_H097_the_project_path_has_two_places(scheduler_of, cluster, place):
    text = template().replace("  projectPath: *path\n", "")
    settings = {"k8s_remote_project_path": REMOTE + "/"} if place == "argument" else {}
    if place != "argument":
        text = text.replace(f"{place}:\n", f"{place}:\n  projectPath: {REMOTE}/\n", 1)
    scheduler = scheduler_of(text=text, **settings)
    future = scheduler.submit(start_of(0.5))
    cluster.wait_for_job("cartpole-0")
    cluster.pod("cartpole-0", "Running")
    cluster.result("cartpole-0", {"eval_value": 2}, root="hpo/cartpole")  # the later form of the path
    assert future.result(DEADLINE_S) == {"eval_value": 2}


def test_H097_no_project_path_is_refused(scheduler_of):
    with pytest.raises(ValueError, match="neither metadata nor spec of the DIJob has projectPath"):
        scheduler_of(text=template().replace("  projectPath: *path\n", ""))


def test_H098_a_pod_that_has_succeeded_left_its_result_on_a_shared_path(scheduler_of, cluster, tmp_path):
    shared = tmp_path / "shared"
    shared.mkdir()
    scheduler = scheduler_of(text=template(remote=shared), poll_interval=DEADLINE_S)
    future = scheduler.submit(start_of(0.5))
    cluster.wait_for_job("cartpole-0")
    (shared / "cartpole-0").mkdir()
    (shared / "cartpole-0" / "result.pkl").write_bytes(pickle.dumps({"eval_value": 7}))
    cluster.pod("cartpole-0", "Succeeded")
    assert future.result(DEADLINE_S) == {"eval_value": 7}


def test_a_shared_result_of_an_earlier_run_is_none(scheduler_of, cluster, tmp_path):
    shared = tmp_path / "shared"
    (shared / "cartpole-0").mkdir(parents=True)
    (shared / "cartpole-0" / "result.pkl").write_bytes(pickle.dumps({"eval_value": 7}))
    scheduler = scheduler_of(text=template(remote=shared))
    future = scheduler.submit(start_of(0.5))
    cluster.wait_for_job("cartpole-0")
    cluster.pod("cartpole-0", "Succeeded")
    with pytest.raises(TrialFailed) as raised:
        future.result(DEADLINE_S)
    assert "wrote no result" in raised.value.log_tail


# --- results ---


def test_json_comes_before_pickle_and_the_side_file_is_read(scheduler_of, cluster):
    scheduler = scheduler_of()
    future = scheduler.submit(start_of(0.5))
    cluster.wait_for_job("cartpole-0")
    cluster.result("cartpole-0", {"eval_value": 1})
    cluster.result("cartpole-0", b'{"eval_value": 2}', "result.json")
    cluster.result("cartpole-0", b'{"note": "n"}', "results.txt")
    cluster.pod("cartpole-0", "Running")
    assert future.result(DEADLINE_S) == {"eval_value": 2}
    assert scheduler.task_reports[0]["result"] == {"status": "success", "note": "n"}


def test_the_format_of_results_may_be_named(scheduler_of, cluster):
    scheduler = scheduler_of(result_format="pickle")
    future = scheduler.submit(start_of(0.5))
    cluster.wait_for_job("cartpole-0")
    cluster.result("cartpole-0", b'{"eval_value": 2}', "result.json")
    cluster.result("cartpole-0", {"eval_value": 1}, "hpo/results")
    cluster.pod("cartpole-0", "Running")
    assert future.result(DEADLINE_S) == {"eval_value": 1}


def test_a_result_that_is_being_written_is_read_again(scheduler_of, cluster):
    whole = pickle.dumps({"eval_value": 3.5, "more": "x" * 1000})
    scheduler = scheduler_of()
    future = scheduler.submit(start_of(0.5))
    cluster.wait_for_job("cartpole-0")
    cluster.result("cartpole-0", whole[:-100])
    cluster.pod("cartpole-0", "Running")
    cluster.wait_for_searches(2)
    assert not future.done()
    cluster.result("cartpole-0", whole)
    assert future.result(DEADLINE_S)["eval_value"] == 3.5


def test_a_result_that_stays_broken_fails_the_trial(scheduler_of, cluster):
    scheduler = scheduler_of()
    future = scheduler.submit(start_of(0.5))
    cluster.wait_for_job("cartpole-0")
    cluster.result("cartpole-0", b"not a pickle")
    cluster.pod("cartpole-0", "Running")
    with pytest.raises(TrialFailed) as raised:
        future.result(DEADLINE_S)
    assert f"{REMOTE}/cartpole-0/result.pkl" in raised.value.log_tail


def test_a_malicious_pickle_runs_nothing(scheduler_of, cluster, tmp_path):
    class Evil:
        def __reduce__(self):
            return os.system, (f"touch {tmp_path}/ran",)

    scheduler = scheduler_of()
    future = scheduler.submit(start_of(0.5))
    cluster.wait_for_job("cartpole-0")
    cluster.result("cartpole-0", {"eval_value": Evil()})
    cluster.pod("cartpole-0", "Running")
    with pytest.raises(TypeError, match="system"):
        float(future.result(DEADLINE_S)["eval_value"])
    assert not (tmp_path / "ran").exists()


def test_the_log_is_attached_to_a_failure(scheduler_of, cluster):
    scheduler = scheduler_of()
    future = scheduler.submit(start_of(0.5))
    cluster.wait_for_job("cartpole-0")
    cluster.logs["cartpole-0-serial-0"] = "x" * 9000 + "\nKeyError: 'policy'\n"
    cluster.pod("cartpole-0", "Failed")
    cluster.job_phase("cartpole-0", "Failed")
    with pytest.raises(TrialFailed, match="hpo-id-1-task-0 is not successful, current status is: fail") as raised:
        future.result(DEADLINE_S)
    assert raised.value.log_tail.startswith("its DIJob has failed\nx")
    assert raised.value.log_tail.rstrip().endswith("KeyError: 'policy'")
    assert len(raised.value.log_tail) < 4200


def test_a_job_that_somebody_deletes_fails(scheduler_of, cluster):
    scheduler = scheduler_of()
    future = scheduler.submit(start_of(0.5))
    cluster.wait_for_job("cartpole-0")
    cluster.pod("cartpole-0", "Running")
    cluster.wait_for_searches(1)
    cluster.remove(JOBS, "dijobs", "default", "cartpole-0")
    with pytest.raises(TrialFailed) as raised:
        future.result(DEADLINE_S)
    assert "deleted by somebody else" in raised.value.log_tail
    assert cluster.names("configmaps") == []


# --- what is refused before anything starts ---


@pytest.mark.parametrize("kind, plural, prefix, name", [
    ("DIJob", "dijobs", JOBS, "cartpole-3"), ("ConfigMap", "configmaps", "/api/v1", "config-py-cartpole-3"),
])  # fmt: skip
def test_names_that_are_taken_are_refused(scheduler_of, cluster, kind, plural, prefix, name):
    cluster.put(prefix, plural, {"metadata": {"name": name, "namespace": "default"}})
    with pytest.raises(SchedulerError, match=f"the cluster holds trials of an earlier run \\({kind} {name}\\)"):
        scheduler_of()
    scheduler = scheduler_of(on_exists="new")
    scheduler.submit(start_of(0.5))
    cluster.wait_for_job("cartpole-2-0")
    assert [path for method, path in cluster.requests if method == "DELETE"] == []


def test_names_that_cannot_be_pods_are_refused(scheduler_of, cluster):
    for project, hint in (("cartpole_dqn_hpo", "cartpole-dqn-hpo"), ("Cart-", "cart")):
        with pytest.raises(AssertionError, match=f"cannot name pods.*try '{hint}'"):
            scheduler_of(project)
    with pytest.raises(AssertionError, match="names of 6[4-9] characters") as raised:
        scheduler_of("a" * 49)
    assert isinstance(raised.value, ValueError)
    better = str(raised.value).rsplit("'", 2)[1]
    scheduler_of(better)
    assert cluster.names("dijobs") == []


def test_a_main_file_that_is_too_large_is_refused(scheduler_of, cluster):
    scheduler = scheduler_of(main=MAIN + "#" * (900 << 10))
    with pytest.raises(TrialFailed) as raised:
        scheduler.submit(start_of(0.5)).result(DEADLINE_S)
    assert "fit into a ConfigMap" in raised.value.log_tail
    assert cluster.names("configmaps") == []


@pytest.mark.parametrize("text, message", [
    ("kind: [", "dijob.yml: not valid YAML at line 2"),
    (template().split("---")[0], "there is no ConfigMap"),
    ("kind: Job\n", "kind 'Job'"),
    (template().replace("v2alpha1", "v1alpha1"), "apiVersion 'diengine.opendilab.org/v1alpha1'"),
    (template().replace("config-py\n          configMap", "other\n          configMap"), "no volume config-py"),
    (template(remote="hpo"), "the project path hpo is relative"),
])  # fmt: skip
def test_a_wrong_template_is_refused_in_one_line(scheduler_of, text, message):
    with pytest.raises(ValueError, match=message) as raised:
        scheduler_of(text=text)
    assert "\n" not in str(raised.value)


def test_missing_rights_are_named_at_the_start(scheduler_of, cluster):
    cluster.denied = {"create dijobs", "get pods/exec"}
    with pytest.raises(SchedulerError, match="namespace default: you may not create dijobs, get pods/exec"):
        scheduler_of()


def test_a_cluster_without_dijobs_is_refused(scheduler_of, cluster):
    cluster.fault = lambda method, path: 404 if path.endswith("/dijobs") else None
    with pytest.raises(SchedulerError, match="has no dijobs: install the operator"):
        scheduler_of()


def test_a_cluster_that_cannot_be_reached_is_refused(tmp_path, monkeypatch, free_ports):
    config = {
        "apiVersion": "v1", "kind": "Config", "current-context": "c", "users": [{"name": "c", "user": {}}],
        "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{free_ports(1)[0]}"}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "c"}}],
    }  # fmt: skip
    monkeypatch.setenv("KUBECONFIG", str(write(tmp_path, json.dumps(config), "kubeconfig")))
    main, jobs = write(tmp_path, MAIN, "template.py"), write(tmp_path, template(), "dijob.yml")
    with pytest.raises(SchedulerError, match="kubeconfig cannot be used: .*127.0.0.1"):
        run_scheduler(str(main), mode="k8s", k8s_dijob_yaml_file_path=str(jobs), workdir=str(tmp_path))
    with pytest.raises(ValueError, match="needs k8s_dijob_yaml_file_path"):
        run_scheduler(str(main), mode="k8s", workdir=str(tmp_path))
    with pytest.raises(ValueError, match="'other'"):
        run_scheduler_k8s(str(main), str(jobs), context="other", workdir=str(tmp_path))


def test_a_namespace_may_be_named(scheduler_of, cluster):
    scheduler = scheduler_of(namespace="team", kubectl="/no/such/program")
    scheduler.submit(start_of(0.5))
    cluster.wait_for(lambda _: (DIJOBS, "team", "cartpole-0") in cluster.objects)


# --- faults ---


def test_requests_that_fail_for_a_moment_are_repeated(scheduler_of, cluster):
    left = {"POST": 2, "DELETE": 2}

    def fault(method, path):
        if ("/dijobs" in path or "/configmaps" in path) and left.get(method, 0) > 0:
            left[method] -= 1
            return 500
        return None

    scheduler = scheduler_of()
    cluster.fault = fault
    future = scheduler.submit(start_of(0.5))
    cluster.wait_for_job("cartpole-0")
    cluster.result("cartpole-0", {"eval_value": 1})
    cluster.pod("cartpole-0", "Running")
    assert future.result(DEADLINE_S) == {"eval_value": 1}
    scheduler.stop()
    assert left == {"POST": 0, "DELETE": 0} and cluster.names("dijobs") == [] and cluster.names("configmaps") == []


def test_a_job_whose_answer_was_lost_is_known_again(scheduler_of, cluster):
    scheduler = scheduler_of()
    lost = []

    def fault(method, path):
        """Handled, but nobody hears of it: the object appears, and the answer is an error."""
        if method == "POST" and path.endswith("/configmaps") and not lost:
            lost.append(path)
            threading.Thread(target=appear).start()
            return 500
        return None

    def appear():
        text = (scheduler._folder / "0.yml").read_text()
        thing = list(yaml.safe_load_all(text))[1]
        thing["metadata"]["namespace"] = "default"
        cluster.put("/api/v1", "configmaps", thing)

    cluster.fault = fault
    scheduler.submit(start_of(0.5))
    cluster.wait_for_job("cartpole-0")
    assert lost


def test_a_name_that_was_taken_meanwhile_is_left_alone(scheduler_of, cluster):
    scheduler = scheduler_of()
    cluster.put(JOBS, "dijobs", {"metadata": {"name": "cartpole-0", "namespace": "default"}})
    with pytest.raises(TrialFailed) as raised:
        scheduler.submit(start_of(0.5)).result(DEADLINE_S)
    assert "it is not of this scheduler" in raised.value.log_tail
    assert cluster.names("dijobs") == ["cartpole-0"] and cluster.names("configmaps") == []


def test_what_the_server_refuses_fails_the_trial_in_its_words(scheduler_of, cluster):
    scheduler = scheduler_of()
    cluster.fault = lambda method, path: 422 if method == "POST" and path.endswith("/dijobs") else None
    with pytest.raises(TrialFailed) as raised:
        scheduler.submit(start_of(0.5)).result(DEADLINE_S)
    assert "a fault of the test" in raised.value.log_tail
    assert cluster.names("configmaps") == []


def test_a_cluster_that_goes_away_is_waited_for(scheduler_of, cluster, caplog):
    scheduler = scheduler_of()
    first = scheduler.submit(start_of(0.5))
    cluster.wait_for_job("cartpole-0")
    cluster.pod("cartpole-0", "Running")
    cluster.wait_for_searches(1)
    cluster.fault = lambda *_: "drop"
    cluster.cut_watches()
    second = scheduler.submit(start_of(0.6))
    eventually(lambda: "the cluster does not answer" in caplog.text)
    assert not first.done() and not second.done() and scheduler.task_running_id == [0, 1]
    cluster.fault = None
    eventually(lambda: "the cluster answers again" in caplog.text)
    cluster.result("cartpole-0", {"eval_value": 1})
    cluster.wait_for_job("cartpole-1")
    cluster.pod("cartpole-1", "Running")
    cluster.result("cartpole-1", {"eval_value": 2})
    assert [future.result(DEADLINE_S)["eval_value"] for future in (first, second)] == [1, 2]
    assert caplog.text.count("the cluster does not answer") == 1


# --- the end ---


def test_stop_deletes_what_runs_and_gives_up_what_waits(scheduler_of, cluster):
    scheduler = scheduler_of()
    futures = [scheduler.submit(start_of(0.5 + i / 10)) for i in range(3)]
    cluster.wait_for_job("cartpole-0")
    cluster.pod("cartpole-0", "Running")
    scheduler.stop()
    for future in futures:
        with pytest.raises(SchedulerStopped):
            future.result(DEADLINE_S)
    assert cluster.names("dijobs") == [] and cluster.names("configmaps") == []
    assert sorted(scheduler.task_abnormal_id) == [0, 1, 2]


def test_stop_gives_up_a_cluster_that_is_away(scheduler_of, cluster, caplog):
    scheduler = scheduler_of(grace=0.1)
    future = scheduler.submit(start_of(0.5))
    cluster.wait_for_job("cartpole-0")
    cluster.fault = lambda *_: "drop"
    scheduler.stop()
    with pytest.raises(SchedulerStopped):
        future.result(DEADLINE_S)
    assert "jobs are left there: delete dijobs and configmaps with the label hpo/project=cartpole" in caplog.text


def test_jobs_of_a_killed_tuner_are_adopted(scheduler_of, cluster, caplog):
    caplog.set_level(logging.INFO)
    first = scheduler_of()
    first.submit(start_of(0.5))
    first.submit(start_of(0.6))
    for name in ("cartpole-0", "cartpole-1"):
        cluster.wait_for_job(name)
        cluster.pod(name, "Running")
    kept = {key: thing for key, thing in cluster.objects.items()}
    first.stop()  # which deletes them: put back what a kill would have left
    with cluster.changed:
        for key, thing in kept.items():
            cluster._store(key, json.loads(json.dumps(thing)))

    torn = {"name": "config-py-cartpole-1x", "namespace": "default", "labels": {"hpo/project": "cartpole"}}
    cluster.put("/api/v1", "configmaps", {"metadata": torn})  # of a job that was not made yet
    second = scheduler_of(on_exists="reuse")
    cluster.wait_for(lambda _: ("/api/v1/configmaps", "default", "config-py-cartpole-1x") not in cluster.objects)
    again = second.submit(start_of(0.6))
    new = second.submit(start_of(0.7))
    cluster.wait_for_job("cartpole-3")  # numbers go on behind the old ones
    cluster.result("cartpole-1", {"eval_value": 60})
    assert again.result(DEADLINE_S) == {"eval_value": 60}
    assert second.task_list[0].task_id == 2 and second.task_list[0].task_name == "cartpole-1"
    assert "task 2 goes on with job [cartpole-1] of an earlier run" in caplog.text
    assert cluster.names("dijobs") == ["cartpole-0", "cartpole-3"] and not new.done()
    second.stop()
    assert "not asked for again: cartpole-0" in caplog.text


def test_numbers_go_on_behind_an_earlier_run(scheduler_of, cluster, tmp_path):
    first = scheduler_of()
    first.submit(start_of(0.5))
    cluster.wait_for_job("cartpole-0")
    first.stop()
    second = scheduler_of(on_exists="reuse", keep_files=False)
    second.submit(start_of(0.5))
    cluster.wait_for_job("cartpole-1")
    second.stop()
    assert sorted(path.name for path in (tmp_path / "cartpole").iterdir()) == ["0.py", "0.yml"]


# --- the document's program ---


def test_the_documents_program_ends_with_its_table(scheduler_of, cluster, caplog):
    caplog.set_level(logging.INFO)
    scheduler = scheduler_of(None)  # the name is the template's

    def operator():
        for number in range(3):
            name = f"cartpole-dqn-hpo-k8s-{number}"
            cluster.wait_for_job(name)
            with cluster.changed:
                text = cluster.objects[("/api/v1/configmaps", "default", f"config-py-{name}")]["data"]["config.py"]
            place = cluster.folder / "hpo"
            place.mkdir(exist_ok=True)
            cluster.pod(name, "Running")
            subprocess.run([sys.executable, "-c", text], cwd=place, check=True)

    thread = threading.Thread(target=operator)
    thread.start()
    config, result, _ = (
        hpo(scheduler.enable_hpo()).grid().max_steps(3).max_workers(3).maximize(R["eval_value"])
        .spaces(start_of(uniform(0.5, 1))).run()
    )  # fmt: skip
    thread.join()
    assert config == start_of(1.0) and result == {"eval_value": 100.0}
    rows = {row.split("|")[1].strip(): row.split("|")[2].strip() for row in scheduler.status_table().splitlines() if "task_" in row}
    assert rows["task_defined"] == "[0, 1, 2]" and rows["task_running"] == "[]"
    assert sorted(json.loads(rows["task_success"])) == [0, 1, 2] and rows["task_abnormal"] == "[]"
    assert "Scheduler: task 0 emited with pod [cartpole-dqn-hpo-k8s-0-serial-0]" in caplog.text


# --- reports and results by way of di-server ---


def pruned_search(scheduler, cluster, report):
    """The best of three steps, of which the third reports a worse value and never ends by itself.
    `report(job, value)` plays the program."""

    def play():
        for number, value in enumerate((0.5, 0.6, 0.9)):
            job = f"cartpole-{number}"
            cluster.wait_for_job(job)
            cluster.pod(job, "Running")
            report(job, value)
            if number < 2:
                eventually(lambda number=number: scheduler.task_list[number].trial.last_step == 0)
                cluster.result(job, {"eval_value": value})

    player = threading.Thread(target=play, daemon=True)
    player.start()
    runner = hpo(scheduler.enable_hpo()).grid().max_workers(1).max_tries(1).minimize(R["eval_value"])
    best = runner.spaces(start_of(choice([0.5, 0.6, 0.9]))).prune(MedianPruner(2)).run()
    player.join()
    return best


@pytest.mark.parametrize("way", ["file", "posted"])
def test_a_pod_is_pruned_by_what_it_reports(scheduler_of, cluster, way):
    def report(job, value):
        if way == "posted":
            return cluster.posted(job, reports={"0": {"eval_value": value}})
        cluster.metrics(job, json.dumps({"step": 0, "values": {"eval_value": value}}) + "\n")

    scheduler = scheduler_of()
    best = pruned_search(scheduler, cluster, report)
    assert best[1] == {"eval_value": 0.5}
    assert scheduler.task_pruned_id == [2] and scheduler.task_abnormal_id == []
    assert sorted(scheduler.task_success_id) == [0, 1]
    assert "| task_pruned   | [2]" in scheduler.status_table()
    eventually(lambda: cluster.names("dijobs") == [] and cluster.names("configmaps") == [])


def test_bad_and_unfinished_lines_of_a_pod_are_left_out(scheduler_of, cluster, caplog):
    def report(job, value):
        cluster.metrics(job, b'\xff not JSON\n{"step": 0, "values": {"eval_')
        cluster.wait_for_searches(2)
        cluster.metrics(job, f'value": {value}}}}}\n')

    assert pruned_search(scheduler_of(), cluster, report)[1] == {"eval_value": 0.5}
    assert caplog.text.count("reports of cartpole-0: $HPO_METRICS_FILE: ") == 1


def posted_file(name, data):
    return {"name": name, "bytes": base64.b64encode(data).decode()}


@pytest.mark.parametrize("gone", ["pod", "job"])
def test_a_posted_result_is_found_though_its_pod_is_gone(scheduler_of, cluster, gone):
    scheduler = scheduler_of()
    future = scheduler.submit(start_of(0.5))
    cluster.wait_for_job("cartpole-0")
    cluster.pod("cartpole-0", "Running")
    cluster.wait_for_searches(1)
    cluster.execute = lambda pod, command: (b"", 1)  # nobody can look into a pod any more
    cluster.posted("cartpole-0", result=posted_file("result.pkl", pickle.dumps({"eval_value": 7})))
    cluster.no_pod("cartpole-0")
    if gone == "job":
        cluster.job_phase("cartpole-0", "Succeeded")
    assert future.result(DEADLINE_S) == {"eval_value": 7}
    eventually(lambda: cluster.names("dijobs") == [])


def test_a_posted_result_does_not_wait_for_the_watch(scheduler_of, cluster):
    scheduler = scheduler_of()
    future = scheduler.submit(start_of(0.5))
    cluster.wait_for_job("cartpole-0")
    cluster.pod("cartpole-0", "Running")
    cluster.wait_for_searches(1)
    with cluster.changed:  # as it is, and nobody is told
        job = cluster.objects[(DIJOBS, "default", "cartpole-0")]
        job["status"] = {"trial": {"result": posted_file("result.json", b'{"eval_value": 8}')}}
    cluster.pod("cartpole-0", "Succeeded")
    assert future.result(DEADLINE_S) == {"eval_value": 8}


def test_a_posted_result_that_cannot_be_read_fails_its_trial(scheduler_of, cluster):
    scheduler = scheduler_of()
    future = scheduler.submit(start_of(0.5))
    cluster.wait_for_job("cartpole-0")
    cluster.pod("cartpole-0", "Running")
    cluster.posted("cartpole-0", result=posted_file("result.json", b"{"))
    with pytest.raises(TrialFailed) as raised:
        future.result(DEADLINE_S)
    assert "posted to di-server" in raised.value.log_tail


def test_why_a_reporter_could_not_post_is_told(scheduler_of, cluster):
    scheduler = scheduler_of()
    future = scheduler.submit(start_of(0.5))
    cluster.wait_for_job("cartpole-0")
    cluster.pod("cartpole-0", "Running")
    cluster.posted("cartpole-0", trouble="the result result.pkl has 99999 bytes: di-server keeps 32768")
    cluster.pod("cartpole-0", "Succeeded")
    with pytest.raises(TrialFailed) as raised:
        future.result(DEADLINE_S)
    assert "the program wrote no result; its reporter: the result result.pkl has 99999" in raised.value.log_tail


def test_a_reporter_runs_the_command_of_the_template(scheduler_of, cluster, tmp_path):
    scheduler = scheduler_of(reporter="/opt/divisi-report")
    scheduler.submit(start_of(0.5))
    cluster.wait_for_job("cartpole-0")
    with cluster.changed:
        job = cluster.objects[(DIJOBS, "default", "cartpole-0")]
    container = job["spec"]["tasks"][0]["template"]["spec"]["containers"][0]
    assert container["command"] == ["/opt/divisi-report", "/bin/bash", "-c"]
    named = {each["name"]: each["value"] for each in container["env"]}
    assert named["HPO_METRICS_FILE"] == f"{REMOTE}/cartpole-0-metrics.jsonl"


def test_a_reporter_without_a_command_is_refused(scheduler_of):
    text = template().replace('          command: ["/bin/bash", "-c",]\n', "")
    with pytest.raises(ValueError, match="dijob.yml: the first container of the first task has no command"):
        scheduler_of(text=text, reporter="divisi-report")


def test_a_reporter_is_refused_on_this_machine(tmp_path):
    main = write(tmp_path, MAIN, "template.py")
    with pytest.raises(ValueError, match="reporter is the path of divisi-report in the image"):
        run_scheduler(str(main), "cartpole", workdir=str(tmp_path), reporter="divisi-report")
