"""A replay buffer, as simple as they come."""

import random
from collections import deque
from typing import Any, Deque, List, Optional


class DequeBuffer:
    """The latest ``size`` items, sampled evenly and with replacement only if asked for.

    :param size: older items are forgotten
    :param seed: of the samples
    """

    def __init__(self, size: int, seed: Optional[int] = None) -> None:
        self._items: Deque[Any] = deque(maxlen=size)
        self._random = random.Random(seed)

    def push(self, data: Any, meta: Any = None) -> None:
        """Adds an item; ``meta`` is not kept."""
        self._items.append(data)

    def sample(self, size: int, replace: bool = False) -> List[Any]:
        """So many items; ValueError when there are fewer."""
        if replace and self._items:
            return self._random.choices(self._items, k=size)
        if size > len(self._items):
            raise ValueError(f"{size} samples were asked for, there are {len(self._items)}")
        return self._random.sample(self._items, size)

    def count(self) -> int:
        """How many items there are."""
        return len(self._items)

    __len__ = count
