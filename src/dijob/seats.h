// Seats: each replica that a job should have, and what has become of its pod.
#pragma once

#include "dijob/draft.h"
#include "dijob/pod.h"

#include <string>
#include <string_view>
#include <vector>

namespace divisi::dijob {

enum class Seat {
  kEmpty,      // there is no pod
  kLeaving,    // its pod is being deleted
  kActive,     // its pod waits, starts or runs
  kSucceeded,  // its pod has succeeded, or did before it was deleted
  kFailed,     // its pod has failed: the budget pays for another one
  kReplace,    // its pod ended in a way that costs nothing: rejected by the node, displaced
};

struct Seated {
  Slot slot{};
  std::string name{};  // of its pod
  const Task* task = nullptr;
  const Pod* pod = nullptr;  // null: none
  Seat seat = Seat::kEmpty;

  // Whether there is a pod that need not be made.
  bool taken() const noexcept {
    return seat == Seat::kActive || seat == Seat::kSucceeded || seat == Seat::kFailed;
  }
  bool ready() const noexcept {
    return seat == Seat::kSucceeded || (seat == Seat::kActive && pod->ready);
  }
};

struct Seating {
  std::vector<Seated> seats{};
  std::vector<const Pod*> surplus{};  // live pods that belong to no seat, or to it no longer
  std::vector<const Pod*> leaving{};  // all that are being deleted
};

// What the exit code of a failed pod means for the job.
ExitAction exit_action(const Job& job, const Task& task, const Pod& pod);

// The kubelet would not have the pod, or the cluster took it away: no fault of the program.
bool rejected(const Pod& pod);

// The names that status.succeeded has.
bool has_succeeded(const Draft& status, std::string_view pod);

}  // namespace divisi::dijob
