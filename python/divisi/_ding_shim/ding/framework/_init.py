"""`ding_init`: what a program calls first."""

from __future__ import annotations

import logging
from typing import Any


def ding_init(cfg: Any) -> None:
    """Names the experiment. DI-engine makes its writer of curves here; divisi has none yet and says
    so."""
    logging.getLogger(__name__).warning(
        "experiment %s: divisi has no DistributedWriter yet, nothing is recorded", cfg.exp_name
    )
