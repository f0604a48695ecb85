#include "dist_rl/collector_worker.h"

#include "base/log.h"
#include "dist/ids.h"
#include "dist_rl/handler_parts.h"
#include "dist_rl/pace.h"
#include "dist_rl/shared_files.h"
#include "rl/collector.h"

#include <chrono>
#include <cmath>
#include <optional>
#include <random>

namespace divisi::dist_rl {

namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kPolicyPoll = std::chrono::milliseconds(2);  // the file system has no other sign
constexpr auto kLongestWait = std::chrono::seconds(1);      // then the master hears of us
constexpr std::int64_t kMostTaskSeconds = 3600;

// What collector_start_task gave, and how far it came.
struct CollectorTask {
  std::string task_id;
  std::string buffer_id;
  std::string job;
  std::string policy_file;
  bool evaluates = false;
  std::int64_t env_step = 0;    // of the whole job, when the task was made
  std::int64_t collectors = 1;  // of the whole job: all of them make steps
  std::optional<double> eps;    // of the master; by our schedule when it gives none
  Clock::time_point start = Clock::now();
  Clock::time_point end;  // of collecting

  std::int64_t steps = 0;
  std::int64_t samples = 0;
  std::int64_t episodes = 0;
  double return_sum = 0;
  double return_squares = 0;
  bool done = false;

  std::uint64_t policy_version = 0;  // of the file in use
  std::int64_t train_iter = -1;
  std::int64_t collects = 0;  // with this policy
};

// DI-engine's coordinator says how much to explore.
std::optional<double> eps_of(const json::Value& task_info) {
  const json::Value* found = task_info.find("collector_cfg");
  if (found != nullptr) found = found->find("collect_setting");
  if (found != nullptr) found = found->find("eps");
  const double* eps = found != nullptr ? found->as_double() : nullptr;
  if (eps == nullptr || !(*eps >= 0 && *eps <= 1)) return std::nullopt;
  return *eps;
}

double per(double total, std::int64_t count) {
  return total / static_cast<double>(std::max<std::int64_t>(1, count));
}

class CollectorWorker final : public dist::TaskHandler {
 public:
  explicit CollectorWorker(TrainConfig config)
      : config_(std::move(config)),
        pace_(task_pace(config_.dqn)),
        // Collectors of a job have one configuration and one seed; their episodes must differ.
        seed_(static_cast<std::uint64_t>(config_.dqn.seed) + std::random_device{}()),
        schedule_(config_.dqn.eps_type, config_.dqn.eps_start, config_.dqn.eps_end,
                  config_.dqn.eps_decay) {}

  dist::TaskOutcome run(const json::Value& data) override {
    const std::string_view name = data.string_at({"name"});
    if (name == "resource") return completed(json::Object{{"gpu", 1}, {"cpu", 20}});
    if (name == "collector_start_task") return start(data);
    if (name == "collector_data_task")
      return task_ ? next_record() : refused("no task has started");
    if (name == "collector_close_task") return task_ ? close() : refused("no task has started");
    return unknown_task();
  }

  void stop() override { stop_.set(); }

  void master_gone() override {
    task_.reset();
    player_.reset();
    network_.reset();
    stop_.clear();
  }

 private:
  dist::TaskOutcome start(const json::Value& data) {
    const json::Value* info = data.find("task_info");
    if (info == nullptr) return refused("collector_start_task has no task_info");
    CollectorTask task;
    task.task_id = info->string_at({"task_id"});
    task.buffer_id = info->string_at({"buffer_id"});
    task.evaluates = info->bool_at({"collector_cfg", "eval_flag"}).value_or(false);
    task.job = info->string_at({"collector_cfg", "job"});
    if (task.job.empty()) task.job = "job";
    const auto file = policy_path(config_.path_policy, task.job,
                                  info->string_at({"collector_cfg", "policy_update_path"}));
    if (!file) return refused(file.error().message());
    if (!is_plain_name(task.buffer_id)) return refused("buffer_id is no name of a folder");
    task.policy_file = *file;
    task.env_step =
        std::max<std::int64_t>(0, info->int_at({"collector_cfg", "env_step"}).value_or(0));
    task.collectors =
        std::max<std::int64_t>(1, info->int_at({"collector_cfg", "collectors"}).value_or(1));
    task.eps = eps_of(*info);
    const std::int64_t milliseconds = std::clamp<std::int64_t>(
        info->int_at({"collector_cfg", "collect_ms"}).value_or(2000), 10, kMostTaskSeconds * 1000);
    task.end = Clock::now() + std::chrono::milliseconds(milliseconds);
    make_network();
    task_ = std::make_unique<CollectorTask>(std::move(task));
    return completed(json::Object{{"message", "collector task has started"}});
  }

  void make_network() {
    if (network_) return;
    const auto env = rl::make_env(config_.dqn.env_name, 1, 0);
    network_ =
        std::make_unique<rl::QNetwork>(rl::NetworkShape{.observation_size = env->observation_size(),
                                                        .action_count = env->action_count(),
                                                        .hidden = config_.dqn.hidden,
                                                        .dueling = config_.dqn.dueling},
                                       seed_);
  }

  // Loads a newer policy where there is one. Fails for a file that cannot be used.
  Status look_for_policy() {
    const std::uint64_t version = file_version(task_->policy_file);
    if (version == 0 || version == task_->policy_version) return {};
    auto policy = read_policy(task_->policy_file);
    if (!policy) return policy.error();
    const std::optional<PolicyFile>& found = *policy;
    if (!found) return {};  // replaced meanwhile
    try {
      network_->load(found->weights);
    } catch (const UsageError& error) {
      return make_status(Code::kInvalid, "{}: {}", task_->policy_file, error.what());
    }
    task_->policy_version = version;
    task_->train_iter = found->train_iter;
    task_->collects = 0;
    return {};
  }

  // Waits for a policy that may still be used; false when there is none in time.
  Result<bool> have_policy() {
    const Clock::time_point limit = Clock::now() + kLongestWait;
    while (true) {
      if (Status status = look_for_policy(); !status.ok()) return failure(std::move(status));
      const bool fresh =
          task_->train_iter >= 0 && (task_->evaluates || task_->collects < pace_.collects);
      if (fresh) return true;
      // After a whole second with the old one the next file is made all the same: a learner that
      // waits for data must not wait for a collector that waits for it.
      if (Clock::now() >= limit) return task_->train_iter >= 0 && !task_->evaluates;
      if (stop_.wait_for(kPolicyPoll)) return false;
    }
  }

  dist::TaskOutcome next_record() {
    if (!task_->evaluates && Clock::now() >= task_->end) task_->done = true;
    if (task_->done) return progress();
    const auto ready = have_policy();
    if (!ready) return refused(ready.error().message());
    if (!*ready) return progress();
    return task_->evaluates ? play_evaluation() : collect_file();
  }

  dist::TaskOutcome progress() {
    return completed(json::Object{{"collector_done", task_->done},
                                  {"cur_episode", task_->episodes},
                                  {"cur_sample", task_->samples},
                                  {"cur_step", task_->steps},
                                  {"task_id", task_->task_id},
                                  {"buffer_id", task_->buffer_id}});
  }

  dist::TaskOutcome play_evaluation() {
    const auto& dqn = config_.dqn;
    const auto env =
        rl::make_env(dqn.env_name, std::min(dqn.evaluator_env_num, dqn.n_evaluator_episode), seed_);
    const auto returns = rl::evaluate(*env, *network_, dqn.n_evaluator_episode, seed_++,
                                      [this] { return stop_.is_set(); });
    for (const double value : returns) {
      task_->return_sum += value;
      task_->return_squares += value * value;
    }
    task_->episodes = static_cast<std::int64_t>(returns.size());
    task_->done = true;
    return progress();
  }

  dist::TaskOutcome collect_file() {
    if (!player_) {
      player_ = std::make_unique<rl::Collector>(
          rl::make_env(config_.dqn.env_name, config_.dqn.collector_env_num, seed_),
          rl::CollectorOptions{
              .nstep = config_.dqn.nstep, .discount = config_.dqn.discount, .seed = seed_ + 1});
    }
    const double eps =
        task_->eps.value_or(schedule_.at(task_->env_step + task_->steps * task_->collectors));
    const rl::TransitionBatch& batch = player_->collect(*network_, eps, pace_.rows);
    const rl::Collected& collected = player_->collected();
    const std::string data_id = dist::new_uuid();
    const auto path = data_path(config_.path_data, task_->job, task_->buffer_id, data_id);
    if (!path) return refused(path.error().message());
    if (Status status = write_data(*path, batch); !status.ok()) return refused(status.message());
    ++task_->collects;
    task_->steps += collected.env_steps;
    task_->samples += batch.size;
    task_->episodes += collected.episodes;
    task_->return_sum += collected.return_sum;
    return completed(json::Object{{"data_id", data_id},
                                  {"policy_iter", task_->train_iter},
                                  {"env_id", config_.dqn.env_name},
                                  {"unroll_len", batch.size},
                                  {"env_step", collected.env_steps},
                                  {"priority", json::Value()},  // not learned from yet
                                  {"task_id", task_->task_id},
                                  {"buffer_id", task_->buffer_id}});
  }

  dist::TaskOutcome close() {
    const CollectorTask& task = *task_;
    const double mean = per(task.return_sum, task.episodes);
    // DI-engine's coordinator needs all of these keys. Steps are counted only while collecting, and
    // squares only in an evaluation: reward_std of collecting, and steps of an evaluation, are 0.
    const double squares = per(task.return_squares, task.episodes);
    const std::chrono::duration<double> duration = Clock::now() - task.start;
    json::Value result =
        json::Object{{"eval_flag", task.evaluates},
                     {"train_iter", task.train_iter},
                     {"duration", duration.count()},
                     {"real_episode_count", task.episodes},
                     {"step_count", task.steps},
                     {"sample_count", task.samples},
                     {"avg_time_per_episode", per(duration.count(), task.episodes)},
                     {"avg_time_per_step", per(duration.count(), task.steps)},
                     {"avg_step_per_episode", per(static_cast<double>(task.steps), task.episodes)},
                     {"reward_mean", mean},
                     {"reward_std", std::sqrt(std::max(0.0, squares - mean * mean))},
                     {"task_id", task.task_id},
                     {"buffer_id", task.buffer_id}};
    task_.reset();
    return completed(std::move(result));
  }

  const TrainConfig config_;
  const TaskPace pace_;
  std::uint64_t seed_;
  const rl::EpsilonSchedule schedule_;

  // Of the worker's thread.
  std::unique_ptr<CollectorTask> task_;
  std::unique_ptr<rl::QNetwork> network_;
  std::unique_ptr<rl::Collector> player_;

  StopFlag stop_;
};

}  // namespace

std::shared_ptr<dist::TaskHandler> make_collector_worker(TrainConfig config) {
  return std::make_shared<CollectorWorker>(std::move(config));
}

}  // namespace divisi::dist_rl
