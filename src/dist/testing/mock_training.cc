#include "dist/testing/mock_training.h"

#include "dist/ids.h"

#include <fmt/format.h>

#include <utility>

namespace divisi::dist::testing {
namespace {

TaskOutcome completed(json::Value result) {
  return {true, std::move(result)};
}
TaskOutcome failed_with(std::string message) {
  return {false, json::Object{{"message", std::move(message)}}};
}

}  // namespace

std::optional<json::Value> MockCommander::next_task(Role role) {
  if (outcome_) return std::nullopt;
  if (role == Role::kLearner) {
    if (learners_ > 0) return std::nullopt;
    ++learners_;
    ++learners_made;
    buffer = new_id("buffer");
    return json::Object{{"task_id", new_id("learner_task")},
                        {"policy_id", new_id("policy")},
                        {"buffer_id", buffer},
                        {"learner_cfg", json::Object{}},
                        {"replay_buffer_cfg", json::Object{}}};
  }
  if (collectors_ >= options_.collector_space + added - removed || buffer.empty())
    return std::nullopt;
  ++collectors_;
  ++collectors_made;
  return json::Object{{"task_id", new_id("collector_task")},
                      {"buffer_id", buffer},
                      {"collector_cfg", json::Object{{"eval_flag", false}}}};
}

void MockCommander::accepted(Role, const json::Value&) {}

void MockCommander::finished(Role role, const json::Value&, const json::Value&) {
  ++ended;
  if (role == Role::kLearner) {
    --learners_;
    outcome_ = Status();
    return;
  }
  --collectors_;
  ++collectors_finished;
}

void MockCommander::dropped(Role role, const json::Value&, DropReason why, std::string_view) {
  ++ended;
  drops.push_back(why);
  if (role == Role::kCollector) {
    --collectors_;
    return;
  }
  --learners_;
  if (why != DropReason::kStopped && ++dropped_learners_ >= options_.dropped_learners) {
    outcome_ = Status(Code::kUnavailable, "the learner task was dropped too often");
  }
}

bool MockCommander::collector_progress(const json::Value&, const json::Value& record) {
  return record.bool_at({"collector_done"}).value_or(false);
}

bool MockCommander::learner_info(const json::Value&, const json::Value& info) {
  return info.bool_at({"learner_done"}).value_or(false);
}

void MockCommander::worker_added(Role role) {
  if (role == Role::kCollector) ++added;
}

void MockCommander::worker_removed(Role role) {
  if (role == Role::kCollector) ++removed;
}

Status MockCommander::open_buffer(std::string_view buffer_id, const json::Value&) {
  buffers_.emplace(std::string(buffer_id), std::deque<json::Value>());
  return {};
}

void MockCommander::close_buffer(std::string_view buffer_id) {
  if (const auto found = buffers_.find(buffer_id); found != buffers_.end()) buffers_.erase(found);
}

void MockCommander::push(std::string_view buffer_id, const json::Value&, json::Value record) {
  ++pushed;
  buffers_.find(buffer_id)->second.push_back(std::move(record));
}

std::optional<json::Array> MockCommander::sample(std::string_view buffer_id, std::int64_t count,
                                                 std::int64_t) {
  const auto found = buffers_.find(buffer_id);
  if (found == buffers_.end()) return std::nullopt;
  std::deque<json::Value>& records = found->second;
  if (records.size() < static_cast<std::size_t>(count)) return std::nullopt;
  json::Array batch(records.begin(), records.begin() + count);
  records.erase(records.begin(), records.begin() + count);
  return batch;
}

void MockCommander::update(std::string_view, const json::Value&) {
  ++updates;
}

TaskOutcome MockCollector::run(const json::Value& data) {
  const std::string_view name = data.string_at({"name"});
  if (name == "resource") return completed(json::Object{{"gpu", 1}, {"cpu", 20}});
  if (name == "collector_start_task") {
    const json::Value* info = data.find("task_info");
    if (info == nullptr || info->string_at({"task_id"}).empty()) return failed_with("no task_info");
    task_ = *info;
    sent_ = 0;
    return completed(json::Object{{"message", "collector task has started"}});
  }
  if (name == "collector_data_task") return this->data();
  if (name == "collector_close_task") {
    json::Value info = json::Object{{"eval_flag", false}, {"step_count", sent_}};
    info["task_id"] = task_.string_at({"task_id"});
    task_ = {};
    return completed(std::move(info));
  }
  return unknown_task();
}

TaskOutcome MockCollector::data() {
  if (task_.is_null()) return failed_with("no task was started");
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return stopped_ || !held_; });
    if (stopped_) return failed_with("stopped");
  }
  json::Value record = json::Object{{"task_id", task_.string_at({"task_id"})},
                                    {"buffer_id", task_.string_at({"buffer_id"})}};
  if (sent_ >= records_) {
    record["collector_done"] = true;
    record["cur_sample"] = sent_;
    return completed(std::move(record));
  }
  record["data_id"] = new_uuid();
  record["policy_iter"] = 0;
  ++sent_;
  return completed(std::move(record));
}

void MockCollector::stop() {
  const std::scoped_lock lock(mutex_);
  stopped_ = true;
  changed_.notify_all();
}

void MockCollector::master_gone() {
  const std::scoped_lock lock(mutex_);
  stopped_ = false;
  task_ = {};
}

void MockCollector::hold_data() {
  const std::scoped_lock lock(mutex_);
  held_ = true;
}

TaskOutcome MockLearner::run(const json::Value& data) {
  const std::string_view name = data.string_at({"name"});
  if (name == "resource") return completed(json::Object{{"gpu", 1}});
  if (name == "learner_start_task") {
    const json::Value* info = data.find("task_info");
    if (info == nullptr || info->string_at({"task_id"}).empty()) return failed_with("no task_info");
    task_ = *info;
    step_ = 0;
    return completed(json::Object{{"message", "learner task has started"}});
  }
  if (task_.is_null()) return failed_with("no task was started");
  json::Value answer = json::Object{{"task_id", task_.string_at({"task_id"})},
                                    {"buffer_id", task_.string_at({"buffer_id"})}};
  if (name == "learner_get_data_task") {
    answer["batch_size"] = batch_;
    answer["cur_learner_iter"] = step_;
    return completed(std::move(answer));
  }
  if (name == "learner_learn_task") return learn(data);
  if (name == "learner_close_task") {
    task_ = {};
    return completed(std::move(answer));
  }
  return unknown_task();
}

TaskOutcome MockLearner::learn(const json::Value& data) {
  const json::Value* records = data.find("data");
  if (records == nullptr || records->as_array() == nullptr ||
      records->as_array()->size() != static_cast<std::size_t>(batch_)) {
    return failed_with(fmt::format("learner_learn_task wants {} records", batch_));
  }
  json::Array ids;
  for (const json::Value& each : *records->as_array()) ids.push_back(each.string_at({"data_id"}));
  ++step_;
  json::Value info = json::Object{{"learner_step", step_},
                                  {"priority_info", json::Object{{"data_id", std::move(ids)}}},
                                  {"learner_done", step_ >= iterations_}};
  return completed(json::Object{{"info", std::move(info)},
                                {"task_id", task_.string_at({"task_id"})},
                                {"buffer_id", task_.string_at({"buffer_id"})}});
}

}  // namespace divisi::dist::testing
