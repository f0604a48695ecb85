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
    "ding.framework.middleware": "epoch_timer",
    "ding.entry.cli_parsers": "PLATFORM_PARSERS",
    "ding.entry.cli_ditask": "cli_ditask",
}

MISSING = {
    "ding.framework.message_queue": "RedisMQ",
    "ding.framework.message_queue.redis": "RedisMQ",
    "ding.framework.middleware": "ContextExchanger ModelExchanger PeriodicalModelExchanger Barrier "
    "BarrierRuntime CkptSaver termination_checker ddp_termination_checker final_ctx_saver",
    "ding.data": "Storage FileStorage FileModelStorage StorageLoader FileStorageLoader "
    "ModelLoader FileModelLoader ShmBuffer ShmBufferContainer",
    "ding.utils": "DistributedWriter",
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
    from ding.framework.middleware import Barrier
except ImportError as error:
    print(error)
print(hasattr(middleware, "no_such_name"))
"""
    assert compat(tmp_path, program) == (
        "divisi has no ding.framework.middleware.Barrier yet; "
        "of ding.framework.middleware there is: epoch_timer\nFalse\n"
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


def test_ding_init_takes_a_configuration(tmp_path):
    program = """
from types import SimpleNamespace
from ding.framework import ding_init
print(ding_init(SimpleNamespace(exp_name="mine")))
"""
    assert compat(tmp_path, program) == "None\n"


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


@pytest.mark.parametrize("name", ["policy", "envs", "worker"])
def test_the_learning_library_is_not_there(tmp_path, name):
    program = f"""
try:
    import ding.{name}
except ModuleNotFoundError as error:
    print(error)
"""
    assert compat(tmp_path, program) == f"No module named 'ding.{name}'\n"
