"""`ding.entry.serial_pipeline`: a configuration of DI-engine trains divisi's DQN."""

import os
import pickle
import re
import signal
import subprocess
import sys

import pytest

from compat_tools import ROOT, compat, ding_venv, environment, run, write  # noqa: F401
from divisi.tune.scheduler import run_scheduler_local

# Of the guide of DI-toolkit's scheduler, as printed.
GUIDE_TEMPLATE = """\
from easydict import EasyDict

cartpole_dqn_config = dict(
    exp_name='cartpole_dqn_seed0',
    env=dict(
        collector_env_num=8,
        evaluator_env_num=5,
        n_evaluator_episode=5,
        stop_value=195,
        replay_path='cartpole_dqn_seed0/video',
    ),
    policy=dict(
        cuda=False,
        load_path=
        'cartpole_dqn_seed0/ckpt/ckpt_best.pth.tar',  # necessary for eval
        model=dict(
            obs_shape=4,
            action_shape=2,
            encoder_hidden_size_list=[128, 128, 64],
            dueling=True,
        ),
        nstep=1,
        discount_factor=0.97,
        learn=dict(
            batch_size=64,
            learning_rate=0.001,
        ),
        collect=dict(n_sample=8),
        eval=dict(evaluator=dict(eval_freq=40, )),
        other=dict(
            eps=dict(
                type='exp',
                start=0.95,
                end=0.1,
                decay=10000,
            ),
            replay_buffer=dict(replay_buffer_size=20000, ),
        ),
    ),
)
cartpole_dqn_config = EasyDict(cartpole_dqn_config)
main_config = cartpole_dqn_config
cartpole_dqn_create_config = dict(
    env=dict(
        type='cartpole',
        import_names=['dizoo.classic_control.cartpole.envs.cartpole_env'],
    ),
    env_manager=dict(type='base'),
    policy=dict(type='dqn'),
    replay_buffer=dict(type='deque',
                       import_names=['ding.data.buffer.deque_buffer_wrapper']),
)
cartpole_dqn_create_config = EasyDict(cartpole_dqn_create_config)
create_config = cartpole_dqn_create_config

if __name__ == "__main__":
    # or you can enter `ding -m serial -c cartpole_dqn_config.py -s 0`
    from ding.entry import serial_pipeline
    serial_pipeline((main_config, create_config), seed=0)
"""

# As printed but for the third line, which named `run_scheduler` and used `run_scheduler_local`.
GUIDE_PROGRAM = """\
import os
from ditk import logging
from ditk.scheduler import run_scheduler_local
from ditk.hpo import R, randint, quniform, choice, uniform
from ditk.hpo import hpo


def demo():

    scheduler = run_scheduler_local(
        task_config_template_path=os.path.join(os.path.dirname(__file__), "../template/cartpole_dqn_config.py"),
        dijob_project_name="cartpole_dqn_hpo")

    hpo_info = {'policy': {'other': {'eps': {'start': uniform(0.5, 1)}}}}

    opt = hpo(scheduler.enable_hpo())
    cfg, ret, metrics = opt.grid() \\
        .max_steps(5) \\
        .max_workers(4) \\
        .maximize(R['eval_value']) \\
        .spaces(hpo_info).run()
    print(cfg)
    print(ret)

    scheduler.stop()


if __name__ == "__main__":
    logging.try_init_root(logging.INFO)
    demo()
"""

FIELDS = ["stop", "env_step", "train_iter", "eval_value", "eval_value_raw", "finish_time"]


def with_limits(template, limits):
    """The template, whose training ends early."""
    return template.replace("seed=0)", f"seed=0, {limits})")


def test_the_configuration_of_the_guide_trains_and_writes_its_result(tmp_path):
    out = compat(tmp_path, with_limits(GUIDE_TEMPLATE, "max_env_step=1600"))
    assert out.splitlines()[0].startswith("env_step 0, train_iter 0: mean return ")
    folder = tmp_path / "cartpole_dqn_seed0"
    result = pickle.loads((folder / "result.pkl").read_bytes())
    assert list(result) == FIELDS
    assert result["env_step"] == 1600 and result["train_iter"] == 3 * (200 - 7)
    assert result["stop"] is False and len(result["eval_value_raw"]) == 5
    assert result["eval_value"] == pytest.approx(sum(result["eval_value_raw"]) / 5)
    scope = {}
    exec((folder / "total_config.py").read_text(), scope)
    assert scope["exp_config"]["main"]["policy"]["other"]["eps"]["start"] == 0.95
    assert sorted(path.name for path in (folder / "ckpt").iterdir()) == ["ckpt_best.divisi", "ckpt_final.divisi"]
    assert (folder / "log" / "evaluator" / "evaluator_logger.txt").read_text() == out


def test_an_existing_folder_is_left_alone(tmp_path):
    (tmp_path / "cartpole_dqn_seed0").mkdir()
    compat(tmp_path, with_limits(GUIDE_TEMPLATE, "max_env_step=80"))
    (dated,) = tmp_path.glob("cartpole_dqn_seed0_*")
    assert re.fullmatch(r"cartpole_dqn_seed0_\d{6}_\d{6}", dated.name)
    assert (dated / "result.pkl").is_file() and not any((tmp_path / "cartpole_dqn_seed0").iterdir())


def test_a_file_is_a_configuration_too_and_a_seed_repeats(tmp_path):
    write(tmp_path, GUIDE_TEMPLATE, "config.py")
    program = """
    from ding.entry import serial_pipeline
    results = [serial_pipeline("config.py", seed=seed, max_train_iter=200) for seed in (3, 3, 4)]
    one, two, other = (result["eval_value_raw"] for result in results)
    print("@", one == two, one == other, results[0]["train_iter"])
    """
    assert compat(tmp_path, program).splitlines()[-1] == "@ True False 201"


@pytest.mark.parametrize(
    "change, said",
    [
        ("main_config.policy.learn.batchsize = 3", "main_config.policy.learn.batchsize: this key is not known here, "
         "did you mean 'policy.learn.batch_size'?"),
        ("main_config.policy.cuda = True", "main_config.policy.cuda=true: only false can be honoured"),
        ("main_config.policy.model.dropout = 0.1", "main_config.policy.model.dropout=0.1: only null"),
        ("main_config.env.env_id = 'PongNoFrameskip-v4'", "main_config.env.env_id=PongNoFrameskip-v4: this environment"),
        ("create_config.policy.type = 'ppo'", "create_config.policy.type=ppo: this algorithm is not here; there is dqn"),
        ("create_config.env.type = 'lunarlander'", "create_config.env.type=lunarlander: this environment is not here"),
        ("main_config.policy.learn.learning_rate = float('nan')", "main_config.policy.learn.learning_rate=nan: expected"),
        ("main_config.policy.learn.learning_rate = 'fast'", "main_config.policy.learn.learning_rate: "),
        ("main_config.policy.model = object()", "main_config.policy.model is of type object"),
        ("main_config.policy[3] = 4", "main_config.policy has the key 3: keys are text"),
    ],
)  # fmt: skip
def test_what_is_not_known_is_refused_by_name_before_anything_is_written(tmp_path, change, said):
    program = GUIDE_TEMPLATE.replace('if __name__ == "__main__":', f'{change}\nif __name__ == "__main__":')
    path = write(tmp_path, program)
    done = run([sys.executable, "-m", "divisi.compat", path], env=environment(), cwd=tmp_path, code=1)
    assert done.stderr.splitlines()[-1].startswith(f"divisi.errors.UsageError: {said}")
    assert [entry.name for entry in tmp_path.iterdir()] == ["program.py"]


@pytest.mark.parametrize(
    "call, said",
    [
        ("'nowhere.py'", "nowhere.py"),
        ("(main_config,)", "serial_pipeline takes (main_config, create_config)"),
        ("(main_config, 3)", "create_config is a dict, not int"),
        ("(main_config, create_config), seed=-1", "seed must be a whole number from 0 on, not -1"),
        ("(main_config, create_config), model=3", "model is not known here"),
        ("(main_config, create_config), max_env_step=0", "max_env_step must be a whole number from 1 on"),
    ],
)
def test_wrong_arguments_are_refused(tmp_path, call, said):
    program = GUIDE_TEMPLATE.replace("(main_config, create_config), seed=0", call)
    path = write(tmp_path, program)
    done = run([sys.executable, "-m", "divisi.compat", path], env=environment(), cwd=tmp_path, code=1)
    assert said in done.stderr.splitlines()[-1]


def test_ctrl_c_ends_the_training(tmp_path):
    program = GUIDE_TEMPLATE.replace("stop_value=195", "stop_value=1e9")
    path = write(tmp_path, program)
    process = subprocess.Popen(
        [sys.executable, "-m", "divisi.compat", str(path)], env=environment(), cwd=tmp_path,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout.readline().startswith("env_step 0")
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=120)
    assert process.returncode != 0 and "KeyboardInterrupt" in err
    assert not (tmp_path / "cartpole_dqn_seed0" / "result.pkl").exists()


def test_a_trial_reports_to_its_tuner(tmp_path):
    env = environment(HPO_METRICS_FILE=str(tmp_path / "metrics.jsonl"))
    path = write(tmp_path, with_limits(GUIDE_TEMPLATE, "max_train_iter=100"))
    run([sys.executable, "-m", "divisi.compat", path], env=env, cwd=tmp_path)
    lines = (tmp_path / "metrics.jsonl").read_text().splitlines()
    assert len(lines) == 3 and lines[0].startswith('{"step": 0, "values": {"eval_value": ')


def guide_listing(folder, template):
    """The guide's program over the template: its log and what it printed."""
    write(folder, template, "template/cartpole_dqn_config.py")
    program = write(folder, GUIDE_PROGRAM, "demo/program.py")
    done = run([sys.executable, "-m", "divisi.compat", program], env=environment(), cwd=folder)
    return done.stderr + done.stdout, done.stdout.splitlines()


def check_guide(folder, log, printed):
    """Five trials with results, the best one printed, the table of the guide's form."""
    assert (
        "+---------------+-----------------+\n"
        "| status        | instances       |\n"
        "+===============+=================+\n"
        "| task_defined  | [0, 1, 2, 3, 4] |\n"
    ) in log
    results = {}
    for number in range(5):
        path = folder / "cartpole_dqn_hpo" / f"cartpole_dqn_hpo-{number}" / "result.pkl"
        results[number] = pickle.loads(path.read_bytes())
    best = max(result["eval_value"] for result in results.values())
    start = eval(printed[-2])["policy"]["other"]["eps"]["start"]
    assert start in (0.5, 0.625, 0.75, 0.875, 1.0) and eval(printed[-1])["eval_value"] == best
    return results


def test_the_guide_runs_with_short_trials(tmp_path):
    log, printed = guide_listing(tmp_path, with_limits(GUIDE_TEMPLATE, "max_env_step=400"))
    results = check_guide(tmp_path, log, printed)
    assert [result["env_step"] for result in results.values()] == [400] * 5


def test_the_guide_runs_as_printed_and_every_trial_learns(tmp_path):
    log, printed = guide_listing(tmp_path, GUIDE_TEMPLATE)
    results = check_guide(tmp_path, log, printed)
    assert all(result["stop"] and result["eval_value"] >= 195 for result in results.values())


@pytest.mark.long
def test_a_real_di_engine_runs_the_configuration_as_a_trial(tmp_path, ding_venv):  # noqa: F811
    template = write(tmp_path, with_limits(GUIDE_TEMPLATE, "max_env_step=160"), "template.py")
    settings = {"workdir": str(tmp_path), "python": str(ding_venv / "bin" / "python"), "missing": "error"}
    with run_scheduler_local(str(template), "real", **settings) as scheduler:
        result = scheduler.submit({"policy": {"other": {"eps": {"start": 0.5}}}}).result(300)
    assert list(result) == FIELDS and result["env_step"] == 160
    assert result["train_iter"] == 3 * (20 - 7)  # as ours counts
    assert all(type(value) is float for value in [result["eval_value"], *result["eval_value_raw"]])


def test_the_listings_are_those_of_the_guide():
    seed = ROOT.parent / "shared" / "seeds"
    if not seed.is_dir():
        return
    (guide,) = seed.glob("001*.txt")
    assert GUIDE_TEMPLATE in guide.read_text()
    assert os.linesep.join(GUIDE_PROGRAM.splitlines()[5:]) in guide.read_text()
