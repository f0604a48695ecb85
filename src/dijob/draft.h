// Draft: the status of a job while a plan changes it.
//
// It starts as what the object has and keeps what others wrote (allocation, profilings). Phases,
// conditions and counters change together, so that one write carries all of them.
#pragma once

#include "json/value.h"

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace divisi::dijob {

using WallTime = std::chrono::system_clock::time_point;

namespace phases {
inline constexpr std::string_view kPending = "Pending";
inline constexpr std::string_view kStarting = "Starting";
inline constexpr std::string_view kRunning = "Running";
inline constexpr std::string_view kRestarting = "Restarting";
inline constexpr std::string_view kRescheduling = "Rescheduling";
inline constexpr std::string_view kSucceeded = "Succeeded";
inline constexpr std::string_view kFailed = "Failed";
}  // namespace phases

class Draft {
 public:
  Draft(const json::Value& object, WallTime now);

  std::string_view phase() const { return value_.string_at({"phase"}); }
  bool terminal() const { return phase() == phases::kSucceeded || phase() == phases::kFailed; }

  // Appends the condition of that phase and makes those of the other phases False. Nothing when
  // the job is in that phase already.
  void enter(std::string_view phase, std::string message);

  // A condition that is none of a phase. Its message follows; its time changes with its status
  // only.
  void set_condition(std::string_view type, bool holds, std::string_view reason,
                     std::string message);
  // Whether there is such a condition with status True.
  bool holds(std::string_view type) const;

  int number(std::string_view field) const;
  void set_number(std::string_view field, int number) { value_[field] = number; }
  std::optional<WallTime> time(std::string_view field) const;
  void set_time(std::string_view field, WallTime when);

  json::Value& operator[](std::string_view field) { return value_[field]; }
  const json::Value* find(std::string_view field) const { return value_.find(field); }
  void erase(std::string_view field) { value_.erase(field); }

  const json::Value& value() const { return value_; }
  std::string now() const;

  // Whether it says something else than the object; whether more than counts of pods.
  bool differs() const;
  bool differs_in_more_than_counts() const;

 private:
  json::Array& conditions();
  json::Value* find_condition(std::string_view type);

  const json::Value before_;
  json::Value value_;
  const WallTime now_;
  const std::int64_t generation_;
};

}  // namespace divisi::dijob
