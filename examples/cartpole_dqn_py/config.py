"""The configuration: nested dicts with attributes, and `key=value` overrides."""

import ast
import copy
import difflib


class Config(dict):
    """A dict whose keys are attributes, too."""

    def __init__(self, values=()):
        super().__init__({key: Config(one) if isinstance(one, dict) else one for key, one in dict(values).items()})

    def __getattr__(self, key):
        try:
            return self[key]
        except KeyError:
            raise AttributeError(key) from None

    def __setattr__(self, key, value):
        self[key] = value

    def __deepcopy__(self, memo):
        return Config(copy.deepcopy(dict(self), memo))


DEFAULTS = dict(
    exp_name="cartpole_dqn_seed0",
    seed=0,
    max_env_step=200000,  # give up there
    env=dict(
        env_id="CartPole-v1",
        collector_env_num=8,
        evaluator_env_num=5,
        n_evaluator_episode=5,
        stop_value=195.0,
    ),
    policy=dict(
        model=dict(obs_shape=4, action_shape=2, encoder_hidden_size_list=[128, 128, 64], dueling=True),
        nstep=1,
        discount_factor=0.97,
        learn=dict(
            batch_size=64,
            learning_rate=0.001,
            update_per_collect=3,
            target_update_freq=100,
            save_freq=1000,  # a checkpoint every so many training iterations
            send_freq=10,  # weights to the other processes, in training iterations
        ),
        collect=dict(n_sample=8),
        eval=dict(evaluator=dict(eval_freq=40)),
        other=dict(
            eps=dict(type="exp", start=0.95, end=0.1, decay=10000),
            replay_buffer=dict(
                replay_buffer_size=20000,
                samples_per_insert=0.0,  # 0: as one process does, update_per_collect * batch_size / n_sample
            ),
        ),
    ),
)


class BadOverride(ValueError):
    """Its text is for a person."""


def _leaves(values, prefix=""):
    for key, value in values.items():
        if isinstance(value, dict):
            yield from _leaves(value, f"{prefix}{key}.")
        else:
            yield prefix + key


def _parsed(key, text, old):
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        value = text
    if isinstance(old, float) and type(value) is int:
        value = float(value)
    if isinstance(old, str):
        value = text
    if type(value) is not type(old):
        raise BadOverride(f"{key} is of type {type(old).__name__}, like {old!r}; {text!r} is not")
    return value


def configure(overrides=(), **more):
    """The defaults with the `key=value` overrides, then with `more` where it is not None."""
    cfg = Config(copy.deepcopy(DEFAULTS))
    for override in overrides:
        key, is_given, text = override.partition("=")
        if not is_given:
            raise BadOverride(f"{override!r} is not of the form key=value, like policy.learn.batch_size=128")
        if key not in _leaves(cfg):
            raise BadOverride(f"there is no {key!r}{_nearest(key, list(_leaves(cfg)))}")
        *path, last = key.split(".")
        place = cfg
        for name in path:
            place = place[name]
        place[last] = _parsed(key, text, place[last])
    cfg.update({key: value for key, value in more.items() if value is not None})
    return cfg


def _nearest(key, known):
    # By the whole path first, then by its last part: `batch_size` alone is a common way to err.
    near = difflib.get_close_matches(key, known, 1)
    last = key.rsplit(".", 1)[-1]
    near = near or [one for one in known if one.rsplit(".", 1)[-1] == last]
    near = near or difflib.get_close_matches(last, [one.rsplit(".", 1)[-1] for one in known], 1, 0.5)
    return f"; the nearest is {near[0]}" if near else ""
