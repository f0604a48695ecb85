"""Handles of stored data, and models' state: what the exchangers have in common."""

import sys
from typing import Any, Dict

from ..task import task


def is_storage(payload: Any) -> bool:
    """Whether it is a handle: something to load that is no dict of data itself."""
    return not isinstance(payload, dict) and callable(getattr(payload, "load", None))


def shut_down_on_finish(loader: Any) -> None:
    """Ends a loader with the task."""
    task.on_finish(lambda _: loader.shutdown())


def state_of(model: Any) -> Any:
    """The model's state, of plain types where that is possible: they travel without pickle, and C++
    can read them."""
    state = model.state_dict()
    return dict(state) if isinstance(state, dict) else state


def copied(state: Any) -> Any:
    """The state as it is now; a model's tensors change with every update."""
    if isinstance(state, dict):
        return {key: copied(value) for key, value in state.items()}
    for name in ("clone", "copy"):  # a tensor, an array
        method = getattr(state, name, None)
        if callable(method):
            return method()
    return state


def load_into(model: Any, state: Any) -> None:
    """Gives a model the state that came; arrays become tensors where the model has those."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(state, dict) and isinstance(model, torch.nn.Module):
        state = {key: _tensor(torch, value) for key, value in state.items()}
    model.load_state_dict(state)


def _tensor(torch: Any, value: Any) -> Any:
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(value, numpy.ndarray):
        return torch.from_numpy(value.copy())  # what was received is read-only
    return value


def loaded(payload: Any, loader: Any) -> Any:
    """The state of a payload: itself, or what its handle stands for."""
    if not is_storage(payload):
        return payload
    return payload.load() if loader is None else loader.load(payload)


Message = Dict[str, Any]
