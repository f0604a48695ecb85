"""The node that several files share: it takes half a minute to install."""

import pytest

from dijob.installed import installed
from dijob.jobs import Jobs


@pytest.fixture(scope="session")
def node():
    with installed() as instance:
        yield instance


@pytest.fixture
def jobs(node):
    return Jobs(node)
