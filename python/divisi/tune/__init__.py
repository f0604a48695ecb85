"""Hyper-parameter search: describe what may vary, call `run`, get the best configuration.

    from divisi.tune import hpo, R, uniform

    def objective(config):
        return {"value": -(config["x"] - 3) ** 2}

    config, value, metrics = (
        hpo(objective).bayes().max_steps(50).maximize(R["value"]).spaces({"x": uniform(-10, 10)}).run()
    )

docs/tuner.md has the tutorial.
"""

from ._algorithms import (
    BaseAlgorithm, BaseSession, BayesAlgorithm, GridAlgorithm, RandomAlgorithm, SessionState,
)  # fmt: skip
from ._current import Pruned, Trial, current_trial, report, should_prune
from ._events import EventRegistry, EventSet, HpoEvent
from ._evolution import CmaesAlgorithm, Nsga2Algorithm
from ._expressions import C, Expression, M, R, evaluate, exp, log, parse, sqrt, text, where
from ._importance import Importance, importance
from ._objectives import ParetoSet
from ._pbt import Checkpoint, PbtAlgorithm
from ._pruning import (
    HyperbandPruner, MedianPruner, NopPruner, PatientPruner, PercentilePruner, Pruner, RunPruned,
    SuccessiveHalvingPruner, ThresholdPruner,
)  # fmt: skip
from ._records import (
    NoSuccessfulTrial, OptimizeDirection, RankList, Result, RunFailed, RunResult, RunSkipped, Skip,
    Task,
)  # fmt: skip
from ._runner import HpoFunc, Runner, hpo
from ._samplers import AutoAlgorithm, QmcAlgorithm, TpeAlgorithm
from ._service import (
    Cancelled, ServiceBusy, ServiceNoLongerAccept, ServiceState, ThreadService, TrialTimeout,
)  # fmt: skip
from ._spaces import (
    Conditional, ContinuousSpace, FixedSpace, HyperValue, SeparateSpace, Structure, choice,
    conditional, fixed, lograndint, loguniform, normal, qloguniform, quniform, randint, randn,
    uniform,
)  # fmt: skip
from ._stopping import NoImprovement, RegretBelow, StopAfter, StopRule, TargetReached
from ._storage import NotStorable
from ._study import Study, StudyTrial, list_studies, load_study, remove_study

__all__ = [
    "AutoAlgorithm", "BaseAlgorithm", "BaseSession", "BayesAlgorithm", "C", "Cancelled",
    "Checkpoint", "CmaesAlgorithm", "Conditional", "ContinuousSpace", "EventRegistry", "EventSet",
    "Expression", "FixedSpace", "GridAlgorithm", "HpoEvent", "HpoFunc", "HyperValue",
    "HyperbandPruner", "Importance", "M", "MedianPruner", "NoImprovement", "NoSuccessfulTrial",
    "NopPruner", "NotStorable", "Nsga2Algorithm", "OptimizeDirection", "ParetoSet", "PatientPruner",
    "PbtAlgorithm", "PercentilePruner", "Pruned", "Pruner", "QmcAlgorithm", "R", "RandomAlgorithm",
    "RankList", "RegretBelow", "Result", "RunFailed", "RunPruned", "RunResult", "RunSkipped",
    "Runner", "SeparateSpace", "ServiceBusy", "ServiceNoLongerAccept", "ServiceState",
    "SessionState", "Skip", "StopAfter", "StopRule", "Structure", "Study", "StudyTrial",
    "SuccessiveHalvingPruner", "TargetReached", "Task", "ThreadService", "ThresholdPruner",
    "TpeAlgorithm", "Trial", "TrialTimeout", "choice", "conditional", "current_trial", "evaluate",
    "exp", "fixed", "hpo", "importance", "list_studies", "load_study", "log", "lograndint",
    "loguniform", "normal", "parse", "qloguniform", "quniform", "randint", "randn", "remove_study",
    "report", "should_prune", "sqrt", "text", "uniform", "where",
]  # fmt: skip
