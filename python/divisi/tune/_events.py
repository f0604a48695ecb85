"""Events of a search, and who listens to them."""

from __future__ import annotations

import enum
from typing import Any, Callable, Dict, List, Optional, Tuple, Type, Union


class HpoEvent(enum.IntEnum):
    """What happens in a search; a handler's name is the event's, in lower case."""

    INIT = 1
    INIT_OK = 2
    RUN_START = 3
    RUN_COMPLETE = 4
    STEP = 5
    STEP_OK = 6
    STEP_FAIL = 7
    STEP_SKIP = 8
    STEP_FINAL = 9
    TRY = 10
    TRY_COMPLETE = 11
    TRY_OK = 12
    TRY_FAIL = 13
    TRY_SKIP = 14

    @property
    def handler(self) -> str:
        """The name of its method in an event set (`try` is a word of the language)."""
        return "try_" if self is HpoEvent.TRY else self.name.lower()


class EventSet:
    """A listener to all events. Override what you need; errors in a handler end the search."""

    def init(self, algorithm: type, settings: Dict[str, Any], function: Callable[..., Any]) -> None:
        """Before anything is built."""

    def init_ok(
        self, target: str, variables: List[Tuple[str, Any]], concerns: List[Tuple[str, Any]]
    ) -> None:
        """Everything is built. Names and expressions of what will be shown."""

    def run_start(self) -> None:
        """The first step comes next."""

    def run_complete(self, condition_met: bool) -> None:
        """No more steps; whether a stop condition was met."""

    def step(self, task: Any) -> None:
        """A step begins."""

    def step_ok(self, task: Any, result: Any) -> None:
        """It ended well."""

    def step_fail(self, task: Any, failure: Any) -> None:
        """Its last try failed."""

    def step_skip(self, task: Any, skip: Any) -> None:
        """The objective left it out."""

    def step_prune(self, task: Any, pruned: Any) -> None:
        """It ended early, because its reports were worse than those of others. Beside the 14 events:
        called between `step` and `step_final` in place of `step_ok`."""

    def step_final(self, task: Any, ranklist: Any) -> None:
        """It has ended, one way or another."""

    def try_(self, task: Any, index: int, max_try: int) -> None:
        """The objective is called; `index` counts from 0."""

    def try_complete(self, task: Any, index: int, max_try: int, metrics: Dict[str, Any]) -> None:
        """The call has ended, one way or another."""

    def try_ok(
        self, task: Any, index: int, max_try: int, retval: Any, metrics: Dict[str, Any]
    ) -> None:
        """It has returned."""

    def try_fail(
        self, task: Any, index: int, max_try: int, error: BaseException, metrics: Dict[str, Any]
    ) -> None:
        """It has raised."""

    def try_skip(
        self, task: Any, index: int, max_try: int, arguments: Tuple[Any, ...], metrics: Dict[str, Any]
    ) -> None:
        """It has raised `Skip`."""


class EventRegistry:
    """Callbacks by event. Made from an enumeration or from a list of names."""

    def __init__(self, events: Union[Type[enum.Enum], List[str], Tuple[str, ...]]):
        if isinstance(events, type) and issubclass(events, enum.Enum):
            names: List[Any] = list(events)
        elif isinstance(events, (list, tuple)) and all(isinstance(name, str) for name in events):
            names = list(events)
        else:
            raise TypeError(f"events are an enumeration or a list of names, not {events!r}")
        self._callbacks: Dict[Any, Dict[str, Callable[..., Any]]] = {name: {} for name in names}

    def bind(self, event: Any, callback: Callable[..., Any], name: Optional[str] = None) -> None:
        """Calls `callback` on the event; another one of the same name is replaced."""
        known_as = name or str(getattr(callback, "__name__", repr(callback)))
        self._of(event)[known_as] = callback

    def unbind(self, event: Any, name: Union[str, Callable[..., Any]]) -> None:
        """Removes one callback, by its name or itself."""
        callbacks = self._of(event)
        for known, callback in list(callbacks.items()):
            if known == name or callback == name:
                del callbacks[known]
                return
        raise KeyError(f"nothing called {name!r} is bound to {event!r}")

    def unbind_all(self, event: Any) -> None:
        """Removes all callbacks of the event."""
        self._of(event).clear()

    def trigger(self, event: Any, *args: Any, **kwargs: Any) -> None:
        """Calls the callbacks of the event in the order in which they were bound."""
        for callback in list(self._of(event).values()):
            callback(*args, **kwargs)

    def _of(self, event: Any) -> Dict[str, Callable[..., Any]]:
        try:
            return self._callbacks[event]
        except (KeyError, TypeError):
            raise KeyError(f"unknown event {event!r}") from None
