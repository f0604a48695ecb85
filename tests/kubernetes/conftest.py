"""What several files share: a node, which takes half a minute to install, and an API server without one."""

import pytest

from dijob.installed import installed
from dijob.jobs import Jobs
from dijob.programs import install_crd
from harness import Instance


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
