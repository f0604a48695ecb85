// What goes wrong on the way to the cluster, several servers at once, and both together.
#include "server/first/first_testing.h"

#include <cstdlib>
#include <random>

namespace divisi::server::first {
namespace {

using namespace testing;
using ::testing::HasSubstr;

class FirstFaultTest : public FirstFixture {
 protected:
  // Answers the n-th request of this kind, and those after it while `times` lasts, in place of the
  // cluster.
  void spoil(const std::string& method, int from, int times, http::Response answer) {
    cluster_.intercept =
        [method, from, times, answer = std::move(answer),
         seen = 0](const http::Request& request) mutable -> std::optional<http::Response> {
      if (request.method != method || request.target.find("/pods") == std::string::npos) {
        return std::nullopt;
      }
      ++seen;
      if (seen < from || seen >= from + times) return std::nullopt;
      return answer;
    };
  }
};

constexpr int kAlways = 1'000'000;

http::Response refusal(int status, const std::string& reason, const std::string& text) {
  return kube::status_answer(status, reason, text);
}

TEST_F(FirstFaultTest, QuotaIs500WithTheWordsOfTheServer) {
  spoil("POST", 3, kAlways, refusal(403, "Forbidden", "exceeded quota: pods, used: 3"));
  const auto seen = post(counts(4, 2));
  EXPECT_EQ(seen->status, 500);
  EXPECT_THAT(seen->message(), HasSubstr("exceeded quota: pods, used: 3"));
  EXPECT_EQ(seen->json().bool_at({"success"}), false);
  EXPECT_EQ(seen->json().string_at({"data", "coordinator"}), "rl-coordinator");
  EXPECT_EQ(urls(*seen, "collectors").size(), 2U);
  EXPECT_EQ(count(Role::kCollector), 2U);
  EXPECT_TRUE(seen->json().find_path({"data", "learners"})->is_null()) << "not begun";
}

TEST_F(FirstFaultTest, InvalidPodsAre500) {
  spoil("POST", 1, kAlways, refusal(422, "Invalid", "spec.containers[0].image: Required value"));
  const auto seen = post(counts(1, 0));
  EXPECT_EQ(seen->status, 500);
  EXPECT_THAT(seen->message(), HasSubstr("Required value"));
}

TEST_F(FirstFaultTest, PassingFaultsOfTheServerAreNotSeen) {
  for (const auto& answer :
       {refusal(500, "InternalError", "etcd"), refusal(503, "ServiceUnavailable", "later"),
        refusal(409, "Conflict", "resourcequotas have been modified")}) {
    spoil("POST", 2, 2, answer);
    EXPECT_EQ(post(counts(3, 1))->status, 200);
  }
  EXPECT_EQ(count(Role::kCollector), 9U);
  spoil("DELETE", 1, 2, refusal(500, "InternalError", "etcd"));
  EXPECT_EQ(ask("DELETE", kReplicas, demand(counts(2, 0)))->status, 200);
  EXPECT_EQ(count(Role::kCollector), 7U);
}

TEST_F(FirstFaultTest, ServerThatStaysBrokenIs500WithWhatWasDone) {
  spoil("POST", 2, kAlways, refusal(500, "InternalError", "etcd is gone"));
  const auto seen = post(counts(1, 2));
  EXPECT_EQ(seen->status, 500);
  EXPECT_THAT(seen->message(), HasSubstr("etcd is gone"));
  EXPECT_EQ(urls(*seen, "collectors").size(), 1U);
  EXPECT_EQ(json::print(*seen->json().find_path({"data", "learners"})), "[]");
  spoil("DELETE", 1, kAlways, refusal(500, "InternalError", "etcd is gone"));
  EXPECT_EQ(ask("DELETE", kReplicas, demand(counts(1, 0)))->status, 500);
}

TEST_F(FirstFaultTest, LostAnswersDoNotDouble) {
  wait_in_step();
  cluster_.faults.lose_answer = 0.3;
  for (int i = 0; i < 10; ++i) EXPECT_EQ(post(counts(2, 1))->status, 200);
  cluster_.faults = {};
  EXPECT_EQ(count(Role::kCollector), 20U);
  EXPECT_EQ(count(Role::kLearner), 10U);
}

TEST_F(FirstFaultTest, GroupThatCannotBeFinishedLeavesNothingBehind) {
  put_nodes({8, 8});
  spoil("POST", 3, kAlways, refusal(403, "Forbidden", "exceeded quota"));
  const auto seen = post(R"("learners":{"replicas":1,"gpus":10})");
  EXPECT_EQ(seen->status, 500);
  EXPECT_TRUE(urls(*seen, "learners").empty());
  EXPECT_EQ(count(Role::kAggregator), 0U);
  EXPECT_EQ(count(Role::kDdpLearner), 0U);
}

TEST_F(FirstFaultTest, GroupLeftUnfinishedByACrashIsFinishedByTheNextTry) {
  put_nodes({8, 8});
  // Of the aggregator and its two pods only the first two are made; then the server is gone.
  cluster_.intercept =
      [&, made = 0](const http::Request& request) mutable -> std::optional<http::Response> {
    if (request.method == "POST" && ++made == 3) server_.reset();
    return request.method == "POST" && made >= 3
               ? std::optional(refusal(500, "InternalError", "late"))
               : std::nullopt;
  };
  const auto lost = send({"POST", kReplicas, {}, demand(R"("learners":{"replicas":1,"gpus":10})")});
  ASSERT_TRUE(loop_.run_until([&] { return server_ == nullptr; }, 1min));
  EXPECT_EQ(lost->status, 0);
  cluster_.intercept = {};
  restart();
  const auto seen = post(R"("learners":{"replicas":1,"gpus":10})");
  EXPECT_EQ(seen->status, 200);
  EXPECT_EQ(count(Role::kAggregator), 1U);
  EXPECT_EQ(count(Role::kDdpLearner), 2U);
  EXPECT_EQ(count_gpu_ports(), 10U);
}

TEST_F(FirstFaultTest, NamesThatAreTakenAreLeftToTheirOwners) {
  // Every first choice of a name is answered as taken.
  std::set<std::string> refused;
  cluster_.intercept = [&](const http::Request& request) -> std::optional<http::Response> {
    if (request.method != "POST") return std::nullopt;
    const json::Value body = *json::parse(request.body);
    const std::string name(body.string_at({"metadata", "name"}));
    if (refused.size() >= 2 || !refused.insert(name).second) return std::nullopt;
    return refusal(409, "AlreadyExists", name + " already exists");
  };
  const auto seen = post(counts(2, 0));
  EXPECT_EQ(seen->status, 200) << seen->body;
  EXPECT_EQ(urls(*seen, "collectors").size(), 2U);
  for (const std::string& url : urls(*seen, "collectors")) {
    EXPECT_FALSE(refused.contains(pod_of(url)));
  }
}

TEST_F(FirstFaultTest, ReportThatReachesTwoServersRebuildsOnce) {
  const auto made = post(counts(2, 1));
  Replica other(loop_, cluster_, {});
  const std::string body =
      fmt::format(R"({{"namespace":"default","coordinator":"rl-coordinator","collectors":["{}"]}})",
                  urls(*made, "collectors")[0]);
  const auto one = send({"POST", kFailed, {}, body});
  const auto two = send({"POST", kFailed, {}, body}, &other);
  ASSERT_TRUE(loop_.run_until([&] { return one->status != 0 && two->status != 0; }, 1min));
  EXPECT_EQ(one->status, 200) << one->body;
  EXPECT_EQ(two->status, 200) << two->body;
  EXPECT_EQ(count(Role::kCollector), 2U);
}

TEST_F(FirstFaultTest, DeletesOfTwoServersNeverTakeTheSameWorker) {
  post(counts(10, 0));
  Replica other(loop_, cluster_, {});
  const auto one = send({"DELETE", kReplicas, {}, demand(counts(3, 0))});
  const auto two = send({"DELETE", kReplicas, {}, demand(counts(4, 0))}, &other);
  ASSERT_TRUE(loop_.run_until([&] { return one->status != 0 && two->status != 0; }, 1min));
  EXPECT_EQ(urls(*one, "collectors").size(), 3U);
  EXPECT_EQ(urls(*two, "collectors").size(), 4U);
  EXPECT_EQ(count(Role::kCollector), 3U);
}

TEST_F(FirstFaultTest, DismissedWorkersDoNotComeBackByAReport) {
  const auto made = post(counts(2, 0));
  // It runs somewhere, so it takes its time to end.
  for (const std::string& url : urls(*made, "collectors")) {
    json::Value running = pod_named(pod_of(url));
    running["spec"]["nodeName"] = "node-1";
    running["status"]["phase"] = "Running";
    put(kPods, running);
  }
  const auto gone = ask("DELETE", kReplicas, demand(counts(1, 0)));
  ASSERT_EQ(urls(*gone, "collectors").size(), 1U);
  EXPECT_EQ(count(Role::kCollector), 2U) << "one of them terminates";
  const auto seen = report({urls(*gone, "collectors")[0]}, {});
  EXPECT_EQ(seen->status, 200);
  EXPECT_TRUE(urls(*seen, "collectors").empty());
}

TEST_F(FirstFaultTest, O016_ReportedWorkerThatWasDeletedIsMadeAgain) {
  wait_in_step();
  const auto made = post(R"("collectors":{"replicas":2,"cpus":3},"learners":{"replicas":1})");
  const std::string collector = pod_of(urls(*made, "collectors")[0]);
  const std::string learner = pod_of(urls(*made, "learners")[0]);
  remove(kPods, collector);
  remove(kPods, learner);
  loop_.run_for(1s);
  const auto seen = report({collector}, {learner});
  EXPECT_EQ(seen->status, 200);
  ASSERT_EQ(urls(*seen, "collectors").size(), 1U);
  ASSERT_EQ(urls(*seen, "learners").size(), 1U);
  EXPECT_EQ(count(Role::kCollector), 2U);
  EXPECT_EQ(count(Role::kLearner), 1U);
  const json::Value pod = pod_named(pod_of(urls(*seen, "collectors")[0]));
  const json::Value& container = pod.find_path({"spec", "containers"})->as_array()->front();
  EXPECT_EQ(container.string_at({"resources", "limits", "cpu"}), "3");
  const auto again = report({collector}, {learner});
  EXPECT_EQ(again->status, 200);
  EXPECT_EQ(count(Role::kCollector), 2U) << "a repeated report makes no second one";
}

// The cluster deletes the ranks of an aggregator that is gone, sooner or later than the report
// comes.
TEST_F(FirstFaultTest, O016_ReportedAggregatorThatWasDeletedIsMadeAgain) {
  put_nodes({8, 8});
  wait_in_step();
  std::string aggregator =
      pod_of(urls(*post(R"("learners":{"replicas":1,"gpus":10})"), "learners")[0]);
  for (const std::size_t deleted : {0U, 1U, 2U}) {
    std::vector<std::string> ranks;
    for (const json::Value* pod : objects(Role::kDdpLearner)) {
      ranks.emplace_back(pod->string_at({"metadata", "name"}));
    }
    ranks.resize(deleted);
    remove(kPods, aggregator);
    for (const std::string& name : ranks) remove(kPods, name);
    drop_dangling_owners();
    loop_.run_for(1s);
    const auto seen = report({}, {aggregator});
    EXPECT_EQ(seen->status, 200) << seen->message();
    ASSERT_EQ(urls(*seen, "learners").size(), 1U);
    loop_.run_for(1s);
    EXPECT_EQ(count(Role::kAggregator), 1U);
    ASSERT_EQ(count(Role::kDdpLearner), 2U) << deleted;
    aggregator = pod_of(urls(*seen, "learners")[0]);
    for (const json::Value* pod : objects(Role::kDdpLearner)) {
      EXPECT_EQ(dijob::first::read_pod(*pod)->aggregator_uid,
                pod_named(aggregator).string_at({"metadata", "uid"}));
      EXPECT_EQ(variable(*pod, "WORLD_SIZE"), "10");
    }
  }
}

TEST_F(FirstFaultTest, O016_ReportedDdpLearnersThatWereDeletedAreMadeAgain) {
  put_nodes({8, 8});
  wait_in_step();
  const auto made = post(R"("learners":{"replicas":1,"gpus":10})");
  const std::string aggregator = pod_of(urls(*made, "learners")[0]);
  for (const std::size_t deleted : {1U, 2U}) {
    std::vector<std::string> names;
    std::set<std::string> before;
    for (const json::Value* pod : objects(Role::kDdpLearner)) {
      before.insert(variable(*pod, "START_RANK") + "/" + variable(*pod, "MASTER_ADDR"));
      names.emplace_back(pod->string_at({"metadata", "name"}));
    }
    names.resize(deleted);
    for (const std::string& name : names) remove(kPods, name);
    loop_.run_for(1s);
    json::Value body = json::Object{{"namespace", "default"}, {"coordinator", aggregator}};
    body["learners"] = json::Array(names.begin(), names.end());
    const auto seen = ask("POST", kFailed, json::print(body));
    EXPECT_EQ(seen->status, 200) << seen->message();
    std::set<std::string> after;
    for (const json::Value* pod : objects(Role::kDdpLearner)) {
      after.insert(variable(*pod, "START_RANK") + "/" + variable(*pod, "MASTER_ADDR"));
    }
    EXPECT_EQ(after, before) << deleted;
    EXPECT_EQ(count(Role::kAggregator), 1U);
  }
}

TEST_F(FirstFaultTest, O016_ReportedWorkerThatNoServerSawGoIsMadeAgain) {
  const auto made = post(R"("collectors":{"replicas":2,"cpus":3},"learners":{"replicas":1})");
  const std::string collector = pod_of(urls(*made, "collectors")[0]);
  const std::string learner = pod_of(urls(*made, "learners")[0]);
  server_.reset();
  remove(kPods, collector);
  remove(kPods, learner);
  restart();
  wait_in_step();
  for (int times = 0; times < 2; ++times) {
    const auto seen = report({collector}, {learner});
    EXPECT_EQ(seen->status, 200) << seen->message();
    EXPECT_EQ(count(Role::kCollector), 2U);
    EXPECT_EQ(count(Role::kLearner), 1U);
  }
  for (const json::Value* pod : objects(Role::kCollector)) {
    EXPECT_EQ(pod->find_path({"spec", "containers"})
                  ->as_array()
                  ->front()
                  .string_at({"resources", "limits", "cpu"}),
              "3");
  }
}

TEST_F(FirstFaultTest, O016_GroupThatNoServerSawGoIsMadeAgain) {
  put_nodes({8, 8});
  const auto made = post(R"("learners":{"replicas":1,"gpus":10})");
  const std::string aggregator = pod_of(urls(*made, "learners")[0]);
  for (const bool seen_to_go : {true, false}) {
    std::vector<std::string> names{aggregator};
    if (!seen_to_go) {
      names = {std::string(objects(Role::kAggregator)[0]->string_at({"metadata", "name"}))};
      server_.reset();
    }
    const std::string head = names[0];
    for (const json::Value* pod : objects(Role::kDdpLearner)) {
      names.emplace_back(pod->string_at({"metadata", "name"}));
    }
    for (const std::string& name : names) remove(kPods, name);
    if (!seen_to_go) restart();
    wait_in_step();
    loop_.run_for(1s);
    const auto seen = report({}, {head});
    EXPECT_EQ(seen->status, 200) << seen->message();
    EXPECT_EQ(urls(*seen, "learners").size(), 1U);
    EXPECT_EQ(count(Role::kAggregator), 1U) << seen_to_go;
    EXPECT_EQ(count(Role::kDdpLearner), 2U) << seen_to_go;
    EXPECT_EQ(count_gpu_ports(), 10U) << seen_to_go;
  }
}

TEST_F(FirstFaultTest, O016_DdpLearnersThatNoServerSawGoAreMadeAgain) {
  put_nodes({8, 8});
  const auto made = post(R"("learners":{"replicas":1,"gpus":10})");
  const std::string aggregator = pod_of(urls(*made, "learners")[0]);
  std::vector<std::string> names;
  for (const json::Value* pod : objects(Role::kDdpLearner)) {
    names.emplace_back(pod->string_at({"metadata", "name"}));
  }
  server_.reset();
  for (const std::string& name : names) remove(kPods, name);
  restart();
  wait_in_step();
  json::Value body = json::Object{{"namespace", "default"}, {"coordinator", aggregator}};
  body["learners"] = json::Array(names.begin(), names.end());
  EXPECT_EQ(ask("POST", kFailed, json::print(body))->status, 200);
  EXPECT_EQ(count(Role::kAggregator), 1U);
  EXPECT_EQ(count(Role::kDdpLearner), 2U);
  EXPECT_EQ(count_gpu_ports(), 10U);
}

TEST_F(FirstFaultTest, GroupIsNotFilledTwiceByOneReport) {
  put_nodes({8, 8});
  wait_in_step();
  const auto made = post(R"("learners":{"replicas":1,"gpus":10})");
  std::string failed;
  std::string deleted;
  for (const json::Value* pod : objects(Role::kDdpLearner)) {
    (variable(*pod, "START_RANK") == "0" ? failed : deleted) = pod->string_at({"metadata", "name"});
  }
  remove(kPods, deleted);
  loop_.run_for(1s);
  EXPECT_EQ(report({}, {failed, deleted})->status, 200);
  ASSERT_EQ(count(Role::kDdpLearner), 2U);
  std::set<std::string> ranks;
  for (const json::Value* pod : objects(Role::kDdpLearner)) {
    ranks.insert(variable(*pod, "START_RANK"));
  }
  EXPECT_EQ(ranks, (std::set<std::string>{"0", "8"}));
}

TEST_F(FirstFaultTest, WorkersThatWereGivenBackStayAwayAfterARestart) {
  post(counts(2, 1));
  const auto more = post(R"("collectors":{"replicas":1})");
  const auto gone = ask("DELETE", kReplicas, demand(counts(1, 0)));
  restart();
  wait_in_step();
  const std::string left = pod_of(urls(*gone, "collectors")[0]);
  EXPECT_TRUE(urls(*report({left}, {}), "collectors").empty());
  EXPECT_EQ(count(Role::kCollector), 2U);
  // Names that nobody ever had are no reason to make a pod.
  EXPECT_TRUE(urls(*report({"rl-collector-bbbbb"}, {"rl-learner-bbbbb"}), "learners").empty());
  EXPECT_EQ(count(Role::kCollector), 2U);
  // One of those that were added later counts as those of the first demand.
  server_.reset();
  std::string another(objects(Role::kCollector)[0]->string_at({"metadata", "name"}));
  remove(kPods, another);
  restart();
  EXPECT_EQ(urls(*report({another}, {}), "collectors").size(), 1U);
  EXPECT_EQ(count(Role::kCollector), 2U);
}

TEST_F(FirstFaultTest, AggregatorConfigDeletedMidwayIsAskedForOnlyWhenItIsNeeded) {
  put_nodes({8, 8});
  wait_in_step();
  const auto made = post(R"("collectors":{"replicas":1},"learners":{"replicas":1,"gpus":2})");
  cluster_.store.remove(kConfigs, "di-system/aggregator-config");
  cluster_.changed();
  // One that is there is made again from itself.
  const auto again = report({}, {pod_of(urls(*made, "learners")[0])});
  EXPECT_EQ(again->status, 200) << again->message();
  EXPECT_EQ(count(Role::kAggregator), 1U);
  EXPECT_EQ(report({pod_of(urls(*made, "collectors")[0])}, {})->status, 200);
  // One that was deleted needs it.
  const std::string aggregator = pod_of(urls(*again, "learners")[0]);
  remove(kPods, aggregator);
  loop_.run_for(1s);
  const auto lacking = report({}, {aggregator});
  EXPECT_EQ(lacking->status, 404);
  EXPECT_EQ(lacking->message(), "AGConfig: di-system/aggregator-config not exists in cache");
  put_config();
  EXPECT_EQ(report({}, {aggregator})->status, 200);
  EXPECT_EQ(count(Role::kAggregator), 1U);
  EXPECT_EQ(count(Role::kDdpLearner), 1U);
}

TEST_F(FirstFaultTest, LateReportOfAReplacedWorkerMakesNoSecondOne) {
  wait_in_step();
  const std::string first = pod_of(urls(*post(counts(1, 0)), "collectors")[0]);
  const std::string second = pod_of(urls(*report({first}, {}), "collectors")[0]);
  loop_.run_for(1s);
  ASSERT_EQ(urls(*report({second}, {}), "collectors").size(), 1U);
  loop_.run_for(1s);
  EXPECT_TRUE(urls(*report({first}, {}), "collectors").empty());
  EXPECT_EQ(count(Role::kCollector), 1U);
}

TEST_F(FirstFaultTest, DeletedWorkersOfAnEndedJobStayDeleted) {
  wait_in_step();
  const std::string collector = pod_of(urls(*post(counts(1, 0)), "collectors")[0]);
  remove(kPods, collector);
  json::Value ended = job();
  ended["status"]["phase"] = "Succeeded";
  put(kJobs, ended);
  loop_.run_for(1s);
  EXPECT_TRUE(urls(*report({collector}, {}), "collectors").empty());
  EXPECT_EQ(count(Role::kCollector), 0U);
}

TEST_F(FirstFaultTest, WorkersThatADemandDeletedStayDeleted) {
  wait_in_step();
  post(counts(2, 0));
  const auto gone = ask("DELETE", kReplicas, demand(counts(1, 0)));
  loop_.run_for(1s);
  EXPECT_TRUE(urls(*report({pod_of(urls(*gone, "collectors")[0])}, {}), "collectors").empty());
  EXPECT_EQ(count(Role::kCollector), 1U);
}

TEST_F(FirstFaultTest, LargeDemandIsMetWhole) {
  const auto seen = post(counts(1000, 0));
  EXPECT_EQ(seen->status, 200);
  EXPECT_EQ(urls(*seen, "collectors").size(), 1000U);
  std::set<std::string> different;
  for (const std::string& url : urls(*seen, "collectors")) different.insert(url);
  EXPECT_EQ(different.size(), 1000U);
  EXPECT_EQ(count(Role::kCollector), 1000U);
}

// Whatever is lost, refused or late, and whichever of two servers is asked: what was answered is
// what is there, and a job never has more than its coordinators asked for.
class FirstStressTest : public FirstFixture {
 protected:
  void spoil_all(bool on) {
    kube::testing::Faults& faults = cluster_.faults;
    faults = {};
    if (!on) return;
    faults.refuse = 0.05;
    faults.lose_answer = 0.05;
    faults.lose_request = 0.05;
    faults.cut_stream = 0.1;
    faults.late_events = 0.2;
    faults.conflict = 0.1;
  }
};

int seeds_to_run() {
  const char* given = std::getenv("DIVISI_SIM_SEEDS");
  const int seeds = given == nullptr ? 0 : std::atoi(given);
  return seeds > 0 ? seeds : 150;
}

class StressRun : public FirstStressTest {
 public:
  explicit StressRun(std::uint64_t seed) : random_(seed) {
    put_nodes({8, 8, 4});
    for (std::uint64_t i = 0; i < seed % 97; ++i) (void)cluster_.chance(0.5);
  }
  void TestBody() override {}

  void run() {
    other_ = std::make_unique<Replica>(loop_, cluster_, AuthOptions{});
    first_demand();
    for (int step = 0; step < 12 && !HasFailure(); ++step) one_step();
    spoil_all(false);
    loop_.run_for(2min);  // caches and the collector of garbage come to rest
    check_at_rest();
  }

 private:
  int pick(int below) { return static_cast<int>(random_() % static_cast<std::uint64_t>(below)); }
  Replica* any_server() { return pick(2) == 0 ? server_.get() : other_.get(); }

  std::shared_ptr<Seen> call(std::string method, std::string target, std::string body) {
    spoil_all(true);
    auto seen = send({std::move(method), std::move(target), {}, std::move(body)}, any_server());
    EXPECT_TRUE(loop_.run_until([&] { return seen->status != 0; }, 10min)) << "no answer";
    spoil_all(false);
    return seen;
  }
  std::string learners() const {
    return fmt::format(R"("learners":{{"replicas":1,"gpus":{}}})", gpus_);
  }

  // Repeated until it is met, as coordinators do.
  void first_demand() {
    collectors_ = 1 + pick(4);
    gpus_ = pick(2) == 0 ? 0 : 10;
    const std::string body =
        demand(fmt::format(R"("collectors":{{"replicas":{}}},{})", collectors_, learners()));
    std::shared_ptr<Seen> seen;
    for (int tries = 0; tries < 50; ++tries) {
      seen = call("POST", kReplicas, body);
      if (seen->status == 200) break;
    }
    ASSERT_EQ(seen->status, 200) << seen->body;
    EXPECT_EQ(urls(*seen, "collectors").size(), static_cast<std::size_t>(collectors_));
    EXPECT_EQ(urls(*seen, "learners").size(), 1U);
  }

  void one_step() {
    switch (pick(5)) {
      case 0: return recreate();
      case 1: return fail_one();
      case 2: return poll();
      case 3: server_ = std::make_unique<Replica>(loop_, cluster_, AuthOptions{}); return;
      default: loop_.run_for(std::chrono::milliseconds(pick(3000))); return;
    }
  }
  void recreate() {
    recreate_coordinator();
    first_demand();
  }
  void fail_one() {
    const auto found = objects(pick(2) == 0 ? Role::kCollector : Role::kAggregator);
    if (found.empty()) return;
    const std::string name(found[random_() % found.size()]->string_at({"metadata", "name"}));
    for (int tries = 0; tries < 50; ++tries) {
      const auto seen = call(
          "POST", kFailed,
          fmt::format(R"({{"namespace":"default","coordinator":"c","learners":["{}"]}})", name));
      if (seen->status == 200) break;
    }
    EXPECT_TRUE(pod_named(name).is_null()) << name << " was reported and is still there";
  }
  // A coordinator that is there is never told that it is not.
  void poll() {
    const auto seen =
        call("GET", "/v1alpha1/replicas?namespace=default&coordinator=rl-coordinator", "{}");
    EXPECT_NE(seen->status, 404) << seen->body;
    EXPECT_NE(seen->status, 400) << seen->body;
  }

  void check_at_rest() {
    EXPECT_EQ(count(Role::kCollector), static_cast<std::size_t>(collectors_));
    EXPECT_EQ(count(Role::kLearner), gpus_ > 1 ? 0U : 1U);
    EXPECT_EQ(count(Role::kAggregator), gpus_ > 1 ? 1U : 0U);
    EXPECT_EQ(count(Role::kDdpLearner), gpus_ > 1 ? 2U : 0U);
    for (const json::Value* pod : objects(Role::kDdpLearner)) {
      EXPECT_TRUE(cluster_.store.has_uid(dijob::first::read_pod(*pod)->aggregator_uid))
          << "an orphan";
    }
    const auto seen = get();
    EXPECT_EQ(urls(*seen, "collectors").size(), static_cast<std::size_t>(collectors_));
    EXPECT_EQ(urls(*seen, "learners").size(), 1U);
  }

  std::mt19937_64 random_;
  std::unique_ptr<Replica> other_;
  int collectors_ = 0;
  int gpus_ = 0;
};

// In parts that run beside each other.
constexpr int kParts = 4;
class FirstSimulationTest : public ::testing::TestWithParam<int> {};

TEST_P(FirstSimulationTest, WorkersNeverDoubleWhateverIsLost) {
  for (int seed = 1 + GetParam(); seed <= seeds_to_run(); seed += kParts) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    StressRun run(static_cast<std::uint64_t>(seed));
    run.run();
    if (HasFailure()) return;
  }
}
INSTANTIATE_TEST_SUITE_P(Seeds, FirstSimulationTest, ::testing::Range(0, kParts));

}  // namespace
}  // namespace divisi::server::first
