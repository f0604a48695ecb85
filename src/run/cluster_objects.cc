#include "run/cluster_objects.h"

#include "io/process.h"
#include "kube/time.h"
#include "run/run_command.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <csignal>
#include <tuple>

namespace divisi::run {
namespace {

constexpr int kBySignal = 128;
constexpr std::size_t kLongestWords = 300;

const json::Array& items_at(const json::Value& value, json::Path path) {
  static const json::Array none;
  const json::Value* const found = value.find_path(path);
  return found != nullptr && found->as_array() != nullptr ? *found->as_array() : none;
}

std::optional<int> number(std::string_view text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

const json::Value* main_status(const json::Value& pod) {
  const std::string name = main_container_of(pod);
  for (const json::Value& status : items_at(pod, {"status", "containerStatuses"})) {
    if (status.string_at({"name"}) == name) return &status;
  }
  return nullptr;
}

const json::Value* terminated_of(const json::Value& pod) {
  const json::Value* const status = main_status(pod);
  return status == nullptr ? nullptr : status->find_path({"state", "terminated"});
}

bool is_going(const json::Value& pod) {
  return pod.find_path({"metadata", "deletionTimestamp"}) != nullptr;
}

bool is_running(const json::Value& pod) {
  const json::Value* const status = main_status(pod);
  return status != nullptr && status->find_path({"state", "running"}) != nullptr;
}

// As Kubernetes says it: 128 + n, or a signal of its own.
int exit_code_of_container(const json::Value& terminated) {
  const auto signal = terminated.int_at({"signal"}).value_or(0);
  if (signal > 0) return kBySignal + static_cast<int>(signal);
  return static_cast<int>(terminated.int_at({"exitCode"}).value_or(1));
}

std::string words_of_end(int rank, std::string_view pod, const json::Value& terminated) {
  const int code = exit_code_of_container(terminated);
  if (terminated.string_at({"reason"}) == "OOMKilled") {
    return fmt::format("worker {} (pod {}) was killed: it used more memory than its limit", rank,
                       pod);
  }
  if (code > kBySignal && code < kBySignal + NSIG) {
    return fmt::format("worker {} (pod {}): a process was killed by {}", rank, pod,
                       io::signal_name(code - kBySignal));
  }
  const std::string_view message = terminated.string_at({"message"});
  return fmt::format("worker {} (pod {}) ended with exit code {}{}{}", rank, pod, code,
                     message.empty() ? "" : ": ", message.substr(0, kLongestWords));
}

// Empty: it only takes a moment.
std::string_view kind_of_wait(std::string_view reason) {
  for (const std::string_view image : {"ErrImagePull", "ImagePullBackOff", "InvalidImageName",
                                       "ErrImageNeverPull", "RegistryUnavailable"}) {
    if (reason == image) return "ImagePull";
  }
  for (const std::string_view container :
       {"CreateContainerConfigError", "CreateContainerError", "RunContainerError"}) {
    if (reason == container) return "Container";
  }
  return {};
}

const json::Value* condition_of(const json::Value& object, std::string_view type) {
  for (const json::Value& condition : items_at(object, {"status", "conditions"})) {
    if (condition.string_at({"type"}) == type && condition.string_at({"status"}) == "True") {
      return &condition;
    }
  }
  return nullptr;
}

std::string message_of(const json::Value& object, std::string_view type) {
  const json::Value* const condition = condition_of(object, type);
  return condition == nullptr ? std::string() : std::string(condition->string_at({"message"}));
}

// The condition by which a Job fails: at once, and when its pods have ended.
const json::Value* failure_of_job(const json::Value& job) {
  const json::Value* const failed = condition_of(job, "Failed");
  return failed != nullptr ? failed : condition_of(job, "FailureTarget");
}

bool is_suspended(const json::Value& job) {
  return job.bool_at({"spec", "suspend"}).value_or(false);
}

// Nothing of it runs any more, and nothing will.
bool job_has_ended(const json::Value& job) {
  if (condition_of(job, "Complete") != nullptr || condition_of(job, "Failed") != nullptr) {
    return true;
  }
  return is_suspended(job) && job.int_at({"status", "active"}).value_or(0) == 0 &&
         job.int_at({"status", "terminating"}).value_or(0) == 0;
}

// The pod that failed first, and was not ended because another one had failed.
const json::Value* first_failure(const std::vector<json::Value>& pods) {
  const json::Value* first = nullptr;
  std::tuple<std::string, bool, int> earliest;
  for (const json::Value& pod : pods) {
    const json::Value* const end = terminated_of(pod);
    if (end == nullptr || exit_code_of_container(*end) == 0) continue;
    const std::tuple when{std::string(end->string_at({"finishedAt"})), is_going(pod),
                          rank_of_pod(pod).value_or(0)};
    if (first != nullptr && earliest <= when) continue;
    first = &pod;
    earliest = when;
  }
  return first;
}

// Of a pod that the cluster ended before its program did (evicted, its node gone).
std::string words_of_failed_pod(const std::vector<json::Value>& pods) {
  for (const json::Value& pod : pods) {
    if (pod.string_at({"status", "phase"}) != "Failed") continue;
    const std::string_view reason = pod.string_at({"status", "reason"});
    if (reason.empty()) continue;
    return fmt::format("pod {}: {}: {}", pod.string_at({"metadata", "name"}), reason,
                       pod.string_at({"status", "message"}).substr(0, kLongestWords));
  }
  return {};
}

void set_workers(const std::vector<json::Value>& pods, JobRecord& record) {
  for (const json::Value& pod : pods) {
    const auto rank = rank_of_pod(pod);
    if (!rank) continue;
    const auto same = std::ranges::find(record.workers, *rank, &WorkerRecord::rank);
    WorkerRecord now = worker_of_pod(pod);
    if (same == record.workers.end()) {
      record.workers.push_back(std::move(now));
      continue;
    }
    // The one that is going is not what the worker is now, unless there is no other.
    if (is_going(pod) && !has_ended(now.state) && same->state == JobState::kRunning) continue;
    now.gpu = now.gpu || same->gpu;
    if (!same->host.empty()) now.host = same->host;
    *same = std::move(now);
  }
  for (WorkerRecord& worker : record.workers) {
    const bool there = std::ranges::any_of(
        pods, [&](const json::Value& pod) { return rank_of_pod(pod) == worker.rank; });
    if (!there && !has_ended(worker.state)) worker.state = JobState::kPending;
  }
  std::ranges::sort(record.workers, {}, &WorkerRecord::rank);
}

JobState state_of_workers(const JobRecord& record, bool any_pod) {
  const bool all_there = std::ranges::all_of(record.workers, [](const WorkerRecord& worker) {
    return worker.state == JobState::kRunning || worker.state == JobState::kSucceeded;
  });
  if (all_there && !record.workers.empty()) return JobState::kRunning;
  return any_pod ? JobState::kStarting : JobState::kPending;
}

void end_job(JobRecord& record, JobState state, std::optional<int> code, std::string reason) {
  record.state = state;
  record.exit_code = code;
  record.reason = std::move(reason);
  if (!record.ended) record.ended = std::chrono::system_clock::now();
  for (WorkerRecord& worker : record.workers) {
    if (has_ended(worker.state)) continue;
    worker.state = state == JobState::kSucceeded ? state : JobState::kStopped;
    worker.reason.clear();
  }
}

// `words` and `timed_out` as the owner says them.
void fail_job(JobRecord& record, const std::vector<json::Value>& pods, bool timed_out,
              const std::string& words) {
  if (timed_out) return end_job(record, JobState::kFailed, kExitTimeout, "--timeout has come");
  if (const json::Value* const pod = first_failure(pods)) {
    const json::Value& end = *terminated_of(*pod);
    return end_job(
        record, JobState::kFailed, exit_code_of_container(end),
        words_of_end(rank_of_pod(*pod).value_or(0), pod->string_at({"metadata", "name"}), end));
  }
  std::string reason = words_of_failed_pod(pods);
  if (reason.empty()) reason = words.empty() ? "the cluster does not say why" : words;
  end_job(record, JobState::kFailed, 1, std::move(reason));
}

std::string task_name(const json::Value& task) {
  const std::string_view name = task.string_at({"name"});
  const std::string_view type = task.string_at({"type"});
  return std::string(!name.empty() ? name : type.empty() ? "none" : type);
}

// Ranks that a smaller job no longer has, once their pods are gone.
void drop_workers(const json::Value& dijob, const std::vector<json::Value>& pods,
                  JobRecord& record) {
  const json::Array& tasks = items_at(dijob, {"spec", "tasks"});
  std::int64_t wanted = 0;
  for (const json::Value& task : tasks) wanted += task.int_at({"replicas"}).value_or(1);
  if (tasks.empty()) return;
  std::erase_if(record.workers, [&](const WorkerRecord& worker) {
    return worker.rank >= wanted && std::ranges::none_of(pods, [&](const json::Value& pod) {
             return rank_of_pod(pod) == worker.rank;
           });
  });
}

void judge_dijob(const json::Value& dijob, const std::vector<json::Value>& pods,
                 JobRecord& record) {
  const std::string_view phase = dijob.string_at({"status", "phase"});
  if (phase == "Succeeded") return end_job(record, JobState::kSucceeded, 0, "");
  if (phase == "Failed") {
    const std::string words = message_of(dijob, "Failed");
    return fail_job(record, pods, words.find("active longer than") != std::string::npos, words);
  }
  drop_workers(dijob, pods, record);
  record.state = phase == "Running"    ? JobState::kRunning
                 : phase == "Starting" ? state_of_workers(record, !pods.empty())
                 : phase.empty() || phase == "Pending" || phase == "Created" ? JobState::kPending
                                                                             : JobState::kStarting;
  record.reason.clear();
  for (const char* const type : {"Blocked", "PodsWaiting"}) {
    if (record.reason.empty() && record.state != JobState::kRunning) {
      record.reason = message_of(dijob, type);
    }
  }
  if (phase == "Pending" && record.reason.empty()) record.reason = message_of(dijob, "Pending");
}

void judge_jobs(const std::vector<json::Value>& jobs, const std::vector<json::Value>& pods,
                JobRecord& record) {
  const json::Value* failure = nullptr;
  bool all_ended = true;
  for (const json::Value& job : jobs) {
    if (failure == nullptr) failure = failure_of_job(job);
    all_ended = all_ended && job_has_ended(job);
  }
  if (all_ended && failure == nullptr && std::ranges::none_of(jobs, is_suspended)) {
    return end_job(record, JobState::kSucceeded, 0, "");
  }
  if (all_ended && failure != nullptr) {
    return fail_job(record, pods, failure->string_at({"reason"}) == "DeadlineExceeded",
                    std::string(failure->string_at({"message"})));
  }
  record.state = state_of_workers(record, !pods.empty());
  record.reason.clear();
  if (record.state == JobState::kRunning) return;
  for (const json::Value& pod : pods) {
    const auto wait = wait_of_pod(pod);
    if (!wait) continue;
    record.reason =
        fmt::format("pod {} does not start: {}", pod.string_at({"metadata", "name"}), wait->text);
    return;
  }
}

}  // namespace

std::optional<int> rank_of_pod(const json::Value& pod) {
  if (const auto rank = number(pod.string_at({"metadata", "annotations", "diengine/rank"}))) {
    return rank;
  }
  const auto first = number(pod.string_at({"metadata", "annotations", kFirstRankNote}));
  const auto index = number(
      pod.string_at({"metadata", "annotations", "batch.kubernetes.io/job-completion-index"}));
  return first && index ? std::optional(*first + *index) : std::nullopt;
}

std::string main_container_of(const json::Value& pod) {
  const json::Array& containers = items_at(pod, {"spec", "containers"});
  for (const json::Value& container : containers) {
    if (container.string_at({"name"}) == kMainContainer) return std::string(kMainContainer);
  }
  return containers.empty() ? std::string() : std::string(containers.front().string_at({"name"}));
}

bool has_log(const json::Value& pod) {
  return is_running(pod) || pod_has_ended(pod);
}

bool pod_has_ended(const json::Value& pod) {
  return terminated_of(pod) != nullptr;
}

std::optional<PodWait> wait_of_pod(const json::Value& pod) {
  const std::string_view phase = pod.string_at({"status", "phase"});
  if (phase == "Succeeded" || phase == "Failed" || is_going(pod)) return std::nullopt;
  for (const json::Value& condition : items_at(pod, {"status", "conditions"})) {
    if (condition.string_at({"type"}) == "PodScheduled" &&
        condition.string_at({"status"}) == "False" &&
        condition.string_at({"reason"}) == "Unschedulable") {
      return PodWait{"Unschedulable",
                     std::string(condition.string_at({"message"}).substr(0, kLongestWords))};
    }
  }
  for (const json::Value& container : items_at(pod, {"status", "containerStatuses"})) {
    const std::string_view reason = container.string_at({"state", "waiting", "reason"});
    const std::string_view kind = kind_of_wait(reason);
    if (kind.empty()) continue;
    const std::string_view words = container.string_at({"state", "waiting", "message"});
    return PodWait{std::string(kind),
                   fmt::format("container {}: {}: {}", container.string_at({"name"}), reason,
                               words.substr(0, kLongestWords))};
  }
  return std::nullopt;
}

WorkerRecord worker_of_pod(const json::Value& pod) {
  WorkerRecord worker;
  worker.rank = rank_of_pod(pod).value_or(0);
  worker.host = pod.string_at({"metadata", "name"});
  for (const json::Value& container : items_at(pod, {"spec", "containers"})) {
    worker.gpu =
        worker.gpu || container.find_path({"resources", "limits", "nvidia.com/gpu"}) != nullptr;
  }
  if (const json::Value* const end = terminated_of(pod)) {
    worker.exit_code = exit_code_of_container(*end);
    worker.state = *worker.exit_code == 0 ? JobState::kSucceeded
                   : is_going(pod)        ? JobState::kStopped
                                          : JobState::kFailed;
    if (*worker.exit_code != 0) worker.reason = words_of_end(worker.rank, worker.host, *end);
    return worker;
  }
  if (pod.string_at({"status", "phase"}) == "Failed") {
    worker.state = JobState::kFailed;
    worker.reason = words_of_failed_pod({pod});
    return worker;
  }
  if (is_running(pod)) {
    worker.state = JobState::kRunning;
    return worker;
  }
  const bool placed = !pod.string_at({"spec", "nodeName"}).empty();
  worker.state = placed ? JobState::kStarting : JobState::kPending;
  if (const auto wait = wait_of_pod(pod)) worker.reason = wait->text;
  return worker;
}

void judge_job(BackendKind kind, const std::vector<json::Value>& owners,
               const std::vector<json::Value>& pods, JobRecord& record) {
  set_workers(pods, record);
  if (owners.empty()) {
    return end_job(record, JobState::kStopped, kBySignal + SIGTERM, "it was deleted");
  }
  if (kind == BackendKind::kDijob) return judge_dijob(owners.front(), pods, record);
  judge_jobs(owners, pods, record);
}

std::vector<std::string> jobs_to_end(const std::vector<json::Value>& jobs) {
  std::vector<std::string> names;
  if (std::ranges::none_of(jobs, [](const json::Value& job) { return failure_of_job(job); })) {
    return names;
  }
  for (const json::Value& job : jobs) {
    if (failure_of_job(job) != nullptr || job_has_ended(job) || is_suspended(job)) continue;
    names.emplace_back(job.string_at({"metadata", "name"}));
  }
  return names;
}

Result<Resize> resize_of(const json::Value& dijob, int workers, const std::string& task) {
  const json::Array& tasks = items_at(dijob, {"spec", "tasks"});
  if (tasks.empty()) return failure(Code::kInvalid, "a job without spec.tasks is not scaled");
  std::vector<std::string> names;
  std::string sized;  // by the scale
  for (const json::Value& each : tasks) {
    names.push_back(task_name(each));
    if (each.string_at({"type"}) == "collector") sized = names.back();
  }
  if (names.size() == 1) sized = names.front();
  const std::string wanted = !task.empty() ? task : !sized.empty() ? sized : "worker";
  const auto found = std::ranges::find(names, wanted);
  if (found == names.end()) {
    return failure(Code::kInvalid, "there is no task {}; --task names one of {}", wanted,
                   fmt::join(names, ", "));
  }
  Resize resize;
  resize.by_scale = wanted == sized;
  if (resize.by_scale) {
    resize.patch["spec"]["replicas"] = workers;
    return resize;
  }
  // Only if the task still stands where it was seen.
  const std::string path = fmt::format("/spec/tasks/{}", found - names.begin());
  const json::Value& entry = tasks[static_cast<std::size_t>(found - names.begin())];
  const std::string key = entry.find("name") != nullptr ? "name" : "type";
  resize.patch = json::Array{
      json::Object{{"op", "test"}, {"path", path + "/" + key}, {"value", entry.string_at({key})}},
      json::Object{{"op", "add"}, {"path", path + "/replicas"}, {"value", workers}}};
  return resize;
}

JobRecord record_of_dijob(const json::Value& dijob) {
  JobRecord record;
  record.name = dijob.string_at({"metadata", "name"});
  record.backend = backend_name(BackendKind::kDijob);
  record.detached = true;
  record.created = kube::parse_time(dijob.string_at({"metadata", "creationTimestamp"}))
                       .value_or(std::chrono::system_clock::now());
  const auto ready = dijob.int_at({"status", "readyReplicas"}).value_or(0);
  const auto replicas = dijob.int_at({"status", "replicas"}).value_or(0);
  for (int rank = 0; rank < static_cast<int>(std::max(ready, replicas)); ++rank) {
    WorkerRecord worker;
    worker.rank = rank;
    worker.state = rank < ready ? JobState::kRunning : JobState::kPending;
    record.workers.push_back(std::move(worker));
  }
  judge_dijob(dijob, {}, record);
  record.restarts = static_cast<int>(dijob.int_at({"status", "restarts"}).value_or(0));
  record.data["namespace"] = dijob.string_at({"metadata", "namespace"});
  record.data["uids"] = json::Array{json::Value(dijob.string_at({"metadata", "uid"}))};
  record.data["started"] = true;
  return record;
}

}  // namespace divisi::run
