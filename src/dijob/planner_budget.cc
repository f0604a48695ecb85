// What failures cost: the budget of the job, and those of its tasks.
#include "dijob/planner.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

namespace divisi::dijob {
namespace {

using namespace phases;

bool within(const Limit& limit, int spent) {
  return !limit || spent < *limit;
}

}  // namespace

Planner::Failed Planner::failed() const {
  Failed failed;
  for (const Seated& seat : seating_.seats) {
    // What was written down before is paid for, though an old cache may show it again.
    if (seat.seat != Seat::kFailed || failures_.known(failure_key(seat), seat.pod->uid)) continue;
    (in_wave() && !made_in_wave(seat) ? failed.free : failed.seats).push_back(&seat);
  }
  for (const RefusedPod& pod : seen_.refused) failed.refused.push_back(&pod);
  return failed;
}

// A failure that was paid for opens a wave: what else fails of the pods that there were belongs to
// it, since a dead learner often takes its collectors along. It lasts until the job runs again, and
// some seconds at least.
bool Planner::in_wave() const {
  constexpr std::chrono::seconds kLeast{10};
  const std::optional<WallTime>& since = status_->wave_time;
  if (job_.form != Form::kTasks || !since) return false;
  if (status_.phase() != kRunning) return true;
  return seen_.now < *since + kLeast && *since <= seen_.now + std::chrono::seconds(1);
}

bool Planner::made_in_wave(const Seated& seat) const {
  const int wave = status_->restarts.value_or(0);
  if (seat.pod->restarts) return *seat.pod->restarts >= wave;
  return failures_.failed_in(seat.name, wave);  // of another operator's pods
}

// An exit code, or a task, for which no second try makes sense.
bool Planner::must_fail_at_once() {
  for (const Seated& seat : seating_.seats) {
    if (seat.seat != Seat::kFailed) continue;
    if (exit_action(job_, *seat.task, *seat.pod) == ExitAction::kFailJob) {
      fail(fmt::format("job failed since pod {} ended with exit code {}", seat.name,
                       seat.pod->exit_code.value_or(-1)),
           true);
      return true;
    }
    if (seat.task->restart == Restart::kNever) {
      fail(fmt::format("job failed since pod {} failed and task {} is not restarted", seat.name,
                       seat.task->name),
           true);
      return true;
    }
  }
  return false;
}

// Takes one unit from every budget that is concerned; false if one has nothing left.
bool Planner::pay(const Failed& failed) {
  std::map<std::string, Limit> own;  // by task
  bool shared = false;
  const auto charge = [&](const Task* task) {
    if (task != nullptr && task->backoff_limit) {
      own.emplace(task->name, *task->backoff_limit);
    } else {
      shared = true;
    }
  };
  for (const Seated* const seat : failed.seats) charge(seat->task);
  for (const RefusedPod* const pod : failed.refused) {
    const auto seat = std::ranges::find(seating_.seats, pod->name, &Seated::name);
    charge(seat == seating_.seats.end() ? nullptr : seat->task);
  }
  // Of a job that another operator began, all restarts came from the one budget.
  const int spent = status_->spent_restarts.value_or(status_->restarts.value_or(0));
  if (shared && !within(job_.backoff_limit, spent)) return false;
  std::map<std::string, int> counts = status_->task_restarts;
  for (const auto& [task, limit] : own) {
    if (!within(limit, counts[task]++)) return false;
  }
  status_->spent_restarts = spent + (shared ? 1 : 0);
  if (!own.empty()) status_->task_restarts = std::move(counts);
  return true;
}

void Planner::restart_or_fail(const Failed& failed) {
  const bool made = !failed.seats.empty();
  const bool gang = job_.form == Form::kTemplate;
  const RefusedPod refused = made ? RefusedPod() : *failed.refused.front();
  if (!pay(failed)) {
    if (gang) {
      return fail(made ? fmt::format("job failed since {} replicas failed.", failed.seats.size())
                       : fmt::format("job failed since pod {} failed to create. ({})", refused.name,
                                     refused.why),
                  made);
    }
    return fail(made ? fmt::format("job failed since {} pods failed and exceed backoff limit",
                                   failed.seats.size())
                     : fmt::format("job failed since pod {} failed to create and exceed backoff "
                                   "limit ({})",
                                   refused.name, refused.why),
                made);
  }
  if (gang) {
    restart_gang("job is restarting since conditions changed.");
  } else {
    status_->restarts = status_->restarts.value_or(0) + 1;
    status_->wave_time = seen_.now;
  }
  for (const auto* const seats : {&failed.seats, &failed.free}) {
    for (const Seated* const seat : *seats) {
      failures_.enter(failure_key(*seat), seat->pod->uid, seat->pod, seen_.now);
    }
  }
  // However many the server refused in one round.
  if (!failed.refused.empty()) failures_.enter_refused(kCreates, seen_.now);
  if (gang) return;
  tell("Warning", "JobRestarting", "job is restarting since conditions changed.");
  status_.enter(
      kRestarting,
      made ? fmt::format("job is restarting since {} pods failed.", failed.seats.size())
           : fmt::format("job is restarting since pod {} failed to create.", refused.name));
}

void Planner::restart_free(const Failed& failed) {
  for (const Seated* const seat : failed.free) {
    failures_.enter(seat->name, seat->pod->uid, seat->pod, seen_.now);
  }
  tell("Warning", "JobRestarting", "job is restarting since conditions changed.");
  status_.enter(kRestarting,
                fmt::format("job is restarting since {} pods failed.", failed.free.size()));
}

std::string Planner::failure_key(const Seated& seat) const {
  return job_.form == Form::kTemplate ? pod_name(job_, seat.slot, 0) : seat.name;
}

}  // namespace divisi::dijob
