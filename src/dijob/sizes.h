// Sizes: how many replicas a job wants of the task that spec.replicas means.
//
// That number has two names in the spec: spec.replicas, which `kubectl scale` and di-server write,
// and the replicas of the task. The status keeps what both were when the size was chosen last:
// whichever has changed since is the newer wish, the task's if both have, and a number that did
// not change is none.
#pragma once

#include "dijob/job.h"
#include "dijob/pod.h"

#include <optional>

namespace divisi::dijob {

// status.sizes
struct Sizes {
  std::optional<int> spec{};  // spec.replicas as it was
  std::optional<int> task{};  // tasks[].replicas as it was
  int size = 0;               // what was chosen

  friend bool operator==(const Sizes&, const Sizes&) = default;
};
std::optional<Sizes> read_sizes(const json::Value& sizes);
json::Value to_json(const Sizes& sizes);

struct SizeChoice {
  int size = 0;
  Status refused{};  // why spec.replicas does not count: a job of that size cannot run
};

// For a tasks form with a task that spec.replicas means. `agreed`: the task's number is known to be
// older than spec.replicas, though nothing was written of either. A wish of spec.replicas that
// cannot run is left out for the size before; one that can frees a job whose task's number cannot.
SizeChoice choose_size(const Job& job, const std::optional<Sizes>& last, bool agreed,
                       const ClusterNames& names);

// The size that was chosen, as long as neither number has changed since.
void use_chosen_size(Job& job, const json::Value& object);

// Whether somebody else keeps spec.tasks as a file says, by `kubectl apply`: nothing is written
// into such a spec. Of objects of a cache that mark_applied() has changed, or as the server gives
// them.
bool is_applied(const json::Value& object);
// Before managedFields and the annotation of kubectl are taken away.
void mark_applied(json::Value& object);

}  // namespace divisi::dijob
