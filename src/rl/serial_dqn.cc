#include "rl/serial_dqn.h"

#include "base/status.h"
#include "json/value.h"
#include "rl/collector.h"
#include "rl/ding_config.h"
#include "rl/dqn.h"
#include "rl/replay_buffer.h"
#include "rl/saved_file.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <utility>

namespace divisi::rl {

namespace {

constexpr std::string_view kSerialCheckpoint = "dqn";

NetworkShape serial_shape(const DqnConfig& config) {
  const auto env = make_env(config.env_name, 1, 0);
  return {.observation_size = env->observation_size(),
          .action_count = env->action_count(),
          .hidden = config.hidden,
          .dueling = config.dueling};
}

class SerialRun {
 public:
  explicit SerialRun(const SerialOptions& options)
      : options_(options),
        config_(options.config),
        seed_(static_cast<std::uint64_t>(config_.seed)),
        shape_(serial_shape(config_)),
        learner_({.shape = shape_,
                  .discount = config_.discount,
                  .nstep = config_.nstep,
                  .double_q = config_.double_q,
                  .learning_rate = config_.learning_rate,
                  .target_update_freq = config_.target_update_freq},
                 seed_),
        player_(make_env(config_.env_name, config_.collector_env_num, 1000 * seed_),
                {.nstep = config_.nstep, .discount = config_.discount, .seed = 1000 * seed_}),
        stage_(make_env(config_.env_name,
                        std::min(config_.evaluator_env_num, config_.n_evaluator_episode),
                        1000 * seed_ + 1)),
        replay_({.capacity = config_.replay_buffer_size,
                 .observation_size = shape_.observation_size,
                 .action_count = shape_.action_count,
                 .prioritised = config_.priority},
                1000 * seed_),
        schedule_(config_.eps_type, config_.eps_start, config_.eps_end, config_.eps_decay) {}

  SerialResult run() {
    do {
      if (is_evaluation_due()) evaluate_now();
      if (result_.solved) break;
      collect();
      train();
    } while (result_.env_step < config_.max_env_step &&
             learner_.train_iter() < options_.max_train_iter);
    result_.train_iter = learner_.train_iter();
    if (!options_.last_checkpoint.empty()) save(options_.last_checkpoint);
    return std::move(result_);
  }

 private:
  void notice() const {
    if (options_.on_step) options_.on_step();
  }

  bool is_evaluation_due() const {
    return last_evaluation_ < 0 || learner_.train_iter() - last_evaluation_ >= config_.eval_freq;
  }

  void evaluate_now() {
    last_evaluation_ = learner_.train_iter();
    auto returns = evaluate(*stage_, learner_.network(), config_.n_evaluator_episode,
                            1000 * seed_ + 1 + static_cast<std::uint64_t>(last_evaluation_), [&] {
                              notice();
                              return false;
                            });
    const double mean =
        std::accumulate(returns.begin(), returns.end(), 0.0) / static_cast<double>(returns.size());
    // A network that never trained has only luck to show.
    result_.solved = mean >= config_.stop_value && last_evaluation_ > 0;
    result_.last = {.env_step = result_.env_step,
                    .train_iter = last_evaluation_,
                    .eval_value = mean,
                    .returns = std::move(returns)};
    if (!has_best_ || mean > best_) {
      has_best_ = true;
      best_ = mean;
      if (!options_.best_checkpoint.empty()) save(options_.best_checkpoint);
    }
    if (options_.on_evaluation) options_.on_evaluation(result_.last);
  }

  void collect() {
    const double eps = schedule_.at(result_.env_step);
    replay_.insert(to_wire(player_.collect(learner_.network(), eps, config_.n_sample)));
    result_.env_step += player_.collected().env_steps;
    notice();
  }

  void train() {
    for (int i = 0; i < config_.update_per_collect; ++i) {
      if (replay_.size() < config_.batch_size) return;
      const Samples samples = replay_.sample(config_.batch_size);
      to_batch(samples, 0, config_.batch_size, batch_);
      const auto update = learner_.update(batch_);
      if (config_.priority) {
        replay_.update_priorities(samples.index.view<std::int64_t>(), update.td_errors);
      }
    }
  }

  void save(const std::string& path) const {
    save_file(path, kSerialCheckpoint, shape_.to_string(), learner_.full_state());
  }

  const SerialOptions& options_;
  const DqnConfig& config_;
  const std::uint64_t seed_;
  const NetworkShape shape_;
  DqnLearner learner_;
  Collector player_;
  std::unique_ptr<VectorEnv> stage_;  // where evaluations are played
  ReplayBuffer replay_;
  const EpsilonSchedule schedule_;
  TransitionBatch batch_;
  std::int64_t last_evaluation_ = -1;  // its train_iter
  bool has_best_ = false;
  double best_ = 0;  // the best evaluation so far
  SerialResult result_;
};

}  // namespace

DqnConfig read_serial_config(std::string_view document) {
  const auto parsed = json::parse(document);
  if (!parsed) throw_if_failed(parsed.error());
  const json::Value* main = parsed->find("main");
  const json::Value* create = parsed->find("create");
  if (main == nullptr || create == nullptr) {
    throw UsageError("the configuration has no main_config or no create_config");
  }
  throw_if_failed(check_ding_create(*create));
  auto config = read_ding_config(*main, *create, "default_experiment");
  if (!config) throw_if_failed(config.error());
  return *std::move(config);
}

SerialResult train_serially(const SerialOptions& options) {
  options.config.check();
  return SerialRun(options).run();
}

}  // namespace divisi::rl
