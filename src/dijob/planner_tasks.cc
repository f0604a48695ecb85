// The tasks form: every replica is replaced by itself, its peers go on.
#include "dijob/names.h"
#include "dijob/planner.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <ranges>
#include <utility>

namespace divisi::dijob {

using namespace phases;

void Planner::plan_tasks() {
  const auto refused = refuse_edits(job_, ranks_record());
  tell_edits(
      refused.empty() ? "" : fmt::format("{}: make a new job for that", fmt::join(refused, "; ")));
  roster_ = make_roster(job_, ranks_record(), seen_.pods);
  status_->ranks = roster_.record;
  read_seats();
  if (job_.suspended) {
    suspend();
    return count_pods();
  }
  if (status_.holds("Suspended")) {
    status_.set_condition("Suspended", false, "JobResumed", "job was resumed.");
  }
  step_tasks();
  if (!status_.terminal()) count_pods();
}

const json::Value* Planner::ranks_record() const {
  return status_->ranks.is_null() ? nullptr : &status_->ranks;
}

void Planner::read_seats() {
  if (job_.preemptible) place_by_allocation();
  const int want = static_cast<int>(roster_.slots.size());
  for (const Slot& slot : roster_.slots) {
    Seated seat{.slot = slot, .name = pod_name(job_, slot, 0), .task = job_.find_task(slot.task)};
    if (has_succeeded(status_, seat.name)) seat.seat = Seat::kSucceeded;
    seating_.seats.push_back(std::move(seat));
  }
  for (const Pod& pod : seen_.pods) {
    if (pod.terminating) seating_.leaving.push_back(&pod);
    if (!pod.has_slot) continue;  // nobody knows what it is: it is left alone
    const auto seat = std::ranges::find_if(seating_.seats, [&](const Seated& each) {
      return each.slot.task == pod.slot.task && each.slot.index == pod.slot.index;
    });
    const bool free = seat != seating_.seats.end() && seat->pod == nullptr;
    if (pod.terminating) {
      if (free && seat->seat != Seat::kSucceeded) {
        seat->pod = &pod;
        seat->seat = Seat::kLeaving;
      }
      continue;
    }
    const bool retaken = seat != seating_.seats.end() && seat->seat == Seat::kLeaving;
    const bool misplaced = job_.preemptible && seat != seating_.seats.end() &&
                           (pod.replicas.value_or(want) != want || pod.placed_on != node_of(*seat));
    if ((!free && !retaken) || misplaced) {
      seating_.surplus.push_back(&pod);
      continue;
    }
    seat->pod = &pod;
    seat->seat = seat_of(*seat->task, pod);
    // A cache that shows it alive is older than what was written down.
    if (seat->seat == Seat::kActive && failures_.known(seat->name, pod.uid)) {
      seat->seat = status_.phase() == kRescheduling ? Seat::kReplace : Seat::kFailed;
    }
  }
}

Seat Planner::seat_of(const Task& task, const Pod& pod) const {
  const std::string_view outcome = pod.outcome();
  if (outcome == "Succeeded") {
    return task.restart == Restart::kAlways ? Seat::kReplace : Seat::kSucceeded;
  }
  if (outcome != "Failed" && outcome != "Unknown") return Seat::kActive;
  const bool displaced = job_.preemptible && pod.exit_143;
  const bool free = exit_action(job_, task, pod) == ExitAction::kIgnore;
  return rejected(pod) || displaced || free ? Seat::kReplace : Seat::kFailed;
}

// Only what the allocator has found a node for.
void Planner::place_by_allocation() {
  std::erase_if(roster_.slots, [&](const Slot& slot) {
    const auto rank = static_cast<std::size_t>(slot.rank);
    return rank >= allocation().size() || allocation()[rank].empty();
  });
}

void Planner::step_tasks() {
  if (seating_.seats.empty()) {
    if (status_.phase() != kPending) drop_surplus();
    if (seen_.pods.empty()) {
      status_.enter(kPending, "job is pending since no replicas assigned.");
    } else if (status_.phase() == kStarting || status_.phase() == kRunning) {
      reschedule("job is rescheduling since replicas or allocation changed.");
    }
    return;
  }
  if (must_fail_at_once()) return;
  if (status_.phase() == kPending) return pending_tasks();
  if (complete()) return succeed();
  if (status_.phase() == kRestarting) return restarting();
  if (status_.phase() == kRescheduling) return rescheduling();
  settled_tasks();
}

void Planner::pending_tasks() {
  if (const Failed bad = failed(); !bad.empty()) {
    return bad.charged() ? restart_or_fail(bad) : restart_free(bad);
  }
  drop_surplus();
  if (!all_taken()) return fill_seats(false);
  failures_.forget(kCreates);
  status_.enter(kStarting, "job is starting since all pods are created.");
  tell("Normal", "JobStarting", "job is starting since all replicas are created.");
  if (!status_->start_time) status_->start_time = seen_.now;
}

// Starting and Running.
void Planner::settled_tasks() {
  if (const Failed bad = failed(); !bad.empty()) {
    return bad.charged() ? restart_or_fail(bad) : restart_free(bad);
  }
  if (!all_taken() || !seating_.surplus.empty()) {
    if (status_.phase() == kStarting) {
      return reschedule("job is rescheduling since replicas or allocation changed.");
    }
    return reschedule(
        fmt::format("job is rescheduling since replicas changed, replicas: {}, allocation: [{}].",
                    seating_.seats.size(), fmt::join(allocation(), " ")));
  }
  fill_seats(false);  // of tasks whose turn has come
  if (status_.phase() == kStarting && ready_enough()) {
    status_.enter(kRunning, "job is running since all pods are ready.");
    tell("Normal", "JobRunning", "job is running since all replicas are ready.");
  } else if (status_.phase() == kRunning) {
    roll();
  }
}

void Planner::reschedule(std::string message) {
  status_->reschedules = status_->reschedules.value_or(0) + 1;
  status_->rolling.clear();
  tell("Warning", "JobRescheduling", "job is rescheduling since replicas or allocation changed.");
  status_.enter(kRescheduling, std::move(message));
}

// What fails while others are replaced belongs to the same restart; a replacement that fails is
// the next one.
void Planner::restarting() {
  const Failed again = failed();
  if (again.charged()) return restart_or_fail(again);
  for (const Seated* const seat : again.free) {
    failures_.enter(seat->name, seat->pod->uid, seat->pod, seen_.now);
  }
  drop_surplus();
  fill_seats(true);
  const bool none_failed = std::ranges::none_of(
      seating_.seats, [](const Seated& seat) { return seat.seat == Seat::kFailed; });
  if (!all_taken() || !none_failed || !seating_.surplus.empty()) return;
  failures_.forget(kCreates);
  status_.enter(kStarting,
                fmt::format("job is starting since the created pods {} are matched replicas {}.",
                            seating_.seats.size(), seating_.seats.size()));
  tell("Normal", "JobStarting", "job is starting since all replicas are created.");
}

void Planner::rescheduling() {
  if (!seen_.refused.empty()) {
    Failed bad = failed();
    bad.seats.clear();
    bad.free.clear();
    return restart_or_fail(bad);
  }
  drop_surplus();
  fill_seats(false);
  if (!all_taken() || !seating_.surplus.empty()) return;
  failures_.forget(kCreates);
  status_.enter(kStarting,
                fmt::format("job is starting since the created pods {} are matched replicas {}.",
                            seating_.seats.size(), seating_.seats.size()));
  tell("Normal", "JobStarting", "job is starting since all replicas are created.");
}

bool Planner::complete() const {
  const bool some_decide = std::ranges::any_of(job_.tasks, &Task::completes_job);
  bool any = false;
  for (const Seated& seat : seating_.seats) {
    const bool decides =
        some_decide ? seat.task->completes_job : seat.task->restart != Restart::kAlways;
    if (!decides) continue;
    if (seat.seat != Seat::kSucceeded) return false;
    any = true;
  }
  return any;
}

// Whether every replica that should be there by now has a pod.
bool Planner::all_taken() const {
  return std::ranges::all_of(seating_.seats, [&](const Seated& seat) {
    if (seat.taken() || seat.name == status_->rolling) return true;
    return !seat.task->start_after.empty() && seat.seat == Seat::kEmpty &&
           (!in_order(seat) || status_.phase() == kStarting);
  });
}

bool Planner::ready_enough() const {
  return std::ranges::all_of(job_.tasks, [&](const Task& task) {
    int seats = 0;
    int ready = 0;
    for (const Seated& seat : seating_.seats) {
      if (seat.task != &task) continue;
      ++seats;
      ready += seat.ready() ? 1 : 0;
    }
    return ready >= (task.min_available > 0 ? std::min(task.min_available, seats) : seats);
  });
}

// Whether the tasks it starts after are ready.
bool Planner::in_order(const Seated& seat) const {
  return std::ranges::all_of(seat.task->start_after, [&](const std::string& task) {
    return std::ranges::all_of(seating_.seats, [&](const Seated& other) {
      return other.slot.task != task || other.ready();
    });
  });
}

void Planner::fill_seats(bool replace_failed) {
  for (const Seated& seat : seating_.seats) {
    const bool goes = seat.seat == Seat::kReplace || (replace_failed && seat.seat == Seat::kFailed);
    if (!goes && seat.seat != Seat::kEmpty) continue;
    // What ends is written down before it is gone.
    if (goes) failures_.enter(seat.name, seat.pod->uid, seat.pod, seen_.now);
    if (const auto left = failures_.wait(seat.name, seen_.now)) {
      look_again(*left);
    } else if (goes) {
      remove(*seat.pod);
    } else if (in_order(seat)) {
      create(seat);
    }
  }
}

// The highest indexes of a task first: they are those beyond its replicas.
void Planner::drop_surplus() {
  for (const Pod* const pod : seating_.surplus) remove(*pod);
}

// diengine/restartedAt: pods that are older than the job's template are made again, one by one,
// each when all others are ready.
void Planner::roll() {
  if (job_.restarted_at.empty() || job_.restarted_at == status_->restarted_at) return;
  const std::string rolling = status_->rolling;
  for (const Seated& seat : std::views::reverse(seating_.seats)) {
    const bool is_rolling = seat.name == rolling;
    if (!rolling.empty() && !is_rolling) continue;
    if (seat.seat == Seat::kEmpty && is_rolling) return create(seat);
    if (seat.seat == Seat::kLeaving) return;
    const bool old = seat.seat == Seat::kActive && seat.pod->made_of != hash_of(*seat.task);
    if (is_rolling && old) return remove(*seat.pod);
    if (is_rolling && !seat.ready()) return;
    if (old && rolling.empty() &&
        std::ranges::all_of(seating_.seats, [](const Seated& other) { return other.ready(); })) {
      status_->rolling = seat.name;
      return;
    }
    if (is_rolling) {
      status_->rolling.clear();
      return;
    }
    if (old) return;  // others are not ready yet
  }
  status_->rolling.clear();
  status_->restarted_at = job_.restarted_at;
}

void Planner::count_pods() {
  int ready = 0;
  int older = 0;
  std::map<std::string, std::map<std::string, int>> counts;
  std::vector<std::string> succeeded;
  for (const Seated& seat : seating_.seats) {
    if (seat.seat == Seat::kSucceeded) succeeded.emplace_back(seat.name);
    if (seat.seat == Seat::kActive && !seat.pod->made_of.empty() &&
        seat.pod->made_of != hash_of(*seat.task)) {
      ++older;
    }
  }
  for (const Pod& pod : seen_.pods) {
    if (!pod.live() || !pod.has_slot) continue;
    ready += pod.ready ? 1 : 0;
    ++counts[pod.slot.task][std::string(pod.outcome())];
  }
  status_->replicas = static_cast<int>(seating_.seats.size());
  status_->ready_replicas = ready;
  if (job_.preemptible) counts.clear();
  status_->task_status = std::move(counts);
  status_->succeeded = std::move(succeeded);
  constexpr std::string_view kUpToDate = "UpToDate";
  if (older > 0) {
    status_.set_condition(
        kUpToDate, false, "PodsAreOlder",
        fmt::format("{} of {} pods were made before the last edit; set the annotation {} to "
                    "replace them",
                    older, seating_.seats.size(), annotations::kRestartedAt));
  } else if (status_.knows(kUpToDate)) {
    status_.set_condition(kUpToDate, true, "PodsAreNew",
                          "all pods were made from the present spec");
  }
}

}  // namespace divisi::dijob
