// A training that learns nothing: a commander, a collector and a learner with the messages of a
// real one. For tests, and for the programs of tests/dist.
#pragma once

#include "dist/commander.h"
#include "dist/task_handler.h"

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace divisi::dist::testing {

// One learner task, and as many collector tasks at a time as there is space. Training is done when
// a learner task has finished; it fails when the learner tasks were dropped too often.
class MockCommander final : public Commander {
 public:
  struct Options {
    int collector_space = 1;
    int batch = 4;
    int dropped_learners = 3;
  };
  explicit MockCommander(Options options) : options_(options) {}

  std::optional<json::Value> next_task(Role role) override;
  void accepted(Role role, const json::Value& task) override;
  void finished(Role role, const json::Value& task, const json::Value& result) override;
  void dropped(Role role, const json::Value& task, DropReason why, std::string_view text) override;
  bool collector_progress(const json::Value& task, const json::Value& record) override;
  bool learner_info(const json::Value& task, const json::Value& info) override;
  void worker_added(Role role) override;
  void worker_removed(Role role) override;
  Status open_buffer(std::string_view buffer_id, const json::Value& learner_task) override;
  void close_buffer(std::string_view buffer_id) override;
  void push(std::string_view buffer_id, const json::Value& task, json::Value record) override;
  std::optional<json::Array> sample(std::string_view buffer_id, std::int64_t count,
                                    std::int64_t iter) override;
  void update(std::string_view buffer_id, const json::Value& priority_info) override;
  std::optional<Status> outcome() const override { return outcome_; }

  // What happened, for tests; on the coordinator's loop.
  int learners_made = 0;
  int collectors_made = 0;
  int collectors_finished = 0;
  int ended = 0;  // finished() and dropped()
  std::vector<DropReason> drops{};
  int pushed = 0;
  int updates = 0;
  int added = 0;
  int removed = 0;
  std::string buffer{};  // of the newest learner task

 private:
  const Options options_;
  int learners_ = 0;    // tasks that have not ended
  int collectors_ = 0;  // tasks that have not ended
  int dropped_learners_ = 0;
  std::map<std::string, std::deque<json::Value>, std::less<>> buffers_;
  std::optional<Status> outcome_;
};

// Gives out records as fast as they are asked for, each task `records` of them.
class MockCollector final : public TaskHandler {
 public:
  explicit MockCollector(int records) : records_(records) {}
  TaskOutcome run(const json::Value& data) override;
  void stop() override;
  void master_gone() override;

  // From now on collector_data_task waits until stop(): a collector that produces nothing.
  void hold_data();

 private:
  TaskOutcome data();

  const int records_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool held_ = false;     // guarded by mutex_
  bool stopped_ = false;  // guarded by mutex_
  json::Value task_{};    // of the worker thread, as the rest
  int sent_ = 0;
};

// Wants `iterations` batches of `batch` records, then is done.
class MockLearner final : public TaskHandler {
 public:
  MockLearner(int iterations, int batch) : iterations_(iterations), batch_(batch) {}
  TaskOutcome run(const json::Value& data) override;
  void master_gone() override { task_ = {}; }

 private:
  TaskOutcome learn(const json::Value& data);

  const int iterations_;
  const int batch_;
  json::Value task_{};
  int step_ = 0;
};

}  // namespace divisi::dist::testing
