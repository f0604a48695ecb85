"""Runs of examples/cartpole_dqn, and what their folders say afterwards."""
import json
import os
import resource
import subprocess
import tempfile
import time
from pathlib import Path

ENDLESS = "env.stop_value=1e9"  # a return that is never reached
WARM_UP_S = 1.0  # of a run whose rate is wanted
END_S = 20.0


def command(program, folder, roles, keys):
    words = ["--alone"] if roles == "alone" else ["--roles", roles]
    return [program, *words, "--no-display", "--run-folder", str(Path(folder) / "run"), *keys]


def run(program, seed, roles, keys):
    """Until it ends by itself. Its time is the learner's: from the first iteration to the last."""
    with tempfile.TemporaryDirectory() as folder:
        exchanger = Path(folder) / "exchanger.json"
        subprocess.run(command(program, folder, roles, [f"seed={seed}", *keys]), check=True,
                       stdout=subprocess.DEVNULL, env=os.environ | {"DIVISI_BENCH_EXCHANGER": str(exchanger)})
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        end = json.loads((Path(folder) / "run" / "result.json").read_text())
        evaluations = [line for line in log_of(folder) if line["kind"] == "eval"]
        times = json.loads(exchanger.read_text()) if exchanger.exists() else {}
    seconds = end["seconds"]
    return {**end, **times, "env_steps_per_s": end["env_step"] / seconds, "updates_per_s": end["train_iter"] / seconds,
            "evaluations": len(evaluations), "cpu_s": usage.ru_utime + usage.ru_stime, "sent": 1,
            "received": int(end["solved"] or ENDLESS in keys), "disordered": 0}


def rate(program, collectors, seconds, keys):
    """With so many collectors for so long: what the learner's log says of env steps after a second of warm-up."""
    roles = ",".join(["replay", "learner", *["collector"] * collectors, "evaluator"])
    with tempfile.TemporaryDirectory() as folder:
        words = command(program, folder, roles, [ENDLESS, "max_env_step=1000000000000", *keys])
        process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        try:
            lines = wait_for_log(process, folder, seconds)
        finally:
            stop(process)
    first, last = lines[0], lines[-1]
    passed = last["seconds"] - first["seconds"]
    steps, updates = (last[key] - first[key] for key in ("env_step", "train_iter"))
    return {"env_steps_per_s": steps / passed, "updates_per_s": updates / passed, "measured_s": passed, "sent": 1,
            "received": 1, "disordered": 0}


def wait_for_log(process, folder, seconds):
    """The lines of progress since a second after all began, when they span so many seconds."""
    deadline = time.monotonic() + 10 * seconds + END_S
    while time.monotonic() < deadline:
        time.sleep(0.1)
        if process.poll() is not None:
            raise RuntimeError(f"the run ended with code {process.returncode}: {process.stderr.read()[-500:]}")
        lines = [line for line in log_of(folder) if line["kind"] == "progress" and line["env_step"] > 0]
        lines = [line for line in lines if line["seconds"] >= lines[0]["seconds"] + WARM_UP_S]
        if lines and lines[-1]["seconds"] - lines[0]["seconds"] >= seconds:
            return lines
    raise TimeoutError(f"no progress for {seconds} s in {folder}")


def log_of(folder):
    path = Path(folder) / "run" / "log.jsonl"
    text = path.read_text() if path.exists() else ""
    return [json.loads(line) for line in text.split("\n")[:-1]]  # the last may still be being written


def stop(process):
    """Ends the job: gently, then for good; its workers end with it."""
    process.terminate()
    try:
        process.wait(END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    process.stderr.close()
