"""The middleware that are functions."""

from divisi.middleware import (
    data_pusher,
    ddp_termination_checker,
    epoch_timer,
    eps_greedy_handler,
    eps_greedy_masker,
    final_ctx_saver,
    interaction_evaluator,
    nstep_reward_enhancer,
    offpolicy_data_fetcher,
    online_logger,
    priority_calculator,
    termination_checker,
    trainer,
)

__all__ = [
    "data_pusher",
    "ddp_termination_checker",
    "epoch_timer",
    "eps_greedy_handler",
    "eps_greedy_masker",
    "final_ctx_saver",
    "interaction_evaluator",
    "nstep_reward_enhancer",
    "offpolicy_data_fetcher",
    "online_logger",
    "priority_calculator",
    "termination_checker",
    "trainer",
]
