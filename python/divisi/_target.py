"""Where an event goes, and what a full queue does to it: as the native module takes them."""

import enum
from typing import Any, Optional, Tuple

from .errors import UsageError

_POLICIES = {"block": 0, "error": 1, "drop_oldest": 2, "latest_only": 3}
_ALL, _NODE, _LABEL, _ROLE = range(4)


def policy_number(policy: str) -> int:
    """The native number of a policy's name."""
    try:
        return _POLICIES[policy]
    except KeyError:
        raise UsageError(f"policy {policy!r} is not known; use {', '.join(_POLICIES)}") from None


def chosen_policy(policy: Optional[str]) -> Optional[int]:
    """The same of an emit, which need not choose one."""
    return None if policy is None else policy_number(policy)


def target_arguments(to: Any, one_of: bool) -> Tuple[int, int, str, bool]:
    """(kind, node, pattern, one_of) of ``emit``'s ``to``."""
    if to is None:
        if one_of:
            raise UsageError("one_of needs `to`: a label pattern or a role to choose from")
        return _ALL, -1, "", False
    if isinstance(to, enum.Enum):  # before str: roles are both
        return _ROLE, -1, str(to.value), one_of
    if isinstance(to, str):
        return _LABEL, -1, to, one_of
    if isinstance(to, int) and not isinstance(to, bool):
        if one_of:
            raise UsageError("one_of is for labels and roles, not for a single node")
        return _NODE, to, "", False
    raise UsageError(f"`to` is a node id, a label pattern or a Role, not a {type(to).__name__}")
