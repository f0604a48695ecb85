#!/usr/bin/env python3
"""Tunes a logistic regression by grid, random and Bayesian search, and prints the best of each.

    python examples/hpo/hpo_example.py [--steps 30] [--workers 2] [--verbose]
"""

import argparse
import logging
import math
import random

from divisi.tune import R, Skip, choice, hpo, loguniform, quniform, randint


def make_data(count, seed):
    """Points in the plane with a label that depends on x, y and x * y, one in twenty wrong."""
    state = random.Random(seed)
    data = []
    for _ in range(count):
        x, y = state.uniform(-1, 1), state.uniform(-1, 1)
        label = float(x - y + 2 * x * y > 0.1) if state.random() > 0.05 else float(state.random() > 0.5)
        data.append(((x, y, x * y, 1.0), label))
    return data


TRAIN, TEST = make_data(300, seed=1), make_data(300, seed=2)


def predict(weights, features):
    """The probability of label 1."""
    return 1 / (1 + math.exp(-max(-30.0, min(30.0, sum(w * f for w, f in zip(weights, features))))))


def train(config):
    """The objective: trains with the configuration, returns figures of the test set."""
    optimizer = config["optimizer"]
    if optimizer["name"] == "momentum" and optimizer["lr"] > 5:
        raise Skip("diverges for certain")
    state = random.Random(0)
    weights, speed = [0.0] * 4, [0.0] * 4
    momentum = 0.9 if optimizer["name"] == "momentum" else 0.0
    for _ in range(config["epochs"]):
        for features, label in state.sample(TRAIN, len(TRAIN)):
            error = predict(weights, features) - label
            for i, feature in enumerate(features):
                gradient = error * feature + config["decay"] * weights[i]
                speed[i] = momentum * speed[i] - optimizer["lr"] / len(TRAIN) * gradient
                weights[i] += speed[i]
    chances = [(predict(weights, features), label) for features, label in TEST]
    loss = -sum(math.log(p if label else 1 - p) for p, label in chances) / len(chances)
    right = sum((p > 0.5) == bool(label) for p, label in chances) / len(chances)
    return {"loss": loss, "accuracy": right}


SPACE = {
    "optimizer": {"name": choice(["sgd", "momentum"]), "lr": loguniform(0.01, 30)},
    "decay": quniform(0.0, 0.1, 0.01),
    "epochs": randint(1, 4),
}


def main():
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=30, help="trials of each algorithm (30)")
    parser.add_argument("--workers", type=int, default=2, help="trials at a time (2)")
    parser.add_argument("--verbose", action="store_true", help="log every trial")
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO if options.verbose else logging.WARNING, format="%(message)s")

    searchable = hpo(train)
    for name in ("grid", "random", "bayes"):
        runner = getattr(searchable, name)()
        if name != "grid":
            runner.seed(0)
        runner.max_steps(options.steps).max_workers(options.workers)
        runner.minimize(R["loss"], "loss").concern(R["accuracy"], "accuracy").spaces(SPACE)
        result = runner.run()
        if result is None:
            print(f"{name:>6}: no trial ended well")
            continue
        config, figures, _ = result
        print(f"{name:>6}: loss {figures['loss']:.4f}, accuracy {figures['accuracy']:.3f} with {config}")


if __name__ == "__main__":
    main()
