"""Evolutionary searches of the engine: CMA-ES for one target, NSGA-II for one or several."""

from __future__ import annotations

from typing import Any, ClassVar, Dict, List

from .. import _native
from ._algorithms import EngineAlgorithm, engine_seed, whole
from ._records import OptimizeDirection
from ._spaces import Structure


class CmaesAlgorithm(EngineAlgorithm):
    """A normal distribution that follows the better half of the results."""

    OPTIONS: ClassVar[Dict[str, Any]] = {
        "seed": None,
        "population_size": None,
        "sigma0": 0.3,
        "active": True,
        "restarts": True,
    }

    def sampler(self, space: Structure) -> _native.TuneSampler:
        """The engine's CMA-ES."""
        options = self.options
        native: Dict[str, Any] = {
            "max_steps": self.max_steps,
            "maximize": self.opt_direction == OptimizeDirection.MAXIMIZE,
            "sigma0": _float("sigma0", options["sigma0"]),
            "active": bool(options["active"]),
            "restarts": bool(options["restarts"]),
            "seed": engine_seed(options["seed"]),
        }
        if options["population_size"] is not None:
            native["population_size"] = whole("population_size", options["population_size"])
        return _native.TuneSampler.cmaes(space.search_space(), native)


class Nsga2Algorithm(EngineAlgorithm):
    """Children of the best results so far, for one target or several."""

    OPTIONS: ClassVar[Dict[str, Any]] = {
        "seed": None,
        "population_size": 50,
        "crossover_probability": 0.9,
        "crossover_index": 15.0,
        "mutation_probability": None,
        "mutation_index": 20.0,
    }

    def sampler(self, space: Structure) -> _native.TuneSampler:
        """The engine's NSGA-II."""
        options = self.options
        native: Dict[str, Any] = {
            "max_steps": self.max_steps,
            "maximize": self._maximize(),
            "population_size": whole("population_size", options["population_size"]),
            "seed": engine_seed(options["seed"]),
        }
        for name in ("crossover_probability", "crossover_index", "mutation_index"):
            native[name] = _float(name, options[name])
        if options["mutation_probability"] is not None:
            native["mutation_probability"] = _float(
                "mutation_probability", options["mutation_probability"]
            )
        return _native.TuneSampler.nsga2(space.search_space(), native)

    def _maximize(self) -> List[bool]:
        directions = self.options.get("opt_directions") or [self.opt_direction]
        return [direction == OptimizeDirection.MAXIMIZE for direction in directions]


def _float(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError(f"{name} must be a number, not {value!r}")
    return float(value)
