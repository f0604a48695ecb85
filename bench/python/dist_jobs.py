"""dist_jobs.py first|second TREE SECONDS SAMPLES_PER_INSERT: env steps and updates a second of CartPole, by two
collectors and one learner.

first: a job of the first generation as local processes, a coordinator and its workers, with a di-server that only
lists them. second: examples/cartpole_dqn, whose fourth process is a replay. The same keys, no evaluations.
"""
import json
import os
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
COLLECTORS = 2
STOP_VALUE = 1e9  # a return that is never reached
KEYS = {"policy.nstep": 3, "policy.learn.batch_size": 64, "policy.learn.learning_rate": 0.001}  # as in dist_support
WARM_UP_S = 1.0


def first(tree, seconds, per_insert):
    os.environ["DIVISI_BUILD"] = str(tree)  # of dist_support
    sys.path[:0] = [str(ROOT / "tests" / "dist"), str(ROOT / "tests" / "shared")]
    from dist_support import FakeDiServer, Job, cartpole, prepare  # noqa: PLC0415: after the variable
    from ports import free_ports  # noqa: PLC0415

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        text = cartpole(stop_value=STOP_VALUE, eval_interval=3600, collectors=COLLECTORS, learners=1,
                        more=f"main_config.max_env_step = 10**12\n"
                             f"main_config.policy.other.replay_buffer.samples_per_insert = {per_insert}")
        pickle = prepare(folder, text)
        own, learner, *collectors = free_ports(2 + COLLECTORS)
        urls = [f"127.0.0.1:{port}" for port in collectors]
        with FakeDiServer(urls, [f"127.0.0.1:{learner}"]) as server, Job(folder, server.url) as job:
            for port in collectors:
                job.start(f"collector-{port}", "--module", "collector", "-c", pickle, "-s", "0", "-clp", port)
            job.start("learner", "--module", "spawn_learner", "-c", pickle, "-s", "0", "-lp", learner)
            coordinator = job.start("coordinator", "--module", "coordinator", "-P", "k8s", "-c", pickle, "-s", "0",
                                    "-cdp", own)
            begin, end = watch(folder / "policy" / "job-coordinator" / "state.json", coordinator, seconds,
                               lambda: job.log("coordinator")[-500:])
    passed = end["at"] - begin["at"]
    return {f"{name}_per_s": (end[key] - begin[key]) / passed
            for name, key in (("env_steps", "env_step"), ("updates", "train_iter"))}


def watch(path, process, seconds, said):
    """Two states of the coordinator, so far apart, each with the time of its file."""
    deadline = time.monotonic() + 10 * seconds + 60
    states = []
    while time.monotonic() < deadline:
        time.sleep(0.02)
        if process.poll() is not None:
            raise RuntimeError(f"the coordinator ended with code {process.returncode}: {said()}")
        try:
            at, state = path.stat().st_mtime, json.loads(path.read_text())
        except FileNotFoundError:
            continue
        if state["train_iter"] > 0 and (not states or at > states[-1]["at"]):
            states.append({**state, "at": at})
        steady = [state for state in states if state["at"] >= states[0]["at"] + WARM_UP_S]
        if steady and steady[-1]["at"] - steady[0]["at"] >= seconds:
            return steady[0], steady[-1]
    raise TimeoutError(f"no progress for {seconds} s: {said()}")


def second(tree, seconds, per_insert):
    import rl_jobs  # noqa: PLC0415: beside this file

    keys = [f"{key}={value}" for key, value in KEYS.items()]
    return rl_jobs.rate(str(tree / "bin" / "cartpole_dqn"), COLLECTORS, seconds,
                        [*keys, "policy.eval.evaluator.eval_freq=1000000",
                         f"policy.other.replay_buffer.samples_per_insert={per_insert}"])


def main():
    found = {"first": first, "second": second}[sys.argv[1]](Path(sys.argv[2]), float(sys.argv[3]), sys.argv[4])
    print(json.dumps({**found, "sent": 1, "received": 1, "disordered": 0}))


if __name__ == "__main__":
    main()
