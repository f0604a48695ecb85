"""One measurement of the reinforcement-learning benchmark: prints one JSON line.

rl_bench.py env SIDE ENVS SECONDS            SIDE: gymnasium-vector, gymnasium-sync or envpool
rl_bench.py torch SEED STOP_VALUE            the peer of cartpole_dqn --alone, until it is solved
rl_bench.py run PROGRAM SEED ROLES KEY=VALUE...
                                             cartpole_dqn until it ends; ROLES: alone, or a list as of --roles
rl_bench.py rate PROGRAM COLLECTORS SECONDS KEY=VALUE...
                                             cartpole_dqn with so many collectors, for so long
rl_bench.py workers SIDE WORKERS SECONDS     SIDE: ours or ray; start of the workers, then calls to one of them
"""
import json
import sys

sys.dont_write_bytecode = True


def measure(name, *arguments):
    """The result of one command line."""
    if name == "env":
        import rl_envs
        return rl_envs.steps(arguments[0], int(arguments[1]), float(arguments[2]))
    if name == "torch":
        import rl_torch_dqn
        return rl_torch_dqn.train(int(arguments[0]), float(arguments[1]))
    if name == "run":
        import rl_jobs
        return rl_jobs.run(arguments[0], int(arguments[1]), arguments[2], arguments[3:])
    if name == "rate":
        import rl_jobs
        return rl_jobs.rate(arguments[0], int(arguments[1]), float(arguments[2]), arguments[3:])
    if name == "workers":
        import rl_workers
        return getattr(rl_workers, arguments[0])(int(arguments[1]), float(arguments[2]))
    return sys.exit(__doc__)


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    print(json.dumps(measure(*sys.argv[1:])))
