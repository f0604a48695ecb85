"""What several files share: a node, which takes half a minute to install, and an API server without one.

Who shares one of them runs in one process of pytest-xdist (`--dist loadgroup`), one after another: no process makes
its own, and tests that begin with an empty namespace do not meet.
"""

import pytest

from dijob.installed import installed
from dijob.jobs import Jobs
from dijob.programs import install_crd
from harness import Instance

# First what looks at an installation that nobody has added anything to.
FIRST = "test_dijob_install.py"


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist reads the groups
def pytest_collection_modifyitems(items):
    items.sort(key=lambda item: item.path.name != FIRST)
    for item in items:
        shared = (name for name in ("node", "control_plane") if name in item.fixturenames)
        item.add_marker(pytest.mark.xdist_group(next(shared, item.path.stem)))


@pytest.fixture(scope="session")
def node():
    with installed() as instance:
        yield instance


@pytest.fixture
def jobs(node):
    return Jobs(node)


@pytest.fixture(scope="session")
def control_plane():
    with Instance("--control-plane-only", "--controllers") as instance:
        install_crd(instance)
        yield instance
