#include "dijob/planner.h"

#include "dijob/misspelt.h"
#include "dijob/names.h"
#include "dijob/sizes.h"
#include "json/patch.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <ranges>
#include <utility>

namespace divisi::dijob {
namespace {

using namespace phases;

}  // namespace

Plan plan(const Observed& observed) {
  return Planner(observed).run();
}

Plan Planner::run() {
  Status bad = seen_.unreadable;
  if (job_.deleting) return {};
  if (status_.terminal()) return clean();

  adopt();
  if (!out_.actions.empty()) return std::move(out_);
  const bool is_new = status_.phase().empty();
  if (bad.ok()) bad = settle();
  if (!bad.ok() && (is_new || !use_last_good(bad))) {
    if (is_new) admit();
    if (is_new && seen_.pods.empty()) {
      fail(bad.message());
    } else {
      if (is_new) keep_ranks_of_pods();
      // A slip in an edit does not end what has run for days.
      edit_refused_ =
          fmt::format("{}; the pods stay as they are until the spec is right", bad.message());
      tell_edits("");
    }
    return finish();
  }
  if (!last_good_ && sync_spec()) return std::move(out_);
  if (is_new) admit();
  if (seen_.made_secret) note_secret();
  name_pods_for_scale();
  if (deadline_passed()) return finish();
  if (job_.form == Form::kTasks) {
    plan_tasks();
  } else {
    plan_template();
  }
  if (!status_.terminal()) {
    tell_blocked();
    tell_waiting();
    support();
    if (!last_good_ && !is_new) save_spec();
  }
  force_stuck();
  return finish();
}

Status Planner::settle() {
  DIVISI_TRY_STATUS(check_form());
  settle_size();
  DIVISI_TRY_STATUS(can_run(job_, seen_.names));
  if (seen_.collides_with.empty() || status_->observed_generation == job_.generation) return {};
  return make_status(Code::kInvalid,
                     "pods of this job would have the names of those of DIJob {}, which is older: "
                     "choose another name for the job or its task",
                     seen_.collides_with);
}

// The spec as it was before the edit that cannot run.
bool Planner::use_last_good(const Status& bad) {
  for (const SavedSpec& saved : std::views::reverse(seen_.saved)) {
    json::Value object = seen_.object;
    object["spec"] = saved.spec;
    auto read = read_job(object);
    if (!read) continue;
    Job edited = std::exchange(job_, *std::move(read));
    settle_size();
    if (can_run(job_, seen_.names).ok()) {
      last_good_ = true;
      edit_refused_ = fmt::format("{}; the spec before this edit stays in force", bad.message());
      return true;
    }
    job_ = std::move(edited);
  }
  return false;
}

// Of a job that was edited before its first status: its spec cannot say them, its pods do.
void Planner::keep_ranks_of_pods() {
  Job made;
  for (const Pod& pod : seen_.pods) {
    if (!pod.has_slot || pod.slot.task.empty() || pod.slot.index >= kMaxReplicas) continue;
    auto task = std::ranges::find(made.tasks, pod.slot.task, &Task::name);
    if (task == made.tasks.end()) {
      made.tasks.push_back({.name = pod.slot.task});
      task = std::prev(made.tasks.end());
    }
    task->replicas = std::max(task->replicas, pod.slot.index + 1);
  }
  if (!made.tasks.empty()) status_->ranks = make_roster(made, nullptr, seen_.pods).record;
}

// A matching pod or service without a controller becomes the job's before anything is planned.
void Planner::adopt() {
  for (const Orphan& orphan : seen_.orphans) out_.actions.emplace_back(Adopt{orphan});
}

// Once a spec has led to a status, it is kept for the day an edit of it cannot run.
void Planner::save_spec() {
  const bool is_saved =
      seen_.saved_until == job_.generation ||
      std::ranges::find(seen_.saved, job_.generation, &SavedSpec::generation) != seen_.saved.end();
  if (!is_saved) {
    out_.actions.emplace_back(SaveSpec{make_revision(job_, seen_.object)});
    return;
  }
  for (const SavedSpec& saved : seen_.saved) {
    if (saved.generation < job_.generation) out_.actions.emplace_back(DeleteSavedSpec{saved.name});
  }
}

void Planner::tell_blocked() {
  constexpr std::string_view kType = "Blocked";
  if (!seen_.blocked.empty() && !all_taken()) {
    status_.set_condition(kType, true, "FailedCreate", seen_.blocked);
  } else if (status_.holds(kType) && all_taken()) {
    status_.set_condition(kType, false, "SuccessfulCreate", "");
  }
}

void Planner::tell_waiting() {
  std::vector<WaitingPod> waiting;
  for (const Pod& pod : seen_.pods) {
    if (pod.trouble && pod.live()) waiting.push_back({pod.name, *pod.trouble});
  }
  status_.tell_waiting(waiting);
}

// What /scale shows: the pods that spec.replicas means, and how many there are.
void Planner::name_pods_for_scale() {
  const Task* const task = scaled_task(job_);
  std::string selector = fmt::format("{}={},{}={}", labels::kJob, job_.name, labels::kOperator,
                                     labels::kOperatorValue);
  const bool one_task = task != nullptr && job_.form == Form::kTasks;
  if (one_task) selector += fmt::format(",{}={}", labels::kTaskName, task->name);
  status_->selector = selector;
  const auto counted = std::ranges::count_if(seen_.pods, [&](const Pod& pod) {
    return pod.live() && !pod.finished() && (!one_task || pod.slot.task == task->name);
  });
  status_->scaled_replicas = static_cast<int>(counted);
}

void Planner::admit() {
  status_->form = job_.form == Form::kTasks ? forms::kTasks : forms::kTemplate;
  const bool waits = job_.preemptible
                         ? allocation().empty()
                         : job_.form == Form::kTemplate && status_->replicas.value_or(0) == 0;
  status_.enter(kPending, waits ? "job is pending since no replicas assigned." : "job created.");
  status_->secret_name = secret_name(job_);
  if (!seen_.secret_hash.empty()) status_->secret_hash = seen_.secret_hash;
  for (std::optional<int>* const counter : {&status_->restarts, &status_->reschedules,
                                            &status_->spent_restarts, &status_->ready_replicas}) {
    if (!*counter) *counter = 0;
  }
  if (!job_.restarted_at.empty()) status_->restarted_at = job_.restarted_at;
  tell("Normal", "JobPending", "job created.");
  for (const std::string& warning : job_.warnings) tell("Warning", "JobWarning", warning);
  for (const std::string& field : misspelt_fields(seen_.object)) {
    tell("Warning", "JobWarning", field);
  }
}

// Of a secret that was made again, with another key perhaps.
void Planner::note_secret() {
  status_->secret_hash = seen_.secret_hash;
}

Status Planner::check_form() {
  const std::string_view form = job_.form == Form::kTasks ? forms::kTasks : forms::kTemplate;
  if (status_->form.empty()) status_->form = form;
  if (status_->form == form) return {};
  return make_status(Code::kConflict,
                     "the job keeps its form {}, {} is not applied: make a new job for that",
                     status_->form, form);
}

void Planner::tell_edits(std::string refused) {
  constexpr std::string_view kType = "EditRefused";
  if (!edit_refused_.empty()) refused = edit_refused_ + (refused.empty() ? "" : "; ") + refused;
  if (refused.empty()) {
    if (status_.holds(kType)) status_.set_condition(kType, false, "EditApplied", "");
    return;
  }
  if (!status_.holds(kType)) tell("Warning", "EditRefused", refused);
  status_.set_condition(kType, true, "EditRefused", std::move(refused));
}

void Planner::settle_size() {
  if (job_.form != Form::kTasks) return;
  const Task* const task = scaled_task(job_);
  if (task == nullptr) return;
  const std::optional<Sizes> last = status_->sizes;
  // Pods that were made for as many as the tasks want now have seen both numbers agree.
  const bool agreed = std::ranges::any_of(seen_.pods, [&](const Pod& pod) {
    return !pod.made_of.empty() && pod.replicas == job_.want();
  });
  const SizeChoice choice = choose_size(job_, last, agreed, seen_.names);
  if (!choice.refused.ok()) {
    std::string why = fmt::format("replicas {} is not applied: {}", job_.replicas.value_or(0),
                                  choice.refused.message());
    // Unless the number is put back, it stays, and so does the condition.
    if (is_applied(seen_.object)) {
      edit_refused_ = std::move(why);
    } else {
      size_refused_ = std::move(why);
    }
  }
  Sizes sizes{.spec = job_.replicas, .task = {}, .size = choice.size};
  if (task->sized) sizes.task = task->replicas;
  const auto index = static_cast<std::size_t>(task - job_.tasks.data());
  job_.tasks[index].replicas = choice.size;
  if (can_run(job_, seen_.names).ok()) status_->sizes = sizes;
}

// Of a template form the size is status.replicas, which others may write, too.
std::optional<int> Planner::gang_size() {
  if (job_.preemptible) return std::nullopt;
  const int actual = status_->replicas.value_or(job_.min_replicas);
  status_->replicas = actual;
  const std::optional<Sizes> last = status_->sizes;
  const bool changed = !last || last->spec != job_.replicas;
  int wish = job_.replicas && changed && (!last || last->size == actual) ? *job_.replicas : actual;
  const int most = job_.max_replicas.value_or(kMaxReplicas);
  Status refused = wish == actual ? Status() : can_run(resized(job_, 0, wish), seen_.names);
  if (wish != actual && (wish < job_.min_replicas || wish > most)) {
    refused = make_status(Code::kInvalid, "it must be between {} and {}", job_.min_replicas, most);
  }
  if (!refused.ok()) {
    tell("Warning", "EditRefused",
         fmt::format("replicas {} is not applied: {}", wish, refused.message()));
    wish = actual;
  }
  status_->sizes = Sizes{.spec = job_.replicas, .task = {}, .size = wish};
  status_->replicas = wish;
  return wish;
}

// What the operator fills in: the names of typed tasks, and spec.replicas; nothing where somebody
// else keeps the tasks as a file says. Unless somebody waits for it, not before a pod runs: the
// pods come first.
bool Planner::sync_spec() {
  std::optional<int> wish;
  const Task* const scaled = scaled_task(job_);
  if (job_.form == Form::kTemplate) {
    wish = gang_size();
  } else if (scaled != nullptr) {
    wish = scaled->replicas;
  }
  if (is_applied(seen_.object)) return false;
  const bool made = std::ranges::any_of(
      seen_.pods, [](const Pod& pod) { return pod.ready || pod.outcome() == "Succeeded"; });
  json::Value tasks;
  bool resize = false;
  bool rename = false;
  if (const json::Value* const written = seen_.object.find_path({"spec", "tasks"})) {
    tasks = *written;
    for (std::size_t i = 0; i < job_.tasks.size() && job_.form == Form::kTasks; ++i) {
      json::Value& task = (*tasks.as_array())[i];
      if (task.string_at({"name"}).empty()) {
        task["name"] = job_.tasks[i].name;
        rename = true;
      }
      if (wish && scaled == &job_.tasks[i] && scaled->sized &&
          task.int_at({"replicas"}) != std::int64_t{*wish}) {
        task["replicas"] = *wish;
        resize = true;
      }
    }
  }
  const bool lags = wish && (job_.replicas ? *job_.replicas != *wish : made);
  if (!resize && !lags && !(rename && made)) return false;
  if (!size_refused_.empty()) tell("Warning", "EditRefused", size_refused_);
  out_.spec_patch.emplace();
  json::Value& spec = (*out_.spec_patch)["spec"];
  if (resize || rename) spec["tasks"] = std::move(tasks);
  if (wish) spec["replicas"] = *wish;
  return true;
}

bool Planner::deadline_passed() {
  if (!job_.active_deadline || job_.suspended) return false;
  const std::optional<WallTime> started = status_->start_time;
  if (!started) return false;
  const auto left = *started + *job_.active_deadline - seen_.now;
  if (left.count() <= 0) {
    fail(fmt::format("job failed since it was active longer than {} seconds",
                     job_.active_deadline->count()));
    return true;
  }
  look_again(std::chrono::ceil<std::chrono::milliseconds>(left));
  return false;
}

void Planner::suspend() {
  status_.set_condition("Suspended", true, "JobSuspended", "job is suspended: it has no pods.");
  status_.enter(kPending, "job is pending since it is suspended.");
  status_->start_time.reset();
  status_->rolling.clear();
  for (const Pod& pod : seen_.pods) {
    if (pod.live()) remove(pod);
  }
}

// The service before the pods, so that they find each other's names; the secret too, which they
// mount.
void Planner::support() {
  std::vector<Action> first;
  const std::string name = service_name(job_);
  for (const std::string& service : seen_.services) {
    if (service != name) first.emplace_back(DeleteService{service});
  }
  if (std::ranges::find(seen_.services, name) == seen_.services.end()) {
    first.emplace_back(CreateService{make_service(job_)});
  } else {
    const json::Value service = make_service(job_);
    const json::Value& wanted = *service.find_path({"spec", "selector"});
    const auto actual = seen_.selectors.find(name);
    if (actual != seen_.selectors.end() && !finds_pods(actual->second, job_)) {
      json::Value patch;
      patch["spec"]["selector"] = json::make_merge_patch(actual->second, wanted);
      first.emplace_back(RepairService{name, std::move(patch)});
    }
  }
  if (plans<CreatePod>()) {
    first.emplace_back(
        CreateSecret{.was_there = std::ranges::any_of(seen_.pods, [](const Pod& pod) {
                       return pod.ready || pod.phase == "Running" || pod.exit_code;
                     })});
  }
  out_.actions.insert(out_.actions.begin(), std::make_move_iterator(first.begin()),
                      std::make_move_iterator(first.end()));
}

// A pod whose node is lost stays for good otherwise, and with it its name.
void Planner::force_stuck() {
  for (const Pod& pod : seen_.pods) {
    if (!pod.terminating || !pod.lost_in) continue;
    if (pod.lost_in->count() <= 0) {
      out_.actions.emplace_back(
          DeletePod{.name = pod.name, .uid = pod.uid, .force = true, .node = pod.node});
    } else {
      look_again(*pod.lost_in);
    }
  }
}

Plan Planner::finish() {
  // Written with whatever else changes, and after an edit of the spec.
  status_->observed_generation = seen_.object.int_at({"metadata", "generation"}).value_or(0);
  if (status_.differs()) {
    out_.status = status_.value();
    out_.told = when_told();
    if (out_.told == Told::kFirst) out_.actions.clear();
  }
  return std::move(out_);
}

Told Planner::when_told() const {
  if (!status_.differs_in_more_than_counts()) return Told::kCounts;
  const bool is_new = phase_of(seen_.object).empty();
  if (!is_new || seen_.tell_first || job_.form != Form::kTasks || job_.preemptible) {
    return Told::kFirst;
  }
  // Whatever goes is written down before.
  const bool makes_pods = plans<CreatePod>() && !plans<DeletePod>();
  const bool later = status_.phase() == kStarting || (status_.phase() == kPending && makes_pods);
  return later ? Told::kSoon : Told::kFirst;
}

void Planner::create(const Seated& seat) {
  if (seen_.hold.count() > 0) return look_again(seen_.hold);
  if (const auto left = failures_.wait(kCreates, seen_.now)) return look_again(*left);
  if (!maker_) {
    maker_.emplace(job_, PodPeers{.all = roster_.all,
                                  .replicas = static_cast<int>(seating_.seats.size()),
                                  .restarts = status_->restarts.value_or(0),
                                  .generation = status_->generation.value_or(0),
                                  .names = seen_.names});
  }
  out_.actions.emplace_back(
      CreatePod{seat.name, maker_->make({.slot = seat.slot, .node = node_of(seat)})});
}

const std::string& Planner::hash_of(const Task& task) {
  const auto [place, is_new] = hashes_.try_emplace(&task);
  if (is_new) place->second = template_hash(job_, task);
  return place->second;
}

void Planner::remove(const Pod& pod) {
  out_.actions.emplace_back(DeletePod{.name = pod.name, .uid = pod.uid, .ended = pod.over()});
}

void Planner::tell(std::string_view type, std::string_view reason, std::string message) {
  out_.tell(type, reason, std::move(message));
}

void Planner::look_again(std::chrono::milliseconds after) {
  out_.look_in(after);
}

std::string Planner::node_of(const Seated& seat) const {
  const auto rank = static_cast<std::size_t>(seat.slot.rank);
  if (!job_.preemptible || rank >= allocation().size()) return {};
  return allocation()[rank];
}

const std::vector<std::string>& Planner::allocation() const {
  static const std::vector<std::string> none;
  const auto& nodes = status_->allocation;
  return nodes ? *nodes : none;
}

}  // namespace divisi::dijob
