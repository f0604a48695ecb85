"""Our environments beside Gymnasium's, and our learner beside PyTorch's.

env_trace (src/rl/env_trace.cc) steps ours from given states and prints them; here Gymnasium does the
same. DIVISI_BUILD names the build to test (default: build/release of this checkout).
"""
import os
import subprocess
from pathlib import Path

import gymnasium
import numpy as np
import pytest
import torch

REPOSITORY = Path(__file__).resolve().parents[2]
BUILD = REPOSITORY / os.environ.get("DIVISI_BUILD", "build/release")
TRACE = BUILD / "tests" / "env_trace"
TOLERANCE = 1e-6


def trace(mode, text):
    """What env_trace prints for this input, line by line."""
    done = subprocess.run([TRACE, mode], input=text, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


class Step:
    """One line of env_trace."""

    def __init__(self, line):
        state, observation, rest = line.split("|")
        self.state = np.array(state.split(), dtype=np.float64)
        self.observation = np.array(observation.split(), dtype=np.float64)
        reward, terminated, truncated = rest.split()
        self.reward = float(reward)
        self.terminated, self.truncated = terminated == "1", truncated == "1"


def words(numbers):
    return " ".join(repr(float(number)) for number in numbers)


def action_for(name, number):
    """The action as Gymnasium takes it."""
    return int(number) if name == "CartPole-v1" else np.array([number], dtype=np.float32)


def check(name, ours, theirs, state, where):
    """Compares one step; `state` is Gymnasium's after it."""
    observation, reward, terminated, truncated, _ = theirs
    assert (ours.terminated, ours.truncated) == (terminated, truncated), where
    np.testing.assert_allclose(ours.observation, observation, rtol=TOLERANCE, atol=TOLERANCE, err_msg=where)
    # Of float32 and of some 70 at most.
    assert ours.reward == pytest.approx(float(reward), abs=TOLERANCE, rel=TOLERANCE), where
    if not terminated and not truncated:
        np.testing.assert_allclose(ours.state, state, rtol=0, atol=1e-9, err_msg=where)


def random_states(name, random, count):
    """States and actions: what episodes visit, and beyond."""
    if name == "CartPole-v1":
        states = random.uniform([-3, -4, -0.3, -4], [3, 4, 0.3, 4], (count, 4))
        states[: count // 10, 2] = random.uniform(-20, 20, count // 10)
        return states, random.integers(0, 2, count)
    states = random.uniform([-90, -8], [90, 8], (count, 2))
    states[: count // 10, 0] = random.uniform(-1e6, 1e6, count // 10)
    return states, random.uniform(-3, 3, count).astype(np.float32)


@pytest.mark.parametrize("name", ["CartPole-v1", "Pendulum-v1"])
def test_one_step_from_random_states(name):
    states, actions = random_states(name, np.random.default_rng(1), 5000)
    lines = trace("env", "".join(f"{name} {words(s)} {float(a)!r}\n" for s, a in zip(states, actions)))
    assert len(lines) == len(states)
    env = gymnasium.make(name).unwrapped
    for state, action, line in zip(states, actions, lines):
        env.reset()
        env.state = state.copy()
        theirs = env.step(action_for(name, action))
        check(name, Step(line), theirs, env.state, f"{name} {state} {action}")


def episode(name, seed, choose):
    """One episode of Gymnasium's: first state, actions, what each led to, the states after."""
    env = gymnasium.make(name)
    env.reset(seed=seed)
    first = np.array(env.unwrapped.state)
    actions, steps, states = [], [], []
    while not steps or not (steps[-1][2] or steps[-1][3]):
        actions.append(float(choose(env.unwrapped.state)))
        steps.append(env.step(action_for(name, actions[-1])))
        states.append(np.array(env.unwrapped.state))
    return first, actions, steps, states


@pytest.mark.parametrize("name", ["CartPole-v1", "Pendulum-v1"])
def test_whole_episodes_with_random_actions(name):
    random = np.random.default_rng(2)
    choose = (lambda _: random.integers(2)) if name == "CartPole-v1" else (lambda _: np.float32(random.uniform(-2.5, 2.5)))
    for seed in range(20):
        first, actions, steps, states = episode(name, seed, choose)
        lines = trace("run", f"{name} {words(first)}\n{words(actions)}\n")
        assert len(lines) == len(actions)
        for t, line in enumerate(lines):
            check(name, Step(line), steps[t], states[t], f"{name} seed {seed} step {t}")


def balance(state):
    """Keeps the pole up for as long as it is asked to."""
    x, x_dot, theta, theta_dot = state
    return 1 if theta + 0.3 * theta_dot + 0.02 * x + 0.05 * x_dot > 0 else 0


def test_the_longest_episode_of_cartpole():
    """A pole doubles any difference in a fifth of a second, the last bit's too: so each step is
    compared from the same state, and the time limit by itself."""
    first, actions, steps, states = episode("CartPole-v1", 3, balance)
    assert len(actions) == 500 and steps[-1][3]
    before = [first, *states[:-1]]
    lines = trace("env", "".join(f"CartPole-v1 {words(s)} {a}\n" for s, a in zip(before, actions)))
    for t, line in enumerate(lines[:-1]):
        check("CartPole-v1", Step(line), steps[t], states[t], f"step {t}")


class Network(torch.nn.Module):
    """What a user of PyTorch would write for the names of our state."""

    def __init__(self, observations, actions, hidden, dueling):
        super().__init__()
        layers, inputs = [], observations
        for size in hidden:
            layers += [torch.nn.Linear(inputs, size), torch.nn.ReLU()]
            inputs = size
        self.encoder = torch.nn.Sequential(*layers)
        self.dueling = dueling
        if dueling:
            def branch(outputs):
                return torch.nn.Sequential(torch.nn.Linear(inputs, inputs), torch.nn.ReLU(), torch.nn.Linear(inputs, outputs))
            self.value, self.advantage = branch(1), branch(actions)
        else:
            self.head = torch.nn.Linear(inputs, actions)

    def forward(self, observations):
        encoded = self.encoder(observations)
        if not self.dueling:
            return self.head(encoded)
        advantage = self.advantage(encoded)
        return self.value(encoded) + advantage - advantage.mean(dim=-1, keepdim=True)


def flat(tensor):
    return words(tensor.detach().numpy().ravel())


@pytest.mark.parametrize("double", [True, False])
@pytest.mark.parametrize("dueling", [True, False])
def test_one_update_of_dqn_beside_pytorch(dueling, double):
    torch.manual_seed(5)
    rows, learning_rate = 64, 0.001
    online, target = (Network(4, 2, [128, 128, 64], dueling) for _ in range(2))
    observations, following = torch.randn(rows, 4), torch.randn(rows, 4)
    actions = torch.randint(0, 2, (rows,))
    rewards, weights = torch.rand(rows), torch.rand(rows)
    not_done = (torch.rand(rows) > 0.3).float()
    discounts = torch.full((rows,), 0.97) ** torch.randint(1, 4, (rows,))

    text = [f"{int(dueling)} {int(double)} 0.97 {learning_rate} 4 2 3 128 128 64"]
    for network in (online, target):
        text += [f"{name} {flat(tensor)}" for name, tensor in sorted(network.state_dict().items())]
    text += [str(rows), flat(observations), " ".join(map(str, actions.tolist())), flat(rewards), flat(following),
             flat(not_done), flat(discounts), flat(weights)]
    printed = {line.split()[0]: np.array(line.split()[1:], dtype=np.float64) for line in trace("dqn", "\n".join(text))}

    optimizer = torch.optim.Adam(online.parameters(), lr=learning_rate)
    q = online(observations)
    with torch.no_grad():
        rating = target(following)
        best = (online(following) if double else rating).argmax(dim=-1)
        goal = rewards + discounts * not_done * rating.gather(-1, best[:, None])[:, 0]
    # As DI-engine's q_nstep_td_error: squared errors, weighted, then their mean.
    errors = q.gather(-1, actions[:, None])[:, 0] - goal
    loss = (torch.nn.MSELoss(reduction="none")(errors, torch.zeros(rows)) * weights).mean()
    optimizer.zero_grad()
    loss.backward()
    norm = torch.sqrt(sum((p.grad**2).sum() for p in online.parameters()))
    optimizer.step()

    np.testing.assert_allclose(printed["q"], q.detach().numpy().ravel(), atol=1e-5)
    np.testing.assert_allclose(printed["td_errors"], errors.detach().numpy(), atol=1e-5)
    assert printed["loss"][0] == pytest.approx(loss.item(), abs=1e-5)
    assert printed["grad_norm"][0] == pytest.approx(norm.item(), abs=1e-5)
    assert printed.keys() - {"q", "td_errors", "loss", "grad_norm"} == online.state_dict().keys()
    for name, tensor in online.state_dict().items():
        # Adam's first step is the sign of the gradient times the rate, whatever its size: where a
        # gradient is next to nothing, rounding decides. Such weights may differ, but not many.
        difference = np.abs(printed[name] - tensor.numpy().ravel())
        assert np.mean(difference > 1e-5) < 0.002, name
        assert difference.max() <= 2 * learning_rate + 1e-5, name
