#include "dijob/planner.h"

#include "dijob/names.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

namespace divisi::dijob {
namespace {

using namespace phases;

// How long after its grace period a pod may take before it is deleted by force: its node is gone.
constexpr std::chrono::seconds kStuck{30};

// The task as it stands in the object.
const json::Value* written_task(const json::Value& object, const Job& job, const Task& task) {
  const json::Value* const tasks = object.find_path({"spec", "tasks"});
  const auto index = static_cast<std::size_t>(&task - job.tasks.data());
  if (tasks == nullptr || tasks->as_array() == nullptr || index >= tasks->as_array()->size()) {
    return nullptr;
  }
  return &(*tasks->as_array())[index];
}

}  // namespace

Plan plan(const Observed& observed) {
  return Planner(observed).run();
}

Plan Planner::run() {
  auto read = read_job(seen_.object);
  Status bad = read ? Status() : read.error();
  if (read) {
    job_ = *std::move(read);
  } else {
    job_.space = seen_.object.string_at({"metadata", "namespace"});
    job_.name = seen_.object.string_at({"metadata", "name"});
    job_.uid = seen_.object.string_at({"metadata", "uid"});
    job_.deleting = !seen_.object.string_at({"metadata", "deletionTimestamp"}).empty();
  }
  if (job_.deleting) return {};
  if (status_.terminal()) return clean();

  const bool is_new = status_.phase().empty();
  if (bad.ok()) bad = check(job_);
  if (bad.ok()) bad = check_lists(job_, seen_.names);
  if (!bad.ok()) {
    if (is_new) admit();
    if (is_new || !runs_anything()) {
      fail(bad.message());
    } else {
      // A slip in an edit does not end what has run for days.
      tell_edits(
          fmt::format("{}: the pods stay as they are until the spec is right", bad.message()));
    }
    return finish();
  }
  if (refuse_changed_form()) return finish();
  if (sync_spec()) return std::move(out_);
  if (is_new) admit();
  if (deadline_passed()) return finish();
  if (job_.form == Form::kTasks) {
    plan_tasks();
  } else {
    plan_template();
  }
  if (!status_.terminal()) support();
  force_stuck();
  return finish();
}

bool Planner::runs_anything() const {
  return std::ranges::any_of(seen_.pods, [](const Pod& pod) { return pod.live() && !pod.over(); });
}

void Planner::admit() {
  status_["form"] = job_.form == Form::kTasks ? "tasks" : "template";
  status_.enter(kPending, "job created.");
  status_["selector"] = fmt::format("{}={},{}={}", labels::kJob, job_.name, labels::kOperator,
                                    labels::kOperatorValue);
  status_["secretName"] = secret_name(job_);
  for (const char* const counter : {"restarts", "reschedules", "spentRestarts", "readyReplicas"}) {
    if (status_.find(counter) == nullptr) status_.set_number(counter, 0);
  }
  if (!job_.restarted_at.empty()) status_["restartedAt"] = job_.restarted_at;
  tell("Normal", "JobPending", "job created.");
  for (const std::string& warning : job_.warnings) tell("Warning", "JobWarning", warning);
}

bool Planner::refuse_changed_form() {
  const std::string_view form = job_.form == Form::kTasks ? "tasks" : "template";
  const json::Value* const before = status_.find("form");
  if (before == nullptr || before->as_string() == nullptr) {
    status_["form"] = form;
    return false;
  }
  if (*before->as_string() == form) return false;
  tell_edits(fmt::format("the job keeps its form {}, {} is not applied: make a new job for that",
                         *before->as_string(), form));
  return true;
}

void Planner::tell_edits(std::string refused) {
  constexpr std::string_view kType = "EditRefused";
  if (refused.empty()) {
    if (status_.holds(kType)) status_.set_condition(kType, false, "EditApplied", "");
    return;
  }
  if (!status_.holds(kType)) tell("Warning", "EditRefused", refused);
  status_.set_condition(kType, true, "EditRefused", std::move(refused));
}

// spec.replicas and the replicas of the task it means are one number with two names. Whichever
// differs from the last one that was seen is the newer wish; the task's wins.
std::optional<int> Planner::scale_wish() {
  const Task* const task = scaled_task(job_);
  if (task == nullptr || (job_.preemptible && job_.form == Form::kTemplate)) return std::nullopt;
  const bool whole_job = job_.form == Form::kTemplate;
  if (whole_job && status_.find("replicas") == nullptr) {
    status_.set_number("replicas", job_.min_replicas);
  }
  const int actual = whole_job ? status_.number("replicas") : task->replicas;
  const json::Value* const last = status_.find("scaledReplicas");
  bool follow_spec = job_.replicas && *job_.replicas != actual;
  if (last != nullptr && last->as_int() != nullptr) {
    follow_spec = follow_spec && *last->as_int() == actual;
  } else if (!whole_job) {
    // Pods that were made for as many as the tasks want now have seen both numbers agree.
    const bool agreed = std::ranges::any_of(seen_.pods, [&](const Pod& pod) {
      return !pod.made_of.empty() && pod.replicas == job_.want();
    });
    const json::Value* const written = written_task(seen_.object, job_, *task);
    const bool unwritten = written != nullptr && written->find("replicas") == nullptr;
    follow_spec = follow_spec && (agreed || unwritten);
  }
  int wish = follow_spec ? *job_.replicas : actual;
  const int least = whole_job ? job_.min_replicas : 1;
  const int most = job_.max_replicas.value_or(kMaxReplicas);
  if (wish != actual && (wish < least || wish > most)) {
    tell(
        "Warning", "EditRefused",
        fmt::format("replicas {} is not applied: it must be between {} and {}", wish, least, most));
    wish = actual;
  }
  status_.set_number("scaledReplicas", wish);
  if (whole_job) status_.set_number("replicas", wish);
  return wish;
}

// What the operator fills in: the names of typed tasks, and spec.replicas. Unless somebody waits
// for it, not before a pod runs: the pods come first.
bool Planner::sync_spec() {
  const std::optional<int> wish = scale_wish();
  const Task* const scaled = scaled_task(job_);
  const bool made = std::ranges::any_of(
      seen_.pods, [](const Pod& pod) { return pod.ready || pod.phase == "Succeeded"; });
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
      if (wish && scaled == &job_.tasks[i] && scaled->replicas != *wish) {
        task["replicas"] = *wish;
        resize = true;
      }
    }
  }
  const bool lags = wish && (job_.replicas ? *job_.replicas != *wish : made);
  if (!resize && !lags && !(rename && made)) return false;
  out_.spec_patch.emplace();
  json::Value& spec = (*out_.spec_patch)["spec"];
  if (resize || rename) spec["tasks"] = std::move(tasks);
  if (wish) spec["replicas"] = *wish;
  return true;
}

bool Planner::deadline_passed() {
  if (!job_.active_deadline || job_.suspended) return false;
  const auto started = status_.time("startTime");
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
  status_.erase("startTime");
  status_.erase("rolling");
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
  }
  if (plans<CreatePod>() && !seen_.has_secret) first.emplace_back(CreateSecret{});
  out_.actions.insert(out_.actions.begin(), std::make_move_iterator(first.begin()),
                      std::make_move_iterator(first.end()));
}

// A pod whose node does not answer stays for ever otherwise, and with it its name.
void Planner::force_stuck() {
  for (const Pod& pod : seen_.pods) {
    if (!pod.terminating || !pod.kill_at) continue;
    const auto left = *pod.kill_at + kStuck - seen_.now;
    if (left.count() <= 0) {
      out_.actions.emplace_back(DeletePod{.name = pod.name, .uid = pod.uid, .force = true});
    } else {
      look_again(std::chrono::ceil<std::chrono::milliseconds>(left));
    }
  }
}

Plan Planner::finish() {
  // Written with whatever else changes, and after an edit of the spec.
  status_["observedGeneration"] = seen_.object.int_at({"metadata", "generation"}).value_or(0);
  if (status_.differs()) {
    out_.status = status_.value();
    out_.told = when_told();
    if (out_.told == Told::kFirst) out_.actions.clear();
  }
  return std::move(out_);
}

Told Planner::when_told() const {
  if (!status_.differs_in_more_than_counts()) return Told::kCounts;
  const bool is_new = seen_.object.string_at({"status", "phase"}).empty();
  if (!is_new || seen_.tell_first || job_.form != Form::kTasks || job_.preemptible) {
    return Told::kFirst;
  }
  // Whatever goes is written down before.
  const bool makes_pods = plans<CreatePod>() && !plans<DeletePod>();
  const bool later = status_.phase() == kStarting || (status_.phase() == kPending && makes_pods);
  return later ? Told::kSoon : Told::kFirst;
}

void Planner::create(const Seated& seat) {
  if (!maker_) {
    maker_.emplace(job_, PodPeers{.all = roster_.all,
                                  .replicas = static_cast<int>(seating_.seats.size()),
                                  .generation = status_.number("generation"),
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
  out_.events.push_back({std::string(type), std::string(reason), std::move(message)});
}

void Planner::look_again(std::chrono::milliseconds after) {
  after = std::max(after, std::chrono::milliseconds(1));
  if (!out_.look_again || after < *out_.look_again) out_.look_again = after;
}

std::string Planner::node_of(const Seated& seat) const {
  const json::Array* const nodes = job_.preemptible ? allocation() : nullptr;
  const auto rank = static_cast<std::size_t>(seat.slot.rank);
  if (nodes == nullptr || rank >= nodes->size()) return {};
  const std::string* const node = (*nodes)[rank].as_string();
  return node == nullptr ? std::string() : *node;
}

const json::Array* Planner::allocation() const {
  const json::Value* const nodes = status_.find("allocation");
  return nodes == nullptr ? nullptr : nodes->as_array();
}

}  // namespace divisi::dijob
