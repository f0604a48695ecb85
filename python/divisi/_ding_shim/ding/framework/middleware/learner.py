"""The learner."""

from divisi.middleware import OffPolicyLearner

from ..._missing import not_built

__all__ = ["OffPolicyLearner"]
__getattr__ = not_built(__name__, "HERLearner")
