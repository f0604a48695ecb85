"""Which GPUs a trial may use."""

from __future__ import annotations

from fractions import Fraction
from typing import Any, Dict, List, Optional, Sequence


class GpuSlots:
    """GPUs that trials share: `per_task` of them each, or a fraction of one. The user has a lock."""

    def __init__(self, gpus: Sequence[Any], per_task: float):
        names = [str(gpu) for gpu in gpus]
        if not names or len(set(names)) != len(names) or any(not name or "," in name for name in names):
            raise ValueError(f"gpus is a list of different devices, such as [0, 1]: not {list(gpus)!r}")
        if isinstance(per_task, bool) or not isinstance(per_task, (int, float)) or not per_task > 0:
            raise ValueError(f"slots_per_task must be a number above 0, not {per_task!r}")
        whole = float(per_task).is_integer()
        if not whole and (per_task > 1 or not abs(1 / per_task - round(1 / per_task)) < 1e-6):
            raise ValueError(f"slots_per_task must be a whole number, or 1 divided by one: not {per_task!r}")
        self._count = int(per_task) if whole else 1
        if self._count > len(names):
            raise ValueError(f"slots_per_task={per_task:g} is more than the {len(names)} gpus")
        self._share = Fraction(1) if whole else Fraction(1, round(1 / per_task))
        self._free: Dict[str, Fraction] = {name: Fraction(1) for name in names}

    def take(self) -> Optional[List[str]]:
        """Devices for one task, the least used ones; None: there are not enough."""
        fitting = [name for name, free in self._free.items() if free >= self._share]
        if len(fitting) < self._count:
            return None
        taken = sorted(fitting, key=lambda name: -self._free[name])[: self._count]
        for name in taken:
            self._free[name] -= self._share
        return taken

    def fits(self) -> bool:
        """Whether `take` would find devices."""
        return sum(free >= self._share for free in self._free.values()) >= self._count

    def give_back(self, taken: Sequence[str]) -> None:
        """They are free again."""
        for name in taken:
            self._free[name] += self._share
