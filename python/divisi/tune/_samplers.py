"""Search algorithms of the engine: Parzen estimator, Sobol points, and the choice among them all."""

from __future__ import annotations

from typing import Any, ClassVar, Dict, Type

from .. import _native
from ._algorithms import (
    BaseSession, BayesAlgorithm, EngineAlgorithm, GridAlgorithm, engine_seed, whole,
)  # fmt: skip
from ._records import OptimizeDirection
from ._service import ThreadService
from ._spaces import Structure


class TpeAlgorithm(EngineAlgorithm):
    """Looks where good results are dense and bad ones are not (tree-structured Parzen estimator)."""

    OPTIONS: ClassVar[Dict[str, Any]] = {
        "seed": None,
        "n_startup": 10,
        "n_candidates": 24,
        "gamma": 0.15,
        "max_good": 25,
        "prior_weight": 1.0,
        "constant_liar": True,
        "impute_failures": False,
    }

    def sampler(self, space: Structure) -> _native.TuneSampler:
        """The engine's estimator."""
        native: Dict[str, Any] = {
            "max_steps": self.max_steps,
            "maximize": self.opt_direction == OptimizeDirection.MAXIMIZE,
            "seed": engine_seed(self.options["seed"]),
        }
        for name in ("n_startup", "n_candidates", "max_good"):
            native[name] = whole(name, self.options[name])
        for name in ("gamma", "prior_weight"):
            native[name] = float(self.options[name])
        for name in ("constant_liar", "impute_failures"):
            native[name] = bool(self.options[name])
        return _native.TuneSampler.tpe(space.search_space(), native)


class QmcAlgorithm(EngineAlgorithm):
    """Scrambled Sobol points: as random ones, but evenly spread."""

    OPTIONS: ClassVar[Dict[str, Any]] = {"seed": None}

    def sampler(self, space: Structure) -> _native.TuneSampler:
        """The engine's sequence."""
        seed = engine_seed(self.options["seed"])
        return _native.TuneSampler.qmc(space.search_space(), self.max_steps, seed)


class AutoAlgorithm(EngineAlgorithm):
    """Grid, Bayesian search or Parzen estimator: by the budget, the variables and their kinds."""

    OPTIONS: ClassVar[Dict[str, Any]] = {"seed": None}

    def get_session(self, space: Structure, service: ThreadService) -> BaseSession:
        """Of the algorithm that was chosen; its `note` says which, and why."""
        name, reason = _native.tune_choose(space.search_space(), self.max_steps)
        chosen = _CHOICES[name]
        options = {"seed": self.options["seed"]} if "seed" in chosen.OPTIONS else {}
        algorithm = chosen(self.max_steps, self.max_workers, self.opt_direction, **options)
        algorithm.note = f"Auto algorithm chose the {algorithm.algorithm_name()}: {reason}."
        return algorithm.get_session(space, service)


_CHOICES: Dict[str, Type[EngineAlgorithm]] = {
    "grid": GridAlgorithm,
    "bayes": BayesAlgorithm,
    "tpe": TpeAlgorithm,
}
