"""The learner."""

from divisi.middleware import OffPolicyLearner

__all__ = ["OffPolicyLearner"]
