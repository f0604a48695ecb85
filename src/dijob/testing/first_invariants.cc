#include "dijob/testing/first_invariants.h"

#include <algorithm>
#include <array>
#include <utility>

namespace divisi::dijob::testing {
namespace {

bool is_over(std::string_view phase) {
  return phase == "Succeeded" || phase == "Failed";
}

// The order in which phases may follow each other.
int order_of(std::string_view phase) {
  if (phase.empty()) return 0;
  if (phase == "Created") return 1;
  return phase == "Running" ? 2 : 3;
}

std::string_view last_message(const json::Value& object) {
  const json::Value* const all = object.find_path({"status", "conditions"});
  if (all == nullptr || all->as_array() == nullptr || all->as_array()->empty()) return {};
  return all->as_array()->back().string_at({"message"});
}

}  // namespace

template <class... Args>
void FirstInvariants::fail(fmt::format_string<Args...> text, Args&&... args) {
  if (broken_.empty()) broken_ = fmt::format(text, std::forward<Args>(args)...);
}

void FirstInvariants::see(const SimCluster::Change& change) {
  if (change.collection == kJobs && change.type != "DELETED") see_job(change.object);
}

void FirstInvariants::see_job(const json::Value& object) {
  const std::string uid(object.string_at({"metadata", "uid"}));
  const std::string name(object.string_at({"metadata", "name"}));
  const std::string phase(object.string_at({"status", "phase"}));
  std::string& before = phases_[uid];
  if (before == phase) return;
  if (order_of(phase) <= order_of(before)) fail("{} went from {} to {}", name, before, phase);
  const bool refused = last_message(object).starts_with("Invalid CleanPodPolicy");
  if (phase == "Failed" && !failed_.contains(uid) && !refused) {
    fail("{} failed, but no coordinator of it has", name);
  }
  if (phase == "Succeeded" && !succeeded_.contains(uid)) {
    fail("{} succeeded, but no coordinator of it has", name);
  }
  before = phase;
}

void FirstInvariants::see_request(const http::Request& request) {
  const std::size_t at = request.target.find("/pods/");
  if (request.method != "DELETE" || at == std::string::npos) return;
  const std::string_view rest = std::string_view(request.target).substr(at + 6);
  check_delete(std::string(rest.substr(0, rest.find('?'))), request);
}

// The operator takes no pod of a living job away but what is lost, was rejected, or has lost its
// aggregator.
void FirstInvariants::check_delete(const std::string& pod, const http::Request& request) {
  const json::Value object = cluster_.pod(pod);
  const auto read = first::read_pod(object);
  if (!read || read->terminating) return;
  // Another one of that name: the precondition of the request refuses it.
  if (request.body.find(read->uid) == std::string::npos) return;
  const json::Value job = cluster_.job(read->owner);
  if (job.string_at({"metadata", "uid"}) != read->owner_uid) return;
  if (is_over(job.string_at({"status", "phase"}))) return;
  if (object.string_at({"status", "reason"}).starts_with("OutOf")) return;
  const bool orphan =
      !read->aggregator_uid.empty() && !cluster_.api.store.has_uid(read->aggregator_uid);
  if (!orphan) fail("{} of a living job was deleted by the operator", pod);
}

void FirstInvariants::check_counts(const std::string& job) {
  const json::Value object = cluster_.job(job);
  const json::Value* const counts = object.find_path({"status", "replicaStatus"});
  if (counts == nullptr) return fail("{} has no replicaStatus", job);
  const auto pods = server_.pods(job);
  for (const first::Role role : first::kRoles) {
    const std::string_view key = first::status_key(role);
    if (key.empty()) continue;
    for (const std::string_view outcome : {"active", "succeeded", "failed"}) {
      const auto there = std::ranges::count_if(pods, [&](const first::Pod& pod) {
        return pod.role == role && pod.live() && pod.outcome() == outcome;
      });
      const std::int64_t told = counts->int_at({key, outcome}).value_or(0);
      if (told != there) fail("{}: {} {} are {}, not {}", job, key, outcome, there, told);
    }
  }
}

void FirstInvariants::check_quiet(const std::string& job) {
  const auto pods = server_.pods(job);
  for (const first::Pod& pod : pods) {
    const json::Value* const service = cluster_.api.store.find(kServices, in_default(pod.name));
    if (service == nullptr) {
      fail("{} has no service", pod.name);
    } else if (service->string_at({"spec", "selector", first::labels::kPod}) != pod.name) {
      fail("the service of {} does not find it", pod.name);
    }
    if (!pod.controlled) fail("{} was not adopted", pod.name);
  }
  for (const std::string& service : cluster_.services(job)) {
    if (std::ranges::find(pods, service, &first::Pod::name) == pods.end()) {
      fail("the service {} has no pod", service);
    }
  }
  const std::string coordinator = first::fixed_pod_name(job, first::Role::kCoordinator);
  if (cluster_.uid(coordinator).empty()) return fail("{} has no coordinator", job);
  if (cluster_.job(job).string_at({"status", "coordinatorUid"}) != cluster_.uid(coordinator)) {
    fail("{} does not know its coordinator", job);
  }
  check_counts(job);
}

void FirstInvariants::check_end() {
  for (const char* const collection : {kPods, kServices}) {
    for (const auto& [key, object] : cluster_.api.store.all(collection)) {
      const std::string owner = owner_of(object);
      if (!owner.empty() && !cluster_.api.store.has_uid(owner)) fail("{} is an orphan", key);
    }
  }
  for (const auto& [key, object] : cluster_.api.store.all(kJobs)) {
    check_finished(std::string(object.string_at({"metadata", "name"})), object);
  }
}

void FirstInvariants::check_finished(const std::string& job, const json::Value& object) {
  const std::string_view phase = object.string_at({"status", "phase"});
  if (!is_over(phase)) return fail("{} never ended: it is {}", job, phase);
  if (!cluster_.services(job).empty()) fail("{} is over and has a service", job);
  const std::string_view policy = object.string_at({"spec", "cleanPodPolicy"});
  for (const first::Pod& pod : server_.pods(job)) {
    const bool stays = policy == "None" || (policy != "All" && pod.over());
    if (!stays) fail("{} is over with policy {} and has the pod {}", job, policy, pod.name);
  }
  if (phase != "Succeeded") return;
  for (const first::Role role : first::kRoles) {
    const std::string_view key = first::status_key(role);
    if (key.empty()) continue;
    if (object.int_at({"status", "replicaStatus", key, "active"}).value_or(0) != 0) {
      fail("{} has succeeded with active pods of {}", job, key);
    }
  }
}

}  // namespace divisi::dijob::testing
