"""Middleware for distributed training: ``task.use(ContextExchanger())`` and so on.

What a node does follows from its roles (``task.add_role``). Under an active router a middleware whose
role the node does not have is :class:`divisi.VoidMiddleware`, which ``task.use`` skips; without roles
every node does everything. So the same ``main`` runs in one process and in many::

    def main():
        with task.start(ctx=OnlineRLContext()):
            if task.router.is_active:
                node = task.router.node_id
                task.add_role({0: Role.LEARNER, 1: Role.EVALUATOR}.get(node, Role.COLLECTOR))
            task.use(ContextExchanger(skip_n_iter=1))
            task.use(ModelExchanger(policy.model))
            task.use(interaction_evaluator(cfg, policy, evaluator_env))
            task.use(eps_greedy_handler(cfg))
            task.use(StepCollector(cfg, policy, collector_env))
            task.use(data_pusher(cfg, buffer))
            task.use(OffPolicyLearner(cfg, policy, buffer))
            task.use(CkptSaver(policy, cfg.exp_name, train_freq=100))
            task.run()

Names and argument order are those of DI-engine 0.5.3. What is expected of the parts:

- an environment is a Gymnasium vector environment (``num_envs``, ``reset``, ``step``);
- a policy has ``forward(obs, **kwargs)``, which gives one action for each row of ``obs`` (or a dict
  with them under ``action``), and ``learn(batch)``, which gives a dict with ``total_loss``;
- a model, and a policy to be saved, has ``state_dict()`` and ``load_state_dict()``;
- a buffer has ``push(transition)`` and ``sample(n)``, which raises ValueError when it has too few;
- ``cfg`` has the fields of DI-engine's configurations, as attributes or as nested dicts.

Policies and environment managers of DI-engine itself are not supported: their programs keep
DI-engine and take divisi's queue (``docs/from-di-engine.md``).
"""

from ..step_timer import epoch_timer
from .barrier import Barrier, BarrierRuntime
from .buffer import DequeBuffer
from .checkpoint import CkptSaver, load_ckpt
from .collector import EpisodeCollector, StepCollector
from .context_exchanger import ContextExchanger
from .enhancer import nstep_reward_enhancer
from .evaluator import interaction_evaluator
from .explorer import eps_greedy_handler, eps_greedy_masker
from .learner import OffPolicyLearner, data_pusher, offpolicy_data_fetcher, trainer
from .logger import console_logger, jsonl_logger, online_logger
from .model_exchanger import ModelExchanger
from .periodical_model_exchanger import PeriodicalModelExchanger
from .priority import priority_calculator
from .result import final_ctx_saver
from .termination import ddp_termination_checker, termination_checker

__all__ = [
    "Barrier",
    "BarrierRuntime",
    "CkptSaver",
    "ContextExchanger",
    "DequeBuffer",
    "EpisodeCollector",
    "ModelExchanger",
    "OffPolicyLearner",
    "PeriodicalModelExchanger",
    "StepCollector",
    "console_logger",
    "data_pusher",
    "ddp_termination_checker",
    "epoch_timer",
    "eps_greedy_handler",
    "eps_greedy_masker",
    "final_ctx_saver",
    "interaction_evaluator",
    "jsonl_logger",
    "load_ckpt",
    "nstep_reward_enhancer",
    "offpolicy_data_fetcher",
    "online_logger",
    "priority_calculator",
    "termination_checker",
    "trainer",
]
