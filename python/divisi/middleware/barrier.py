"""Barrier: all nodes step together."""

from typing import Any, Generator, Optional

from ..errors import Error, TimeoutError
from ..task import task


class BarrierRuntime:
    """Waits for the peers. The router knows who they are, so there is no state to keep: DI-engine's
    parameters are taken and not needed, and every node id is right."""

    def __init__(self, node_id: int, max_world_size: int = 100) -> None:
        self.node_id = node_id
        """As given."""

    def wait(self, timeout: float = 60.0) -> None:
        """Until every linked node has called it as often. TimeoutError names those missing."""
        task.router.barrier(timeout)


class Barrier:
    """A middleware that waits for all linked nodes, in its forward and again in its backward part.
    Every node must use it equally often. Without a router there is nobody to wait for.

    :param attch_from_nums: how many nodes dial this one: the first wait is until so many, and those
        that this node dials, are connected. Not needed within one launcher.
    :param timeout: of each wait, in seconds: a TimeoutError that names the missing nodes
    """

    def __init__(self, attch_from_nums: Optional[int] = None, timeout: float = 60) -> None:
        self.node_id = task.router.node_id
        """Of this node."""
        self.timeout = timeout
        """As given."""
        self._runtime = BarrierRuntime(self.node_id or 0)
        self._expected = 0
        if attch_from_nums is not None and task.router.is_active:
            self._expected = task.get_attch_to_len() + attch_from_nums

    def __call__(self, _: Any) -> Generator:
        self._wait()
        yield
        self._wait()

    def _wait(self) -> None:
        if not task.router.is_active:
            return
        if self._expected and not task.router.wait_for_peers(self._expected, self.timeout):
            if task.router.interrupted:
                return
            there = sorted(peer["node_id"] for peer in task.router.peers() if peer["connected"])
            raise TimeoutError(
                f"node {self.node_id} expects {self._expected} peers at its barrier; after "
                f"{self.timeout:g} s these are connected: {there}"
            )
        self._expected = 0
        try:
            self._runtime.wait(self.timeout)
        except Error:
            # A process that is asked to end waits for nobody; its task finishes after this iteration.
            if not task.router.interrupted:
                raise
