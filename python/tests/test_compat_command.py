"""`python -m divisi.compat`, and what divisi-ding installs."""

import shutil
import sys
import zipfile
from pathlib import Path

import pytest

from compat_tools import ROOT, compat, ding_venv, environment, run, write  # noqa: F401

SITE = f"lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages"


def fake_di_engine(site, with_package=True):
    """What pip leaves of a DI-engine, as far as anybody looks."""
    write(
        site,
        "Metadata-Version: 2.1\nName: DI-engine\nVersion: 0.5.3\n",
        "DI_engine-0.5.3.dist-info/METADATA",
    )
    if with_package:
        write(site, "WHO = 'DI-engine'\n", "ding/__init__.py")


@pytest.fixture
def user_site(tmp_path):
    """A folder that interpreters started with the second value treat as site-packages, .pth files
    included."""
    site = tmp_path / "user" / SITE
    site.mkdir(parents=True)
    return site, {"PYTHONUSERBASE": str(tmp_path / "user")}


def install_finder(site):
    for name in ["_divisi_ding.py", "divisi_ding.pth"]:
        shutil.copy(ROOT / "python" / "ding" / name, site)


def test_a_script_sees_its_own_world(tmp_path):
    write(tmp_path, "WHAT = 'beside'\n", "beside.py")
    program = """
    import sys
    import beside
    print(sys.argv[1:], __name__, beside.WHAT, sys.modules["__main__"].__dict__ is globals())
    """
    assert compat(tmp_path, program, "a", "-b") == "['a', '-b'] __main__ beside True\n"


def test_a_module_runs_by_name(tmp_path):
    write(tmp_path, "", "pack/__init__.py")
    write(tmp_path, "import sys, ding.framework\nprint(__name__, sys.argv[1:])\n", "pack/tool.py")
    command = [sys.executable, "-m", "divisi.compat", "-m", "pack.tool", "x"]
    assert run(command, env=environment(), cwd=tmp_path).stdout == "__main__ ['x']\n"


def test_the_exit_code_is_the_programs(tmp_path):
    script = write(tmp_path, "raise SystemExit(5)\n")
    run([sys.executable, "-m", "divisi.compat", script], env=environment(), cwd=tmp_path, code=5)


def test_processes_of_the_program_see_ding_too(tmp_path):
    program = """
    import subprocess, sys
    import ding.framework
    child = "import ding; print(ding.__doc__.split()[2], flush=True)"
    subprocess.run([sys.executable, "-c", child], check=True)
    """
    assert compat(tmp_path, program) == "paths\n"


@pytest.mark.parametrize(
    "arguments, code", [([], 2), (["--what"], 2), (["-m"], 2), (["--help"], 0), (["no_such.py"], 2)]
)
def test_wrong_use_is_one_line(tmp_path, arguments, code):
    result = run(
        [sys.executable, "-m", "divisi.compat", *arguments],
        env=environment(),
        cwd=tmp_path,
        code=code,
    )
    assert len((result.stdout + result.stderr).splitlines()) == 1


def test_an_installed_di_engine_is_refused_in_one_line(tmp_path, user_site):
    site, variables = user_site
    fake_di_engine(site)
    script = write(tmp_path, "print('ran')\n")
    result = run(
        [sys.executable, "-m", "divisi.compat", script],
        env=environment(**variables),
        cwd=tmp_path,
        code=2,
    )
    assert result.stdout == ""
    assert len(result.stderr.splitlines()) == 1
    assert "DI-engine 0.5.3 is installed" in result.stderr and "uninstall" in result.stderr


def test_a_checkout_of_di_engine_is_refused_too(tmp_path):
    write(tmp_path, "", "ding/__init__.py")
    script = write(tmp_path, "print('ran')\n")
    result = run(
        [sys.executable, "-m", "divisi.compat", script], env=environment(), cwd=tmp_path, code=2
    )
    assert str(tmp_path / "ding") in result.stderr and len(result.stderr.splitlines()) == 1


def test_a_folder_named_ding_is_not_di_engine(tmp_path):
    write(tmp_path, "", "ding/notes.txt")
    assert compat(tmp_path, "import ding.framework\nprint('ran')\n") == "ran\n"


def test_divisi_ding_leads_import_ding_to_divisi(tmp_path, user_site):
    site, variables = user_site
    install_finder(site)
    program = "from ding.framework import task; import divisi; print(task is divisi.task)"
    assert (
        run([sys.executable, "-c", program], env=environment(**variables), cwd=tmp_path).stdout
        == "True\n"
    )


def test_divisi_ding_is_not_hidden_by_a_bare_folder(tmp_path, user_site):
    site, variables = user_site
    install_finder(site)
    write(tmp_path, "", "ding/notes.txt")
    program = "from ding.framework import task; import divisi; print(task is divisi.task)"
    result = run([sys.executable, "-c", program], env=environment(**variables), cwd=tmp_path)
    assert result.stdout == "True\n"


def test_divisi_ding_steps_back_for_a_package_of_the_program(tmp_path, user_site):
    site, variables = user_site
    install_finder(site)
    write(tmp_path, "WHO = 'the program'\n", "ding/__init__.py")
    program = "import ding; print(ding.WHO)"
    result = run([sys.executable, "-c", program], env=environment(**variables), cwd=tmp_path)
    assert result.stdout == "the program\n"


def test_divisi_ding_costs_no_import_of_divisi(tmp_path, user_site):
    site, variables = user_site
    install_finder(site)
    program = "import sys; print('divisi' in sys.modules, 'importlib.metadata' in sys.modules)"
    assert (
        run([sys.executable, "-c", program], env=environment(**variables), cwd=tmp_path).stdout
        == "False False\n"
    )


def test_divisi_ding_steps_back_for_a_real_di_engine(tmp_path, user_site):
    site, variables = user_site
    install_finder(site)
    fake_di_engine(site)
    env = environment(**variables)
    assert (
        run([sys.executable, "-c", "import ding; print(ding.WHO)"], env=env, cwd=tmp_path).stdout
        == "DI-engine\n"
    )
    # Also for the script that both packages have.
    write(site, "", "ding/entry/__init__.py")
    write(site, "def cli_ditask():\n    print('their ditask')\n", "ding/entry/cli_ditask.py")
    program = "from divisi.compat import ditask; ditask()"
    assert run([sys.executable, "-c", program], env=env, cwd=tmp_path).stdout == "their ditask\n"


def test_divisi_ding_does_not_stand_in_for_a_di_engine_that_is_found_later(tmp_path, user_site):
    site, variables = user_site
    install_finder(site)
    fake_di_engine(site, with_package=False)
    result = run(
        [sys.executable, "-c", "import ding"], env=environment(**variables), cwd=tmp_path, code=1
    )
    last = result.stderr.splitlines()[-1]
    assert last.startswith("ImportError: DI-engine 0.5.3 is installed") and "divisi-ding" in last


def test_the_wheel_holds_no_folder_ding(tmp_path, ding_venv):  # noqa: F811
    source = shutil.copytree(ROOT / "python" / "ding", tmp_path / "source")
    pip = [
        ding_venv / "bin" / "python",
        "-m",
        "pip",
        "--disable-pip-version-check",
        "wheel",
        "--quiet",
        "--no-deps",
    ]
    run([*pip, "--no-build-isolation", "-w", tmp_path, source], env=environment(), cwd=tmp_path)
    (wheel,) = Path(tmp_path).glob("divisi_ding-*-py3-none-any.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert sorted(name for name in names if ".dist-info" not in name) == [
        "_divisi_ding.py",
        "divisi_ding.pth",
    ]
    assert not [name for name in names if name.endswith("entry_points.txt")]  # ditask is divisi's
