// First-generation jobs with everything real but the programs of the coordinators: operators and
// di-servers on one simulated cluster, and orders of events that a seed chooses.
//
//   DIVISI_SIM_SEED=17 build/release/tests/server_first_simulation_test      repeats one, with a
//   log DIVISI_SIM_SEEDS=2000 build/release/tests/server_first_simulation_test   looks further
//
// A quarter of that number is run: a seed takes ten times as long as one with a model of di-server.
#include "base/log.h"
#include "dijob/testing/first_invariants.h"
#include "dijob/testing/manifests.h"
#include "io/jitter.h"
#include "server/api_testing.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <random>
#include <set>

namespace divisi::server::first {
namespace {

using namespace std::chrono_literals;
using dijob::first::Pod;
using dijob::first::Role;
using dijob::testing::Fate;
using dijob::testing::in_default;
using dijob::testing::SimCluster;
using server::testing::FakeCall;
using server::testing::Replica;
using server::testing::Seen;

constexpr const char* kPods = dijob::testing::kPods;
constexpr const char* kConfigs = "/apis/diengine.opendilab.org/v1alpha1/aggregatorconfigs";
constexpr const char* kConfigKey = "di-system/aggregator-config";
constexpr const char* kNodes = "/api/v1/nodes";
constexpr int kGpusOfANode = 4;

std::string pod_of(const std::string& url) {
  return url.substr(0, url.find('.'));
}

// What a coordinator asks for at its start.
struct Wanted {
  int collectors = 0;
  int learners = 0;
  int gpus = 0;  // of each learner; more than one: an aggregator and its group

  int ddp_pods() const {
    return gpus > 1 ? learners * ((gpus + kGpusOfANode - 1) / kGpusOfANode) : 0;
  }
};

// The loop of a coordinator, or of an aggregator with its ranks: report who cannot be used, ask for
// the list.
struct Asker {
  std::string uid{};                 // of its pod
  bool demanded = false;             // aggregators demand nothing
  std::set<std::string> listed{};    // pods, by the last answer
  std::set<std::string> known{};     // pods that were listed once
  std::set<std::string> reported{};  // by the request under way
  std::string asks{};                // "demand", "report", "list"
  std::shared_ptr<Seen> request{};
};

struct Work {
  std::string name{};
  Wanted wanted{};
  bool fails = false;
  Asker coordinator{};
  std::map<std::string, Asker> aggregators{};  // by uid
};

class JobSimulation {
 public:
  struct Tally {
    std::uint64_t succeeded = 0;
    std::uint64_t failed = 0;
    std::uint64_t replaced = 0;   // coordinators
    std::uint64_t rebuilt = 0;    // workers, by reports
    std::uint64_t restarts = 0;   // of di-servers
    std::uint64_t dismissed = 0;  // workers that a user gave back
  };

  JobSimulation(std::uint64_t seed, bool tell) : random_(seed), tell_(tell), cluster_(seed) {
    io::seed_jitter(seed);
    cluster_.kubelet.script = [this](const json::Value& pod) { return fate_of(pod); };
    cluster_.on_change = [this](const SimCluster::Change& change) { see(change); };
  }

  // What did not hold, or nothing.
  std::string run();
  const Tally& tally() const { return tally_; }

 private:
  int below(int limit) { return static_cast<int>(random_() % static_cast<std::uint64_t>(limit)); }
  bool chance(double probability) {
    return std::uniform_real_distribution<>(0, 1)(random_) < probability;
  }
  void say(const std::string& text) const {
    if (!tell_) return;
    const auto time = std::chrono::duration<double>(cluster_.loop.now().time_since_epoch()).count();
    fmt::print(stderr, "{:.3f} {}\n", time, text);
  }
  template <class... Args>
  void fail(fmt::format_string<Args...> text, Args&&... args) {
    if (broken_.empty()) broken_ = fmt::format(text, std::forward<Args>(args)...);
  }

  void give_gpus();
  void create_config();
  void create_job(const std::string& name);
  void choose_faults();
  void see(const SimCluster::Change& change);
  Fate fate_of(const json::Value& pod);

  void tick();
  void run_coordinator(Work& work);
  void run_aggregators(Work& work, const json::Value& job);
  void step(Work& work, Asker& asker, const json::Value& pod);
  void hear(Asker& asker);
  void ask(Work& work, Asker& asker, const std::string& pod_name, bool is_coordinator);
  std::shared_ptr<Seen> send(std::string method, std::string target, std::string body);
  std::set<std::string> unusable(const Asker& asker) const;
  bool runs(const json::Value& pod) const;
  bool is_satisfied(const Work& work) const;
  std::map<Role, int> running(const Work& work) const;

  void trouble();
  void trouble_with(Work& work);
  void change_operator();
  void restart_server();
  bool is_known(const Work& work, const std::string& pod) const;
  void give_back(Work& work);
  void make_peace();
  bool all_over() const;
  void check_rest(const Work& work);

  std::mt19937_64 random_;
  const bool tell_;
  SimCluster cluster_;
  dijob::testing::FirstServer view_{cluster_};  // only looks at pods
  dijob::testing::FirstInvariants invariants_{cluster_, view_};
  std::vector<std::unique_ptr<Replica>> servers_;  // null: it is away
  std::vector<Work> works_;
  bool calm_ = false;
  bool peace_ = false;
  std::size_t leader_ = 0;
  std::unique_ptr<io::Timer> handover_;
  std::vector<std::unique_ptr<io::Timer>> returns_;
  std::unique_ptr<io::Timer> clock_;
  bool lost_a_node_ = false;
  std::string broken_;
  Tally tally_;
};

std::string JobSimulation::run() {
  give_gpus();
  create_config();
  choose_faults();
  leader_ = cluster_.start_operator();
  servers_.resize(chance(0.5) ? 1 : 2);
  for (auto& each : servers_) {
    each = std::make_unique<Replica>(cluster_.loop, cluster_.api, AuthOptions{});
  }
  const int jobs = 1 + below(2);
  for (int i = 0; i < jobs; ++i) create_job(fmt::format("j{}", i));
  tick();
  const int troubles = 4 + below(12);
  for (int i = 0; i < troubles && broken_.empty(); ++i) {
    cluster_.loop.run_for(std::chrono::milliseconds(10 + below(12'000)));
    trouble();
  }
  make_peace();
  cluster_.settle(lost_a_node_ ? 30min : 12min);
  for (const Work& work : works_) check_rest(work);
  peace_ = true;
  const bool ended = cluster_.loop.run_until([this] { return !broken_.empty() || all_over(); }, 1h);
  if (!ended) fail("a job never ended");
  cluster_.settle(2min);
  if (broken_.empty()) invariants_.check_end();
  if (broken_.empty()) broken_ = invariants_.broken();
  for (const Work& work : works_) {
    tally_.succeeded += cluster_.phase(work.name) == "Succeeded" ? 1 : 0;
    tally_.failed += cluster_.phase(work.name) == "Failed" ? 1 : 0;
    tally_.replaced += static_cast<std::uint64_t>(cluster_.status(work.name, "restarts"));
  }
  return broken_;
}

void JobSimulation::give_gpus() {
  std::vector<std::string> keys;
  for (const auto& [key, node] : cluster_.api.store.all(kNodes)) keys.push_back(key);
  for (const std::string& key : keys) {
    json::Value node = *cluster_.api.store.find(kNodes, key);
    node["status"]["allocatable"][std::string(dijob::first::kGpu)] = std::to_string(kGpusOfANode);
    cluster_.api.store.update(kNodes, key, std::move(node));
  }
}

void JobSimulation::create_config() {
  if (cluster_.api.store.find(kConfigs, kConfigKey) != nullptr) return;
  json::Value config;
  config["metadata"]["name"] = "aggregator-config";
  config["metadata"]["namespace"] = "di-system";
  config["spec"]["aggregator"]["template"]["spec"]["containers"] =
      json::Array{json::Object{{"name", "aggregator"}, {"image", "busybox"}}};
  cluster_.api.store.create(kConfigs, kConfigKey, std::move(config), "2026-01-01T00:00:00Z");
}

void JobSimulation::create_job(const std::string& name) {
  Work work;
  work.name = name;
  work.fails = chance(0.3);
  work.wanted = {.collectors = below(4), .learners = 1 + below(2), .gpus = 0};
  if (chance(0.4)) work.wanted.gpus = 2 + below(7);
  cluster_.create_job(fmt::format(
      "{{metadata: {{name: {0}}}, spec: {{cleanPodPolicy: {2}, coordinator: {{template: {1}}}, "
      "collector: {{template: {1}}}, learner: {{template: {1}}}}}}}",
      name, dijob::testing::kPodTemplate, chance(0.5) ? "Running" : "All"));
  say(fmt::format("create {}: {} collectors, {} learners of {} GPUs", name, work.wanted.collectors,
                  work.wanted.learners, work.wanted.gpus));
  works_.push_back(std::move(work));
}

void JobSimulation::choose_faults() {
  const auto some = [this](double most) {
    return chance(0.5) ? std::uniform_real_distribution<>(0, most)(random_) : 0;
  };
  cluster_.api.faults = {.refuse = some(0.1),
                         .lose_answer = some(0.1),
                         .lose_request = some(0.1),
                         .cut_stream = some(0.1),
                         .repeat_event = some(0.2),
                         .compact = some(0.05),
                         .late_events = some(0.3),
                         .conflict = some(0.2)};
}

void JobSimulation::see(const SimCluster::Change& change) {
  if (tell_ && change.collection == kPods) {
    say(fmt::format("{:8} {} {}{}", change.type, change.object.string_at({"metadata", "name"}),
                    change.object.string_at({"status", "phase"}),
                    change.object.find_path({"metadata", "deletionTimestamp"}) != nullptr
                        ? " terminating"
                        : ""));
  }
  invariants_.see(change);
  if (change.collection == kPods && change.type == "DELETED") cluster_.api.look_for_orphans();
}

// Workers fail now and then; coordinators end by their programs.
Fate JobSimulation::fate_of(const json::Value& pod) {
  const bool is_coordinator =
      pod.string_at({"metadata", "labels", dijob::first::labels::kRole}) == "coordinator";
  if (is_coordinator || calm_ || chance(0.8)) return {};
  return {.end = chance(0.8) ? Fate::End::kFail : Fate::End::kEvict,
          .after = std::chrono::milliseconds(below(40'000))};
}

// --- coordinators and aggregators ---

bool JobSimulation::runs(const json::Value& pod) const {
  return pod.string_at({"status", "phase"}) == "Running" &&
         pod.find_path({"metadata", "deletionTimestamp"}) == nullptr &&
         !cluster_.kubelet.is_dead(std::string(pod.string_at({"spec", "nodeName"})));
}

void JobSimulation::tick() {
  clock_ = cluster_.loop.after(calm_ ? 15s : 1s, [this] { tick(); });
  for (Work& work : works_) run_coordinator(work);
}

void JobSimulation::run_coordinator(Work& work) {
  const json::Value job = cluster_.job(work.name);
  const std::string name = work.name + "-coordinator";
  const json::Value pod = cluster_.pod(name);
  const std::string uid(job.string_at({"metadata", "uid"}));
  if (uid.empty() || pod.is_null() || dijob::testing::owner_of(pod) != uid || !runs(pod)) return;
  const std::string_view phase = job.string_at({"status", "phase"});
  if (phase == "Succeeded" || phase == "Failed") return;
  step(work, work.coordinator, pod);
  run_aggregators(work, job);
  if (!peace_ || !is_satisfied(work)) return;
  if (work.fails) {
    invariants_.coordinator_failed(uid);
    cluster_.kubelet.fail(in_default(name));
  } else {
    invariants_.coordinator_succeeded(uid);
    cluster_.kubelet.succeed(in_default(name));
  }
}

void JobSimulation::run_aggregators(Work& work, const json::Value& job) {
  const std::string_view uid = job.string_at({"metadata", "uid"});
  for (const Pod& each : view_.pods(work.name)) {
    if (each.role != Role::kAggregator || each.owner_uid != uid) continue;
    const json::Value pod = cluster_.pod(each.name);
    if (runs(pod)) step(work, work.aggregators[each.uid], pod);
  }
}

// One turn of its loop.
void JobSimulation::step(Work& work, Asker& asker, const json::Value& pod) {
  const std::string uid(pod.string_at({"metadata", "uid"}));
  if (asker.uid != uid) asker = {.uid = uid};
  if (asker.request != nullptr) {
    if (asker.request->status == 0 && !asker.request->dropped) return;
    hear(asker);
  }
  const bool is_coordinator =
      pod.string_at({"metadata", "labels", dijob::first::labels::kRole}) == "coordinator";
  ask(work, asker, std::string(pod.string_at({"metadata", "name"})), is_coordinator);
}

void JobSimulation::hear(Asker& asker) {
  const auto seen = std::exchange(asker.request, nullptr);
  if (seen->status != 200) return;  // asked again
  if (asker.asks == "demand") asker.demanded = true;
  if (asker.asks == "report") {
    for (const std::string& pod : asker.reported) asker.known.erase(pod);
  }
  const json::Value answer = seen->json();
  std::set<std::string> pods;
  for (const char* const list : {"collectors", "learners"}) {
    const json::Value* const urls = answer.find_path({"data", list});
    if (urls == nullptr || urls->as_array() == nullptr) continue;
    for (const json::Value& url : *urls->as_array()) pods.insert(pod_of(*url.as_string()));
  }
  if (asker.asks == "report") {
    tally_.rebuilt += pods.size();
    asker.known.insert(pods.begin(), pods.end());
    return;
  }
  asker.listed = std::move(pods);
  asker.known.insert(asker.listed.begin(), asker.listed.end());
}

// Listed, and cannot be reached; or listed once, and not any more.
std::set<std::string> JobSimulation::unusable(const Asker& asker) const {
  std::set<std::string> pods;
  for (const std::string& each : asker.listed) {
    const json::Value pod = cluster_.pod(each);
    const std::string_view phase = pod.string_at({"status", "phase"});
    const bool dead = cluster_.kubelet.is_dead(std::string(pod.string_at({"spec", "nodeName"})));
    if (phase == "Failed" || phase == "Succeeded" || dead) pods.insert(each);
  }
  for (const std::string& each : asker.known) {
    if (!asker.listed.contains(each)) pods.insert(each);
  }
  return pods;
}

void JobSimulation::ask(Work& work, Asker& asker, const std::string& pod_name,
                        bool is_coordinator) {
  const std::string head = fmt::format(R"({{"namespace":"default","coordinator":"{}")", pod_name);
  if (is_coordinator && !asker.demanded) {
    asker.asks = "demand";
    asker.request = send(
        "POST", "/v1alpha1/replicas",
        fmt::format(R"({},"collectors":{{"replicas":{}}},"learners":{{"replicas":{},"gpus":{}}}}})",
                    head, work.wanted.collectors, work.wanted.learners, work.wanted.gpus));
    return;
  }
  const bool has_reported = asker.asks == "report";
  asker.reported = unusable(asker);
  if (!asker.reported.empty() && !has_reported) {
    std::string names;
    for (const std::string& each : asker.reported) {
      names += fmt::format(R"({}"{}")", names.empty() ? "" : ",", each);
    }
    say(fmt::format("{} reports {}", pod_name, names));
    asker.asks = "report";
    asker.request = send("POST", "/v1alpha1/replicas/failed",
                         fmt::format(R"({},"collectors":[{}]}})", head, names));
    return;
  }
  asker.asks = "list";
  asker.request = send("GET",
                       fmt::format("/v1alpha1/replicas?namespace=default&{}={}",
                                   is_coordinator ? "coordinator" : "aggregator", pod_name),
                       "{}");
}

// To any server that is there, as a service does.
std::shared_ptr<Seen> JobSimulation::send(std::string method, std::string target,
                                          std::string body) {
  auto seen = std::make_shared<Seen>();
  std::vector<Replica*> up;
  for (const auto& each : servers_) {
    if (each != nullptr) up.push_back(each.get());
  }
  if (up.empty()) {
    seen->dropped = true;
    return seen;
  }
  Replica& one = *up[static_cast<std::size_t>(below(static_cast<int>(up.size())))];
  one.api.handle(std::make_shared<FakeCall>(
      http::Request{std::move(method), std::move(target), {}, std::move(body)}, seen));
  return seen;
}

std::map<Role, int> JobSimulation::running(const Work& work) const {
  std::map<Role, int> found;
  for (const Pod& pod : view_.pods(work.name)) {
    if (pod.live() && pod.outcome() == "active") ++found[pod.role];
  }
  return found;
}

bool JobSimulation::is_satisfied(const Work& work) const {
  auto found = running(work);
  const bool groups = work.wanted.gpus > 1;
  return found[Role::kCollector] == work.wanted.collectors &&
         found[groups ? Role::kAggregator : Role::kLearner] == work.wanted.learners &&
         found[Role::kDdpLearner] == work.wanted.ddp_pods();
}

// --- trouble ---

void JobSimulation::trouble() {
  switch (below(10)) {
    case 0: return change_operator();
    case 1:
    case 2: return restart_server();
    case 3: {
      if (!chance(0.3)) return;
      const auto& nodes = cluster_.kubelet.nodes();
      const std::string& node = nodes[static_cast<std::size_t>(below(int(nodes.size())))];
      say("kill " + node);
      lost_a_node_ = true;
      return cluster_.kubelet.kill_node(node);
    }
    case 4: return cluster_.api.cut_all_streams();
    case 5:
      if (!chance(0.3) || cluster_.api.store.find(kConfigs, kConfigKey) == nullptr) return;
      say("the AggregatorConfig is deleted");
      cluster_.api.store.remove(kConfigs, kConfigKey);
      return cluster_.api.changed();
    default: break;
  }
  Work& work = works_[static_cast<std::size_t>(below(int(works_.size())))];
  if (cluster_.has_job(work.name)) trouble_with(work);
}

void JobSimulation::trouble_with(Work& work) {
  const auto names = cluster_.pod_names(work.name);
  switch (below(8)) {
    case 0:
      say("delete the coordinator of " + work.name);
      return cluster_.delete_pod(work.name + "-coordinator");
    case 1: return give_back(work);
    case 2:  // a node is drained: workers go together with a server
      restart_server();
      [[fallthrough]];
    case 3:
    case 4:
    case 5: {
      if (names.empty()) return;
      const std::string& pod = names[static_cast<std::size_t>(below(int(names.size())))];
      if (!is_known(work, pod)) return;
      say("delete pod " + pod);
      return cluster_.delete_pod(pod);
    }
    case 6: {
      if (!chance(0.3)) return;
      // Another job of the same name, while pods of the first may be there still.
      say("delete and create " + work.name);
      const std::string name = work.name;
      cluster_.delete_job(name);
      std::erase_if(works_, [&](const Work& each) { return each.name == name; });
      return create_job(name);
    }
    default: {
      const auto services = cluster_.services(work.name);
      if (services.empty()) return;
      cluster_.api.store.remove(
          dijob::testing::kServices,
          in_default(services[static_cast<std::size_t>(below(int(services.size())))]));
      return cluster_.api.changed();
    }
  }
}

// A rank that goes before its aggregator has asked for the list is missed by nobody.
bool JobSimulation::is_known(const Work& work, const std::string& pod) const {
  const auto read = dijob::first::read_pod(cluster_.pod(pod));
  if (!read || read->role != Role::kDdpLearner) return true;
  const auto asker = work.aggregators.find(read->aggregator_uid);
  return asker != work.aggregators.end() && asker->second.known.contains(pod);
}

void JobSimulation::change_operator() {
  if (handover_ != nullptr) return;
  say("the operator crashes");
  cluster_.crash_operator(leader_);
  handover_ = cluster_.loop.after(std::chrono::milliseconds(below(15'000)), [this] {
    leader_ = cluster_.start_operator();
    handover_.reset();
  });
}

// What it remembers is lost; what it has sent arrives.
void JobSimulation::restart_server() {
  const auto which = static_cast<std::size_t>(below(static_cast<int>(servers_.size())));
  if (servers_[which] == nullptr) return;
  say(fmt::format("di-server {} crashes", which));
  ++tally_.restarts;
  servers_[which].reset();
  returns_.push_back(cluster_.loop.after(std::chrono::milliseconds(below(20'000)), [this, which] {
    say(fmt::format("di-server {} is back", which));
    servers_[which] = std::make_unique<Replica>(cluster_.loop, cluster_.api, AuthOptions{});
  }));
}

// `ding -m dist --delete collector`. Nobody knows what a request without an answer has done, so
// this one waits for its answer.
void JobSimulation::give_back(Work& work) {
  // Not while another server may be replacing a worker: it could be the one that is given back.
  const bool reports = work.coordinator.request != nullptr && work.coordinator.asks == "report";
  if (work.wanted.collectors == 0 || !work.coordinator.demanded || reports) return;
  const auto seen = send("DELETE", "/v1alpha1/replicas",
                         fmt::format(R"({{"namespace":"default","coordinator":"{}-coordinator",)"
                                     R"("collectors":{{"replicas":1}}}})",
                                     work.name));
  cluster_.loop.run_until([&] { return seen->status != 0 || seen->dropped; }, 5min);
  const json::Value answer = seen->json();
  const json::Value* const gone = answer.find_path({"data", "collectors"});
  if (gone == nullptr || gone->as_array() == nullptr) return;
  for (const json::Value& url : *gone->as_array()) {
    say("given back: " + *url.as_string());
    ++tally_.dismissed;
    --work.wanted.collectors;
  }
}

void JobSimulation::make_peace() {
  say("peace");
  calm_ = true;
  cluster_.loop.run_until([this] {
    return handover_ == nullptr &&
           std::ranges::none_of(servers_, [](const auto& each) { return each == nullptr; });
  });
  cluster_.api.faults = {};
  create_config();
}

bool JobSimulation::all_over() const {
  return std::ranges::all_of(works_, [this](const Work& work) {
    const std::string phase = cluster_.phase(work.name);
    return phase == "Succeeded" || phase == "Failed";
  });
}

// Every worker once, none too many, and no rank without its aggregator.
void JobSimulation::check_rest(const Work& work) {
  const json::Value job = cluster_.job(work.name);
  const std::string_view phase = job.string_at({"status", "phase"});
  if (phase == "Succeeded" || phase == "Failed") return;
  invariants_.check_quiet(work.name);
  if (!invariants_.broken().empty()) return fail("{}", invariants_.broken());
  auto found = running(work);
  const bool groups = work.wanted.gpus > 1;
  const auto expect = [&](Role role, int wanted) {
    if (found[role] == wanted) return;
    fail("{} has {} running pods of role {}, wanted are {}", work.name, found[role],
         dijob::first::role_name(role), wanted);
  };
  expect(Role::kCollector, work.wanted.collectors);
  expect(Role::kLearner, groups ? 0 : work.wanted.learners);
  expect(Role::kAggregator, groups ? work.wanted.learners : 0);
  expect(Role::kDdpLearner, work.wanted.ddp_pods());
  for (const Pod& pod : view_.pods(work.name)) {
    if (!pod.aggregator_uid.empty() && !cluster_.api.store.has_uid(pod.aggregator_uid)) {
      fail("{} has no aggregator", pod.name);
    }
  }
}

// --- tests ---

std::uint64_t from_environment(const char* variable, std::uint64_t otherwise) {
  const char* const text = std::getenv(variable);
  return text != nullptr ? std::strtoull(text, nullptr, 10) : otherwise;
}

class FirstJobSimulationTest : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    if (!tells_) log::set_level(log::Level::kOff);
  }
  void TearDown() override { log::set_level(log::Level::kInfo); }

  bool holds(std::uint64_t seed) {
    JobSimulation simulation(seed, tells_);
    const std::string broken = simulation.run();
    EXPECT_EQ(broken, "") << "repeat with DIVISI_SIM_SEED=" << seed;
    const JobSimulation::Tally& one = simulation.tally();
    total_.succeeded += one.succeeded;
    total_.failed += one.failed;
    total_.replaced += one.replaced;
    total_.rebuilt += one.rebuilt;
    total_.restarts += one.restarts;
    total_.dismissed += one.dismissed;
    return broken.empty();
  }

  const bool tells_ = std::getenv("DIVISI_SIM_SEED") != nullptr;
  JobSimulation::Tally total_;
};

// In parts that run beside each other.
constexpr int kParts = 8;

TEST_P(FirstJobSimulationTest, NoWorkerIsTwiceOrMissingUnderHundredsOfSeeds) {
  const auto part = static_cast<std::uint64_t>(GetParam());
  if (tells_) {
    if (part == 0) holds(from_environment("DIVISI_SIM_SEED", 0));
    return;
  }
  const std::uint64_t seeds = from_environment("DIVISI_SIM_SEEDS", 160) / 4;
  std::uint64_t ran = 0;
  int failed = 0;
  for (std::uint64_t seed = 1 + part; seed <= seeds && failed < 3; seed += kParts, ++ran) {
    failed += holds(seed) ? 0 : 1;
  }
  // The runs were not idle. (`./test` and the presets with sanitizers take fewer seeds.)
  if (ran < 25 || failed > 0) return;
  EXPECT_GT(total_.succeeded, ran / 3);
  EXPECT_GT(total_.failed, ran / 10);
  EXPECT_GT(total_.replaced, ran / 20);
  EXPECT_GT(total_.rebuilt, ran);
  EXPECT_GT(total_.restarts, ran / 2);
  EXPECT_GT(total_.dismissed, 0u);
}
INSTANTIATE_TEST_SUITE_P(Seeds, FirstJobSimulationTest, ::testing::Range(0, kParts));

}  // namespace
}  // namespace divisi::server::first
