"""Stands in where easydict is not installed: configurations of DI-engine are written with it."""

from typing import Any

__all__ = ["EasyDict"]


class EasyDict(dict):
    """A dict whose items are attributes too; dicts inside it, also in lists and tuples, become
    the same."""

    def __init__(self, d: Any = None, **kwargs: Any):
        super().__init__()
        self.update(d or {}, **kwargs)

    @classmethod
    def _easy(cls, value: Any) -> Any:
        if isinstance(value, dict) and not isinstance(value, EasyDict):
            return cls(value)
        if isinstance(value, (list, tuple)):
            return type(value)(cls._easy(item) for item in value)
        return value

    def __setitem__(self, key: Any, value: Any) -> None:
        super().__setitem__(key, self._easy(value))

    def __setattr__(self, name: str, value: Any) -> None:
        self[name] = value

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None

    def __delattr__(self, name: str) -> None:
        try:
            del self[name]
        except KeyError:
            raise AttributeError(name) from None

    def setdefault(self, key: Any, default: Any = None) -> Any:
        """As a dict's."""
        if key not in self:
            self[key] = default
        return self[key]

    def update(self, *others: Any, **kwargs: Any) -> None:
        """As a dict's."""
        for key, value in dict(*others, **kwargs).items():
            self[key] = value
