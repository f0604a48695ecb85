// What is shown of a run while it goes on.
#pragma once

#include "divisi/study.h"
#include "tune_run/study_plan.h"

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace divisi::tune_run {

// Tasks (tries) of this process in the order in which they came there, and trials of the study.
struct RunState {
  std::vector<std::uint64_t> defined{};
  std::vector<std::uint64_t> running{};
  std::vector<std::uint64_t> waiting{};
  std::vector<std::uint64_t> finished{};
  std::vector<std::uint64_t> success{};
  std::vector<std::uint64_t> abnormal{};
  std::vector<std::uint64_t> pruned{};
  std::uint64_t changes = 0;  // rises with each change of the above

  std::size_t trials_ok = 0;  // of the study, earlier runs included
  std::size_t trials_failed = 0;
  std::size_t trials_pruned = 0;
  std::optional<tune::TrialRecord> best{};
  std::chrono::steady_clock::time_point started = std::chrono::steady_clock::now();

  std::size_t trials_ended() const { return trials_ok + trials_failed + trials_pruned; }
};

// Shows a run. Called from the thread that runs it.
class RunView {
 public:
  virtual ~RunView() = default;
  // Something has changed.
  virtual void show(const RunState& state) = 0;
  // A line that stays: a trial that failed, an interrupt.
  virtual void note(const std::string& line) = 0;
  // A trial has ended.
  virtual void ended(const tune::TrialRecord& trial, const RunState& state) = 0;
  // When it wants to be shown again although nothing changed; nothing: never.
  virtual std::optional<std::chrono::steady_clock::time_point> next_refresh() const = 0;
  // The run is over.
  virtual void close(const RunState& state) = 0;
};

}  // namespace divisi::tune_run
