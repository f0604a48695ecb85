"""Collectors, learners, evaluators: on small environments that count."""

import io
import json

import numpy as np
import pytest

from divisi import OnlineRLContext, UsageError, VoidMiddleware
from divisi.middleware import (
    DequeBuffer,
    EpisodeCollector,
    OffPolicyLearner,
    StepCollector,
    console_logger,
    data_pusher,
    eps_greedy_handler,
    eps_greedy_masker,
    interaction_evaluator,
    jsonl_logger,
    nstep_reward_enhancer,
    online_logger,
    priority_calculator,
    trainer,
)


class Mode:
    def __init__(self, name):
        self.name = name


class Counting:
    """Environment i has episodes of i + 2 steps and observes its step; the last reward is 10, others 1. Odd
    ones end by truncation."""

    def __init__(self, count, mode):
        self.num_envs, self.mode = count, mode
        self.metadata = {"autoreset_mode": Mode(mode)}
        self.at, self.done = np.zeros(count, int), np.zeros(count, bool)
        self.action_space = self

    def sample(self):
        return np.full(self.num_envs, -7)

    def _obs(self):
        return self.at.astype(np.float32)[:, None].copy()

    def reset(self, seed=None, options=None):
        mask = (options or {}).get("reset_mask", np.ones(self.num_envs, bool))
        self.at[mask] = 0
        self.done[mask] = False
        return self._obs(), {}

    def step(self, actions):
        assert len(actions) == self.num_envs
        resets = self.done & (self.mode == "NEXT_STEP")
        assert self.mode == "NEXT_STEP" or not self.done.any()
        self.at = np.where(resets, 0, self.at + 1)
        self.done = ~resets & (self.at == np.arange(self.num_envs) + 2)
        reward = np.where(resets, 0, np.where(self.done, 10.0, 1.0))
        odd = np.arange(self.num_envs) % 2 == 1
        terminated, truncated, infos = self.done & ~odd, self.done & odd, {}
        if self.mode == "SAME_STEP" and self.done.any():
            infos = {"final_obs": list(self._obs()), "_final_obs": self.done.copy()}
            self.at[self.done] = 0
            self.done[:] = False
        return self._obs(), reward, terminated, truncated, infos


class Policy:
    def __init__(self):
        self.kwargs, self.batches = [], []

    def forward(self, obs, **kwargs):
        self.kwargs.append(kwargs)
        return {"action": [int(row[0]) for row in obs]}

    def learn(self, batch):
        self.batches.append(batch)
        return {"total_loss": float(len(self.batches)), "priority": [1]}


def config(**policy):
    return {
        "seed": 0,
        "env": {"n_evaluator_episode": 3, "stop_value": 12},
        "policy": {
            "nstep": 1, "discount_factor": 0.5,
            "learn": {"batch_size": 4, "update_per_collect": 3},
            "collect": {"n_sample": 12, "n_episode": 4},
            "eval": {"evaluator": {"eval_freq": 10}},
            "other": {"eps": {"type": "exp", "start": 1.0, "end": 0.1, "decay": 10}},
            **policy,
        },
    }


MODES = pytest.mark.parametrize("mode", ["NEXT_STEP", "SAME_STEP", "DISABLED"])


@pytest.fixture
def ctx(task):
    with task.start(ctx=OnlineRLContext()):
        yield task.ctx


@MODES
def test_transitions_are_true_whatever_resets(ctx, mode):
    StepCollector(config(), Policy(), Counting(3, mode))(ctx)
    assert ctx.env_step == len(ctx.trajectories) >= 12
    begin = 0
    for env, end in enumerate(ctx.trajectory_end_idx):
        for i, one in enumerate(ctx.trajectories[begin : end + 1]):
            at = i % (env + 2)
            assert (one["obs"][0], one["next_obs"][0], one["action"]) == (at, at + 1, at)
            assert one["end"] == (at == env + 1)
            assert one["done"] == (one["end"] and env % 2 == 0)
            assert one["reward"] == (10 if one["end"] else 1)
        begin = end + 1
    assert begin == len(ctx.trajectories)
    assert ctx.env_episode == sum(one["end"] for one in ctx.trajectories)


@MODES
def test_episodes_are_whole(ctx, mode):
    collect = EpisodeCollector(config(), Policy(), Counting(3, mode))
    for _ in range(3):
        ctx.episodes, before = None, ctx.env_episode
        collect(ctx)
        assert len(ctx.episodes) == ctx.env_episode - before >= 4
        for episode in ctx.episodes:
            assert episode[0]["obs"][0] == 0
            assert [one["end"] for one in episode] == [False] * (len(episode) - 1) + [True]


def test_the_first_steps_may_be_random(ctx):
    collect = StepCollector(config(), Policy(), Counting(2, "SAME_STEP"), random_collect_size=6)
    collect(ctx)
    assert {one["action"] for one in ctx.trajectories} == {-7} and ctx.env_step == 6
    collect(ctx)
    assert -7 not in {one["action"] for one in ctx.trajectories}


def test_a_policy_with_too_few_actions_is_told(ctx):
    policy = Policy()
    policy.forward = lambda obs: [0]
    with pytest.raises(ValueError, match="1 actions for 2 environments"):
        StepCollector(config(), policy, Counting(2, "SAME_STEP"))(ctx)


def test_eps_follows_the_steps_and_is_taken_back(task):
    policy = Policy()
    with task.start(ctx=OnlineRLContext()):
        task.use(eps_greedy_handler(config()))
        task.use(StepCollector(config(), policy, Counting(2, "SAME_STEP")))
        task.run(max_step=2)
        assert task.ctx.collect_kwargs == {}
    assert policy.kwargs[0] == {"eps": 1.0}
    assert policy.kwargs[-1]["eps"] == pytest.approx(0.1 + 0.9 * np.exp(-1.2))


def test_eps_may_be_linear_masked_or_wrong(ctx):
    linear = config(other={"eps": {"type": "linear", "start": 1.0, "end": 0.0, "decay": 10}})
    ctx.env_step = 5
    next(eps_greedy_handler(linear)(ctx))
    assert ctx.collect_kwargs["eps"] == 0.5
    eps_greedy_masker()(ctx)
    assert ctx.collect_kwargs["eps"] == -1
    with pytest.raises(UsageError, match="'exp' or 'linear', not 'cubic'"):
        eps_greedy_handler(config(other={"eps": {"type": "cubic", "start": 1, "end": 0, "decay": 1}}))
    with pytest.raises(UsageError, match="has no policy.other.eps.start"):
        eps_greedy_handler({"policy": {"other": {}}})


def test_rewards_of_several_steps_stop_at_the_end(ctx):
    StepCollector(config(), Policy(), Counting(2, "SAME_STEP"))(ctx)
    nstep_reward_enhancer(config(nstep=2))(ctx)
    rows = [(one["obs"][0], one["next_obs"][0], one["reward"], one["value_gamma"], one["done"])
            for one in ctx.trajectories]
    assert rows[:2] == [(0, 2, 6.0, 0.25, True), (1, 2, 10.0, 0.5, True)]  # episodes of 2: 1 + 10/2, 10
    second = rows[ctx.trajectory_end_idx[0] + 1 :]
    assert second[:3] == [(0, 2, 1.5, 0.25, False), (1, 3, 6.0, 0.25, False), (2, 3, 10.0, 0.5, False)]


def test_data_reaches_the_policy_when_there_is_enough(ctx):
    policy, buffer = Policy(), DequeBuffer(100, seed=0)
    push, learn = data_pusher(config(), buffer), OffPolicyLearner(config(), policy, buffer)
    ctx.trajectories = [1, 2, 3]
    push(ctx)
    learn(ctx)
    assert ctx.trajectories is None and ctx.train_output == [] and ctx.train_iter == 0
    ctx.episodes = [4, 5]
    push(ctx)
    learn(ctx)
    assert [one["total_loss"] for one in ctx.train_output] == [1, 2, 3]
    assert ctx.train_iter == 3 and all(len(set(batch)) == 4 for batch in policy.batches)


def test_nothing_to_push_is_an_error_unless_the_task_ends(task, ctx):
    push = data_pusher(config(), DequeBuffer(1))
    with pytest.raises(RuntimeError, match="neither trajectories nor episodes"):
        push(ctx)
    task.finish = True
    push(ctx)


def test_a_reward_model_and_a_policy_without_learn(ctx):
    class Forward:
        def forward(self, batch):
            return {"total_loss": sum(batch)}

    class Zero:
        def estimate(self, batch):
            batch[:] = [0] * len(batch)

    buffer = DequeBuffer(10)
    for i in range(10):
        buffer.push(i + 1)
    OffPolicyLearner(config(), Forward(), buffer, reward_model=Zero())(ctx)
    assert [one["total_loss"] for one in ctx.train_output] == [0, 0, 0]
    ctx.train_data = None
    trainer(config(), Forward())(ctx)
    assert ctx.train_iter == 3


def test_priorities_are_written_to_the_transitions(ctx):
    ctx.trajectories = [{"reward": 1}, {"reward": 2}]
    priority_calculator(lambda data: [one["reward"] * 10 for one in data])(ctx)
    assert [one["priority"] for one in ctx.trajectories] == [10, 20]


@MODES
def test_an_evaluation_counts_each_environment_alike(task, mode):
    with task.start(ctx=OnlineRLContext(train_iter=1)):
        evaluate = interaction_evaluator(config(), Policy(), Counting(3, mode))
        evaluate(task.ctx)
        # Returns 11, 12 and 13.
        assert task.ctx.eval_output["episode_returns"] == [11.0, 12.0, 13.0]
        assert (task.ctx.eval_value, task.ctx.last_eval_iter, task.finish) == (12.0, 1, True)


def test_an_evaluation_waits_for_its_frequency_and_the_start_does_not_solve(task):
    with task.start(ctx=OnlineRLContext()):
        policy = Policy()
        evaluate = interaction_evaluator(config(), policy, Counting(3, "SAME_STEP"))
        evaluate(task.ctx)
        assert task.ctx.eval_value == 12.0 and not task.finish
        played = len(policy.kwargs)
        task.ctx.train_iter = 9
        evaluate(task.ctx)
        assert len(policy.kwargs) == played
        task.ctx.train_iter = 10
        evaluate(task.ctx)
        assert len(policy.kwargs) > played and task.finish


def test_loggers_write_what_is_new(task, tmp_path, monkeypatch):
    from test_writer import only_file, scalars

    from divisi import DistributedWriter

    monkeypatch.setattr(DistributedWriter, "root", None)
    with task.start(ctx=OnlineRLContext(env_step=5, train_iter=100)):
        with pytest.raises(UsageError, match="online_logger needs a writer"):
            online_logger()
        DistributedWriter.get_instance(tmp_path / "log")
        stream = io.StringIO()
        loggers = [online_logger(), console_logger(stream=stream), jsonl_logger(str(tmp_path / "a" / "b.jsonl"))]
        task.ctx.eval_value = 2.0
        task.ctx.train_output = [{"total_loss": 0.5, "priority": [1]}]
        for value in (2.0, float("-inf")):  # the second time there is nothing new
            task.ctx.eval_value = value
            for logger in loggers:
                logger(task.ctx)
    assert scalars(only_file(tmp_path / "log")) == [
        ("basic/eval_episode_return_mean", 2.0, 5), ("basic/train_total_loss", 0.5, 5)
    ]
    assert stream.getvalue() == "env_step=5 env_episode=0 train_iter=100 eval_value=2 total_loss=0.5\n"
    (line,) = (tmp_path / "a" / "b.jsonl").read_text().splitlines()
    row = json.loads(line)
    assert (row["eval_value"], row["total_loss"], row["train_iter"]) == (2.0, 0.5, 100)


ROLES = """
from divisi.middleware import *
class Env:
    num_envs = 1
cfg = {"env": {"n_evaluator_episode": 1}, "policy": {"nstep": 1, "discount_factor": 1,
    "learn": {"batch_size": 1, "update_per_collect": 1}, "collect": {"n_sample": 1, "n_episode": 1},
    "eval": {"evaluator": {"eval_freq": 1}}, "other": {"eps": {"start": 1, "end": 0, "decay": 1}}}}
class Policy:
    forward = learn = state_dict = lambda *_: None
def made():
    DistributedWriter.get_instance("log")
    return {
        "trainer": trainer(cfg, Policy()), "OffPolicyLearner": OffPolicyLearner(cfg, Policy(), None),
        "data_pusher": data_pusher(cfg, None), "online_logger": online_logger(),
        "StepCollector": StepCollector(cfg, Policy(), Env()), "eps_greedy_handler": eps_greedy_handler(cfg),
        "priority_calculator": priority_calculator(len), "interaction_evaluator": interaction_evaluator(cfg, Policy(), Env()),
        "CkptSaver": CkptSaver(Policy(), "exp"), "nstep_reward_enhancer": nstep_reward_enhancer(cfg),
        "EpisodeCollector": EpisodeCollector(cfg, Policy(), Env()), "termination_checker": termination_checker(),
        "final_ctx_saver": final_ctx_saver("exp"), "epoch_timer": epoch_timer(), "Barrier": Barrier(),
    }
def main(role):
    with task.start(ctx=OnlineRLContext()):
        if role:
            task.add_role(role)
        tell(role, sorted(name for name, one in made().items() if not isinstance(one, VoidMiddleware)))
if __name__ == "__main__":
    for role in ("learner", "collector", "evaluator", ""):
        Parallel.runner(n_parallel_workers=1)(main, role)
"""

ALWAYS = {"EpisodeCollector", "termination_checker", "final_ctx_saver", "epoch_timer", "Barrier"}
OF_LEARNER = {"trainer", "OffPolicyLearner", "data_pusher", "online_logger", "CkptSaver", "nstep_reward_enhancer"}
OF_COLLECTOR = {"StepCollector", "eps_greedy_handler", "priority_calculator", "nstep_reward_enhancer"}
OF_EVALUATOR = {"interaction_evaluator", "CkptSaver"}


def test_a_role_decides_which_middleware_are_active(run_program):
    assert run_program(ROLES).ok().of_nodes() == {
        "learner": sorted(ALWAYS | OF_LEARNER),
        "collector": sorted(ALWAYS | OF_COLLECTOR),
        "evaluator": sorted(ALWAYS | OF_EVALUATOR),
        "": sorted(ALWAYS | OF_LEARNER | OF_COLLECTOR | OF_EVALUATOR),
    }


def test_alone_a_role_takes_nothing_away(task):
    with task.start():
        task.add_role("evaluator")
        assert not isinstance(eps_greedy_handler(config()), VoidMiddleware)


def test_gymnasium_itself(ctx):
    import gymnasium

    env = gymnasium.make_vec("CartPole-v1", num_envs=3, vectorization_mode="sync")

    class Left:
        def forward(self, obs):
            return np.zeros(len(obs), int)

    EpisodeCollector(config(), Left(), env)(ctx)
    for episode in ctx.episodes:
        for one, following in zip(episode, episode[1:]):
            assert (one["next_obs"] == following["obs"]).all()
        assert episode[-1]["done"] and 8 <= len(episode) <= 12  # it falls
