#include "server/first/team.h"

#include "dijob/pod_template.h"

#include <algorithm>
#include <charconv>
#include <functional>
#include <tuple>
#include <utility>

namespace divisi::server::first {
namespace {

int number_of(const std::string& text) {
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() ? number : 0;
}

// Made for an earlier incarnation of the coordinator. Pods of the reference do not say for whom
// they were made; those that are older than the coordinator are an earlier one's.
bool is_of_earlier(const Pod& pod, const Caller& caller) {
  if (caller.uid.empty()) return false;
  if (!pod.coordinator_uid.empty()) return pod.coordinator_uid != caller.uid;
  return !pod.created.empty() && pod.created < caller.created;
}

bool may_count(const Pod& pod, const Caller& caller) {
  if (pod.over() || caller.uid.empty() || is_operators(pod)) return false;
  if (caller.claimed.contains(pod.uid) || is_of_earlier(pod, caller)) return true;
  return !caller.served && pod.coordinator_uid == caller.uid;
}

struct Picked {
  WorkerList kept{};
  int missing = 0;
};

// Takes up to `wanted` of them: first those of this coordinator, then those that are ready.
Picked pick(const WorkerList& all, int wanted, const Caller& caller,
            const std::function<bool(const Worker&)>& fits) {
  WorkerList fitting;
  for (const Worker* each : all) {
    if (may_count(each->pod, caller) && fits(*each)) fitting.push_back(each);
  }
  std::ranges::sort(fitting, {}, [&](const Worker* each) {
    return std::tuple(is_of_earlier(each->pod, caller), !each->pod.ready, each->pod.name);
  });
  if (fitting.size() > static_cast<std::size_t>(wanted)) {
    fitting.resize(static_cast<std::size_t>(wanted));
  }
  const int missing = wanted - static_cast<int>(fitting.size());
  return {std::move(fitting), missing};
}

// Failed before the first demand of its coordinator was met, so another one is made in its place.
bool is_useless(const Pod& pod, const Caller& caller) {
  return !caller.uid.empty() && !caller.served && pod.coordinator_uid == caller.uid && pod.over();
}

void note_surplus(const WorkerList& all, const WorkerList& kept, const Caller& caller, Plan& plan) {
  for (const Worker* each : all) {
    const bool is_useful = !is_useless(each->pod, caller);
    if (is_operators(each->pod)) continue;
    if (is_useful && !is_of_earlier(each->pod, caller)) continue;
    const bool is_kept = std::ranges::find(kept, each) != kept.end();
    (is_kept ? plan.adopted : plan.surplus).push_back(each);
  }
}

}  // namespace

bool is_operators(const Pod& pod) {
  return pod.role == Role::kAggregator &&
         pod.name == dijob::first::fixed_pod_name(pod.owner, Role::kAggregator);
}

const WorkerList& Team::group_of(const Worker& aggregator) const {
  static const WorkerList none;
  const auto found = ddp.find(aggregator.pod.uid);
  return found == ddp.end() ? none : found->second;
}

Team sort_out(const std::vector<Worker>& workers) {
  Team team;
  for (const Worker& each : workers) {
    if (each.pod.terminating) continue;
    switch (each.pod.role) {
      case Role::kCollector: team.collectors.push_back(&each); break;
      case Role::kLearner: team.learners.push_back(&each); break;
      case Role::kAggregator: team.aggregators.push_back(&each); break;
      case Role::kDdpLearner: team.ddp[each.pod.aggregator_uid].push_back(&each); break;
      case Role::kCoordinator: break;
    }
  }
  return team;
}

std::vector<std::string> collector_urls(const Team& team) {
  std::vector<std::string> urls;
  for (const Worker* each : team.collectors) urls.push_back(each->pod.url());
  return urls;
}

std::vector<std::string> learner_urls(const Team& team) {
  std::vector<std::string> urls;
  for (const WorkerList* list : {&team.learners, &team.aggregators}) {
    for (const Worker* each : *list) {
      if (!is_operators(each->pod)) urls.push_back(each->pod.url());
    }
  }
  return urls;
}

std::vector<std::string> rank_urls(const Team& team, const Worker& aggregator) {
  WorkerList group = team.group_of(aggregator);
  std::ranges::sort(group, {},
                    [](const Worker* each) { return std::pair(each->pod.port, each->pod.name); });
  std::vector<std::string> urls;
  for (const Worker* each : group) {
    for (std::string& url : each->pod.rank_urls()) urls.push_back(std::move(url));
  }
  return urls;
}

std::string variable_of(const Worker& worker, std::string_view name) {
  const json::Value* spec = worker.object.find("spec");
  const json::Value* main =
      spec == nullptr ? nullptr : dijob::first::main_container(*spec, worker.pod.role);
  if (main == nullptr) return {};
  std::string value;
  for (const json::Value& each : dijob::elements(*main, "env")) {
    if (each.string_at({"name"}) == name) value = each.string_at({"value"});  // the last one counts
  }
  return value;
}

int world_size(const WorkerList& group) {
  return group.empty() ? 0 : number_of(variable_of(*group.front(), "WORLD_SIZE"));
}

Plan plan_demand(const Team& team, const Demand& demand, const Caller& caller) {
  Plan plan;
  if (demand.collectors) {
    Picked picked = pick(team.collectors, demand.collectors->replicas, caller,
                         [](const Worker&) { return true; });
    note_surplus(team.collectors, picked.kept, caller, plan);
    plan.kept_collectors = std::move(picked.kept);
    plan.collectors = picked.missing;
  }
  if (!demand.learners) return plan;
  const int gpus = demand.learners->gpus;
  const auto fits = [&](const Worker& each) {
    if (each.pod.role == Role::kLearner) return true;
    const int size = world_size(team.group_of(each));
    return size == 0 || size == gpus;  // 0: nobody came to make its group
  };
  Picked picked =
      pick(gpus > 1 ? team.aggregators : team.learners, demand.learners->replicas, caller, fits);
  for (const WorkerList* list : {&team.learners, &team.aggregators}) {
    note_surplus(*list, picked.kept, caller, plan);
  }
  plan.kept_learners = std::move(picked.kept);
  plan.learners = picked.missing;
  return plan;
}

}  // namespace divisi::server::first
