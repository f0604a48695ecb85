"""Which middleware are active in which node."""

import logging
from typing import Any, Tuple

from ..task import Role, task

log = logging.getLogger("divisi")


def plays(*roles: Role) -> bool:
    """Whether a middleware for these roles is active here: always without a router."""
    return not task.router.is_active or any(task.has_role(role) for role in roles)


class Gated:
    """A base of classes that are void in nodes without one of ``_roles``.

    ``__new__`` decides, as in DI-engine, because ``task.use(Class(...))`` is how they are used. What
    it gives is then not of this class, so ``__init__`` is not called.
    """

    _roles: Tuple[Role, ...] = (Role.LEARNER,)

    def __new__(cls, *_: Any, **__: Any) -> Any:
        return super().__new__(cls) if plays(*cls._roles) else task.void()


class Exchanger:
    """A base of the exchangers that need a router and roles."""

    def __new__(cls, *_: Any, **__: Any) -> Any:
        if not task.router.is_active:
            return task.void()
        if not task.roles:
            log.warning(
                "%s does nothing: this node has no role; call task.add_role before", cls.__name__
            )
            return task.void()
        if len(task.roles) > 1:
            log.warning(
                "%s in a node with several roles (%s): what it sends and hears is the sum of them",
                cls.__name__, ", ".join(sorted(map(str, task.roles))),
            )
        return super().__new__(cls)
