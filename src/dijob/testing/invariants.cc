#include "dijob/testing/invariants.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <utility>

namespace divisi::dijob::testing {
namespace {

using namespace std::chrono_literals;

// How long after an edit an operator may still act on what was before it: its watch was silent.
constexpr auto kStale = 15min;

bool over(std::string_view phase) {
  return phase == "Succeeded" || phase == "Failed";
}

int number_of(const std::string& text) {
  int value = -1;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

std::vector<std::string> split(const std::string& list) {
  std::vector<std::string> parts;
  for (std::size_t at = 0; at <= list.size();) {
    const std::size_t end = std::min(list.find(',', at), list.size());
    parts.push_back(list.substr(at, end - at));
    at = end + 1;
  }
  return parts;
}

std::string name_of(const json::Value& object) {
  return std::string(object.string_at({"metadata", "name"}));
}

std::string uid_of(const json::Value& object) {
  return std::string(object.string_at({"metadata", "uid"}));
}

}  // namespace

template <class... Args>
void Invariants::fail(fmt::format_string<Args...> text, Args&&... args) {
  if (broken_.empty()) broken_ = fmt::format(text, std::forward<Args>(args)...);
}

void Invariants::see(const SimCluster::Change& change) {
  if (change.collection == kJobs) see_job(change);
  if (change.collection == kPods) see_pod(change);
}

// --- jobs ---

void Invariants::see_job(const SimCluster::Change& change) {
  if (change.type == "DELETED") return;
  const json::Value& object = change.object;
  Known& job = jobs_[uid_of(object)];
  job.name = name_of(object);
  const json::Value* const tasks = object.find_path({"spec", "tasks"});
  job.is_template = tasks == nullptr;
  Wish wish{
      .since = cluster_.loop.now(),
      .suspended = object.bool_at({"spec", "suspend"}).value_or(false),
      .rolls = object.find_path({"metadata", "annotations", "diengine/restartedAt"}) != nullptr};
  bool some_decide = false;
  if (tasks != nullptr && tasks->as_array() != nullptr) {
    for (const json::Value& task : *tasks->as_array()) {
      std::string name(task.string_at({"name"}));
      if (name.empty()) name = task.string_at({"type"});
      wish.replicas[name] = static_cast<int>(task.int_at({"replicas"}).value_or(1));
      if (task.bool_at({"completesJob"}).value_or(false)) {
        if (!std::exchange(some_decide, true)) wish.decides.clear();
        wish.decides.insert(name);
      } else if (!some_decide) {
        wish.decides.insert(name);
      }
    }
  }
  if (job.wishes.empty() || job.wishes.back().suspended != wish.suspended ||
      job.wishes.back().replicas != wish.replicas || job.wishes.back().rolls != wish.rolls) {
    job.wishes.push_back(wish);
    // Who is no longer wanted may get another rank when it is wanted again.
    std::erase_if(job.ranks, [&](const auto& entry) {
      const json::Value pod = cluster_.pod(entry.first);
      return pod.is_null() || !wanted(job, wish, pod);
    });
  }
  check_phase(job, object);
  check_counters(job, object);
  check_budget(job, object);
}

void Invariants::check_phase(Known& job, const json::Value& object) {
  const std::string phase(object.string_at({"status", "phase"}));
  if (over(job.phase) && phase != job.phase) {
    fail("{} was {} and became {}", job.name, job.phase, phase);
  }
  if (phase == job.phase) return;
  job.phase = phase;
  if (phase == "Failed") check_failed(job, object);
  if (phase == "Succeeded" && !job.is_template) check_succeeded(job);
  if (over(phase) && object.string_at({"status", "completionTimestamp"}).empty()) {
    fail("{} is {} without the time", job.name, phase);
  }
}

void Invariants::check_counters(Known& job, const json::Value& object) {
  for (const char* const name : {"restarts", "reschedules", "generation", "spentRestarts"}) {
    const std::int64_t now = object.int_at({"status", name}).value_or(0);
    std::int64_t& before = job.counters[name];
    if (now < before) fail("{}: {} went from {} down to {}", job.name, name, before, now);
    if (now > before + 1) fail("{}: {} went from {} to {} at once", job.name, name, before, now);
    before = now;
  }
}

void Invariants::check_budget(const Known& job, const json::Value& object) {
  const std::int64_t restarts = object.int_at({"status", "restarts"}).value_or(0);
  const std::int64_t spent = object.int_at({"status", "spentRestarts"}).value_or(0);
  const json::Value* const limit = object.find_path({"spec", "backoffLimit"});
  const std::int64_t most = limit == nullptr             ? (job.is_template ? 0 : 3)
                            : limit->as_int() == nullptr ? spent
                                                         : *limit->as_int();
  if (spent > most) fail("{}: {} restarts were paid, {} are allowed", job.name, spent, most);
  // A gang is also restarted for other reasons than failures.
  const int caused = cluster_.kubelet.failures(uid_of(object));
  const std::int64_t counted = job.is_template ? spent : restarts;
  if (counted > caused) fail("{}: {} restarts for {} failures", job.name, counted, caused);
}

// More has failed than was restarted, unless something else than failures ended it.
void Invariants::check_failed(const Known& job, const json::Value& object) {
  const json::Value condition = cluster_.condition(job.name, "Failed");
  const std::string_view why = condition.string_at({"message"});
  const bool by_failures =
      why.ends_with("exceed backoff limit") || why.ends_with("replicas failed.");
  const bool by_rule = why.find("exit code") != std::string_view::npos ||
                       why.find("is not restarted") != std::string_view::npos ||
                       why.find("active longer") != std::string_view::npos ||
                       (why.starts_with("spec.priority") && !job.had_pods);
  if (!by_failures && !by_rule) fail("{} failed: {}", job.name, why);
  const json::Value* const tasks = object.find_path({"status", "taskRestarts"});
  std::int64_t paid = object.int_at({"status", "spentRestarts"}).value_or(0);
  if (tasks != nullptr && tasks->as_object() != nullptr) paid = 0;  // one restart may pay both
  const int caused = cluster_.kubelet.failures(uid_of(object));
  if (by_failures && caused <= paid) {
    fail("{} failed after {} failures with {} restarts", job.name, caused, paid);
  }
}

void Invariants::check_succeeded(const Known& job) {
  const bool some = std::ranges::any_of(job.wishes, [&](const Wish& wish) {
    return std::ranges::all_of(wish.decides, [&](const std::string& task) {
      for (int i = 0; i < wish.replicas.at(task); ++i) {
        if (!job.succeeded.contains(fmt::format("{}-{}-{}", job.name, task, i))) return false;
      }
      return true;
    });
  });
  if (!some) fail("{} succeeded though not all that count had", job.name);
}

// --- pods ---

void Invariants::see_pod(const SimCluster::Change& change) {
  const json::Value& pod = change.object;
  if (pod.find_path({"metadata", "ownerReferences"}) == nullptr) return;  // a stranger's
  if (change.type == "DELETED") check_process(pod);
  const auto found = jobs_.find(owner_of(pod));
  if (found == jobs_.end()) return fail("pod {} has no owner", name_of(pod));
  Known& job = found->second;
  if (change.type == "ADDED") check_new_pod(job, pod);
  const bool marked =
      change.type == "DELETED" || pod.find_path({"metadata", "deletionTimestamp"}) != nullptr;
  bool& before = marked_[uid_of(pod)];
  if (marked && !std::exchange(before, true)) check_removal(job, pod);
  const std::string_view phase = pod.string_at({"status", "phase"});
  if (phase == "Succeeded") job.succeeded.insert(name_of(pod));
  if (phase == "Failed" && !marked) job.failed[name_of(pod)] = uid_of(pod);
}

void Invariants::check_new_pod(Known& job, const json::Value& pod) {
  const std::string name = name_of(pod);
  job.had_pods = true;
  const int rank = number_of(env_of(pod, "DI_RANK"));
  for (const auto& [key, other] : cluster_.api.store.all(kPods)) {
    if (uid_of(other) == uid_of(pod) || owner_of(other) != owner_of(pod)) continue;
    if (number_of(env_of(other, "DI_RANK")) == rank) {
      fail("rank {} of {} has two pods: {} and {}", rank, job.name, name, name_of(other));
    }
  }
  if (over(job.phase)) fail("{} is {} and got the pod {}", job.name, job.phase, name);
  check_place(job, pod);
  if (!job.is_template && wanted(job, job.wishes.back(), pod)) {
    const auto [entry, is_new] = job.ranks.emplace(name, rank);
    if (entry->second != rank) {
      fail("{} had rank {} and came back with {}", name, entry->second, rank);
    }
  }
  const auto failed = job.failed.find(name);
  if (failed == job.failed.end()) return;
  const bool entered =
      cluster_.job(job.name).string_at({"status", "failures", name, "uid"}) == failed->second;
  if (!cluster_.api.store.has_uid(owner_of(pod))) return;  // it was on its way
  const bool suspended = std::ranges::any_of(job.wishes, &Wish::suspended);
  const bool resized = job.wishes.size() > 1;
  if (!job.is_template && !entered && !suspended && !resized &&
      !excused_.contains(failed->second)) {
    fail("{} was replaced before its failure was written down", name);
  }
}

// The engine takes DI_NODES[DI_RANK] for its own address.
void Invariants::check_place(const Known& job, const json::Value& pod) {
  const std::string name = name_of(pod);
  const int rank = number_of(env_of(pod, "DI_RANK"));
  const std::vector<std::string> hosts = split(env_of(pod, "DI_NODES"));
  if (rank < 0 || static_cast<std::size_t>(rank) >= hosts.size()) {
    return fail("{} has rank {} of {} hosts", name, rank, hosts.size());
  }
  const std::string host = fmt::format("{}.{}{}.default.svc.cluster.local", name,
                                       job.is_template ? "" : "di-", job.name);
  if (hosts[static_cast<std::size_t>(rank)] != host) {
    fail("{} finds {} in its place", name, hosts[static_cast<std::size_t>(rank)]);
  }
}

// A pod of which something may run is deleted by its kubelet alone, unless its node is lost.
void Invariants::check_process(const json::Value& pod) {
  const std::string node(pod.string_at({"spec", "nodeName"}));
  if (node.empty() || over(pod.string_at({"status", "phase"}))) return;
  if (cluster_.kubelet.took_away(uid_of(pod)) || cluster_.kubelet.is_dead(node)) return;
  fail("{} was deleted by force though its node {} answers", name_of(pod), node);
}

bool Invariants::wanted(const Known& job, const Wish& wish, const json::Value& pod) const {
  if (wish.suspended) return false;
  if (job.is_template) return true;
  const auto task =
      wish.replicas.find(std::string(pod.string_at({"metadata", "labels", "diengine/task-name"})));
  const std::string index(pod.string_at({"metadata", "annotations", "diengine/task-rank"}));
  return task != wish.replicas.end() && number_of(index) < task->second;
}

// Whoever works and is wanted stays.
void Invariants::check_removal(const Known& job, const json::Value& pod) {
  if (over(pod.string_at({"status", "phase"})) || over(job.phase)) return;
  if (excused_.contains(uid_of(pod)) || !cluster_.api.store.has_uid(owner_of(pod))) return;
  if (cluster_.kubelet.is_dead(std::string(pod.string_at({"spec", "nodeName"})))) return;
  if (job.is_template && job.phase == "Restarting") return;
  for (std::size_t i = job.wishes.size(); i-- > 0;) {
    const Wish& wish = job.wishes[i];
    if (!wanted(job, wish, pod) || wish.rolls) return;
    if (wish.since + kStale < cluster_.loop.now()) break;  // those before are forgotten
  }
  fail("{} of {}, which is {}, was taken away though it was wanted", name_of(pod), job.name,
       job.phase);
}

// --- the end ---

void Invariants::check_end() {
  for (const char* const collection : {kPods, kServices, kSecrets}) {
    for (const auto& [key, object] : cluster_.api.store.all(collection)) {
      if (!cluster_.api.store.has_uid(owner_of(object))) fail("{} is an orphan", key);
    }
  }
  for (const auto& [uid, job] : jobs_) {
    if (cluster_.api.store.has_uid(uid)) check_finished(uid, job);
  }
}

void Invariants::check_finished(const std::string& uid, const Known& job) {
  if (!over(job.phase)) return fail("{} never ended: it is {}", job.name, job.phase);
  if (!cluster_.services(job.name).empty()) fail("{} is over and has a service", job.name);
  const json::Value object = cluster_.job(job.name);
  const std::string_view policy = object.string_at({"spec", "cleanPodPolicy"});
  if (object.find_path({"spec", "ttlSecondsAfterFinished"}) != nullptr) {
    fail("{} was to be gone", job.name);
  }
  if (policy == "None") return;
  for (const json::Value& pod : cluster_.pods(job.name)) {
    if (owner_of(pod) != uid) continue;
    if (policy == "All" || !over(pod.string_at({"status", "phase"}))) {
      fail("{} is over with policy {} and has the pod {}", job.name, policy, name_of(pod));
    }
  }
}

}  // namespace divisi::dijob::testing
