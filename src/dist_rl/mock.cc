#include "dist_rl/mock.h"

#include "dist/ids.h"
#include "dist_rl/handler_parts.h"

#include <algorithm>
#include <map>
#include <string>

namespace divisi::dist_rl {

namespace {

using dist::DropReason;
using dist::Role;

// One learner task, and collector tasks one after the other, until enough data has come.
class MockCommander final : public dist::Commander {
 public:
  explicit MockCommander(const MockOptions& options) : options_(options) {}

  std::optional<json::Value> next_task(Role role) override {
    if (is_done()) return std::nullopt;
    if (role == Role::kLearner) {
      if (has_learner_) return std::nullopt;
      has_learner_ = true;
      buffer_id_ = dist::new_id("buffer");
      return json::Object{{"task_id", dist::new_id("learner_task")},
                          {"policy_id", dist::new_id("policy")},
                          {"buffer_id", buffer_id_},
                          {"learner_cfg", json::Object{}},
                          {"replay_buffer_cfg", json::Object{}}};
    }
    if (!has_learner_ || has_collector_) return std::nullopt;
    has_collector_ = true;
    return json::Object{{"task_id", dist::new_id("collector_task")},
                        {"buffer_id", buffer_id_},
                        {"collector_cfg", json::Object{{"eval_flag", false}}}};
  }

  void accepted(Role, const json::Value&) override {}

  void finished(Role role, const json::Value&, const json::Value&) override { over(role); }

  void dropped(Role role, const json::Value&, DropReason, std::string_view) override { over(role); }

  bool collector_progress(const json::Value&, const json::Value& record) override {
    return record.bool_at({"collector_done"}).value_or(false);
  }
  bool learner_info(const json::Value&, const json::Value& info) override {
    return info.bool_at({"learner_done"}).value_or(false);
  }
  void worker_added(Role) override {}

  Status open_buffer(std::string_view buffer_id, const json::Value&) override {
    buffers_[std::string(buffer_id)];
    return {};
  }
  void close_buffer(std::string_view buffer_id) override { buffers_.erase(std::string(buffer_id)); }
  void push(std::string_view buffer_id, const json::Value&, json::Value record) override {
    json::Array& records = buffers_[std::string(buffer_id)];
    if (records.size() < kMostRecords) records.push_back(std::move(record));
    ++pushed_;
  }
  std::optional<json::Array> sample(std::string_view buffer_id, std::int64_t count,
                                    std::int64_t) override {
    const json::Array& records = buffers_[std::string(buffer_id)];
    if (records.empty()) return std::nullopt;
    json::Array drawn;
    for (std::int64_t i = 0; i < std::min<std::int64_t>(count, kMostRecords); ++i) {
      drawn.push_back(records[static_cast<std::size_t>(i) % records.size()]);
    }
    return drawn;
  }
  void update(std::string_view, const json::Value&) override {}

  std::optional<Status> outcome() const override {
    return is_done() ? std::optional(Status()) : std::nullopt;
  }

 private:
  static constexpr std::size_t kMostRecords = 1000;

  bool is_done() const { return pushed_ >= options_.data_records; }
  void over(Role role) { (role == Role::kLearner ? has_learner_ : has_collector_) = false; }

  const MockOptions options_;
  bool has_learner_ = false;
  bool has_collector_ = false;
  std::string buffer_id_;
  std::map<std::string, json::Array> buffers_;
  std::int64_t pushed_ = 0;
};

class MockWorker : public dist::TaskHandler {
 public:
  MockWorker(const MockOptions& options, int refusals, int refusal_ms)
      : task_(options.task_ms), refusal_(refusal_ms), refusals_(refusals) {}

  void stop() override { stop_.set(); }
  void master_gone() override { stop_.clear(); }

 protected:
  dist::TaskOutcome start(const json::Value& data, const char* message) {
    if (refusals_ > 0) {
      --refusals_;
      (void)stop_.wait_for(refusal_);
      return refused("not ready yet");
    }
    const json::Value* info = data.find("task_info");
    task_id_ = info == nullptr ? "" : info->string_at({"task_id"});
    buffer_id_ = info == nullptr ? "" : info->string_at({"buffer_id"});
    return completed(json::Object{{"message", message}});
  }

  json::Value with_ids(json::Value result) const {
    result["task_id"] = task_id_;
    result["buffer_id"] = buffer_id_;
    return result;
  }

  void work() { (void)stop_.wait_for(task_); }

 private:
  const std::chrono::milliseconds task_;
  const std::chrono::milliseconds refusal_;
  int refusals_;
  std::string task_id_;
  std::string buffer_id_;
  StopFlag stop_;
};

class MockCollector final : public MockWorker {
 public:
  explicit MockCollector(const MockOptions& options)
      : MockWorker(options, options.collector_refusals, options.collector_refusal_ms) {}

  dist::TaskOutcome run(const json::Value& data) override {
    const std::string_view name = data.string_at({"name"});
    if (name == "resource") return completed(json::Object{{"gpu", 1}, {"cpu", 20}});
    if (name == "collector_start_task") return start(data, "collector task has started");
    if (name == "collector_data_task") {
      work();
      ++records_;
      return completed(with_ids(json::Object{{"data_id", dist::new_uuid()},
                                             {"policy_iter", 0},
                                             {"env_id", "mock"},
                                             {"unroll_len", 1},
                                             {"priority", json::Value()},
                                             {"finished_task", false}}));
    }
    if (name == "collector_close_task") {
      return completed(with_ids(json::Object{{"eval_flag", false},
                                             {"train_iter", 0},
                                             {"real_episode_count", records_},
                                             {"step_count", records_},
                                             {"reward_mean", 0.0}}));
    }
    return unknown_task();
  }

 private:
  std::int64_t records_ = 0;
};

class MockLearner final : public MockWorker {
 public:
  explicit MockLearner(const MockOptions& options)
      : MockWorker(options, options.learner_refusals, options.learner_refusal_ms) {}

  dist::TaskOutcome run(const json::Value& data) override {
    const std::string_view name = data.string_at({"name"});
    if (name == "resource") return completed(json::Object{{"gpu", 1}});
    if (name == "learner_start_task") return start(data, "learner task has started");
    if (name == "learner_get_data_task") {
      return completed(with_ids(json::Object{{"batch_size", 2}, {"cur_learner_iter", steps_}}));
    }
    if (name == "learner_learn_task") {
      work();
      ++steps_;
      return completed(
          with_ids(json::Object{{"info", json::Object{{"learner_step", steps_},
                                                      {"priority_info", json::Object{}},
                                                      {"learner_done", false}}}}));
    }
    if (name == "learner_close_task") return completed(with_ids(json::Object{}));
    return unknown_task();
  }

 private:
  std::int64_t steps_ = 0;
};

}  // namespace

std::shared_ptr<dist::Commander> make_mock_commander(const MockOptions& options) {
  return std::make_shared<MockCommander>(options);
}

std::shared_ptr<dist::TaskHandler> make_mock_collector(const MockOptions& options) {
  return std::make_shared<MockCollector>(options);
}

std::shared_ptr<dist::TaskHandler> make_mock_learner(const MockOptions& options) {
  return std::make_shared<MockLearner>(options);
}

}  // namespace divisi::dist_rl
