"""DQN for CartPole: one `main`, alone or in many processes."""

import argparse
import logging
import math
import os
import shlex
import sys
import time

import gymnasium

from divisi import DistributedWriter, OnlineRLContext, Parallel, Role, report_progress, task
from divisi.middleware import (
    CkptSaver,
    OffPolicyLearner,
    PeriodicalModelExchanger,
    StepCollector,
    data_pusher,
    eps_greedy_handler,
    final_ctx_saver,
    interaction_evaluator,
    load_ckpt,
    nstep_reward_enhancer,
    online_logger,
    termination_checker,
)

from config import BadOverride, configure
from policy import DQN
from replay import Inserter, Limiter, Replay, ReplayService, Sampler, arrays_of
from roles import replay_node, roles_here

EXAMPLES = """
examples:
  main.py                                        one process
  main.py --seed 3 policy.learn.batch_size=128   another seed, another value
  main.py --parallel-workers 4                   a learner, an evaluator, two collectors
  main.py --resume                               goes on from the latest checkpoint

  separate processes over tcp (the same with ditask --package . --main main.main, and its own flags):
  main.py --labels learner   --node-id 0 --port 50515
  main.py --labels replay    --node-id 1 --port 50516 --attach-to 127.0.0.1:50515
  main.py --labels collector --node-id 2 --port 50517 --attach-to 127.0.0.1:50515,127.0.0.1:50516
  main.py --labels evaluator --node-id 3 --port 50518 --attach-to 127.0.0.1:50515

  with collectors in C++ (build/release/bin/cartpole_dqn), a hundred times as fast:
  main.py --labels learner --node-id 0 --port 50515
  cartpole_dqn --role collector --node-id 1 --port 50516 --attach-to tcp://127.0.0.1:50515
  cartpole_dqn --role evaluator --node-id 2 --port 50517 --attach-to tcp://127.0.0.1:50515

  Under ditask the arguments come from CARTPOLE_DQN_ARGS, such as "--seed 3 policy.learn.batch_size=128".
"""


def parse(arguments):
    parser = argparse.ArgumentParser(
        prog="main.py", description=__doc__, epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, help="of networks, environments and samples; default 0")
    parser.add_argument("--exp-name", help="the folder of results; default cartpole_dqn_seed<seed>")
    parser.add_argument("--resume", action="store_true", help="from the latest checkpoint in that folder")
    parser.add_argument("--parallel-workers", type=int, default=1, metavar="N", help="processes; default 1")
    parser.add_argument("--labels", help="roles of this process: learner, collector, evaluator, replay")
    parser.add_argument("--node-id", type=int, default=0, help="with --labels: unique in the job")
    parser.add_argument("--address", default="127.0.0.1", help="with --labels: listen there")
    parser.add_argument("--port", type=int, default=50515, help="with --labels: listen there")
    parser.add_argument("--attach-to", help="with --labels: host:port of the others that are started already")
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="values of config.py")
    options = parser.parse_args(arguments)
    try:
        cfg = configure(options.overrides, seed=options.seed)
    except BadOverride as error:
        print(f"main.py: {error}", file=sys.stderr)
        sys.exit(2)
    is_named = any(one.startswith("exp_name=") for one in options.overrides)
    if options.exp_name or not is_named:
        cfg.exp_name = options.exp_name or f"cartpole_dqn_seed{cfg.seed}"
    return options, cfg


def environments(cfg, count):
    return gymnasium.make_vec(cfg.env.env_id, num_envs=count, vectorization_mode="vector_entry_point")


class Report:
    """The last line: what the run came to. Meanwhile, in a DIJob: how far it is."""

    def __init__(self, cfg):
        self._begin, self._stop_value = time.monotonic(), cfg.env.stop_value
        self._max_env_step, self._first_step = cfg.max_env_step, None
        self.best, self.solved = -math.inf, None

    def evaluated(self, train_iter, mean, env_step):
        print(f"evaluation: train_iter {train_iter}, env_step {env_step}, mean return {mean:.1f}", flush=True)
        self.best = max(self.best, mean)
        self._first_step = env_step if self._first_step is None else self._first_step
        rate = (env_step - self._first_step) / max(1e-6, time.monotonic() - self._begin)
        eta = max(0, self._max_env_step - env_step) / rate if rate > 0 else None
        report_progress(rate or None, mean, eta, env_step=env_step, train_iter=train_iter)
        if mean >= self._stop_value and train_iter > 0 and self.solved is None:
            self.solved = (mean, env_step, train_iter)
        return self.solved is not None

    def end(self, _):
        seconds = time.monotonic() - self._begin
        if self.solved is None:
            print(f"not solved: the best mean return was {self.best:.1f}, after {seconds:.1f} s", flush=True)
        else:
            mean, env_step, train_iter = self.solved
            print(
                f"solved: mean return {mean:.1f} with {env_step} env steps, {train_iter} updates, {seconds:.1f} s",
                flush=True,
            )


def alone(cfg, policy, report):
    """Everything in one process, by the same middleware as ever."""
    replay = new_replay(cfg)

    def remember(ctx):
        policy.env_step = ctx.env_step
        if not math.isinf(ctx.eval_value):
            report.evaluated(ctx.train_iter, ctx.eval_value, ctx.env_step)

    task.use(interaction_evaluator(cfg, policy, environments(cfg, cfg.env.evaluator_env_num)))
    task.use(remember)
    task.use(eps_greedy_handler(cfg))
    task.use(StepCollector(cfg, policy, environments(cfg, cfg.env.collector_env_num)))
    task.use(nstep_reward_enhancer(cfg))
    task.use(data_pusher(cfg, replay))
    task.use(OffPolicyLearner(cfg, policy, replay))
    task.use(termination_checker(max_env_step=cfg.max_env_step))
    task.use(online_logger())
    task.use(CkptSaver(policy, cfg.exp_name, train_freq=cfg.policy.learn.save_freq))
    task.use(final_ctx_saver(cfg.exp_name))


def new_replay(cfg):
    return Replay(cfg.policy.other.replay_buffer.replay_buffer_size, cfg.policy.model.obs_shape, cfg.seed)


def learner(cfg, policy, report, service):
    """Samples, trains, sends weights, and hears how good they are."""
    learn = cfg.policy.learn
    sampler = Sampler(lambda: replay_node(task.router), service, learn.batch_size, learn.update_per_collect)
    results = []
    task.on("eval_result", lambda *result: results.append(result))

    def hear(ctx):
        while results:
            train_iter, _version, mean, env_step = results.pop(0)
            env_step = env_step or ctx.env_step  # an evaluator in C++ does not know it
            ctx.eval_value, ctx.last_eval_value, ctx.last_eval_iter = mean, mean, train_iter
            if report.evaluated(train_iter, mean, env_step):
                task.finish = True

    def train(ctx):
        if ctx.total_step == 0:
            return  # this iteration sends the first weights: without them nobody collects
        came = sampler.next()
        if came is None:
            return  # the task ends
        batch, total = came
        ctx.train_output = []
        for i in range(learn.update_per_collect):
            rows = slice(i * learn.batch_size, (i + 1) * learn.batch_size)
            ctx.train_output.append(policy.learn({key: array[rows] for key, array in batch.items()}))
            ctx.train_iter += 1
        ctx.env_step = policy.env_step = max(ctx.env_step, total)
        task.emit("progress", ctx.train_iter, ctx.env_step, only_remote=True, policy="latest_only")

    task.use(PeriodicalModelExchanger(policy.model, "send", learn.send_freq, version=lambda ctx: ctx.train_iter))
    task.use(hear)
    task.use(train)
    task.use(termination_checker(max_env_step=cfg.max_env_step))
    task.use(online_logger())
    # eval.pth.tar is the learner's state when it hears of its best evaluation: an update or so later.
    task.use(CkptSaver(policy, cfg.exp_name, train_freq=learn.save_freq))
    task.use(final_ctx_saver(cfg.exp_name))


def collector(cfg, policy):
    """Plays with the newest weights and sends what happened to the replay."""
    inserter = Inserter(lambda: replay_node(task.router))

    def know(ctx):
        ctx.env_step = inserter.total_env_step

    def send(ctx):
        transitions = arrays_of(ctx.trajectories, cfg.policy.discount_factor)
        returns = ctx.collect_returns
        inserter.insert(transitions, len(ctx.trajectories), len(returns), sum(returns))

    # It waits for the first weights only, then takes the newest whenever it comes by.
    task.use(PeriodicalModelExchanger(policy.model, "receive", stale_toleration=math.inf))
    task.use(know)
    task.use(eps_greedy_handler(cfg))
    task.use(StepCollector(cfg, policy, environments(cfg, cfg.env.collector_env_num)))
    task.use(nstep_reward_enhancer(cfg))
    task.use(send)


def evaluator(cfg, policy):
    """Plays with every new weights that are due, and tells the learner."""
    # In a process that collects as well, collecting takes the weights.
    exchanger = PeriodicalModelExchanger(
        policy.model, "receive", stale_toleration=math.inf if task.has_role(Role.COLLECTOR) else 1
    )
    env_step = [0]
    task.on("progress", lambda _train_iter, steps: env_step.__setitem__(0, steps))
    cfg = configure_evaluator(cfg)

    def know(ctx):
        ctx.train_iter, ctx.env_step = max(exchanger.model_id, 0), env_step[0]

    def tell(ctx):
        if not math.isinf(ctx.eval_value):
            task.emit("eval_result", ctx.train_iter, exchanger.model_id, float(ctx.eval_value), ctx.env_step,
                      only_remote=True)

    task.use(exchanger)
    task.use(know)
    task.use(interaction_evaluator(cfg, policy, environments(cfg, cfg.env.evaluator_env_num)))
    task.use(tell)


def configure_evaluator(cfg):
    """The learner decides when it is enough: it has to save, too."""
    return type(cfg)({**cfg, "env": {**cfg.env, "stop_value": math.inf}})


def main(arguments=None):
    """The entry of every process."""
    if arguments is None:  # ditask
        arguments = shlex.split(os.environ.get("CARTPOLE_DQN_ARGS", ""))
    options, cfg = parse(arguments)
    logging.basicConfig(level=logging.WARNING)
    router = task.router
    roles = roles_here(router)
    for pattern in ("replay.*", "peer_*"):  # of an earlier life of this process (auto_recover)
        router.off(pattern)
    cfg.seed += 1000 * (router.node_id or 0)
    policy = DQN(cfg, cfg.seed)
    ctx = OnlineRLContext()
    if options.resume and "learner" in roles:
        load_ckpt(policy, cfg.exp_name)
        ctx.train_iter, ctx.env_step = policy.train_iter, policy.env_step
        print(f"resumed at train_iter {ctx.train_iter}, env_step {ctx.env_step}", flush=True)

    with task.start(ctx=ctx):
        DistributedWriter.root = None
        DistributedWriter.get_instance(os.path.join(cfg.exp_name, "log")).plugin(router, "learner" in roles)
        report = Report(cfg)
        if "learner" in roles:
            task.on_finish(report.end)
        if not router.is_active:
            alone(cfg, policy, report)
        else:
            distributed(cfg, policy, report, roles)
        task.run()


def distributed(cfg, policy, report, roles):
    for role in (Role.LEARNER, Role.COLLECTOR, Role.EVALUATOR):
        if role.value in roles:
            task.add_role(role)
    service = None
    if roles & {"learner", "replay"}:
        service = ReplayService(new_replay(cfg), Limiter.of(cfg), policy.env_step)
        service.serve(task.router, lambda: replay_node(task.router) is None)
    if "learner" in roles:
        learner(cfg, policy, report, service)
    if "evaluator" in roles:
        evaluator(cfg, policy)
    if "collector" in roles:
        collector(cfg, policy)
    if roles == {"replay"}:
        task.add_role("replay")
        task.use(lambda _: task.wait_for("replay_never", wake_on_finish=True))


if __name__ == "__main__":
    given = sys.argv[1:]
    flags, _ = parse(given)  # before any process is started
    if flags.labels:
        Parallel.runner(
            n_parallel_workers=1, protocol="tcp", address=flags.address, ports=flags.port, topology="alone",
            labels=set(flags.labels.split(",")), node_ids=flags.node_id, log_level="warning",
            attach_to=flags.attach_to.split(",") if flags.attach_to else [],
        )(main, given)
    elif flags.parallel_workers > 1:
        Parallel.runner(n_parallel_workers=flags.parallel_workers, log_level="warning")(main, given)
    else:
        main(given)
