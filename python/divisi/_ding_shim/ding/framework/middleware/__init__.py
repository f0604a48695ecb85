"""Middleware: of DI-engine's library, what concerns the runtime."""

from divisi.step_timer import epoch_timer

from ..._missing import not_built

__all__ = ["epoch_timer"]
__getattr__ = not_built(
    __name__,
    "Barrier",
    "BarrierRuntime",
    "CkptSaver",
    "ContextExchanger",
    "ModelExchanger",
    "PeriodicalModelExchanger",
    "ddp_termination_checker",
    "final_ctx_saver",
    "termination_checker",
)
