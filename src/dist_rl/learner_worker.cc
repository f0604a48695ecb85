#include "dist_rl/learner_worker.h"

#include "base/log.h"
#include "dist_rl/data_cache.h"
#include "dist_rl/handler_parts.h"
#include "dist_rl/pace.h"
#include "dist_rl/shared_files.h"
#include "rl/dqn.h"
#include "rl/env.h"
#include "rl/random.h"

#include <chrono>
#include <cmath>
#include <optional>
#include <vector>

namespace divisi::dist_rl {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kMostRecords = 100'000;  // of one learn task

struct LearnerTask {
  std::string task_id;
  std::string buffer_id;
  std::string job;
  std::string policy_file;
  std::string checkpoint_file;
};

// One record of a learn task, with its rows.
struct Piece {
  std::string data_id;
  json::Value replay_id;     // what DI-engine's replay buffer calls it; null from another master
  json::Value replay_place;  // the same
  std::shared_ptr<const rl::Transitions> data;
  std::int64_t first_row;  // in the pool of the task
  double error_sum = 0;
  std::int64_t drawn = 0;
};

class LearnerWorker final : public dist::TaskHandler {
 public:
  LearnerWorker(TrainConfig config, std::unique_ptr<ParameterGroup> group)
      : config_(std::move(config)),
        pace_(task_pace(config_.dqn)),
        group_(std::move(group)),
        random_(static_cast<std::uint64_t>(config_.dqn.seed) * 1000 +
                static_cast<std::uint64_t>(group_ ? group_->rank() : 0)) {
    const auto env = rl::make_env(config_.dqn.env_name, 1, 0);
    shape_ = {.observation_size = env->observation_size(),
              .action_count = env->action_count(),
              .hidden = config_.dqn.hidden,
              .dueling = config_.dqn.dueling};
  }

  dist::TaskOutcome run(const json::Value& data) override {
    const std::string_view name = data.string_at({"name"});
    if (name == "resource") return completed(json::Object{{"gpu", group_ ? group_->size() : 1}});
    if (name == "learner_start_task") return start(data);
    if (name == "learner_get_data_task") return task_ ? ask() : refused("no task has started");
    if (name == "learner_learn_task") return task_ ? learn(data) : refused("no task has started");
    if (name == "learner_close_task") return task_ ? close() : refused("no task has started");
    return unknown_task();
  }

  void stop() override {
    stop_.set();
    if (group_) group_->stop();
  }

  void master_gone() override {
    if (task_) save();
    task_.reset();
    learner_.reset();
    cache_.reset();
    stop_.clear();
    if (group_) group_->leave();
  }

 private:
  bool writes_files() const { return !group_ || group_->rank() == 0; }

  dist::TaskOutcome start(const json::Value& data) {
    const json::Value* info = data.find("task_info");
    if (info == nullptr) return refused("learner_start_task has no task_info");
    LearnerTask task;
    task.task_id = info->string_at({"task_id"});
    task.buffer_id = info->string_at({"buffer_id"});
    task.job = info->string_at({"learner_cfg", "job"});
    if (task.job.empty()) task.job = "job";
    if (!is_plain_name(task.buffer_id)) return refused("buffer_id is no name of a folder");
    const auto policy = policy_path(config_.path_policy, task.job, info->string_at({"policy_id"}));
    if (!policy) return refused(policy.error().message());
    task.policy_file = *policy;
    const std::string_view checkpoint = info->string_at({"learner_cfg", "checkpoint"});
    const auto saved =
        policy_path(config_.path_policy, task.job, checkpoint.empty() ? "checkpoint" : checkpoint);
    if (!saved) return refused(saved.error().message());
    task.checkpoint_file = *saved;
    task_ = std::make_unique<LearnerTask>(std::move(task));
    if (Status status = prepare(); !status.ok()) {
      task_.reset();
      return refused(status.message());
    }
    return completed(json::Object{{"message", "learner task has started"}});
  }

  Status prepare() {
    const auto& dqn = config_.dqn;
    learner_ = std::make_unique<rl::DqnLearner>(
        rl::DqnOptions{.shape = shape_,
                       .discount = dqn.discount,
                       .nstep = dqn.nstep,
                       .double_q = dqn.double_q,
                       .learning_rate = dqn.learning_rate,
                       .target_update_freq = dqn.target_update_freq},
        static_cast<std::uint64_t>(dqn.seed));
    cache_ = std::make_unique<DataCache>(dqn.replay_buffer_size, shape_.observation_size,
                                         shape_.action_count);
    DIVISI_TRY_STATUS(resume());
    if (group_) {
      DIVISI_TRY_STATUS(group_->join());
      DIVISI_TRY_STATUS(average());
    }
    saved_at_ = Clock::now();
    return publish();
  }

  Status resume() {
    auto checkpoint = read_checkpoint(task_->checkpoint_file);
    if (!checkpoint) {
      // Training from the start is better than a job that cannot begin.
      log::warning("{}; the learner begins at 0", checkpoint.error().message());
      return {};
    }
    const std::optional<Checkpoint>& found = *checkpoint;
    if (!found) return {};
    if (found->shape != shape_.to_string()) {
      return make_status(
          Code::kInvalid,
          "{}: a network {}, this job has {}: delete it, or take another path_policy",
          task_->checkpoint_file, found->shape, shape_.to_string());
    }
    try {
      learner_->load_full(found->state);
    } catch (const UsageError& error) {
      return make_status(Code::kInvalid, "{}: {}", task_->checkpoint_file, error.what());
    }
    log::info("learner goes on from {} train_iter={}", task_->checkpoint_file,
              learner_->train_iter());
    return {};
  }

  Status publish() {
    published_at_ = learner_->train_iter();
    if (!writes_files()) return {};
    return write_policy(task_->policy_file, learner_->train_iter(), learner_->network());
  }

  void save() {
    saved_at_ = Clock::now();
    if (!writes_files() || !learner_) return;
    const Status status =
        write_checkpoint(task_->checkpoint_file, {shape_.to_string(), learner_->full_state()});
    if (!status.ok()) log::warning("checkpoint: {}", status.message());
  }

  Status average() { return group_->average(learner_->network().parameters()); }

  json::Value ids() const {
    return json::Object{{"task_id", task_->task_id}, {"buffer_id", task_->buffer_id}};
  }

  dist::TaskOutcome ask() {
    json::Value result = ids();
    result["batch_size"] = pace_.records;
    result["cur_learner_iter"] = learner_->train_iter();
    return completed(std::move(result));
  }

  // The records whose files are there. A file that is damaged, or named badly, fails the task.
  Result<std::vector<Piece>> pieces_of(const json::Array& records) {
    std::vector<Piece> pieces;
    std::int64_t rows = 0;
    for (const json::Value& record : records) {
      const std::string_view data_id = record.string_at({"data_id"});
      DIVISI_TRY(const std::string path,
                 data_path(config_.path_data, task_->job, task_->buffer_id, data_id));
      DIVISI_TRY(auto data, cache_->get(path));
      if (!data || data->reward.shape.front() == 0) continue;
      const auto member = [&record](const char* key) {
        const json::Value* found = record.find(key);
        return found != nullptr ? *found : json::Value();
      };
      pieces.push_back({std::string(data_id), member("replay_unique_id"),
                        member("replay_buffer_idx"), data, rows});
      rows += data->reward.shape.front();
    }
    total_rows_ = rows;
    return pieces;
  }

  // Copies a random row of the pool into the batch.
  void draw_row(std::vector<Piece>& pieces, std::vector<std::size_t>& from) {
    const auto row =
        static_cast<std::int64_t>(random_.below(static_cast<std::uint32_t>(total_rows_)));
    const auto above = std::ranges::upper_bound(pieces, row, {}, &Piece::first_row);
    const auto index = static_cast<std::size_t>(above - pieces.begin()) - 1;
    const rl::Transitions& data = *pieces[index].data;
    const auto at = static_cast<std::size_t>(row - pieces[index].first_row);
    const auto width = static_cast<std::size_t>(shape_.observation_size);
    const auto copy_row = [&](const Tensor& tensor, std::vector<float>& to) {
      const auto part = tensor.view<float>().subspan(at * width, width);
      to.insert(to.end(), part.begin(), part.end());
    };
    copy_row(data.observation, batch_.observations);
    copy_row(data.next_observation, batch_.next_observations);
    batch_.actions.push_back(data.action.view<std::int32_t>()[at]);
    batch_.rewards.push_back(data.reward.view<float>()[at]);
    batch_.not_done.push_back(data.not_done.view<float>()[at]);
    batch_.discounts.push_back(data.discount.view<float>()[at]);
    ++batch_.size;
    from.push_back(index);
  }

  void update_once(std::vector<Piece>& pieces) {
    batch_.clear();
    std::vector<std::size_t> from;
    for (int row = 0; row < config_.dqn.batch_size; ++row) draw_row(pieces, from);
    const auto result = learner_->update(batch_);
    loss_ = result.loss;
    for (std::size_t i = 0; i < from.size(); ++i) {
      pieces[from[i]].error_sum += std::abs(static_cast<double>(result.td_errors[i]));
      ++pieces[from[i]].drawn;
    }
  }

  dist::TaskOutcome learn(const json::Value& data) {
    const json::Value* records = data.find("data");
    if (records == nullptr || records->as_array() == nullptr ||
        records->as_array()->size() > kMostRecords) {
      return refused("learner_learn_task has no list of records in 'data'");
    }
    auto pieces = pieces_of(*records->as_array());
    if (!pieces) return refused(pieces.error().message());
    // Files that are gone make the task shorter, in proportion.
    const int updates =
        records->as_array()->empty()
            ? 0
            : static_cast<int>(std::llround(static_cast<double>(pace_.updates) *
                                            static_cast<double>(pieces->size()) /
                                            static_cast<double>(records->as_array()->size())));
    for (int i = 0; i < updates && !stop_.is_set(); ++i) update_once(*pieces);
    if (group_) {
      if (Status status = average(); !status.ok()) return refused(status.message());
    }
    if (Status status = after_learning(); !status.ok()) return refused(status.message());
    return completed(learned(*pieces));
  }

  Status after_learning() {
    if (learner_->train_iter() - published_at_ >= config_.send_policy_freq) {
      DIVISI_TRY_STATUS(publish());
    }
    const std::chrono::duration<double> since = Clock::now() - saved_at_;
    if (since.count() >= config_.dqn.checkpoint_seconds) save();
    return {};
  }

  // Lists of one length; empty where priorities are not used.
  json::Value priorities_of(const std::vector<Piece>& pieces) const {
    if (!config_.dqn.priority) return json::Object{};
    json::Array data_ids;
    json::Array replay_ids;
    json::Array replay_places;
    json::Array priorities;
    for (const Piece& piece : pieces) {
      if (piece.drawn == 0) continue;
      data_ids.emplace_back(piece.data_id);
      if (piece.replay_id.as_string() != nullptr && piece.replay_place.as_int() != nullptr) {
        replay_ids.push_back(piece.replay_id);
        replay_places.push_back(piece.replay_place);
      }
      priorities.emplace_back(piece.error_sum / static_cast<double>(piece.drawn));
    }
    const bool named_by_buffer = replay_ids.size() == priorities.size();
    json::Value all =
        json::Object{{"data_id", std::move(data_ids)}, {"priority", std::move(priorities)}};
    if (named_by_buffer) {
      all["replay_unique_id"] = std::move(replay_ids);
      all["replay_buffer_idx"] = std::move(replay_places);
    }
    return all;
  }

  json::Value learned(const std::vector<Piece>& pieces) const {
    json::Value result = ids();
    result["info"] = json::Object{{"learner_step", learner_->train_iter()},
                                  {"learner_done", false},
                                  {"loss", loss_},
                                  {"priority_info", priorities_of(pieces)}};
    return result;
  }

  dist::TaskOutcome close() {
    save();
    json::Value result = ids();
    task_.reset();
    learner_.reset();
    cache_.reset();
    if (group_) group_->leave();
    return completed(std::move(result));
  }

  const TrainConfig config_;
  const TaskPace pace_;
  const std::unique_ptr<ParameterGroup> group_;
  rl::NetworkShape shape_;

  // Of the worker's thread.
  rl::Random random_;
  std::unique_ptr<LearnerTask> task_;
  std::unique_ptr<rl::DqnLearner> learner_;
  std::unique_ptr<DataCache> cache_;
  rl::TransitionBatch batch_;
  std::int64_t total_rows_ = 0;
  std::int64_t published_at_ = 0;
  double loss_ = 0;
  Clock::time_point saved_at_{};

  StopFlag stop_;
};

}  // namespace

std::shared_ptr<dist::TaskHandler> make_learner_worker(TrainConfig config,
                                                       std::unique_ptr<ParameterGroup> group) {
  return std::make_shared<LearnerWorker>(std::move(config), std::move(group));
}

}  // namespace divisi::dist_rl
