// Jobs that are over: how they become so, and what is left of them.
#include "dijob/planner.h"

#include <utility>

namespace divisi::dijob {

using namespace phases;

void Planner::succeed() {
  status_.enter(kSucceeded, "job succeeded since all the replicas are succeeded.");
  tell("Normal", "JobSucceeded", "job is succeeded since all the replicas are succeeded.");
  status_->ready_replicas = 0;
  status_->task_status.clear();
  status_->completion_time = seen_.now;
}

void Planner::fail(std::string message, bool by_pods) {
  tell("Warning", "JobFailed", by_pods ? "job is failed since some replicas are failed." : message);
  status_.enter(kFailed, std::move(message));
  status_->ready_replicas = 0;
  status_->task_status.clear();
  status_->completion_time = seen_.now;
}

// Services always go, pods by the policy, the job itself when it was kept long enough. The status
// stays as it is, but for the edit it has seen: what is over is over.
Plan Planner::clean() {
  const auto generation = seen_.object.int_at({"metadata", "generation"}).value_or(0);
  if (status_->observed_generation.value_or(generation) != generation) {
    status_->observed_generation = generation;
    out_.status = status_.value();
    out_.told = Told::kCounts;
  }
  for (const std::string& service : seen_.services)
    out_.actions.emplace_back(DeleteService{service});
  for (const Pod& pod : seen_.pods) {
    if (!pod.live() || job_.clean_pods == CleanPods::kNone) continue;
    if (job_.clean_pods == CleanPods::kAll || pod.is_cleaned()) remove(pod);
  }
  force_stuck();
  expire();
  return std::move(out_);
}

void Planner::expire() {
  const std::optional<WallTime> ended = status_->completion_time;
  if (!job_.keep_finished || !ended) return;
  const auto left = *ended + *job_.keep_finished - seen_.now;
  if (left.count() <= 0) {
    out_.actions.emplace_back(DeleteJob{});
  } else {
    look_again(std::chrono::ceil<std::chrono::milliseconds>(left));
  }
}

}  // namespace divisi::dijob
