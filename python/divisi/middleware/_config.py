"""Configurations as DI-engine writes them: attributes or nested dicts."""

from typing import Any

from ..errors import UsageError

_MISSING = object()


def get(cfg: Any, path: str, default: Any = _MISSING) -> Any:
    """``get(cfg, "policy.learn.batch_size")``; an absent field is the default, or an error."""
    value = cfg
    for name in path.split("."):
        if isinstance(value, dict) and name in value:
            value = value[name]
        elif hasattr(value, name):
            value = getattr(value, name)
        elif default is not _MISSING:
            return default
        else:
            raise UsageError(f"the configuration has no {path}")
    return value
