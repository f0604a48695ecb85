// The template form: all workers are one gang, which starts anew as a whole.
#include "dijob/planner.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace divisi::dijob {

using namespace phases;

void Planner::plan_template() {
  tell_edits("");
  if (job_.suspended) return suspend();
  if (status_.holds("Suspended")) {
    status_.set_condition("Suspended", false, "JobResumed", "job was resumed.");
  }
  step_template();
  const auto ready =
      std::ranges::count_if(seen_.pods, [](const Pod& pod) { return pod.live() && pod.ready; });
  if (!status_.terminal()) status_->ready_replicas = static_cast<int>(ready);
}

void Planner::step_template() {
  const Gang gang = seat_gang();
  const auto& seats = seating_.seats;
  if (status_.phase() == kRestarting) return leave_generation();
  if (gang.whole && gang.want > 0 && std::ranges::all_of(seats, [](const Seated& seat) {
        return seat.seat == Seat::kSucceeded;
      })) {
    return succeed();
  }
  if (const Failed bad = failed(); !bad.empty()) {
    if (must_fail_at_once()) return;
    return restart_or_fail(bad);
  }
  if (status_.phase() == kPending) return pending_gang(gang);
  if (!gang.whole) {
    return restart_gang(
        gang.live != gang.want
            ? fmt::format(
                  "job is restarting since the created pods {} are not matched replicas {}.",
                  gang.live, gang.want)
            : "job is restarting since conditions changed.");
  }
  if (status_.phase() == kStarting &&
      std::ranges::all_of(seats, [](const Seated& seat) { return seat.ready(); })) {
    status_.enter(kRunning, "job is running since all pods are ready.");
    tell("Normal", "JobRunning", "job is running since all replicas are ready.");
  }
}

Planner::Gang Planner::seat_gang() {
  if (job_.preemptible) status_->replicas = static_cast<int>(allocation().size());
  const Task& task = job_.tasks.front();
  Gang gang{.want = status_->replicas.value_or(0)};
  roster_ = {};
  seating_ = {};
  for (int rank = 0; rank < gang.want; ++rank) {
    const Slot slot{task.name, rank, rank};
    roster_.slots.push_back(slot);
    roster_.all.push_back(slot);
    seating_.seats.push_back({.slot = slot,
                              .name = pod_name(job_, slot, status_->generation.value_or(0)),
                              .task = &task});
  }
  for (const Pod& pod : seen_.pods) {
    if (pod.terminating) {
      seating_.leaving.push_back(&pod);
      continue;
    }
    ++gang.live;
    const auto seat = std::ranges::find(seating_.seats, pod.name, &Seated::name);
    if (seat == seating_.seats.end()) {
      gang.mismatch = true;
      continue;
    }
    seat->pod = &pod;
    seat->seat = seat_of_gang(task, pod);
    gang.mismatch |= pod.replicas.value_or(gang.want) != gang.want;
    if (job_.preemptible && status_->allocation) gang.mismatch |= pod.placed_on != node_of(*seat);
  }
  gang.whole = !gang.mismatch && std::ranges::all_of(seating_.seats, &Seated::taken);
  return gang;
}

Seat Planner::seat_of_gang(const Task& task, const Pod& pod) const {
  const std::string_view outcome = pod.outcome();
  if (outcome == "Succeeded") return Seat::kSucceeded;
  if (outcome != "Failed" && outcome != "Unknown") return Seat::kActive;
  const bool costs_nothing = rejected(pod) || (job_.preemptible && pod.exit_143) ||
                             exit_action(job_, task, pod) == ExitAction::kIgnore;
  return costs_nothing ? Seat::kReplace : Seat::kFailed;
}

// Once the former gang is gone, the next is made.
void Planner::leave_generation() {
  bool left = false;
  for (const Pod& pod : seen_.pods) {
    // Of the new gang already: another operator has gone on, and this view of the job is old.
    if (pod.generation == status_->generation.value_or(0)) continue;
    left = true;
    if (pod.live()) remove(pod);
  }
  if (!left) status_.enter(kPending, "job is pending since job restarted.");
}

void Planner::pending_gang(const Gang& gang) {
  const bool refused = std::ranges::any_of(
      seating_.seats, [](const Seated& seat) { return seat.seat == Seat::kReplace; });
  if (gang.mismatch || refused) {
    return restart_gang("job is restarting since conditions changed.");
  }
  if (gang.want > 0 && gang.whole) {
    failures_.forget(kCreates);
    status_.enter(kStarting, "job is starting since all pods are created.");
    tell("Normal", "JobStarting", "job is starting since all replicas are created.");
    if (!status_->start_time) status_->start_time = seen_.now;
    return;
  }
  // A job that was suspended meanwhile may still have pods of the former gang.
  if (seating_.leaving.empty()) create_gang(gang.want);
}

void Planner::create_gang(int want) {
  if (want == 0) return;
  for (const Seated& seat : seating_.seats) {
    if (const auto left = failures_.wait(failure_key(seat), seen_.now)) {
      look_again(*left);
      return;
    }
  }
  for (const Seated& seat : seating_.seats) {
    if (seat.seat == Seat::kEmpty) create(seat);
  }
}

// Every pod goes; the next ones carry the next generation in their names.
void Planner::restart_gang(std::string message) {
  const int generation = status_->generation.value_or(0) + 1;
  status_->generation = generation;
  status_->restarts = generation;
  for (const Seated& seat : seating_.seats) {
    if (seat.seat != Seat::kReplace) continue;
    failures_.enter(failure_key(seat), seat.pod->uid, seat.pod, seen_.now);
  }
  tell("Warning", "JobRestarting", "job is restarting since conditions changed.");
  status_.enter(kRestarting, std::move(message));
}

}  // namespace divisi::dijob
