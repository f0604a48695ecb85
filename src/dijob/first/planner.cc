#include "dijob/first/planner.h"

#include "dijob/misspelt.h"

#include <fmt/format.h>

#include <algorithm>
#include <ranges>
#include <utility>

namespace divisi::dijob::first {

using namespace phases;

Plan plan(const Observed& observed) {
  return Planner(observed).run();
}

Plan Planner::run() {
  if (job_.deleting) return {};
  // A matching pod or service without a controller becomes the job's before anything is planned;
  // of a job that is over it would stay for good otherwise.
  for (const Orphan& orphan : seen_.orphans) out_.actions.emplace_back(Adopt{orphan});
  if (!out_.actions.empty()) return std::move(out_);
  if (status_.terminal()) return clean();

  const bool is_new = status_.phase().empty();
  const Status bad = settle();
  if (!bad.ok() && is_new && seen_.pods.empty()) {
    admit();
    fail(bad.message());
    return finish();
  }
  if (write_policy()) return std::move(out_);
  if (is_new) admit();
  tell_edits();
  note_coordinator();
  count_pods();
  step();
  if (!status_.terminal()) {
    replace_rejected();
    create_missing();
    serve_pods();
    remove_unused_services();
    remove_orphaned();
    tell_blocked();
    tell_waiting();
    if (!last_good_ && bad.ok() && !is_new) save_spec();
  }
  force_stuck();
  return finish();
}

Status Planner::settle() {
  Status bad = seen_.unreadable.ok() ? check(job_) : seen_.unreadable;
  if (bad.ok() || use_last_good(bad)) return {};
  // An edit does not end what has run for days.
  readable_ = seen_.unreadable.ok();
  edit_refused_ =
      fmt::format("{}; the pods stay as they are until the spec is right", bad.message());
  return bad;
}

bool Planner::use_last_good(const Status& bad) {
  for (const SavedSpec& saved : std::views::reverse(seen_.saved)) {
    json::Value object = seen_.object;
    object["spec"] = saved.spec;
    auto read = read_job(object);
    if (!read || !check(*read).ok()) continue;
    job_ = *std::move(read);
    last_good_ = true;
    edit_refused_ = fmt::format("{}; the spec before this edit stays in force", bad.message());
    return true;
  }
  return false;
}

void Planner::tell_edits() {
  constexpr std::string_view kType = "EditRefused";
  if (!edit_refused_.empty()) {
    if (!status_.holds(kType)) out_.tell("Warning", kType, edit_refused_);
    status_.set_condition(kType, true, kType, edit_refused_);
  } else if (status_.holds(kType)) {
    status_.set_condition(kType, false, "EditApplied", "");
  }
}

bool Planner::write_policy() {
  if (!seen_.unreadable.ok() || seen_.job.has_clean_pods || seen_.policy_is_held) return false;
  out_.spec_patch.emplace();
  (*out_.spec_patch)["spec"]["cleanPodPolicy"] = "Running";
  return true;
}

void Planner::admit() {
  std::string message = fmt::format("DIJob {} created", job_.name);
  out_.tell("Normal", "DIJobCreated", message);
  for (const std::string& warning : job_.warnings) out_.tell("Warning", "JobWarning", warning);
  for (std::string& field : misspelt_fields(seen_.object)) {
    out_.tell("Warning", "JobWarning", std::move(field));
  }
  status_.enter(kCreated, std::move(message));
  status_->form = forms::kCoordinator;
  if (!status_->restarts) status_->restarts = 0;
  if (!status_->start_time) status_->start_time = seen_.now;
}

// di-server tells a repeated demand by the uid of who makes it; this is for people, and for the
// column Restarts.
void Planner::note_coordinator() {
  status_->form = forms::kCoordinator;
  const SeenPod* const found = find_pod(fixed_pod_name(job_.name, Role::kCoordinator));
  if (found == nullptr || !found->pod.live() || found->pod.uid == status_->coordinator_uid) return;
  if (!status_->coordinator_uid.empty()) status_->restarts = status_->restarts.value_or(0) + 1;
  status_->coordinator_uid = found->pod.uid;
}

void Planner::count_pods() {
  std::map<std::string, RoleCounts> counts;
  for (const Role role : kRoles) {
    if (!status_key(role).empty()) counts[std::string(status_key(role))];
  }
  int live = 0;
  int ready = 0;
  for (const SeenPod& seen : seen_.pods) {
    if (!seen.pod.live() || was_rejected(seen)) continue;
    ++live;
    ready += seen.pod.ready ? 1 : 0;
    const std::string_view key = status_key(seen.pod.role);
    if (key.empty()) continue;
    RoleCounts& count = counts[std::string(key)];
    const std::string_view outcome = seen.pod.outcome();
    count.active += outcome == "active" ? 1 : 0;
    count.succeeded += outcome == "succeeded" ? 1 : 0;
    count.failed += outcome == "failed" ? 1 : 0;
  }
  status_->replica_status = std::move(counts);
  status_->replicas = std::max(live, 1);  // the coordinator is always wanted
  status_->ready_replicas = ready;
}

// Workers never decide: the coordinator replaces them.
void Planner::step() {
  const auto& counts = status_->replica_status;
  const RoleCounts& coordinator = counts.at(std::string(status_key(Role::kCoordinator)));
  const RoleCounts& aggregator = counts.at(std::string(status_key(Role::kAggregator)));
  if (coordinator.active > 0) {
    if (starts_aggregator(seen_) && aggregator.active == 0) return;
    status_.enter(kRunning,
                  fmt::format("coordinator and aggregator of DIJob {} are running", job_.name));
  } else if (coordinator.failed > 0) {
    fail(fmt::format("DIJob {} failed because coordinator failed", job_.name));
  } else if (coordinator.succeeded > 0) {
    succeed();
  }
}

void Planner::fail(std::string message) {
  out_.tell("Warning", "DIJobFailed", message);
  status_.enter(kFailed, std::move(message));
  end();
}

// What still runs has done its work.
void Planner::succeed() {
  std::string message = fmt::format("DIJob {} succeeded because coordinator succeeded", job_.name);
  out_.tell("Normal", "DIJobSucceeded", message);
  status_.enter(kSucceeded, std::move(message));
  for (auto& [role, count] : status_->replica_status) {
    count.succeeded += std::exchange(count.active, 0);
  }
  end();
}

void Planner::end() {
  status_->ready_replicas = 0;
  status_->completion_time = seen_.now;
}

// Services always go, pods by the policy. The status stays as it is, but for the edit it has seen:
// a job that is over never runs again.
Plan Planner::clean() {
  const auto generation = seen_.object.int_at({"metadata", "generation"}).value_or(0);
  if (status_->observed_generation.value_or(generation) != generation) {
    status_->observed_generation = generation;
    out_.status = status_.value();
    out_.told = Told::kCounts;
  }
  for (const SeenService& service : seen_.services) {
    out_.actions.emplace_back(DeleteService{service.name, service.uid});
  }
  for (const SeenPod& seen : seen_.pods) {
    const Pod& pod = seen.pod;
    if (!pod.live() || job_.clean_pods == CleanPods::kNone) continue;
    if (job_.clean_pods == CleanPods::kAll || pod.is_cleaned()) remove(pod);
  }
  force_stuck();
  return std::move(out_);
}

// Once a spec has led to a status, it is kept for the day an edit of it cannot be used.
void Planner::save_spec() {
  const bool is_saved =
      seen_.saved_until == job_.generation ||
      std::ranges::find(seen_.saved, job_.generation, &SavedSpec::generation) != seen_.saved.end();
  if (!is_saved) {
    dijob::Job owner;
    owner.space = job_.space;
    owner.name = job_.name;
    owner.uid = job_.uid;
    owner.generation = job_.generation;
    out_.actions.emplace_back(SaveSpec{make_revision(owner, seen_.object)});
    return;
  }
  for (const SavedSpec& saved : seen_.saved) {
    if (saved.generation < job_.generation) out_.actions.emplace_back(DeleteSavedSpec{saved.name});
  }
}

Plan Planner::finish() {
  status_->observed_generation = seen_.object.int_at({"metadata", "generation"}).value_or(0);
  if (status_.differs()) {
    out_.status = status_.value();
    out_.told = status_.differs_in_more_than_counts() ? Told::kFirst : Told::kCounts;
    if (out_.told == Told::kFirst) out_.actions.clear();
  }
  return std::move(out_);
}

}  // namespace divisi::dijob::first
