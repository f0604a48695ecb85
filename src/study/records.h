// A study as its changes made it.
#pragma once

#include "base/status.h"
#include "study/change.h"
#include "study/worker_identity.h"

#include <array>
#include <map>

namespace divisi::tune {

class Records {
 public:
  struct Worker {
    WorkerIdentity identity;
    double joined = 0;
    double seen = 0;
    bool left = false;
  };

  explicit Records(std::string space) : spaces_{std::move(space)} {}

  // Takes over a change. Fails, and stays as it was, when it does not fit what came before: the log
  // is damaged, or the caller is wrong.
  Status apply(const Change& change);
  // Whether a change would fit.
  Status check(const Change& change) const;
  // Whether the trial that a change makes or ends was made, or has ended; true for other changes.
  bool has(const Change& change) const noexcept;

  const std::vector<TrialRecord>& trials() const noexcept { return trials_; }  // by id, from 1
  const TrialRecord* find(std::uint64_t id) const noexcept;
  const std::map<std::uint64_t, Worker>& workers() const noexcept { return workers_; }
  std::uint64_t last_change() const noexcept { return last_change_; }

  // What was searched, by version; the last one is that of today.
  const std::vector<std::string>& spaces() const noexcept { return spaces_; }
  // Which version a trial belongs to.
  std::size_t space_of(std::uint64_t id) const noexcept;

  // The best successful trial by its first value, of equal ones the earlier; null if there is none.
  // Feasible ones come first, NaN last. Does not look at all trials.
  const TrialRecord* best(bool maximize) const noexcept { return find(best_[maximize ? 1 : 0]); }

  // Trials without an end, by id; few.
  const std::map<std::uint64_t, TrialStage>& open() const noexcept { return open_; }

 private:
  TrialRecord& at(std::uint64_t id) { return trials_[static_cast<std::size_t>(id - 1)]; }
  void add_trial(const Change& change);
  void finish(TrialRecord& trial, const Change& change);
  void compare_with_best(const TrialRecord& trial);
  void apply_to_trial(const Change& change);
  Status check_trial(const Change& change) const;

  std::vector<TrialRecord> trials_;
  std::map<std::uint64_t, TrialStage> open_;
  std::array<std::uint64_t, 2> best_{};  // ids, or 0: with the smallest value, with the largest
  std::map<std::uint64_t, Worker> workers_;
  std::vector<std::string> spaces_;
  std::vector<std::uint64_t> first_of_space_{1};  // for each version, the first trial's id
  std::uint64_t last_change_ = 0;
};

}  // namespace divisi::tune
