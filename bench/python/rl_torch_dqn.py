"""The peer of examples/cartpole_dqn in one process: a DQN in plain PyTorch and Gymnasium, with the same
hyper-parameters, the same network, and evaluations at the same points.

Written as one would for speed without leaving plain PyTorch: Gymnasium's numpy vector environment, a replay of
preallocated tensors, no tensor made where a view will do, one thread (more are slower at this size), no gradient
where none is needed.
"""
import copy
import math
import sys
import time
import warnings
from pathlib import Path

import gymnasium
import numpy
import torch
from torch import nn

ENV = "CartPole-v1"
ENVS = 8
EVALUATION_EPISODES = 5
EVALUATION_FREQUENCY = 40
HIDDEN = (128, 128, 64)
DISCOUNT = 0.97
LEARNING_RATE = 1e-3
BATCH = 64
UPDATES_PER_COLLECT = 3
TARGET_UPDATE_FREQUENCY = 100
EPS_START, EPS_END, EPS_DECAY = 0.95, 0.1, 10_000
REPLAY_SIZE = 20_000


class DuelingNetwork(nn.Module):
    """The layers and names of divisi::rl::QNetwork."""

    def __init__(self, observation_size, action_count):
        super().__init__()
        sizes = (observation_size, *HIDDEN)
        layers = []
        for inputs, outputs in zip(sizes, sizes[1:]):
            layers += [nn.Linear(inputs, outputs), nn.ReLU()]
        self.encoder = nn.Sequential(*layers)
        last = HIDDEN[-1]
        self.value = nn.Sequential(nn.Linear(last, last), nn.ReLU(), nn.Linear(last, 1))
        self.advantage = nn.Sequential(nn.Linear(last, last), nn.ReLU(), nn.Linear(last, action_count))

    def forward(self, observations):
        encoded = self.encoder(observations)
        advantage = self.advantage(encoded)
        return self.value(encoded) + advantage - advantage.mean(1, keepdim=True)


class Replay:
    """A ring of transitions."""

    def __init__(self, observation_size):
        self.observations = torch.zeros(REPLAY_SIZE, observation_size)
        self.next_observations = torch.zeros(REPLAY_SIZE, observation_size)
        self.actions = torch.zeros(REPLAY_SIZE, dtype=torch.int64)
        self.rewards = torch.zeros(REPLAY_SIZE)
        self.not_done = torch.zeros(REPLAY_SIZE)
        self.inserted = 0

    def __len__(self):
        return min(self.inserted, REPLAY_SIZE)

    def add(self, observations, actions, rewards, next_observations, terminated):
        begin = self.inserted % REPLAY_SIZE
        count = len(actions)
        if begin + count > REPLAY_SIZE:  # never over the end
            begin = 0
            self.inserted += REPLAY_SIZE - self.inserted % REPLAY_SIZE
        rows = slice(begin, begin + count)
        self.observations.numpy()[rows] = observations
        self.next_observations.numpy()[rows] = next_observations
        self.actions.numpy()[rows] = actions
        self.rewards.numpy()[rows] = rewards
        self.not_done.numpy()[rows] = ~terminated
        self.inserted += count

    def sample(self):
        rows = torch.randint(len(self), (BATCH,))
        return (self.observations[rows], self.actions[rows], self.rewards[rows], self.next_observations[rows],
                self.not_done[rows])


class Learner:
    """Double Q-learning with Adam and a target network that is copied now and then."""

    def __init__(self, observation_size, action_count):
        self.network = DuelingNetwork(observation_size, action_count)
        self.target = copy.deepcopy(self.network).requires_grad_(False)
        self.optimizer = torch.optim.Adam(self.network.parameters(), lr=LEARNING_RATE)
        self.updates = 0

    def update(self, batch):
        observations, actions, rewards, next_observations, not_done = batch
        with torch.no_grad():
            best = self.network(next_observations).argmax(1, keepdim=True)
            next_q = self.target(next_observations).gather(1, best).squeeze(1)
            targets = rewards + DISCOUNT * not_done * next_q
        q = self.network(observations).gather(1, actions.unsqueeze(1)).squeeze(1)
        loss = nn.functional.mse_loss(q, targets)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        self.updates += 1
        if self.updates % TARGET_UPDATE_FREQUENCY == 0:
            self.target.load_state_dict(self.network.state_dict())

    def act(self, observations):
        """The greedy actions."""
        with torch.inference_mode():
            return self.network(torch.from_numpy(observations)).argmax(1).numpy()


class Player:
    """Plays all environments with an epsilon-greedy network."""

    def __init__(self, seed):
        self.envs = make_envs(ENVS)
        self.observations, _ = self.envs.reset(seed=seed)
        self.begins = numpy.zeros(ENVS, dtype=bool)  # Gymnasium's next step of these only begins a new episode
        self.random = numpy.random.default_rng(seed)
        self.env_steps = 0

    def collect(self, learner, replay):
        eps = EPS_END + (EPS_START - EPS_END) * math.exp(-self.env_steps / EPS_DECAY)
        actions = learner.act(self.observations)
        explore = self.random.random(ENVS) < eps
        actions = numpy.where(explore, self.random.integers(0, 2, ENVS), actions)
        before = self.observations
        self.observations, rewards, terminated, truncated, _ = self.envs.step(actions)
        if self.begins.any():
            played = ~self.begins
            replay.add(before[played], actions[played], rewards[played], self.observations[played],
                       terminated[played])
            self.env_steps += int(played.sum())
        else:
            replay.add(before, actions, rewards, self.observations, terminated)
            self.env_steps += ENVS
        self.begins = terminated | truncated


def check_blas():
    """Debian's torch takes any BLAS; with the reference one it takes about four times as long: no peer."""
    if "openblas" not in Path("/proc/self/maps").read_text():
        sys.exit("torch has no OpenBLAS: install libopenblas0-pthread (scripts/setup bench)")


def make_envs(count):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about the precision of its bounds
        return gymnasium.make_vec(ENV, num_envs=count, vectorization_mode="vector_entry_point")


def evaluate(envs, learner, seed):
    """The mean return of one greedy episode in each environment."""
    observations, _ = envs.reset(seed=seed)
    returns = numpy.zeros(EVALUATION_EPISODES)
    running = numpy.ones(EVALUATION_EPISODES, dtype=bool)
    while running.any():
        observations, rewards, terminated, truncated, _ = envs.step(learner.act(observations))
        returns += rewards * running
        running &= ~(terminated | truncated)
    return float(returns.mean())


def train(seed, stop_value, max_env_steps=1_000_000):
    """Trains until an evaluation reaches stop_value; the clock runs from the first collect."""
    check_blas()
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    player, evaluation_envs = Player(seed), make_envs(EVALUATION_EPISODES)
    learner = Learner(4, 2)
    replay = Replay(4)
    begin, cpu = time.perf_counter(), time.process_time()
    evaluated, value, evaluations, evaluation_seconds = None, -math.inf, 0, 0.0
    while value < stop_value and player.env_steps < max_env_steps:
        player.collect(learner, replay)
        if len(replay) >= BATCH:
            for _ in range(UPDATES_PER_COLLECT):
                learner.update(replay.sample())
        if evaluated is None or learner.updates - evaluated >= EVALUATION_FREQUENCY:
            evaluated = learner.updates
            now = time.perf_counter()
            value = evaluate(evaluation_envs, learner, seed + 1000 + evaluated)
            evaluation_seconds += time.perf_counter() - now
            evaluations += 1
    seconds = time.perf_counter() - begin
    return {"seconds": seconds, "env_step": player.env_steps, "train_iter": learner.updates,
            "env_steps_per_s": player.env_steps / seconds, "updates_per_s": learner.updates / seconds,
            "evaluations": evaluations, "evaluation_s": evaluation_seconds,
            "cpu_s": time.process_time() - cpu, "sent": 1, "received": int(value >= stop_value), "disordered": 0}
