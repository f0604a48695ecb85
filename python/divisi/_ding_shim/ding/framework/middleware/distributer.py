"""The exchangers."""

from divisi.middleware import ContextExchanger, ModelExchanger, PeriodicalModelExchanger

__all__ = ["ContextExchanger", "ModelExchanger", "PeriodicalModelExchanger"]
