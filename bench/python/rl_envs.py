"""Steps of CartPole-v1 in the peers' vector environments, by actions that were drawn beforehand: bench_env's peers."""
import time
import warnings

import numpy

ROUNDS = 256  # of actions, taken again and again
BETWEEN_LOOKS = 8  # steps between two looks at the clock


def make(side, envs):
    if side == "envpool":
        import envpool
        return envpool.make("CartPole-v1", env_type="gymnasium", num_envs=envs, num_threads=1, seed=1), numpy.int32
    import gymnasium
    mode = {"gymnasium-vector": "vector_entry_point", "gymnasium-sync": "sync"}[side]
    return gymnasium.make_vec("CartPole-v1", num_envs=envs, vectorization_mode=mode), numpy.int64


def steps(side, envs, seconds):
    """Steps of single environments a second. Those that only begin a new episode count as well."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about the precision of Gymnasium's bounds
        env, kind = make(side, envs)
    actions = list(numpy.random.default_rng(1).integers(0, 2, (ROUNDS, envs)).astype(kind))
    env.reset()

    def run_for(limit):
        rounds = episodes = 0
        begin = time.perf_counter()
        while time.perf_counter() - begin < limit:
            for _ in range(BETWEEN_LOOKS):
                terminated = env.step(actions[rounds % ROUNDS])[2]
                episodes += int(numpy.count_nonzero(terminated))
                rounds += 1
        return rounds * envs, episodes, time.perf_counter() - begin

    run_for(seconds / 10)
    taken, episodes, passed = run_for(seconds)
    return {"steps_per_s": taken / passed, "episode_steps": taken / max(episodes, 1), "sent": taken,
            "received": taken, "disordered": 0}
