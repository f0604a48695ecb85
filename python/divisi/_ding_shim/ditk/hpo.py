"""Hyper-parameter search: the names of `divisi.tune`."""

from divisi.tune import C, M, R, Skip, choice, hpo, quniform, randint, randn, uniform

__all__ = ["C", "M", "R", "Skip", "choice", "hpo", "quniform", "randint", "randn", "uniform"]
