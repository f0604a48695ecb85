#include "dijob/testing/first_simulation.h"

#include "dijob/testing/manifests.h"
#include "io/jitter.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <utility>

namespace divisi::dijob::testing {
namespace {

using namespace std::chrono_literals;
using first::Role;

constexpr const char* kAggregatorConfigs =
    "/apis/diengine.opendilab.org/v1alpha1/aggregatorconfigs";
constexpr const char* kConfigKey = "di-system/aggregator-config";
constexpr auto kLongest = std::chrono::hours(6);

bool has_ended(const std::string& phase) {
  return phase == "Succeeded" || phase == "Failed";
}

std::string describe(const SimCluster::Change& change) {
  const json::Value& object = change.object;
  const std::string_view uid = object.string_at({"metadata", "uid"});
  return fmt::format("{:8} {:7} {} {} {}{}", change.type,
                     change.collection.substr(change.collection.rfind('/') + 1),
                     object.string_at({"metadata", "name"}), object.string_at({"status", "phase"}),
                     uid.substr(uid.size() - std::min<std::size_t>(uid.size(), 4)),
                     object.find_path({"metadata", "deletionTimestamp"}) ? " terminating" : "");
}

}  // namespace

FirstSimulation::Tally& FirstSimulation::Tally::operator+=(const Tally& other) {
  succeeded += other.succeeded;
  failed += other.failed;
  deleted += other.deleted;
  restarts += other.restarts;
  crashes += other.crashes;
  refused += other.refused;
  quiet += other.quiet;
  requests += other.requests;
  return *this;
}

FirstSimulation::FirstSimulation(std::uint64_t seed, bool tell)
    : random_(seed), tell_(tell), cluster_(seed) {
  io::seed_jitter(seed);
  cluster_.kubelet.script = [this](const json::Value& pod) { return fate_of(pod); };
  cluster_.api.intercept = [this](const http::Request& request) { return refuse(request); };
  cluster_.on_change = [this](const SimCluster::Change& change) {
    if (tell_ && change.collection != kEvents) say(describe(change));
    invariants_.see(change);
    // A DDP learner may lose its last owner when the kubelet is done with the aggregator.
    if (change.collection == kPods && change.type == "DELETED") cluster_.api.look_for_orphans();
    if (!invariants_.broken().empty()) say("BROKEN: " + invariants_.broken());
  };
}

int FirstSimulation::below(int limit) {
  return static_cast<int>(random_() % static_cast<std::uint64_t>(limit));
}

bool FirstSimulation::chance(double probability) {
  return std::uniform_real_distribution<>(0, 1)(random_) < probability;
}

void FirstSimulation::say(const std::string& text) const {
  if (!tell_) return;
  const auto time = std::chrono::duration<double>(cluster_.loop.now().time_since_epoch()).count();
  fmt::print(stderr, "{:.3f} {}\n", time, text);
}

std::string FirstSimulation::run() {
  choose_faults();
  if (chance(0.8)) create_config();
  leader_ = cluster_.start_operator();
  const int jobs = 1 + below(2);
  for (int i = 0; i < jobs; ++i) create_job();
  tick();
  const int troubles = 4 + below(12);
  for (int i = 0; i < troubles && invariants_.broken().empty(); ++i) {
    cluster_.loop.run_for(std::chrono::milliseconds(10 + below(12'000)));
    trouble();
  }
  make_peace();
  // Watches that fell silent are opened again, groups without an aggregator go, nodes come back.
  cluster_.settle(lost_a_node_ ? 30min : 12min);
  for (const Work& work : works_) {
    if (!cluster_.has_job(work.name) || has_ended(cluster_.phase(work.name))) continue;
    ++tally_.quiet;
    invariants_.check_quiet(work.name);
    if (!is_satisfied(work)) say(work.name + " lacks workers");
  }
  peace_ = true;
  const bool ended = cluster_.loop.run_until(
      [this] { return !invariants_.broken().empty() || all_over(); }, kLongest);
  if (ended) cluster_.settle(2min);
  if (invariants_.broken().empty()) invariants_.check_end();
  count();
  return invariants_.broken();
}

void FirstSimulation::choose_faults() {
  kube::testing::Faults& faults = cluster_.api.faults;
  const auto some = [this](double most) {
    return chance(0.5) ? std::uniform_real_distribution<>(0, most)(random_) : 0;
  };
  overlaps_ = chance(0.3);
  if (overlaps_) {
    faults = {.lose_answer = some(0.1), .repeat_event = some(0.2), .conflict = some(0.2)};
    return;
  }
  faults = {.refuse = some(0.15),
            .lose_answer = some(0.1),
            .lose_request = some(0.1),
            .cut_stream = some(0.1),
            .repeat_event = some(0.2),
            .go_back = some(0.1),
            .garbage = some(0.02),
            .compact = some(0.05),
            .silence = some(0.02),
            .late_events = some(0.3),
            .conflict = some(0.2)};
}

void FirstSimulation::create_config() {
  if (cluster_.api.store.find(kAggregatorConfigs, kConfigKey) != nullptr) return;
  json::Value config;
  config["metadata"]["name"] = "aggregator-config";
  config["metadata"]["namespace"] = "di-system";
  config["spec"]["aggregator"]["template"]["spec"]["containers"] =
      json::Array{json::Object{{"name", "aggregator"}, {"image", "busybox"}}};
  cluster_.api.store.create(kAggregatorConfigs, kConfigKey, std::move(config),
                            "2026-01-01T00:00:00Z");
}

void FirstSimulation::create_job() {
  Work work;
  work.name = fmt::format("j{}", works_.size());
  work.has_aggregator = chance(0.25);
  work.ends_early = chance(0.3);
  work.fails = chance(0.3);
  work.seconds = below(60);
  work.demand = {.collectors = below(4), .learners = below(3), .ddp_pods = 1 + below(2)};
  if (chance(0.3)) work.demand.groups = 1;
  std::string policy;
  if (chance(0.8)) {
    policy = std::string(", cleanPodPolicy: ") +
             std::array{"All", "None", "Running", "ALL", "''"}[std::size_t(below(5))];
  }
  const std::string yaml = fmt::format(
      "{{metadata: {{name: {0}, annotations: {{diengine/aggregator-at-start: '{1}'}}}}, spec: "
      "{{coordinator: {{template: {2}}}, collector: {{template: {2}}}, learner: {{template: "
      "{2}}}{3}}}}}",
      work.name, work.has_aggregator, kPodTemplate, policy);
  say("create " + yaml);
  cluster_.create_job(yaml);
  rejections_[work.name + "-coordinator"] = chance(0.2) ? 1 + below(2) : 0;
  works_.push_back(std::move(work));
}

// Coordinators end as their programs say.
Fate FirstSimulation::fate_of(const json::Value& pod) {
  const std::string name(pod.string_at({"metadata", "name"}));
  if (const auto left = rejections_.find(name); left != rejections_.end() && left->second > 0) {
    --left->second;
    return {.end = Fate::End::kReject};
  }
  const std::string_view role = pod.string_at({"metadata", "labels", first::labels::kRole});
  const bool is_fixed = role == "coordinator" || name.ends_with("-aggregator");
  if (is_fixed || peace_ || chance(0.8)) return {};
  return {.end = chance(0.8) ? Fate::End::kFail : Fate::End::kEvict,
          .after = std::chrono::milliseconds(below(40'000))};
}

// --- coordinators ---

void FirstSimulation::tick() {
  clock_ = cluster_.loop.after(calm_ ? 15s : 1s, [this] { tick(); });
  for (Work& work : works_) run_coordinator(work);
}

void FirstSimulation::run_coordinator(Work& work) {
  const std::string name = work.name + "-coordinator";
  const json::Value* const pod = cluster_.api.store.find(kPods, in_default(name));
  const json::Value* const job = cluster_.api.store.find(kJobs, in_default(work.name));
  if (pod == nullptr || job == nullptr) return;
  const bool runs = pod->string_at({"status", "phase"}) == "Running" &&
                    pod->find_path({"metadata", "deletionTimestamp"}) == nullptr &&
                    !cluster_.kubelet.is_dead(std::string(pod->string_at({"spec", "nodeName"})));
  const std::string owner(job->string_at({"metadata", "uid"}));
  if (!runs || owner_of(*pod) != owner) return;
  if (has_ended(std::string(job->string_at({"status", "phase"})))) return;
  if (work.coordinator != pod->string_at({"metadata", "uid"})) {
    work.coordinator = pod->string_at({"metadata", "uid"});
    work.worked = 0;
  }
  // It asks again whenever somebody is missing.
  if (replace_failed(work) || !is_satisfied(work)) {
    server_.satisfy(work.name, work.demand);
    return;
  }
  work.worked += calm_ ? 15 : 1;
  if (work.worked <= work.seconds || !(peace_ || work.ends_early)) return;
  say(fmt::format("{} {}", name, work.fails ? "fails" : "succeeds"));
  if (work.fails) {
    invariants_.coordinator_failed(owner);
    cluster_.kubelet.fail(in_default(name));
  } else {
    invariants_.coordinator_succeeded(owner);
    cluster_.kubelet.succeed(in_default(name));
  }
}

bool FirstSimulation::replace_failed(const Work& work) {
  bool any = false;
  for (const first::Pod& pod : server_.pods(work.name)) {
    if (pod.role == Role::kCoordinator || pod.outcome() != "failed" || pod.terminating) continue;
    server_.drop(pod);
    any = true;
  }
  return any;
}

// All workers run, and each is found under its name.
bool FirstSimulation::is_satisfied(const Work& work) const {
  std::map<Role, int> running;
  for (const first::Pod& pod : server_.pods(work.name)) {
    const json::Value* const service = cluster_.api.store.find(kServices, in_default(pod.name));
    const bool found = service != nullptr &&
                       service->string_at({"spec", "selector", first::labels::kPod}) == pod.name;
    if (pod.live() && pod.outcome() == "active" && found) ++running[pod.role];
  }
  const FirstDemand& demand = work.demand;
  return running[Role::kCollector] == demand.collectors &&
         running[Role::kLearner] == demand.learners &&
         running[Role::kAggregator] == demand.groups + (work.has_aggregator ? 1 : 0) &&
         running[Role::kDdpLearner] == demand.groups * demand.ddp_pods;
}

// --- trouble ---

std::optional<http::Response> FirstSimulation::refuse(const http::Request& request) {
  invariants_.see_request(request);
  if (quota_ == 0 || request.method != "POST" || !request.target.ends_with("/pods") ||
      cluster_.api.store.all(kPods).size() < quota_) {
    return std::nullopt;
  }
  ++tally_.refused;
  return chance(0.5) ? kube::status_answer(403, "Forbidden", "exceeded quota: few")
                     : kube::status_answer(422, "Invalid", "limits: must be an integer");
}

void FirstSimulation::trouble() {
  switch (below(11)) {
    case 0:
    case 1:
    case 2: return change_leader();
    case 3: {
      const auto& nodes = cluster_.kubelet.nodes();
      const std::string& node = nodes[static_cast<std::size_t>(below(int(nodes.size())))];
      if (!chance(0.3)) return;
      say("kill " + node);
      lost_a_node_ = true;
      return cluster_.kubelet.kill_node(node);
    }
    case 4:
      cluster_.skew = std::chrono::seconds(chance(0.5) ? 0 : below(7200) - 3600);
      return say(fmt::format("skew {}", cluster_.skew.count()));
    case 5:
      if (!overlaps_) cluster_.api.cut_all_streams();
      return;
    case 6:
      quota_ = chance(0.5) ? 0 : std::size_t(1 + below(4));
      return say(fmt::format("quota {}", quota_));
    default: break;
  }
  Work& work = works_[static_cast<std::size_t>(below(int(works_.size())))];
  if (cluster_.has_job(work.name)) trouble_with(work);
}

void FirstSimulation::trouble_with(Work& work) {
  switch (below(8)) {
    case 0:
    case 1: return delete_pod(work.name);
    case 2: return touch_service(work.name, true);
    case 3: return touch_service(work.name, false);
    case 4: return take_owner(work.name);
    case 5:
      say("another demand of " + work.name);
      work.demand.collectors = below(4);
      work.demand.learners = below(3);
      return;
    case 6:
      say("bad edit of " + work.name);
      edited_.insert(work.name);
      return cluster_.edit_job(work.name, "{spec: {cleanPodPolicy: hello}}");
    default:
      if (!chance(0.3)) return;
      say("delete job " + work.name);
      ++tally_.deleted;
      return cluster_.delete_job(work.name);
  }
}

void FirstSimulation::delete_pod(const std::string& job) {
  const auto names = cluster_.pod_names(job);
  if (names.empty()) return;
  const std::string& pod = names[static_cast<std::size_t>(below(int(names.size())))];
  say("delete pod " + pod);
  cluster_.delete_pod(pod);
}

// Deletes a service, or makes it look elsewhere.
void FirstSimulation::touch_service(const std::string& job, bool remove) {
  const auto names = cluster_.services(job);
  if (names.empty()) return;
  const std::string key = in_default(names[static_cast<std::size_t>(below(int(names.size())))]);
  say(fmt::format("{} service {}", remove ? "delete" : "edit", key));
  if (remove) {
    cluster_.api.store.remove(kServices, key);
  } else {
    json::Value service = *cluster_.api.store.find(kServices, key);
    service["spec"]["selector"][first::labels::kPod] = "nobody";
    cluster_.api.store.update(kServices, key, std::move(service));
  }
  cluster_.api.changed();
}

// Of a worker that runs.
void FirstSimulation::take_owner(const std::string& job) {
  for (const first::Pod& pod : server_.pods(job)) {
    const bool is_worker = pod.role == Role::kCollector || pod.role == Role::kLearner;
    if (!is_worker || pod.terminating || !pod.controlled) continue;
    say("take the owner of " + pod.name);
    json::Value object = cluster_.pod(pod.name);
    object["metadata"].erase("ownerReferences");
    cluster_.api.store.update(kPods, in_default(pod.name), std::move(object));
    return cluster_.api.changed();
  }
}

void FirstSimulation::change_leader() {
  if (handover_ != nullptr) return;
  ++tally_.crashes;
  const std::size_t old = leader_;
  const io::Duration pause = std::chrono::milliseconds(below(15'000));
  if (!overlaps_ || chance(0.5)) {
    say("crash");
    cluster_.crash_operator(old);
    handover_ = cluster_.loop.after(pause, [this] {
      leader_ = cluster_.start_operator();
      say("another one starts");
      handover_.reset();
    });
    return;
  }
  say("a second one starts");
  leader_ = cluster_.start_operator();
  handover_ = cluster_.loop.after(pause, [this, old] {
    cluster_.crash_operator(old);
    say("the first one ends");
    handover_.reset();
  });
}

void FirstSimulation::make_peace() {
  say("peace");
  calm_ = true;
  cluster_.loop.run_until([this] { return handover_ == nullptr; });
  cluster_.api.faults = {};
  cluster_.skew = {};
  quota_ = 0;
  create_config();
  for (const std::string& job : edited_) {
    if (cluster_.has_job(job)) cluster_.edit_job(job, "{spec: {cleanPodPolicy: Running}}");
  }
}

bool FirstSimulation::all_over() const {
  return std::ranges::all_of(works_, [this](const Work& work) {
    return !cluster_.has_job(work.name) || has_ended(cluster_.phase(work.name));
  });
}

void FirstSimulation::count() {
  for (const Work& work : works_) {
    tally_.succeeded += cluster_.phase(work.name) == "Succeeded" ? 1 : 0;
    tally_.failed += cluster_.phase(work.name) == "Failed" ? 1 : 0;
    tally_.restarts += static_cast<std::uint64_t>(cluster_.status(work.name, "restarts"));
  }
  tally_.requests = cluster_.api.requests();
}

}  // namespace divisi::dijob::testing
