// Pods and services of a first-generation job: which are created, and which go.
#include "dijob/first/planner.h"
#include "dijob/pod_template.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <utility>

namespace divisi::dijob::first {
namespace {

constexpr std::chrono::seconds kAskForConfig{5};

// Whether the service finds that pod, and no other.
bool selects(const SeenService& service, const SeenPod& seen) {
  const json::Object* const wanted = service.selector.as_object();
  if (wanted == nullptr || service.selector.string_at({labels::kPod}) != seen.pod.name) {
    return false;
  }
  return std::ranges::all_of(*wanted, [&](const json::Member& each) {
    const std::string* const value = each.second.as_string();
    return value != nullptr && seen.object.string_at({"metadata", "labels", each.first}) == *value;
  });
}

}  // namespace

bool was_rejected(const SeenPod& seen) {
  if (seen.pod.phase != "Failed") return false;
  std::string reason(seen.object.string_at({"status", "reason"}));
  std::ranges::transform(reason, reason.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return reason == "unexpectedadmissionerror" || reason.starts_with("outof");
}

bool starts_aggregator(const Observed& observed) {
  return observed.aggregator_at_start || observed.job.aggregator_at_start;
}

bool needs_aggregator_config(const Observed& observed) {
  const std::string_view phase = phase_of(observed.object);
  if (phase == phases::kSucceeded || phase == phases::kFailed || observed.job.deleting) {
    return false;
  }
  const std::string name = fixed_pod_name(observed.job.name, Role::kAggregator);
  return starts_aggregator(observed) && observed.unreadable.ok() &&
         std::ranges::none_of(observed.pods,
                              [&](const SeenPod& seen) { return seen.pod.name == name; });
}

const SeenPod* Planner::find_pod(std::string_view name) const {
  const auto found =
      std::ranges::find_if(seen_.pods, [&](const SeenPod& seen) { return seen.pod.name == name; });
  return found == seen_.pods.end() ? nullptr : &*found;
}

const SeenService* Planner::find_service(std::string_view name) const {
  const auto found = std::ranges::find(seen_.services, name, &SeenService::name);
  return found == seen_.services.end() ? nullptr : &*found;
}

bool Planner::is_ours(std::string_view name) const {
  if (name == fixed_pod_name(job_.name, Role::kCoordinator)) return true;
  return starts_aggregator(seen_) && name == fixed_pod_name(job_.name, Role::kAggregator);
}

bool Planner::is_complete() const {
  if (find_pod(fixed_pod_name(job_.name, Role::kCoordinator)) == nullptr) return false;
  return !starts_aggregator(seen_) ||
         find_pod(fixed_pod_name(job_.name, Role::kAggregator)) != nullptr;
}

// A node that had no room for the coordinator or the aggregator after all: another one is created,
// later each time. Those of other pods are reported to di-server by the coordinator.
void Planner::replace_rejected() {
  for (const SeenPod& seen : seen_.pods) {
    if (!is_ours(seen.pod.name) || !seen.pod.live() || !was_rejected(seen)) continue;
    // It is written down before it is gone.
    failures_.enter(seen.pod.name, seen.pod.uid, nullptr, seen_.now);
    if (const auto left = failures_.wait(seen.pod.name, seen_.now)) {
      out_.look_in(*left);
    } else {
      remove(seen.pod);
    }
  }
}

void Planner::create_missing() {
  if (is_complete() || !readable_) return;
  std::string url;
  if (starts_aggregator(seen_)) {
    auto found = aggregator_url();
    if (!found) {
      // The coordinator is given the address: it waits, too.
      no_aggregator_ = found.error().message();
      return out_.look_in(kAskForConfig);
    }
    url = *std::move(found);
    create(Role::kAggregator, url);
  }
  create(Role::kCoordinator, url);
}

Result<std::string> Planner::aggregator_url() const {
  const std::string name = fixed_pod_name(job_.name, Role::kAggregator);
  if (const SeenPod* const seen = find_pod(name)) return seen->pod.url();
  if (!seen_.aggregator_template) return failure(seen_.aggregator_template.error());
  static const json::Value none(json::Object{});
  const json::Value* const spec = seen_.aggregator_template->find("spec");
  return fmt::format("{}.{}:{}", name, job_.space,
                     main_port(spec == nullptr ? none : *spec, Role::kAggregator));
}

// One that is being deleted still has the name.
void Planner::create(Role role, const std::string& aggregator_url) {
  PodWish wish;
  wish.role = role;
  wish.name = fixed_pod_name(job_.name, role);
  if (find_pod(wish.name) != nullptr) return;
  if (seen_.hold.count() > 0) return out_.look_in(seen_.hold);
  if (const auto left = failures_.wait(wish.name, seen_.now)) return out_.look_in(*left);
  wish.aggregator_url = aggregator_url;
  wish.pod_template =
      role == Role::kAggregator ? &*seen_.aggregator_template : job_.find_template(role);
  json::Value pod = make_pod(job_, wish, seen_.server_url);
  if (find_service(wish.name) == nullptr) {
    out_.actions.emplace_back(CreateService{make_service(pod)});
  }
  out_.actions.emplace_back(CreatePod{wish.name, std::move(pod)});
}

void Planner::serve_pods() {
  for (const SeenPod& seen : seen_.pods) {
    if (!seen.pod.live()) continue;
    const SeenService* const service = find_service(seen.pod.name);
    if (service == nullptr) {
      out_.actions.emplace_back(CreateService{make_service(seen.object)});
    } else if (!selects(*service, seen)) {
      // Somebody has edited it; the next pass creates it again.
      out_.actions.emplace_back(DeleteService{service->name, service->uid});
    }
  }
}

void Planner::remove_unused_services() {
  for (const SeenService& service : seen_.services) {
    if (is_ours(service.name) || find_pod(service.name) != nullptr) continue;
    out_.actions.emplace_back(DeleteService{service.name, service.uid});
  }
}

// DDP learners are owned by the job, too: nobody else takes them away when their aggregator is
// gone.
void Planner::remove_orphaned() {
  for (const SeenPod& seen : seen_.pods) {
    if (!seen.orphaned_in || !seen.pod.live()) continue;
    if (seen.orphaned_in->count() <= 0) {
      remove(seen.pod);
    } else {
      out_.look_in(*seen.orphaned_in);
    }
  }
}

// A pod whose node is lost stays for good otherwise, and with it its name.
void Planner::force_stuck() {
  for (const SeenPod& seen : seen_.pods) {
    if (!seen.pod.terminating || !seen.lost_in) continue;
    if (seen.lost_in->count() <= 0) {
      out_.actions.emplace_back(DeletePod{
          .name = seen.pod.name, .uid = seen.pod.uid, .force = true, .node = seen.pod.node});
    } else {
      out_.look_in(*seen.lost_in);
    }
  }
}

void Planner::tell_blocked() {
  constexpr std::string_view kType = "Blocked";
  if (!no_aggregator_.empty()) {
    constexpr std::string_view kReason = "AggregatorConfigMissing";
    if (!status_.holds(kType)) out_.tell("Warning", kReason, no_aggregator_);
    status_.set_condition(kType, true, kReason, no_aggregator_);
  } else if (!seen_.blocked.empty() && !is_complete()) {
    status_.set_condition(kType, true, "FailedCreate", seen_.blocked);
  } else if (status_.holds(kType) && is_complete()) {
    status_.set_condition(kType, false, "SuccessfulCreate", "");
  }
}

void Planner::tell_waiting() {
  std::vector<WaitingPod> waiting;
  for (const SeenPod& seen : seen_.pods) {
    if (!seen.pod.live()) continue;
    if (auto trouble = read_trouble(seen.object)) {
      waiting.push_back({seen.pod.name, *std::move(trouble)});
    }
  }
  status_.tell_waiting(waiting);
}

void Planner::remove(const Pod& pod) {
  out_.actions.emplace_back(DeletePod{.name = pod.name, .uid = pod.uid, .ended = pod.over()});
}

}  // namespace divisi::dijob::first
