"""`ding_init`: what a program calls first."""

from __future__ import annotations

from typing import Any

from divisi.writer import DistributedWriter


def ding_init(cfg: Any) -> None:
    """Makes the experiment's writer of curves, in the folder that is called as the experiment."""
    DistributedWriter.get_instance(cfg.exp_name)
