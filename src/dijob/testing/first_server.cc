#include "dijob/testing/first_server.h"

#include "dijob/first/job.h"

#include <algorithm>
#include <utility>

namespace divisi::dijob::testing {

using first::Role;

std::string FirstServer::add(const std::string& job, Role role, std::optional<first::DdpPlace> ddp,
                             const std::string& aggregator) {
  const auto read = first::read_job(cluster_.job(job));
  if (!read) return {};  // an edit that nobody can use
  const json::Value* const own = read->find_template(role);
  first::PodWish wish;
  wish.role = role;
  wish.name = first::random_pod_name(job, role, next_++);
  wish.pod_template = own == nullptr ? read->find_template(Role::kCoordinator) : own;
  wish.ddp = std::move(ddp);
  wish.coordinator_uid = cluster_.uid(job + "-coordinator");
  if (!aggregator.empty()) {
    wish.aggregator_name = aggregator;
    wish.aggregator_uid = cluster_.uid(aggregator);
  }
  if (wish.ddp) wish.resources[std::string(first::kGpu)] = json::Quantity(wish.ddp->gpus);
  json::Value pod = first::make_pod(*read, wish, "di-server.di-system:8080");
  pod["status"]["phase"] = "Pending";
  cluster_.api.store.create(kPods, in_default(wish.name), std::move(pod), "2026-01-01T00:00:00Z");
  cluster_.api.changed();
  return wish.name;
}

std::vector<first::Pod> FirstServer::pods(const std::string& job) const {
  const json::Value* const owner = cluster_.api.store.find(kJobs, in_default(job));
  std::vector<first::Pod> found;
  if (owner == nullptr) return found;
  const std::string_view uid = owner->string_at({"metadata", "uid"});
  for (const auto& [key, object] : cluster_.api.store.all(kPods)) {
    if (object.string_at({"metadata", "labels", first::labels::kJob}) != job) continue;
    auto pod = first::read_pod(object);
    // One whose owner somebody has taken away is still the job's.
    if (pod && (pod->owner_uid == uid || pod->owner_uid.empty())) {
      found.push_back(*std::move(pod));
    }
  }
  return found;
}

void FirstServer::remove(const first::Pod& pod) {
  if (pod.terminating) return;
  if (on_delete) on_delete(pod.uid);
  cluster_.delete_pod(pod.name);
}

void FirstServer::drop(const first::Pod& pod) {
  const std::string group = pod.role == Role::kAggregator ? pod.uid : pod.aggregator_uid;
  if (group.empty()) return remove(pod);
  for (const first::Pod& each : pods(pod.owner)) {
    if (each.uid == group || each.aggregator_uid == group) remove(each);
  }
}

void FirstServer::fit(const std::string& job, Role role, int wanted) {
  for (const first::Pod& pod : pods(job)) {
    if (pod.role == role && !pod.terminating && --wanted < 0) remove(pod);
  }
  for (; wanted > 0; --wanted) add(job, role);
}

void FirstServer::add_group(const std::string& job, int ddp_pods) {
  const std::string aggregator = add(job, Role::kAggregator);
  if (aggregator.empty()) return;
  constexpr int kGpus = 2;
  std::string master;
  for (int i = 0; i < ddp_pods; ++i) {
    first::DdpPlace place{.world_size = kGpus * ddp_pods,
                          .gpus = kGpus,
                          .start_rank = kGpus * i,
                          .several = ddp_pods > 1,
                          .master = master};
    const std::string name = add(job, Role::kDdpLearner, std::move(place), aggregator);
    if (master.empty()) master = name;
  }
}

void FirstServer::satisfy(const std::string& job, const FirstDemand& demand) {
  if (!first::read_job(cluster_.job(job))) return;
  fit(job, Role::kCollector, demand.collectors);
  fit(job, Role::kLearner, demand.learners);
  int groups = demand.groups;
  const auto all = pods(job);
  for (const first::Pod& pod : all) {
    if (pod.role != Role::kAggregator || pod.terminating) continue;
    if (pod.name == first::fixed_pod_name(job, Role::kAggregator)) continue;  // the operator's
    const auto members = std::ranges::count_if(all, [&](const first::Pod& each) {
      return each.aggregator_uid == pod.uid && !each.terminating;
    });
    if (members == demand.ddp_pods && --groups >= 0) continue;
    drop(pod);
  }
  for (; groups > 0; --groups) add_group(job, demand.ddp_pods);
}

}  // namespace divisi::dijob::testing
