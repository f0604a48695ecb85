// What the operator does when its server, its clock or its users are at their worst.
#include "base/testing/effort.h"
#include "dijob/testing/operator_fixture.h"

#include <algorithm>
#include <set>

namespace divisi::dijob::testing {
namespace {

using namespace std::chrono_literals;
using kube::status_answer;

class OperatorFaultTest : public OperatorTest {};

TEST_F(OperatorFaultTest, AJobThatIsDeletedWhileItStartsLeavesNothing) {
  for (std::size_t pods = 0; pods <= 4; ++pods) {
    cluster.create_job(usual_job());
    ASSERT_TRUE(cluster.loop.run_until([&] { return cluster.pods("j").size() >= pods; }));
    cluster.delete_job("j");
    cluster.settle(1min);
    EXPECT_TRUE(cluster.pods("j").empty()) << pods;
    EXPECT_TRUE(cluster.services("j").empty()) << pods;
    EXPECT_TRUE(cluster.api.store.all(kSecrets).empty()) << pods;
  }
}

TEST_F(OperatorFaultTest, AJobOfTheNameOfADeletedOneStartsFromNothing) {
  create_running(usual_job());
  fail("j-learner-0");
  cluster.settle();
  const std::string old = cluster.uid("j-collector-0");
  cluster.delete_job("j");
  const std::string uid = cluster.create_job(usual_job());
  cluster.settle(1min);
  EXPECT_EQ(cluster.phase("j"), "Starting");
  EXPECT_EQ(counters(cluster), (Counters{0, 0}));
  EXPECT_EQ(cluster.pods("j").size(), 4u);
  EXPECT_NE(cluster.uid("j-collector-0"), old);
  for (const json::Value& pod : cluster.pods("j")) EXPECT_EQ(owner_of(pod), uid);
}

TEST_F(OperatorFaultTest, NothingIsMadeInANameSpaceThatIsBeingDeleted) {
  bool terminating = true;
  cluster.api.intercept = [&](const http::Request& request) -> std::optional<http::Response> {
    if (!terminating || request.method != "POST") return std::nullopt;
    return status_answer(403, "Forbidden",
                         "unable to create new content in namespace default because it is being "
                         "terminated");
  };
  create(usual_job());
  cluster.settle(30min);
  EXPECT_TRUE(cluster.pods("j").empty());
  EXPECT_LT(cluster.api.requests(), 600u) << "it waits between its tries";
  cluster.delete_job("j");
  cluster.settle(1min);
  const std::uint64_t requests = cluster.api.requests();
  terminating = false;
  cluster.settle(5min);
  EXPECT_LT(cluster.api.requests(), requests + 30) << "nobody asks for it any more";
  EXPECT_TRUE(cluster.pods("j").empty());
}

TEST_F(OperatorFaultTest, APodThatTheServerWillNeverTakeSpendsTheBudget) {
  cluster.api.intercept = [&](const http::Request& request) -> std::optional<http::Response> {
    if (request.method != "POST" || request.body.find("\"j-evaluator-0\"") == std::string::npos) {
      return std::nullopt;
    }
    return status_answer(422, "Invalid", "Pod \"j-evaluator-0\" is invalid");
  };
  create(usual_job("backoffLimit: 1"));
  cluster.settle(30min);
  EXPECT_EQ(cluster.phase("j"), "Failed");
  EXPECT_EQ(cluster.status("j", "restarts"), 1);
  const std::string why = message("Failed");
  EXPECT_TRUE(why.starts_with(
      "job failed since pod j-evaluator-0 failed to create and exceed backoff limit"))
      << why;
  EXPECT_NE(why.find("Pod \"j-evaluator-0\" is invalid"), std::string::npos) << why;
}

// One run of a job in which one pod fails once; the request with that number gets that answer. The
// numbers of pods and restarts that the run saw.
struct Outcome {
  std::string phase;
  Counters counted;
  int made = 0;
  std::uint64_t requests = 0;
  bool operator==(const Outcome& other) const {
    return phase == other.phase && counted == other.counted && made == other.made;
  }
};

Outcome run_with(std::uint64_t bad_request, const std::optional<http::Response>& answer,
                 bool crash = false) {
  SimCluster cluster(11);
  std::map<std::string, int> tries;
  cluster.kubelet.script = [&](const json::Value& pod) {
    const std::string name(pod.string_at({"metadata", "name"}));
    const bool fails = name == "j-collector-1" && ++tries[name] == 1;
    return Fate{.end = fails ? Fate::End::kFail : Fate::End::kSucceed, .after = 20s};
  };
  Outcome run;
  cluster.on_change = [&](const SimCluster::Change& change) {
    run.made += change.collection == kPods && change.type == "ADDED" ? 1 : 0;
  };
  bool crashed = false;
  cluster.api.intercept = [&](const http::Request&) -> std::optional<http::Response> {
    if (++run.requests != bad_request) return std::nullopt;
    crashed = crash;
    return answer;
  };
  cluster.start_operator();
  cluster.create_job(usual_job());
  const auto over = [&] { return crashed || cluster.phase("j") == "Succeeded"; };
  cluster.loop.run_until(over);
  if (crashed) {
    crashed = false;
    cluster.crash_all();
    cluster.start_operator();
    cluster.loop.run_until(over);
  }
  cluster.settle(10s);
  run.phase = cluster.phase("j");
  run.counted = counters(cluster);
  EXPECT_TRUE(cluster.services("j").empty());
  return run;
}

TEST(OperatorStepTest, AnyAnswerAtAnyStepChangesNothingInTheEnd) {
  const Outcome good = run_with(0, std::nullopt);
  ASSERT_EQ(good.phase, "Succeeded");
  ASSERT_EQ(good.made, 5);
  ASSERT_EQ(good.counted, (Counters{1, 0}));
  const std::vector<http::Response> answers{
      status_answer(409, "Conflict", "the object has been modified"),
      status_answer(410, "Expired", "too old"),
      status_answer(429, "TooManyRequests", "slow down"),
      status_answer(500, "InternalError", "a fault"),
      {503, {{"Content-Type", "text/html"}}, "<html>"}};
  for (std::size_t i = 0; i < answers.size(); ++i) {
    const http::Response& answer = answers[i];
    for (std::uint64_t step = 1; step <= good.requests; ++step) {
      if (!divisi::testing::tries_everything() && step % answers.size() != i) continue;
      const Outcome run = run_with(step, answer);
      EXPECT_EQ(run, good) << answer.status << " at request " << step << ": " << run.phase << ", "
                           << run.counted.restarts << " restarts, " << run.counted.reschedules
                           << " reschedules, " << run.made << " pods";
    }
  }
}

TEST(OperatorStepTest, ACrashAtAnyStepChangesNothingInTheEnd) {
  const Outcome good = run_with(0, std::nullopt);
  for (std::uint64_t step = 1; step <= good.requests; ++step) {
    const Outcome run = run_with(step, std::nullopt, true);
    EXPECT_EQ(run, good) << "at request " << step << ": " << run.phase << ", "
                         << run.counted.restarts << " restarts, " << run.counted.reschedules
                         << " reschedules, " << run.made << " pods";
  }
}

TEST_F(OperatorFaultTest, AClockThatJumpsRestartsNothing) {
  create_running(usual_job());
  const auto before = uids();
  for (const auto skew : {3600s, -7200s, 86'400s, -86'400s, 0s}) {
    cluster.skew = skew;
    cluster.settle(3min);
    EXPECT_EQ(uids(), before);
    EXPECT_EQ(cluster.phase("j"), "Running");
  }
  // The pause after a second failure does not become a day.
  fail("j-learner-0");
  cluster.settle();
  fail("j-learner-0");
  cluster.settle(1s);
  cluster.skew = -86'400s;
  cluster.settle(3min);
  EXPECT_EQ(cluster.pod("j-learner-0").string_at({"status", "phase"}), "Pending");
  EXPECT_EQ(cluster.status("j", "restarts"), 2);
}

TEST_F(OperatorFaultTest, TwoOperatorsAtOnceMakeNothingTwice) {
  cluster.start_operator();
  std::map<std::string, int> made;
  cluster.on_change = [&](const SimCluster::Change& change) {
    if (change.collection == kPods && change.type == "ADDED") {
      ++made[std::string(change.object.string_at({"metadata", "name"}))];
    }
  };
  create_running(usual_job());
  fail("j-collector-1");
  cluster.settle();
  EXPECT_EQ(made.size(), 4u);
  EXPECT_EQ(made["j-collector-1"], 2);
  EXPECT_EQ(made["j-learner-0"], 1);
  EXPECT_EQ(counters(cluster), (Counters{1, 0}));
}

}  // namespace
}  // namespace divisi::dijob::testing
