#include "dijob/testing/simulation.h"

#include "dijob/testing/manifests.h"
#include "io/jitter.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <utility>

namespace divisi::dijob::testing {
namespace {

using namespace std::chrono_literals;

constexpr auto kLongestJob = std::chrono::hours(12);

bool over(const std::string& phase) {
  return phase == "Succeeded" || phase == "Failed";
}

// One change of the store, for who reads along.
std::string line_of(const SimCluster::Change& change) {
  const json::Value& object = change.object;
  std::string line = fmt::format(
      "{:8} {:7} {} {}", change.type, change.collection.substr(change.collection.rfind('/') + 1),
      object.string_at({"metadata", "name"}), object.string_at({"status", "phase"}));
  if (change.collection == kJobs) {
    for (const char* const number : {"restarts", "reschedules", "generation", "replicas"}) {
      line += fmt::format(" {}={}", number, object.int_at({"status", number}).value_or(0));
    }
  }
  if (change.collection == kPods) {
    const std::string_view uid = object.string_at({"metadata", "uid"});
    line += fmt::format(" {} {} rank={}{}", uid.substr(uid.size() - 4),
                        object.string_at({"status", "reason"}), env_of(object, "DI_RANK"),
                        object.find_path({"metadata", "deletionTimestamp"}) ? " terminating" : "");
  }
  return line;
}

}  // namespace

Simulation::Tally& Simulation::Tally::operator+=(const Tally& other) {
  jobs += other.jobs;
  succeeded += other.succeeded;
  failed += other.failed;
  deleted += other.deleted;
  restarts += other.restarts;
  crashes += other.crashes;
  blocked += other.blocked;
  edits_refused += other.edits_refused;
  forced += other.forced;
  requests += other.requests;
  return *this;
}

Simulation::Simulation(std::uint64_t seed, bool tell) : random_(seed), tell_(tell), cluster_(seed) {
  io::seed_jitter(seed);
  cluster_.kubelet.script = [this](const json::Value& pod) { return fate_of(pod); };
  cluster_.api.intercept = [this](const http::Request& request) { return refuse(request); };
  cluster_.on_change = [this](const SimCluster::Change& change) {
    if (change.collection == kJobs && change.object.find_path({"status", "conditions"})) {
      const json::Value refused = cluster_.condition(
          std::string(change.object.string_at({"metadata", "name"})), "EditRefused");
      tally_.edits_refused += refused.string_at({"status"}) == "True" ? 1 : 0;
    }
    if (tell_ && change.collection != kEvents) say(line_of(change));
    invariants_.see(change);
    if (!invariants_.broken().empty()) say("BROKEN: " + invariants_.broken());
  };
}

int Simulation::below(int limit) {
  return static_cast<int>(random_() % static_cast<std::uint64_t>(limit));
}

bool Simulation::chance(double probability) {
  return std::uniform_real_distribution<>(0, 1)(random_) < probability;
}

void Simulation::say(const std::string& text) const {
  if (!tell_) return;
  const auto time = std::chrono::duration<double>(cluster_.loop.now().time_since_epoch()).count();
  fmt::print(stderr, "{:.3f} {}\n", time, text);
}

std::string Simulation::run() {
  choose_faults();
  leader_ = cluster_.start_operator();
  const int jobs = 1 + below(3);
  for (int i = 0; i < jobs; ++i) create_job();
  const int troubles = 5 + below(25);
  for (int i = 0; i < troubles && invariants_.broken().empty(); ++i) {
    cluster_.loop.run_for(std::chrono::milliseconds(10 + below(12'000)));
    trouble();
  }
  make_peace();
  const bool ended = cluster_.loop.run_until(
      [this] { return !invariants_.broken().empty() || all_over(); }, kLongestJob);
  if (ended) cluster_.settle(30min);  // nodes come back, time to live passes
  if (invariants_.broken().empty()) invariants_.check_end();
  count();
  return invariants_.broken();
}

void Simulation::choose_faults() {
  kube::testing::Faults& faults = cluster_.api.faults;
  const auto some = [this](double most) {
    return chance(0.5) ? std::uniform_real_distribution<>(0, most)(random_) : 0;
  };
  // The lease keeps out a leader that lags behind by seconds: the watches of two that lead at once
  // are good.
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

// --- jobs ---

std::string Simulation::random_task(const std::string& type, bool completes) {
  std::string more;
  if (completes) more += "completesJob: true, ";
  if (chance(0.15)) more += fmt::format("backoffLimit: {}, ", chance(0.5) ? "null" : "2");
  if (chance(0.1)) more += "exitCodeRules: [{exitCodes: [3], action: Ignore}], ";
  if (type != "learner" && chance(0.15)) more += "startAfter: [learner], ";
  if (type == "collector" && chance(0.15)) more += "minAvailable: 1, ";
  return task(type, 1 + below(3), more);
}

void Simulation::create_job() {
  const std::string name = fmt::format("{}{}", chance(0.25) ? "g" : "j", jobs_.size());
  std::string more;
  const auto add = [&](const std::string& field) { more += (more.empty() ? "" : ", ") + field; };
  if (chance(0.7)) {
    add(fmt::format("cleanPodPolicy: {}",
                    std::array{"All", "None", "Running"}[std::size_t(below(3))]));
  }
  if (chance(0.5))
    add(fmt::format("backoffLimit: {}", chance(0.3) ? "null" : std::to_string(below(4))));
  if (chance(0.1)) add("ttlSecondsAfterFinished: 300");
  if (chance(0.1)) add("activeDeadlineSeconds: 900");
  if (chance(0.1)) add("suspend: true");
  std::string yaml;
  if (name.front() == 'g') {
    add(fmt::format("minReplicas: {}, maxReplicas: 4", 1 + below(3)));
    yaml = template_job(more, name);
  } else {
    const bool completes = chance(0.3);
    std::vector<std::string> tasks{random_task("learner", completes)};
    if (chance(0.8)) tasks.push_back(random_task("collector", false));
    if (chance(0.4)) tasks.push_back(random_task("evaluator", false));
    yaml = tasks_job(tasks, more, name);
  }
  say("create " + yaml);
  cluster_.create_job(yaml);
  jobs_.push_back(name);
  ++tally_.jobs;
}

// Some ends that are none of success, then success: whatever is tried often enough works.
Fate Simulation::fate_of(const json::Value& pod) {
  std::string name(pod.string_at({"metadata", "name"}));
  if (name.front() == 'g') {  // <job>-<generation>-<rank>: every generation is one more try
    name = name.substr(0, name.find('-')) + name.substr(name.rfind('-'));
  }
  const auto [found, is_new] = fates_.try_emplace(name);
  std::vector<Fate>& fates = found->second;
  if (is_new) {
    for (int i = chance(0.5) ? below(4) : 0; i > 0; --i) {
      const io::Duration after = std::chrono::milliseconds(below(40'000));
      const int kind = below(10);
      Fate fate{.end = Fate::End::kFail, .after = after, .exit_code = 1 + below(4)};
      if (kind == 8) fate.end = Fate::End::kEvict;
      if (kind == 9) fate.end = Fate::End::kReject;
      fates.push_back(fate);
    }
  }
  if (fates.empty()) {
    return {.end = Fate::End::kSucceed, .after = std::chrono::milliseconds(below(90'000))};
  }
  const Fate fate = fates.back();
  fates.pop_back();
  return fate;
}

// --- trouble ---

std::optional<http::Response> Simulation::refuse(const http::Request& request) {
  if (const std::size_t at = request.target.find("/pods/");
      request.method == "DELETE" && at != std::string::npos) {
    const json::Value pod = cluster_.pod(request.target.substr(at + 6));
    const bool leaving = pod.find_path({"metadata", "deletionTimestamp"}) != nullptr;
    tally_.forced += leaving && request.body.find(R"("gracePeriodSeconds":0)") != std::string::npos;
  }
  if (quota_ == 0 || request.method != "POST" || !request.target.ends_with("/pods") ||
      cluster_.api.store.all(kPods).size() < quota_) {
    return std::nullopt;
  }
  ++tally_.blocked;
  return kube::status_answer(403, "Forbidden", "exceeded quota: few");
}

void Simulation::trouble() {
  switch (below(10)) {
    case 8:
      quota_ = chance(0.5) ? 0 : std::size_t(1 + below(6));
      return say(fmt::format("quota {}", quota_));
    case 9:
      cluster_.kubelet.slow_down(std::chrono::seconds(chance(0.7) ? 0 : below(900)));
      return say("slow down");
    case 0:
    case 1:
    case 2: return change_leader();
    case 3: {
      const auto& nodes = cluster_.kubelet.nodes();
      const std::string& node = nodes[static_cast<std::size_t>(below(int(nodes.size())))];
      if (!chance(0.2)) return;
      say("kill " + node);
      return cluster_.kubelet.kill_node(node);
    }
    case 4:
      cluster_.skew = std::chrono::seconds(chance(0.5) ? 0 : below(7200) - 3600);
      return say(fmt::format("skew {}", cluster_.skew.count()));
    case 5:
      if (!overlaps_) cluster_.api.cut_all_streams();
      return;
    default: break;
  }
  const std::string& job = jobs_[static_cast<std::size_t>(below(int(jobs_.size())))];
  if (cluster_.has_job(job)) trouble_with(job);
}

void Simulation::trouble_with(const std::string& job) {
  const int kind = below(12);
  if (kind == 10) return break_spec(job);
  if (kind == 11) return take_name(job);
  if (kind < 4) return resize(job);
  if (kind < 6) {
    const bool suspend = chance(0.4);
    say(fmt::format("suspend {} {}", job, suspend));
    return cluster_.edit_job(job, fmt::format("{{spec: {{suspend: {}}}}}", suspend));
  }
  if (kind < 8) {
    const auto names = cluster_.pod_names(job);
    if (names.empty()) return;
    const std::string& pod = names[static_cast<std::size_t>(below(int(names.size())))];
    say("delete pod " + pod);
    invariants_.excuse(cluster_.uid(pod));
    return cluster_.delete_pod(pod);
  }
  if (kind == 8) {
    say("roll " + job);
    return cluster_.edit_job(
        job, fmt::format("{{metadata: {{annotations: {{diengine/restartedAt: t{}}}}}}}", below(3)));
  }
  if (!chance(0.5)) return;
  say("delete job " + job);
  ++tally_.deleted;
  cluster_.delete_job(job);
}

void Simulation::resize(const std::string& job) {
  json::Value object = cluster_.job(job);
  json::Value* const tasks = object["spec"].find("tasks");
  if (tasks == nullptr) {
    const int replicas = 1 + below(4);
    say(fmt::format("resize {} {}", job, replicas));
    if (chance(0.5)) return cluster_.edit_status(job, fmt::format("{{replicas: {}}}", replicas));
    return cluster_.edit_job(job, fmt::format("{{spec: {{replicas: {}}}}}", replicas));
  }
  if (chance(0.3)) {
    const int replicas = 1 + below(4);
    say(fmt::format("scale {} {}", job, replicas));
    return cluster_.edit_job(job, fmt::format("{{spec: {{replicas: {}}}}}", replicas));
  }
  json::Array& list = *tasks->as_array();
  json::Value& task = list[static_cast<std::size_t>(below(int(list.size())))];
  task["replicas"] = 1 + below(4);
  json::Value patch;
  patch["spec"]["tasks"] = *tasks;
  say("resize " + job);
  cluster_.edit_job(job, json::print(patch));
}

// An edit that cannot run, or one that mends it.
void Simulation::break_spec(const std::string& job) {
  const bool mend = broken_.erase(job) > 0;
  if (!mend) broken_.insert(job);
  say(fmt::format("{} the spec of {}", mend ? "mend" : "break", job));
  cluster_.edit_job(job, fmt::format("{{spec: {{priority: {}}}}}", mend ? "normal" : "wrong"));
}

// Somebody else's pod, where one of the job's is to be.
void Simulation::take_name(const std::string& job) {
  const std::string name =
      fmt::format("{}-{}-{}", job, job.front() == 'g' ? "1" : "collector", below(3));
  if (!cluster_.pod(name).is_null()) return;
  say("take the name " + name);
  json::Value pod;
  pod["metadata"]["name"] = name;
  pod["metadata"]["namespace"] = "default";
  taken_.insert(in_default(name));
  cluster_.api.store.create(kPods, in_default(name), std::move(pod), "2026-01-01T00:00:00Z");
  cluster_.api.changed();
}

// A crash with a pause, or two that lead at once for a while.
void Simulation::change_leader() {
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

void Simulation::make_peace() {
  say("peace");
  cluster_.loop.run_until([this] { return handover_ == nullptr; });
  cluster_.api.faults = {};
  cluster_.skew = {};
  cluster_.kubelet.slow_down({});
  quota_ = 0;
  for (const std::string& key : taken_) {
    if (cluster_.api.store.find(kPods, key) != nullptr) cluster_.api.store.remove(kPods, key);
  }
  cluster_.api.changed();
  for (const std::string& job : broken_) {
    if (cluster_.has_job(job)) cluster_.edit_job(job, "{spec: {priority: normal}}");
  }
  for (const std::string& job : jobs_) {
    if (cluster_.has_job(job)) cluster_.edit_job(job, "{spec: {suspend: null}}");
  }
}

bool Simulation::all_over() const {
  return std::ranges::all_of(jobs_, [this](const std::string& name) {
    if (!cluster_.has_job(name)) return true;
    const bool stays = cluster_.job(name).find_path({"spec", "ttlSecondsAfterFinished"}) == nullptr;
    return stays && over(cluster_.phase(name));
  });
}

void Simulation::count() {
  for (const std::string& job : jobs_) {
    tally_.succeeded += cluster_.phase(job) == "Succeeded" ? 1 : 0;
    tally_.failed += cluster_.phase(job) == "Failed" ? 1 : 0;
    tally_.restarts += static_cast<std::uint64_t>(cluster_.status(job, "restarts"));
  }
  tally_.requests = cluster_.api.requests();
}

}  // namespace divisi::dijob::testing
