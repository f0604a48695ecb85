#include "dist_rl/dqn_commander.h"

#include "base/log.h"
#include "dist/ids.h"
#include "dist_rl/janitor.h"
#include "dist_rl/pace.h"
#include "dist_rl/record_buffer.h"
#include "dist_rl/shared_files.h"
#include "divisi/checkpoint.h"
#include "divisi/error.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <map>
#include <optional>

namespace divisi::dist_rl {

namespace {

using Clock = std::chrono::steady_clock;
using dist::DropReason;
using dist::Role;

constexpr std::int64_t kMostRows = 1'000'000;  // that one record may claim
constexpr auto kStateInterval = std::chrono::seconds(1);
constexpr std::size_t kMostState = 64 << 10;

// What a coordinator leaves for the one that takes its place.
struct JobState {
  std::string
      run{};  // of this job: its checkpoint's name, so that no later job takes it for its own
  std::int64_t env_step = 0;
  std::int64_t train_iter = 0;
  std::int64_t evaluations = 0;
  double best = -std::numeric_limits<double>::infinity();
};

json::Value to_json(const JobState& state) {
  json::Value value = json::Object{{"run", state.run},
                                   {"env_step", state.env_step},
                                   {"train_iter", state.train_iter},
                                   {"evaluations", state.evaluations}};
  if (std::isfinite(state.best)) value["best_reward"] = state.best;
  return value;
}

double number_or(const json::Value* value, double otherwise) {
  if (value == nullptr) return otherwise;
  if (const double* number = value->as_double()) return *number;
  if (const std::int64_t* number = value->as_int()) return static_cast<double>(*number);
  return otherwise;
}

Result<JobState> read_state(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return JobState{};
  std::string text(kMostState + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(file.gcount()));
  const auto value = json::parse(text, {.max_bytes = kMostState});
  if (!value || value->as_object() == nullptr) {
    return failure(Code::kInvalid,
                   "{}: not the state of a coordinator: delete it, or take another path_policy",
                   path);
  }
  return JobState{
      .run = std::string(value->string_at({"run"})),
      .env_step = std::max<std::int64_t>(0, value->int_at({"env_step"}).value_or(0)),
      .train_iter = std::max<std::int64_t>(0, value->int_at({"train_iter"}).value_or(0)),
      .evaluations = std::max<std::int64_t>(0, value->int_at({"evaluations"}).value_or(0)),
      .best = number_or(value->find("best_reward"), -std::numeric_limits<double>::infinity())};
}

struct Buffer {
  RecordBuffer records;
  std::int64_t inserted = 0;  // rows
  double drawn = 0;           // rows
};

class DqnCommander final : public dist::Commander {
 public:
  DqnCommander(DqnCommanderOptions options, JobState state)
      : config_(std::move(options.config)),
        job_(std::move(options.job)),
        now_(std::move(options.now)),
        pace_(task_pace(config_.dqn)),
        state_(std::move(state)),
        collector_space_(config_.collector_task_space > 0 ? config_.collector_task_space
                                                          : config_.collector_target) {
    if (state_.env_step > 0) {
      log::info("coordinator goes on at env_step={} train_iter={}", state_.env_step,
                state_.train_iter);
    }
  }

  ~DqnCommander() override {
    janitor_.remove_folder(config_.path_data + "/" + job_);
    if (!outcome_) {
      save_state();
      return;
    }
    const std::string folder = config_.path_policy + "/" + job_ + "/";
    janitor_.rename(folder + "state.json", folder + "state.json.final");
    janitor_.rename(folder + "checkpoint_" + state_.run, folder + "checkpoint.final");
  }

  std::optional<json::Value> next_task(Role role) override {
    if (outcome_) return std::nullopt;
    return role == Role::kLearner ? next_learner_task() : next_collector_task();
  }

  void accepted(Role role, const json::Value& task) override {
    if (role != Role::kLearner) return;
    learner_accepted_ = true;
    log::info("learner task({}) trains policy {}", task.string_at({"task_id"}), policy_id_);
  }

  void finished(Role role, const json::Value& task, const json::Value& result) override {
    if (role == Role::kLearner) return learner_over();
    collector_over(task);
    if (evaluates(task)) evaluated(result);
  }

  void dropped(Role role, const json::Value& task, DropReason why, std::string_view text) override {
    if (role == Role::kLearner) return learner_over();
    collector_over(task);
    // Nobody was free to take it: there are fewer collectors than we thought.
    if (why == DropReason::kTimedOut) fewer_collectors();
    if (why == DropReason::kFailed) log::warning("collector task failed: {}", text);
  }

  bool collector_progress(const json::Value&, const json::Value& record) override {
    return outcome_ || record.bool_at({"collector_done"}).value_or(false);
  }

  bool learner_info(const json::Value&, const json::Value& info) override {
    state_.train_iter = std::max(state_.train_iter, info.int_at({"learner_step"}).value_or(0));
    return outcome_ || info.bool_at({"learner_done"}).value_or(false);
  }

  void worker_added(Role role) override {
    if (role == Role::kCollector && config_.collector_task_space == 0) ++collector_space_;
  }

  void worker_removed(Role role) override {
    if (role == Role::kCollector) fewer_collectors();
  }

  Status open_buffer(std::string_view buffer_id, const json::Value&) override {
    if (!is_plain_name(buffer_id)) {
      return make_status(Code::kInvalid, "'{}' is no name of a buffer", buffer_id);
    }
    buffers_.emplace(std::string(buffer_id),
                     Buffer{RecordBuffer({.capacity = config_.dqn.replay_buffer_size,
                                          .prioritised = config_.dqn.priority,
                                          .seed = static_cast<std::uint64_t>(config_.dqn.seed)})});
    return {};
  }

  void close_buffer(std::string_view buffer_id) override {
    if (const auto found = buffers_.find(buffer_id); found != buffers_.end()) buffers_.erase(found);
    if (is_plain_name(buffer_id)) {
      janitor_.remove_folder(fmt::format("{}/{}/{}", config_.path_data, job_, buffer_id));
    }
  }

  void push(std::string_view buffer_id, const json::Value& task, json::Value record) override {
    const auto buffer = buffers_.find(buffer_id);
    const std::string data_id(record.string_at({"data_id"}));
    if (!is_plain_name(data_id)) {
      return log::warning("a record of task({}) has a data_id that names no file",
                          task.string_at({"task_id"}));
    }
    if (buffer == buffers_.end()) return remove_data(buffer_id, data_id);
    const std::int64_t rows =
        std::clamp<std::int64_t>(record.int_at({"unroll_len"}).value_or(1), 1, kMostRows);
    count_steps(std::clamp<std::int64_t>(record.int_at({"env_step"}).value_or(rows), 0, kMostRows));
    buffer->second.inserted += rows;
    for (const std::string& left : buffer->second.records.push(std::move(record), rows)) {
      remove_data(buffer_id, left);
    }
  }

  std::optional<json::Array> sample(std::string_view buffer_id, std::int64_t count,
                                    std::int64_t) override {
    const auto found = buffers_.find(buffer_id);
    if (found == buffers_.end() || outcome_) return std::nullopt;
    Buffer& buffer = found->second;
    // A first batch must not be a handful of rows over and over.
    if (buffer.records.rows() < std::min<std::int64_t>(config_.dqn.replay_buffer_size,
                                                       std::int64_t{4} * config_.dqn.batch_size)) {
      return std::nullopt;
    }
    const double rows = static_cast<double>(pace_.updates) * config_.dqn.batch_size *
                        static_cast<double>(count) / static_cast<double>(pace_.records);
    const double limit = config_.dqn.samples_per_insert;
    if (limit > 0 && buffer.drawn + rows > limit * static_cast<double>(buffer.inserted)) {
      return std::nullopt;
    }
    buffer.drawn += rows;
    return buffer.records.sample(count);
  }

  void update(std::string_view buffer_id, const json::Value& priority_info) override {
    const auto found = buffers_.find(buffer_id);
    const json::Value* ids = priority_info.find("data_id");
    const json::Value* priorities = priority_info.find("priority");
    if (found == buffers_.end() || ids == nullptr || priorities == nullptr) return;
    if (ids->as_array() == nullptr || priorities->as_array() == nullptr) return;
    const std::size_t count = std::min(ids->as_array()->size(), priorities->as_array()->size());
    for (std::size_t i = 0; i < count; ++i) {
      const std::string* id = (*ids->as_array())[i].as_string();
      if (id == nullptr) continue;
      found->second.records.set_priority(*id, number_or(&(*priorities->as_array())[i], 1));
    }
  }

  std::optional<Status> outcome() const override { return outcome_; }

 private:
  static bool evaluates(const json::Value& task) {
    return task.bool_at({"collector_cfg", "eval_flag"}).value_or(false);
  }

  std::optional<json::Value> next_learner_task() {
    if (has_learner_) return std::nullopt;
    has_learner_ = true;
    learner_accepted_ = false;
    policy_id_ = dist::new_id("policy");
    buffer_id_ = dist::new_id("buffer");
    evaluated_iter_ = -1;
    return json::Object{
        {"task_id", dist::new_id("learner_task")},
        {"policy_id", policy_id_},
        {"buffer_id", buffer_id_},
        {"learner_cfg", json::Object{{"job", job_},
                                     {"checkpoint", "checkpoint_" + state_.run},
                                     {"train_iter", state_.train_iter}}},
        {"replay_buffer_cfg", json::Object{{"replay_buffer_size", config_.dqn.replay_buffer_size},
                                           {"priority", config_.dqn.priority}}},
        {"policy", json::Object{{"type", "dqn"}}}};
  }

  std::optional<json::Value> next_collector_task() {
    if (!has_learner_ || collectors_ >= collector_space_) return std::nullopt;
    const bool evaluation = evaluation_is_due();
    ++collectors_;
    if (evaluation) {
      has_evaluation_ = true;
      evaluation_began_ = now_();
    }
    // Two tasks between two evaluations, at least: then one is soon over.
    const double seconds = std::clamp(config_.eval_interval / 2, 0.25, 5.0);
    return json::Object{
        {"task_id", dist::new_id("collector_task")},
        {"buffer_id", buffer_id_},
        {"policy_id", policy_id_},
        {"collector_cfg",
         json::Object{{"job", job_},
                      {"policy_update_path", policy_id_},
                      {"eval_flag", evaluation},
                      {"env", json::Object{{"env_id", config_.dqn.env_name},
                                           {"collector_env_num", config_.dqn.collector_env_num},
                                           {"evaluator_env_num", config_.dqn.evaluator_env_num}}},
                      {"env_step", state_.env_step},
                      {"collectors", collector_space_},
                      {"collect_ms", static_cast<std::int64_t>(seconds * 1000)}}}};
  }

  bool evaluation_is_due() const {
    if (has_evaluation_ || !learner_accepted_) return false;
    if (state_.train_iter < evaluated_iter_ + config_.dqn.eval_freq) return false;
    const std::chrono::duration<double> since = now_() - evaluation_began_;
    return since.count() >= config_.eval_interval;
  }

  void fewer_collectors() {
    if (config_.collector_task_space == 0) collector_space_ = std::max(1, collector_space_ - 1);
  }

  void learner_over() {
    has_learner_ = false;
    learner_accepted_ = false;
    if (outcome_) return;  // the last policy of a job stays
    if (auto path = policy_path(config_.path_policy, job_, policy_id_)) {
      janitor_.remove_file(*std::move(path));
    }
  }

  void collector_over(const json::Value& task) {
    --collectors_;
    if (evaluates(task)) has_evaluation_ = false;
  }

  void evaluated(const json::Value& result) {
    const std::int64_t episodes = result.int_at({"real_episode_count"}).value_or(0);
    if (episodes < 1 || outcome_) return;
    const double mean = number_or(result.find("reward_mean"), 0);
    ++state_.evaluations;
    evaluated_iter_ = std::max(evaluated_iter_, result.int_at({"train_iter"}).value_or(0));
    state_.best = std::max(state_.best, mean);
    log::info("evaluation train_iter={} env_step={} episodes={} reward_mean={:.2f} stop_value={}",
              evaluated_iter_, state_.env_step, episodes, mean, config_.dqn.stop_value);
    save_state();
    if (mean >= config_.dqn.stop_value) outcome_ = Status();
  }

  void count_steps(std::int64_t steps) {
    state_.env_step += steps;
    if (outcome_) return;
    if (state_.env_step >= config_.dqn.max_env_step) {
      outcome_ = make_status(
          Code::kExpired, "the stop value {} was not reached within max_env_step={} (best: {})",
          config_.dqn.stop_value, config_.dqn.max_env_step,
          state_.evaluations > 0 ? fmt::format("{:.2f}", state_.best) : "no evaluation");
    } else if (now_() - saved_ >= kStateInterval) {
      save_state();
    }
  }

  void save_state() {
    saved_ = now_();
    janitor_.write_text(config_.path_policy + "/" + job_ + "/state.json",
                        json::print(to_json(state_)) + "\n");
  }

  void remove_data(std::string_view buffer_id, const std::string& data_id) {
    if (auto path = data_path(config_.path_data, job_, buffer_id, data_id)) {
      janitor_.remove_file(*std::move(path));
    }
  }

  const TrainConfig config_;
  const std::string job_;
  const std::function<Clock::time_point()> now_;
  const TaskPace pace_;
  JobState state_;
  std::optional<Status> outcome_;

  bool has_learner_ = false;  // a task is queued or runs
  bool learner_accepted_ = false;
  std::string policy_id_;
  std::string buffer_id_;

  int collector_space_;
  int collectors_ = 0;  // tasks that are queued or run
  bool has_evaluation_ = false;
  std::int64_t evaluated_iter_ = -1;
  Clock::time_point evaluation_began_{};
  Clock::time_point saved_{};

  std::map<std::string, Buffer, std::less<>> buffers_;
  Janitor janitor_;  // last: finishes its work before the rest goes
};

// What earlier jobs of this name have left.
void remove_leftovers(const std::string& folder) {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    const bool left =
        name.starts_with("policy_") || name.starts_with("checkpoint_") || name.starts_with(".tmp.");
    if (left) std::filesystem::remove(entry.path(), error);
  }
}

// The state to go on from: an earlier coordinator's of the same job, or a new one, on the disk.
Result<JobState> open_state(const std::string& path) {
  DIVISI_TRY(JobState state, read_state(path));
  if (is_plain_name(state.run)) return state;
  remove_leftovers(std::filesystem::path(path).parent_path().string());
  state.run = dist::new_uuid();
  if (Status status = make_folder_of(path); !status.ok()) return failure(std::move(status));
  try {
    write_file_atomically(path, json::print(to_json(state)) + "\n");
  } catch (const Error& error) {
    return failure(Code::kUnavailable, "{}", error.what());
  }
  return state;
}

}  // namespace

Result<std::shared_ptr<dist::Commander>> make_dqn_commander(DqnCommanderOptions options) {
  DIVISI_TRY(const std::string path,
             policy_path(options.config.path_policy, options.job, "state.json"));
  DIVISI_TRY(JobState state, open_state(path));
  // Data of a coordinator that is gone: nobody has its records any more.
  std::error_code error;
  std::filesystem::remove_all(options.config.path_data + "/" + options.job, error);
  return std::make_shared<DqnCommander>(std::move(options), std::move(state));
}

}  // namespace divisi::dist_rl
