#include "rl/middleware.h"

#include "base/deadline.h"
#include "divisi/progress.h"
#include "divisi/task.h"

#include <mutex>
#include <numeric>
#include <optional>
#include <utility>

namespace divisi::rl {

namespace {

using Clock = std::chrono::steady_clock;

Middleware for_role(std::string_view role, std::string name, Middleware::Function step) {
  if (!task.has_role(role)) return VoidMiddleware{};
  return named(std::move(name), std::move(step));
}

OnlineRLContext& online(Context& ctx) {
  return detail::context_as<OnlineRLContext>(ctx);
}

// The environment steps a second of this process, reported about once a second.
class StepRate {
 public:
  void add(std::int64_t steps) {
    constexpr double kEvery = 1;
    steps_ += steps;
    const double passed = std::chrono::duration<double>(Clock::now() - since_).count();
    if (passed < kEvery) return;
    report_progress({.env_steps_per_second = static_cast<double>(std::exchange(steps_, 0)) / passed,
                     .whole_job = false});
    since_ = Clock::now();
  }

 private:
  std::int64_t steps_ = 0;
  Clock::time_point since_ = Clock::now();
};

}  // namespace

Middleware explorer(EpsilonSchedule schedule, const ReplaySink& sink) {
  return for_role(Role::kCollector, "explorer", [schedule, &sink](Context& ctx) {
    online(ctx).collect_kwargs["eps"] = Value(schedule.at(sink.env_step()));
  });
}

Middleware collector(Collector& player, QNetwork& network, int rows) {
  return for_role(Role::kCollector, "collector", [&player, &network, rows](Context& ctx) {
    auto& rl = online(ctx);
    const auto eps = rl.collect_kwargs.find("eps");
    rl.trajectories = player.collect(
        network, eps == rl.collect_kwargs.end() ? 0 : eps->second.as<double>(), rows);
  });
}

Middleware pusher(Collector& player, ReplaySink& sink) {
  const auto rate = std::make_shared<StepRate>();
  return for_role(Role::kCollector, "pusher", [&player, &sink, rate](Context& ctx) {
    auto& rl = online(ctx);
    rate->add(player.collected().env_steps);
    sink.push(to_wire(rl.trajectories.get<TransitionBatch>()), player.collected());
    rl.env_step = sink.env_step();
    rl.env_episode += player.collected().episodes;
  });
}

Middleware trainer(DqnLearner& learner, ReplaySource& source, int batch_size, bool priorities) {
  const auto batch = std::make_shared<TransitionBatch>();
  const auto errors = std::make_shared<std::vector<float>>();
  return for_role(Role::kLearner, "trainer", [=, &learner, &source](Context& ctx) {
    auto& rl = online(ctx);
    rl.train_iter = learner.train_iter();
    const std::optional<Samples> samples = source.next();
    if (!samples) return;
    TrainOutput output;
    errors->clear();
    const std::int64_t rows = samples->reward.shape.front();
    for (std::int64_t first = 0; first + batch_size <= rows; first += batch_size) {
      to_batch(*samples, first, batch_size, *batch);
      const auto result = learner.update(*batch);
      errors->insert(errors->end(), result.td_errors.begin(), result.td_errors.end());
      output.loss += result.loss;
      output.mean_q = result.mean_q;
      ++output.updates;
    }
    if (output.updates > 0) output.loss /= output.updates;
    if (priorities) source.update_priorities(*samples, *errors);
    rl.train_iter = learner.train_iter();
    rl.env_step = source.env_step();
    rl.train_output = output;
  });
}

Middleware evaluator(EvaluatorOptions options) {
  return for_role(Role::kEvaluator, "evaluator", [options](Context& ctx) {
    auto& rl = online(ctx);
    const std::int64_t train_iter = options.train_iter();
    if (train_iter < 0) return;  // no model has come yet
    // Also lower: the learner went back to its checkpoint.
    const bool due = rl.last_eval_iter < 0 || train_iter < rl.last_eval_iter ||
                     train_iter - rl.last_eval_iter >= options.eval_freq;
    if (!due) return;
    const auto returns = evaluate(options.env, options.network, options.episodes,
                                  options.seed + static_cast<std::uint64_t>(train_iter),
                                  [] { return task.finish(); });
    if (returns.empty() || std::cmp_less(returns.size(), options.episodes)) return;
    const double mean =
        std::accumulate(returns.begin(), returns.end(), 0.0) / static_cast<double>(returns.size());
    rl.eval_value = mean;
    rl.last_eval_iter = train_iter;
    rl.last_eval_value = mean;
    task.emit("eval_result", only_remote, train_iter, train_iter, mean, rl.env_step);
  });
}

Middleware evaluation_receiver() {
  if (!task.has_role(Role::kLearner) || task.has_role(Role::kEvaluator)) return VoidMiddleware{};
  struct Latest {
    std::mutex mutex;
    std::optional<std::pair<std::int64_t, double>> result;
  };
  const auto latest = std::make_shared<Latest>();
  task.on("eval_result", [latest](std::int64_t train_iter, std::int64_t /*version*/, double mean,
                                  std::int64_t /*env_step*/) {
    const std::lock_guard lock(latest->mutex);
    // The best of several that came at once: none that solved the task is overlooked.
    if (!latest->result || mean > latest->result->second) latest->result = {train_iter, mean};
  });
  return named("evaluation_receiver", [latest](Context& ctx) {
    const std::lock_guard lock(latest->mutex);
    if (!latest->result) return;
    auto& rl = online(ctx);
    std::tie(rl.last_eval_iter, rl.eval_value) = *latest->result;
    rl.last_eval_value = rl.eval_value;
    latest->result.reset();
  });
}

Middleware stop_value_checker(double stop_value) {
  return for_role(Role::kLearner, "stop_value_checker", [stop_value](Context& ctx) {
    if (online(ctx).eval_value >= stop_value) task.set_finish();
  });
}

Middleware periodic_saver(std::string_view role, std::chrono::duration<double> interval,
                          std::function<void()> save) {
  if (!task.has_role(role)) return VoidMiddleware{};
  const auto due = std::make_shared<Clock::time_point>(Clock::now());
  return named("periodic_saver", [=, save = std::move(save)](Context&) {
    if (Clock::now() < *due && !task.finish()) return;
    save();
    *due = deadline_after(interval);
  });
}

Middleware idler(std::chrono::duration<double> interval) {
  return named("idler", [interval](Context&) {
    task.wait_for("idler", {.timeout = to_nanoseconds(interval), .wake_on_finish = true});
  });
}

}  // namespace divisi::rl
