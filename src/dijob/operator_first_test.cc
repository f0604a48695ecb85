// A new job: its pods come before its first status. What that will say, they say as well, so that
// nothing is lost when the job is edited, or its operator dies, in between.
#include "dijob/testing/operator_fixture.h"

#include <algorithm>
#include <set>

namespace divisi::dijob::testing {
namespace {

using namespace std::chrono_literals;
using kube::status_answer;

class OperatorFirstTest : public OperatorTest {
 protected:
  // No status can be written while this is so.
  bool silent_ = false;
  int statuses_ = 0;

  OperatorFirstTest() {
    cluster.api.intercept = [this](const http::Request& request) -> std::optional<http::Response> {
      if (request.method != "PATCH" || request.target.find("/status") == std::string::npos) {
        return std::nullopt;
      }
      ++statuses_;
      if (!silent_) return std::nullopt;
      return status_answer(503, "ServiceUnavailable", "not now");
    };
  }

  // All pods are there, and nothing was told.
  void create_untold(const std::string& yaml, std::size_t pods) {
    silent_ = true;
    cluster.create_job(yaml);
    ASSERT_TRUE(cluster.loop.run_until([&] { return cluster.pods("j").size() == pods; }));
    cluster.settle();
    ASSERT_EQ(cluster.phase("j"), "");
  }

  void expect_ranks_as_recorded() const {
    std::map<std::string, std::string> recorded;
    const json::Value job = cluster.job("j");
    for (const json::Value& line : *job.find_path({"status", "ranks"})->as_array()) {
      const json::Array& ranks = *line.find("ranks")->as_array();
      for (std::size_t i = 0; i < ranks.size(); ++i) {
        recorded[fmt::format("j-{}-{}", line.string_at({"task"}), i)] =
            std::to_string(*ranks[i].as_int());
      }
    }
    std::set<std::string> seen;
    for (const std::string& pod : cluster.pod_names("j")) {
      EXPECT_EQ(rank(pod), recorded[pod]) << pod;
      EXPECT_TRUE(seen.insert(rank(pod)).second) << pod;
    }
  }
};

TEST_F(OperatorFirstTest, ItIsToldOfOnceWhenItsPodsAreThere) {
  cluster.on_change = [&](const SimCluster::Change&) {
    if (cluster.pods("j").size() < 4) {
      EXPECT_EQ(statuses_, 0);
    }
  };
  create(usual_job());
  EXPECT_EQ(statuses_, 1);
  EXPECT_EQ(cluster.phase("j"), "Starting");
  EXPECT_EQ(message("Pending"), "job created.");
  EXPECT_EQ(cluster.condition("j", "Pending").string_at({"status"}), "False");
  EXPECT_TRUE(told("Normal JobPending: job created."));
}

TEST_F(OperatorFirstTest, PodsOfOtherJobsComeBeforeItToo) {
  constexpr int kCount = 60;
  int pods = 0;
  int early = 0;
  cluster.on_change = [&](const SimCluster::Change& change) {
    pods += change.collection == kPods && change.type == "ADDED" ? 1 : 0;
    early += change.collection == kJobs && change.type == "MODIFIED" && pods < 3 * kCount ? 1 : 0;
  };
  for (int i = 0; i < kCount; ++i) {
    cluster.create_job(
        tasks_job({task("learner", 1), task("collector", 2)}, "", fmt::format("j{}", i)));
  }
  const auto all_told = [&] {
    for (int i = 0; i < kCount; ++i) {
      if (cluster.phase(fmt::format("j{}", i)) != "Starting") return false;
    }
    return true;
  };
  EXPECT_TRUE(cluster.loop.run_until(all_told));
  EXPECT_EQ(early, 0);
  EXPECT_EQ(statuses_, kCount);
}

TEST_F(OperatorFirstTest, AnEditBeforeItKeepsPodsAndRanks) {
  create_untold(tasks_job({task("learner", 2), task("evaluator", 1), task("collector", 2)}), 5);
  const auto before = uids();
  cluster.edit_job("j", sized(1, 1, 3));
  silent_ = false;
  cluster.settle(1min);
  EXPECT_EQ(cluster.phase("j"), "Starting");
  EXPECT_EQ(cluster.pod_names("j"), (Names{"j-collector-0", "j-collector-1", "j-collector-2",
                                           "j-evaluator-0", "j-learner-0"}));
  for (const auto& [pod, uid] : uids()) {
    if (pod != "j-collector-2") {
      EXPECT_EQ(uid, before.at(pod));
    }
  }
  EXPECT_EQ(rank("j-evaluator-0"), "2");
  EXPECT_EQ(rank("j-collector-1"), "4");
  expect_ranks_as_recorded();
}

TEST_F(OperatorFirstTest, AWishOfKubectlScaleBeforeItCounts) {
  create_untold(usual_job(), 4);
  cluster.edit_job("j", "{spec: {replicas: 4}}");
  silent_ = false;
  cluster.settle(1min);
  EXPECT_EQ(cluster.status("j", "replicas"), 6);
  EXPECT_EQ(cluster.pods("j").size(), 6u);
}

TEST_F(OperatorFirstTest, WhoComesAfterACrashAndAnEditGoesOnWithThePodsThatThereAre) {
  for (std::size_t pods = 1; pods <= 5; ++pods) {
    for (const std::string& edit :
         {sized(1, 1, 2), sized(1, 1, 1), sized(3, 1, 1), sized(2, 2, 2)}) {
      SCOPED_TRACE(fmt::format("{} pods, then {}", pods, edit));
      cluster.create_job(
          tasks_job({task("learner", 2), task("evaluator", 1), task("collector", 2)}));
      ASSERT_TRUE(cluster.loop.run_until([&] { return cluster.pods("j").size() >= pods; }));
      cluster.crash_all();
      cluster.settle(1s);  // what was on its way has come
      const auto before = uids();
      cluster.edit_job("j", edit);
      cluster.start_operator();
      cluster.settle(1min);
      EXPECT_EQ(cluster.phase("j"), "Starting");
      expect_ranks_as_recorded();
      for (const auto& [pod, uid] : uids()) {
        if (before.contains(pod)) {
          EXPECT_EQ(uid, before.at(pod)) << pod;
        }
        const std::string nodes = env_of(cluster.pod(pod), "DI_NODES");
        EXPECT_GT(std::ranges::count(nodes, ',') + 1, std::stol(rank(pod))) << pod;
      }
      cluster.delete_job("j");
      cluster.settle(1min);
      ASSERT_TRUE(cluster.pods("j").empty());
    }
  }
}

TEST_F(OperatorFirstTest, AJobWhosePodsCannotBeMadeIsToldOfAllTheSame) {
  cluster.api.intercept = [](const http::Request& request) -> std::optional<http::Response> {
    if (request.method != "POST" || request.target.find("/pods") == std::string::npos) {
      return std::nullopt;
    }
    return status_answer(500, "InternalError", "no webhook answers");
  };
  create(usual_job());
  cluster.settle(1min);
  EXPECT_EQ(cluster.phase("j"), "Pending");
}

// The last event of the old pod may come when the next one was asked for.
TEST(OperatorRepeatTest, APodIsAskedForOnce) {
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    SCOPED_TRACE(seed);
    SimCluster cluster(seed);
    cluster.kubelet.automatic = false;
    cluster.start_operator();
    int asked = 0;
    cluster.api.intercept = [&](const http::Request& request) -> std::optional<http::Response> {
      asked += request.method == "POST" && request.target.ends_with("/pods") ? 1 : 0;
      return std::nullopt;
    };
    cluster.create_job(usual_job("backoffLimit: null"));
    cluster.settle();
    cluster.run_all("j");
    cluster.settle();
    EXPECT_EQ(asked, 4);
    for (int failures = 1; failures <= 5; ++failures) {
      cluster.kubelet.fail("default/j-learner-0");
      cluster.settle(2min);
      EXPECT_EQ(asked, 4 + failures);
      EXPECT_EQ(counters(cluster), (Counters{failures, 0}));
      cluster.run_all("j");
      cluster.settle();
    }
  }
}

}  // namespace
}  // namespace divisi::dijob::testing
