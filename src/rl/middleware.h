// The middleware of a DQN run, each active on the nodes that have its role (or everywhere while no
// role was added). What they share is in the context: OnlineRLContext.
//
//   task.use(explorer(schedule, sink));            // collector: ctx.collect_kwargs["eps"]
//   task.use(collector(player, network, 64));      // collector: ctx.trajectories
//   task.use(pusher(sink));                        // collector: ctx.trajectories into the replay
//   task.use(trainer(learner, source, 64));        // learner:   ctx.train_iter, ctx.train_output
//   task.use(evaluator(options));                  // evaluator: ctx.eval_value
//
// Objects that are passed by reference must outlive the run. Call the functions after add_role.
#pragma once

#include "divisi/middleware.h"
#include "rl/collector.h"
#include "rl/dqn.h"
#include "rl/replay_client.h"

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace divisi::rl {

// The role of the node that holds the replay; the others are in divisi::Role.
inline constexpr std::string_view kReplayRole = "replay";

// Sets `eps` for the collector by the steps of all collectors together.
Middleware explorer(EpsilonSchedule schedule, const ReplaySink& sink);

// At least `rows` transitions an iteration into ctx.trajectories (a TransitionBatch).
Middleware collector(Collector& player, QNetwork& network, int rows);

// Moves ctx.trajectories into the replay; waits while collectors are too far ahead. Sets
// ctx.env_step, and reports the steps a second of this process (divisi/progress.h).
Middleware pusher(Collector& player, ReplaySink& sink);

// What the last iteration of a trainer did, for loggers.
struct TrainOutput {
  int updates = 0;
  double loss = 0;    // mean of the updates
  double mean_q = 0;  // of the last one
};

// Trains with what the source gives, in batches of `batch_size`. Sets ctx.train_iter, ctx.env_step
// and ctx.train_output (a TrainOutput); does nothing in an iteration for which there is nothing.
Middleware trainer(DqnLearner& learner, ReplaySource& source, int batch_size, bool priorities);

struct EvaluatorOptions {
  VectorEnv& env;
  QNetwork& network;
  int episodes = 5;
  int eval_freq = 40;  // updates of the model between two evaluations
  std::uint64_t seed = 0;
  std::function<std::int64_t()> train_iter;  // of the model in use
};

// Plays without exploration whenever the model is `eval_freq` updates older than at the last time.
// Sets ctx.eval_value and ctx.last_eval_iter, and emits `eval_result` (train_iter, version of the
// weights, mean, env_step as far as known here).
Middleware evaluator(EvaluatorOptions options);

// Takes over what an evaluator in another process found: ctx.eval_value, ctx.last_eval_iter.
Middleware evaluation_receiver();

// Finishes the task once ctx.eval_value reaches the value.
Middleware stop_value_checker(double stop_value);

// Calls `save` about every `interval`, and once more at the end.
Middleware periodic_saver(std::string_view role, std::chrono::duration<double> interval,
                          std::function<void()> save);

// Waits: for nodes whose work is done by listeners.
Middleware idler(std::chrono::duration<double> interval);

}  // namespace divisi::rl
