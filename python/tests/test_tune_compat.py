"""The import paths of DI-toolkit's tuner and of LightTuner."""

import shutil
import sys

import pytest

from compat_tools import ROOT, compat, environment, run, write

PROGRAM = """
import divisi.tune
import ditk.hpo, lighttuner.hpo
from ditk import logging

import ditk.scheduler, lighttuner.scheduler, divisi.tune.scheduler
def check(module, ours, names):
    assert sorted(module.__all__) == sorted(names.split()), module
    assert all(getattr(module, name) is getattr(ours, name) for name in module.__all__), module
for module in (ditk.hpo, lighttuner.hpo):
    check(module, divisi.tune, "hpo R M C Skip uniform quniform choice randint randn")
for module in (ditk.scheduler, lighttuner.scheduler):
    check(module, divisi.tune.scheduler, "run_scheduler run_scheduler_local run_scheduler_k8s Scheduler Task")
assert logging.getLogger("a").name == "a" and logging.INFO == 20

from ditk.hpo import hpo, R, uniform
hpo_info = {'policy': {'other': {'eps': {'start': uniform(0.5, 1)}}}}
opt = hpo(lambda config: {'eval_value': 100 * config['policy']['other']['eps']['start']})
cfg, ret, metrics = opt.grid(silent=True) \\
    .max_steps(5) \\
    .max_workers(4) \\
    .maximize(R['eval_value']) \\
    .spaces(hpo_info).run()
print(cfg, ret)
"""
ANSWER = "{'policy': {'other': {'eps': {'start': 1.0}}}} {'eval_value': 100.0}\n"


def test_compat_serves_the_import_paths(tmp_path):
    assert compat(tmp_path, PROGRAM) == ANSWER


@pytest.fixture
def with_finder(tmp_path):
    """A folder of site-packages with what divisi-ding installs, and an environment that uses it."""
    site = tmp_path / "site"
    site.mkdir()
    shutil.copy(ROOT / "python" / "ding" / "_divisi_ding.py", site)
    return site, environment(site)


def test_installed_finder_serves_the_import_paths(tmp_path, with_finder):
    program = write(tmp_path, "import _divisi_ding\n" + PROGRAM)
    assert run([sys.executable, program], env=with_finder[1], cwd=tmp_path).stdout == ANSWER


def test_real_toolkit_keeps_what_it_has(tmp_path, with_finder):
    site, env = with_finder
    write(site, "WHO = 'DI-toolkit'\n", "ditk/__init__.py")
    write(site, "WHO = 'DI-toolkit'\n", "ditk/logging.py")
    program = write(
        tmp_path,
        """
        import _divisi_ding
        import ditk, ditk.hpo, ditk.logging, divisi.tune
        print(ditk.WHO, ditk.logging.WHO, ditk.hpo.hpo is divisi.tune.hpo)
        """,
    )
    assert run([sys.executable, program], env=env, cwd=tmp_path).stdout == "DI-toolkit DI-toolkit True\n"


def test_logging_of_the_toolkit(tmp_path):
    program = """
    import logging as standard, os, sys
    from ditk import logging
    root = logging.try_init_root(logging.INFO)
    assert root is standard.getLogger() and len(root.handlers) == 1 and root.level == 20
    assert logging.try_init_root() is root and len(root.handlers) == 1 and root.level == 20
    one = logging.getLogger("a", logging.DEBUG, with_files=["logs/deep/a.txt"])
    two = logging.getLogger("a.b", with_files=["logs/deep/a.txt"])
    two.info("into the file")
    logging.info("to the terminal")
    assert set(standard.__all__) <= set(logging.__all__)
    text = open("logs/deep/a.txt").read()
    assert "[INFO] into the file" in text and "File 'logs/deep/a.txt' has already been added to logger" in text
    print("fine")
    """
    assert compat(tmp_path, program) == "fine\n"
