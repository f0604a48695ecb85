"""What the package raises by itself. Exceptions of your own functions are passed on as they are."""

import builtins


class Error(RuntimeError):
    """Base of all of them: a peer that cannot be reached, an address in use, a full queue, ..."""


class UsageError(Error, AssertionError, ValueError):
    """A mistake in the call itself: a wrong argument, a task that is not started.

    Also an AssertionError and a ValueError, which is what ``ding.framework`` raises in such places.
    """


class TimeoutError(Error, builtins.TimeoutError):  # noqa: A001 (it is one)
    """A wait that was told not to ignore its deadline, or a peer that stayed full."""


class WorkerError(Error):
    """A run that failed: the text names the node and carries the worker's own message."""

    def __init__(self, text: str, exit_code: int = 1, node_id: int = -1):
        super().__init__(text)
        self.exit_code = exit_code
        """What a command line would exit with: 1 main failed, 2 usage, 3 network, 128 + signal."""
        self.node_id = node_id
        """The node whose fault it was; -1 if it was not one node's."""
