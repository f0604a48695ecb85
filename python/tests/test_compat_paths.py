"""The import paths of DI-engine as divisi serves them."""

import subprocess
import sys

import pytest

from compat_tools import compat, environment

# Import path and names, as far as divisi has them.
THERE = {
    "ding.framework": "Context OnlineRLContext OfflineRLContext Task task VoidMiddleware Parallel "
    "EventLoop Supervisor ding_init",
    "ding.framework.task": "Task task Role VoidMiddleware",
    "ding.framework.parallel": "Parallel",
    "ding.framework.event_loop": "EventLoop",
    "ding.framework.context": "Context OnlineRLContext OfflineRLContext",
    "ding.framework.supervisor": "Supervisor ChildType SendPayload RecvPayload ReserveMethod "
    "Child ChildProcess ChildThread",
    "ding.framework.message_queue": "MQ NNGMQ",
    "ding.framework.message_queue.mq": "MQ",
    "ding.framework.message_queue.nng": "NNGMQ",
    "ding.framework.wrapper": "StepTimer",
    "ding.framework.middleware": "ContextExchanger ModelExchanger PeriodicalModelExchanger Barrier "
    "BarrierRuntime CkptSaver termination_checker ddp_termination_checker final_ctx_saver epoch_timer "
    "StepCollector EpisodeCollector OffPolicyLearner trainer data_pusher offpolicy_data_fetcher "
    "interaction_evaluator eps_greedy_handler eps_greedy_masker nstep_reward_enhancer online_logger "
    "priority_calculator",
    "ding.framework.middleware.distributer": "ContextExchanger ModelExchanger PeriodicalModelExchanger",
    "ding.framework.middleware.barrier": "Barrier BarrierRuntime",
    "ding.framework.middleware.ckpt_handler": "CkptSaver",
    "ding.framework.middleware.collector": "StepCollector EpisodeCollector",
    "ding.framework.middleware.learner": "OffPolicyLearner",
    "ding.framework.middleware.functional": "trainer eps_greedy_handler termination_checker",
    "ding.utils": "DistributedWriter",
    "ding.entry.cli_parsers": "PLATFORM_PARSERS",
    "ding.entry": "serial_pipeline",
    "ding.entry.cli_ditask": "cli_ditask",
    "easydict": "EasyDict",
}

MISSING = {
    "ding.framework.message_queue": "RedisMQ",
    "ding.framework.message_queue.redis": "RedisMQ",
    "ding.framework.middleware": "HERLearner PPOFStepCollector gae_estimator multistep_trainer "
    "wandb_online_logger offline_data_fetcher reward_estimator",
    "ding.data": "Storage FileStorage FileModelStorage StorageLoader FileStorageLoader "
    "ModelLoader FileModelLoader ShmBuffer ShmBufferContainer",
}


def test_every_name_that_is_there_resolves(tmp_path):
    lines = [f"from {module} import {', '.join(names.split())}" for module, names in THERE.items()]
    assert compat(tmp_path, "\n".join([*lines, "print('all')"])) == "all\n"


def test_every_name_that_is_missing_says_so(tmp_path):
    program = f"""
import importlib
for module, names in {MISSING!r}.items():
    for name in names.split():
        try:
            exec(f"from {{module}} import {{name}}")
        except ImportError as error:
            assert f"{{module}}.{{name}} yet" in str(error), error
            assert "there is: " in str(error), error
        else:
            raise AssertionError(f"{{module}}.{{name}}")
from ding.framework import middleware
try:
    from ding.data import FileStorage
except ImportError as error:
    print(error)
print(hasattr(middleware, "no_such_name"))
"""
    assert compat(tmp_path, program) == (
        "divisi has no ding.data.FileStorage yet; of ding.data there is: nothing\nFalse\n"
    )


def test_the_names_are_divisis_own(tmp_path):
    program = """
import divisi, divisi.launch
from ding.framework import task, Task, Parallel
from ding.framework.task import task as same
from ding.entry.cli_parsers import PLATFORM_PARSERS
assert task is divisi.task is same and Task is divisi.Task and Parallel is divisi.Parallel
assert isinstance(task, Task)
assert {"slurm", "k8s"} <= set(PLATFORM_PARSERS)
import ding
assert ding.__version__ == divisi.__version__
print("same")
"""
    assert compat(tmp_path, program) == "same\n"


def test_ding_init_makes_the_writer_of_the_experiment(tmp_path):
    program = """
from types import SimpleNamespace
from ding.framework import ding_init
from ding.utils import DistributedWriter
ding_init(SimpleNamespace(exp_name="mine"))
DistributedWriter.get_instance().add_scalar("a", 1, 2)
"""
    compat(tmp_path, program)
    (file,) = (tmp_path / "mine").iterdir()
    assert file.name.startswith("events.out.tfevents.")


def test_a_main_with_exchangers_runs_unchanged(tmp_path):
    program = """
from ding.framework import task, Parallel, OnlineRLContext
from ding.framework.middleware import ContextExchanger, ModelExchanger, termination_checker

class Model:
    value = 0
    def state_dict(self):
        return {"value": self.value}
    def load_state_dict(self, state):
        self.value = state["value"]

def main():
    model = Model()
    with task.start(async_mode=False, ctx=OnlineRLContext()):
        task.add_role(task.role.LEARNER if task.router.node_id == 0 else task.role.COLLECTOR)
        task.use(ContextExchanger(skip_n_iter=1))
        task.use(ModelExchanger(model))
        def learn(ctx):
            assert ctx.trajectories == ["seen"]
            model.value += 1
            ctx.train_iter += 1
        def collect(ctx):
            ctx.trajectories = ["seen"]
            ctx.env_step += 1
            if ctx.total_step == 2:
                print("the model is", model.value > 0)
        task.use(learn if task.has_role(task.role.LEARNER) else collect)
        task.run(max_step=3)

if __name__ == "__main__":
    Parallel.runner(n_parallel_workers=2)(main)
"""
    assert compat(tmp_path, program) == "[node 1] the model is True\n"


def test_without_the_command_there_is_no_ding(tmp_path):
    result = subprocess.run(
        [sys.executable, "-c", "import ding"],
        env=environment(),
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert result.returncode == 1
    assert "No module named 'ding'" in result.stderr


@pytest.mark.parametrize("name", ["policy", "envs", "worker", "config"])
def test_the_learning_library_is_not_there(tmp_path, name):
    program = f"""
try:
    import ding.{name}
except ModuleNotFoundError as error:
    print(error)
"""
    there = "data, entry, framework, utils"
    assert compat(tmp_path, program) == f"divisi has no ding.{name} yet; of ding there is: {there}\n"


@pytest.mark.parametrize(
    "line, missing",
    [
        ("import ding.data.storage", "ding.data.storage"),
        ("from ding.data.model_loader import FileModelLoader", "ding.data.model_loader"),
        ("import ding.data.storage_loader", "ding.data.storage_loader"),
        ("import ding.data.shm_buffer", "ding.data.shm_buffer"),
        ("from ding.data.buffer import DequeBuffer", "ding.data.buffer"),
        ("import ding.data.buffer.middleware", "ding.data.buffer"),
        ("from ding.entry.cli_parsers.k8s_parser import k8s_parser", "ding.entry.cli_parsers.k8s_parser"),
        ("import ding.entry.cli_parsers.slurm_parser", "ding.entry.cli_parsers.slurm_parser"),
        ("import ding.framework.middleware.functional.offline_logger",
         "ding.framework.middleware.functional.offline_logger"),
        ("from ding.framework.middleware.learner import HERLearner",
         "ding.framework.middleware.learner.HERLearner"),
        ("from ding.framework.middleware.collector import PPOFStepCollector",
         "ding.framework.middleware.collector.PPOFStepCollector"),
        ("from ding.utils import set_pkg_seed", "ding.utils.set_pkg_seed"),
        ("from ding.entry import serial_pipeline_onpolicy", "ding.entry.serial_pipeline_onpolicy"),
        ("from ding.framework import nothing_of_this_name", "ding.framework.nothing_of_this_name"),
    ],
)
def test_what_is_missing_says_so_by_its_name(tmp_path, line, missing):
    program = f"""
try:
    {line}
except ImportError as error:
    print(error)
"""
    parent = missing.rpartition(".")[0]
    said = compat(tmp_path, program)
    assert said.startswith(f"divisi has no {missing} yet; of {parent} there is: "), said
