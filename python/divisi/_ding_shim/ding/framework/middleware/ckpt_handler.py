"""Checkpoints."""

from divisi.middleware import CkptSaver

__all__ = ["CkptSaver"]
