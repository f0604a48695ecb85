#include "dijob/allocator.h"

#include "dijob/allocator_input.h"
#include "dijob/job_testing.h"
#include "dijob/replica_resources.h"

#include <gmock/gmock.h>

#include <random>
#include <set>

namespace divisi::dijob {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

Node node(std::string_view name, int cpu, std::string_view more = "") {
  return read_node(
      yaml(fmt::format("metadata: {{name: {}, labels: {{host: {}}}}}\nstatus: {{allocatable: "
                       "{{cpu: {}, memory: 64Gi, pods: 100}}}}\n{}",
                       name, name, cpu, more)));
}

Kind kind(int cpu, std::string_view pod_spec = "{}") {
  return {{{"cpu", json::Quantity(cpu)}, {"pods", json::Quantity(1)}}, yaml(pod_spec)};
}

// `gang` replicas that must have a place, and `extra` that may.
Demand demand(std::string key, int gang, int extra, int cpu) {
  Demand made{.key = std::move(key), .created = "2026-01-01T00:00:00Z", .kinds = {kind(cpu)}};
  for (int rank = 0; rank < gang + extra; ++rank) made.replicas.push_back({rank, 0, rank < gang});
  return made;
}

// The demand of that job once it runs as placed.
Demand running(Demand demand, std::vector<std::string> nodes) {
  for (std::size_t rank = 0; rank < nodes.size(); ++rank) {
    if (nodes[rank].empty()) continue;
    demand.held.push_back({static_cast<int>(rank), nodes[rank], demand.kinds[0].needs});
  }
  demand.nodes = std::move(nodes);
  return demand;
}

TEST(Allocate, OD03_NothingToPlaceAndNowhereToPlaceItAreNoCrash) {
  EXPECT_THAT(allocate({}, {}), IsEmpty());
  EXPECT_THAT(allocate({}, {node("a", 1)}), IsEmpty());
  const auto placements =
      allocate({demand("rl/a", 1, 1, 1), demand("rl/b", 0, 0, 1), demand("rl/c", 0, 1, 1)}, {});
  ASSERT_EQ(placements.size(), 3u);
  for (const Placement& placement : placements) EXPECT_THAT(placement.nodes, IsEmpty());
  EXPECT_EQ(placements[0].message,
            "asked: 1 replicas with cpu 1, pods 1; free: cpu 0, pods 0 on 0 of 0 nodes; ahead of "
            "it: 0 jobs");
}

TEST(Allocate, TheSmallestGangHasAllItsPlacesOrNone) {
  const auto placements = allocate({demand("rl/a", 3, 0, 2)}, {node("x", 2), node("x2", 3)});
  EXPECT_THAT(placements[0].nodes, IsEmpty());
  EXPECT_EQ(placements[0].message,
            "asked: 3 replicas with cpu 6, pods 3; free: cpu 5, pods 200 on 2 of 2 nodes; ahead of "
            "it: 0 jobs");
  EXPECT_THAT(allocate({demand("rl/a", 3, 0, 2)}, {node("x", 2), node("x2", 4)})[0].nodes,
              ElementsAre("x", "x2", "x2"));
}

TEST(Allocate, TheLargestReplicasArePlacedFirstOverNodesByName) {
  Demand job = demand("rl/a", 3, 0, 1);
  job.kinds.push_back(kind(4));
  job.replicas[2].kind = 1;  // the last rank needs the most
  EXPECT_THAT(allocate({job}, {node("b", 2), node("a", 4)})[0].nodes, ElementsAre("b", "b", "a"));
}

TEST(Allocate, OD34_ExtrasFollowUpToTheMostThatAreWanted) {
  EXPECT_THAT(allocate({demand("rl/a", 1, 2, 1)}, {node("x", 8)})[0].nodes,
              ElementsAre("x", "x", "x"));
  const auto two = allocate({demand("rl/a", 1, 2, 1)}, {node("x", 2)});
  EXPECT_THAT(two[0].nodes, ElementsAre("x", "x"));
  EXPECT_EQ(two[0].message, "2 of 3 replicas have a node");
}

TEST(Allocate, OD34_HighBeforeNormalThenOldBeforeYoung) {
  Demand old = demand("rl/old", 1, 0, 2);
  old.created = "2025-01-01T00:00:00Z";
  const Demand young = demand("rl/young", 1, 0, 2);
  Demand high = demand("rl/high", 1, 0, 2);
  high.high = true;
  high.created = "2026-02-01T00:00:00Z";
  const auto placements = allocate({young, old, high}, {node("x", 4)});
  EXPECT_THAT(placements[2].nodes, ElementsAre("x"));
  EXPECT_THAT(placements[1].nodes, ElementsAre("x"));
  EXPECT_THAT(placements[0].nodes, IsEmpty());
  const auto one = allocate({young, old, high}, {node("x", 3)});
  EXPECT_THAT(one[0].message, HasSubstr("ahead of it: 1 jobs"));
}

TEST(Allocate, WhatIsPlacedStaysWhereItIs) {
  const Demand job = running(demand("rl/a", 2, 0, 1), {"z", "x2"});
  EXPECT_THAT(allocate({job}, {node("x", 8), node("x2", 8), node("z", 8)})[0].nodes,
              ElementsAre("z", "x2"));
  // Cordoned, it takes nobody new; what is there stays. Gone, its replicas find another place.
  EXPECT_THAT(
      allocate({job}, {node("x", 8), node("x2", 8, "spec: {unschedulable: true}"), node("z", 8)})[0]
          .nodes,
      ElementsAre("z", "x2"));
  EXPECT_THAT(allocate({job}, {node("x", 8), node("z", 8)})[0].nodes, ElementsAre("z", "x"));
}

TEST(Allocate, AHigherJobTakesTheExtrasOfALowerAndWaitsUntilTheirPodsHaveLeft) {
  const Demand low = running(demand("rl/low", 1, 3, 1), {"x", "x", "x", "x"});
  Demand high = demand("rl/high", 2, 0, 1);
  high.high = true;
  const auto first = allocate({low, high}, {node("x", 4)});
  EXPECT_THAT(first[0].nodes, ElementsAre("x", "x"));
  EXPECT_THAT(first[1].nodes, IsEmpty());
  EXPECT_THAT(first[1].message, HasSubstr("wait until pods of other jobs have ended"));

  const Demand shrunk = running(demand("rl/low", 1, 3, 1), {"x", "x"});
  const auto then = allocate({shrunk, high}, {node("x", 4)});
  EXPECT_THAT(then[0].nodes, ElementsAre("x", "x"));
  EXPECT_THAT(then[1].nodes, ElementsAre("x", "x"));
}

TEST(Allocate, ARunningGangIsNotBrokenUpForAHigherJob) {
  const Demand low = running(demand("rl/low", 3, 0, 1), {"x", "x", "x"});
  Demand high = demand("rl/high", 2, 0, 1);
  high.high = true;
  const auto placements = allocate({low, high}, {node("x", 4)});
  EXPECT_THAT(placements[0].nodes, ElementsAre("x", "x", "x"));
  EXPECT_THAT(placements[1].nodes, IsEmpty());
}

TEST(Allocate, WhileALargeJobWaitsNobodyBehindItStartsAndNobodyGrows) {
  Demand elastic = running(demand("rl/elastic", 1, 3, 1), {"x"});
  elastic.created = "2025-01-01T00:00:00Z";
  Demand large = demand("rl/large", 4, 0, 1);
  large.created = "2025-02-01T00:00:00Z";
  const auto placements = allocate({elastic, large, demand("rl/small", 1, 0, 1)}, {node("x", 4)});
  EXPECT_THAT(placements[0].nodes, ElementsAre("x"));
  EXPECT_THAT(placements[1].nodes, IsEmpty());
  EXPECT_THAT(placements[2].nodes, IsEmpty());
  // One that could never run holds up nobody.
  large = demand("rl/large", 5, 0, 1);
  large.created = "2025-02-01T00:00:00Z";
  const auto others = allocate({elastic, large, demand("rl/small", 1, 0, 1)}, {node("x", 4)});
  EXPECT_THAT(others[0].nodes, ElementsAre("x", "x", "x"));
  EXPECT_THAT(others[2].nodes, ElementsAre("x"));
}

TEST(Allocate, TheRanksOfATemplateFormHaveNoHole) {
  Demand gang = running(demand("rl/a", 1, 2, 1), {"x", "gone", "x"});
  gang.gapless = true;
  EXPECT_THAT(allocate({gang}, {node("x", 2)})[0].nodes, ElementsAre("x", "x"));
  gang.gapless = false;
  EXPECT_THAT(allocate({gang}, {node("x", 2)})[0].nodes, ElementsAre("x", "", "x"));
}

TEST(Admits, SelectorsAffinityTaintsAndTolerations) {
  const auto takes = [](std::string_view more, std::string_view pod_spec) {
    return admits(node("n1", 1, more), yaml(pod_spec));
  };
  const std::string affinity =
      "affinity: {{nodeAffinity: {{requiredDuringSchedulingIgnoredDuringExecution: "
      "{{nodeSelectorTerms: [{}]}}}}}}";
  const auto with_term = [&](std::string_view term) {
    return takes("", fmt::format(fmt::runtime(affinity), term));
  };
  EXPECT_TRUE(takes("", "{}"));
  EXPECT_TRUE(takes("", "nodeSelector: {host: n1}"));
  EXPECT_FALSE(takes("", "nodeSelector: {host: n2}"));
  EXPECT_TRUE(with_term("{matchExpressions: [{key: host, operator: In, values: [n1, n2]}]}"));
  EXPECT_FALSE(with_term("{matchExpressions: [{key: host, operator: NotIn, values: [n1]}]}"));
  EXPECT_TRUE(with_term("{matchExpressions: [{key: gpu, operator: DoesNotExist}]}"));
  EXPECT_FALSE(with_term("{matchExpressions: [{key: gpu, operator: Gt, values: ['3']}]}"));
  EXPECT_TRUE(
      with_term("{matchExpressions: [{key: no, operator: Exists}]}, {matchFields: [{key: "
                "metadata.name, operator: In, values: [n1]}]}"));
  EXPECT_FALSE(with_term("{}"));

  const std::string taint = "spec: {taints: [{key: gpu, value: a, effect: NoSchedule}]}";
  EXPECT_FALSE(takes(taint, "{}"));
  EXPECT_TRUE(takes(taint, "tolerations: [{operator: Exists}]"));
  EXPECT_TRUE(takes(taint, "tolerations: [{key: gpu, operator: Exists, effect: NoSchedule}]"));
  EXPECT_TRUE(takes(taint, "tolerations: [{key: gpu, value: a}]"));
  EXPECT_FALSE(takes(taint, "tolerations: [{key: gpu, value: b}]"));
  EXPECT_FALSE(takes(taint, "tolerations: [{key: gpu, operator: Exists, effect: NoExecute}]"));
  EXPECT_TRUE(takes("spec: {taints: [{key: gpu, effect: PreferNoSchedule}]}", "{}"));
}

TEST(ReadNode, OneThatIsNotReadyOrCordonedTakesNobody) {
  EXPECT_TRUE(node("a", 1).open);
  EXPECT_FALSE(node("a", 1, "spec: {unschedulable: true}").open);
  const Node dead = read_node(
      yaml("{metadata: {name: a}, status: {conditions: [{type: Ready, status: Unknown}]}}"));
  EXPECT_FALSE(dead.open || dead.alive);
}

TEST(DefaultResources, O081_AreOneCpuAndTwoGiUnlessTheVariableSaysOtherwise) {
  const auto read = [](std::string_view text) {
    const auto amounts = read_default_resources(text);
    return amounts ? text_of(*amounts, *amounts) : amounts.error().message();
  };
  EXPECT_EQ(read(""), "cpu 1, memory 2Gi");
  EXPECT_EQ(read(R"({"resources":{"requests":{"cpu":1,"memory":"2Gi"}}})"), "cpu 1, memory 2Gi");
  EXPECT_EQ(read(R"({"resources":{"requests":{"cpu":2,"memory":"3Gi"}}})"), "cpu 2, memory 3Gi");
  EXPECT_EQ(read(R"({"resources":{"requests":{"cpu":2},"limits":{"cpu":4,"memory":"1Gi"}}})"),
            "cpu 2, memory 1Gi");
  EXPECT_THAT(read("{}"), HasSubstr("DI_JOB_DEFAULT_RESOURCES has no object named resources"));
  EXPECT_THAT(read("{"), HasSubstr("DI_JOB_DEFAULT_RESOURCES"));
  EXPECT_THAT(read(R"({"resources":{"requests":{"cpu":"x"}}})"),
              HasSubstr("resources.requests.cpu"));
  EXPECT_THAT(read(R"({"resources":{"requests":[]}})"), HasSubstr("must be an object"));
}

TEST(ReplicaResources, OD19_LimitsStandForRequestsThatAreAbsent) {
  const Amounts defaults = *read_default_resources("");
  const auto needs = [&](std::string_view pod_spec) {
    Task task{.name = "a", .type = "learner"};
    task.pod_template["spec"] = yaml(pod_spec);
    const Amounts amounts = replica_resources(task, defaults);
    return text_of(amounts, amounts);
  };
  EXPECT_EQ(needs("containers: [{name: c}]"), "cpu 1, memory 2Gi");
  EXPECT_EQ(needs("containers: [{name: c, resources: {limits: {nvidia.com/gpu: 2, cpu: 3}}}]"),
            "cpu 3, memory 2Gi, nvidia.com/gpu 2");
  EXPECT_EQ(needs("containers: [{name: c, resources: {requests: {cpu: 500m}, limits: {cpu: 3, "
                  "memory: 1Gi}}}]"),
            "cpu 500m, memory 1Gi");
  EXPECT_EQ(needs("{containers: [{name: side, resources: {requests: {cpu: 250m}}}, {name: "
                  "di-container}], overhead: {cpu: 1}}"),
            "cpu 2250m, memory 2Gi");
  EXPECT_EQ(needs("{containers: [{name: c}], initContainers: [{name: i, resources: {requests: "
                  "{memory: 8Gi}}}]}"),
            "cpu 1, memory 8Gi");
  EXPECT_EQ(needs("{}"), "cpu 1, memory 2Gi");
}

TEST(ReadDemand, ConcernsPreemptibleJobsThatAreToRun) {
  const auto read = [](const json::Value& object) {
    return read_demand(object, *read_default_resources(""));
  };
  const std::string spec = "preemptible: true\npriority: high\n" + three_tasks(1, 1, 2);
  const auto job = read(job_object(spec));
  ASSERT_TRUE(job.has_value());
  EXPECT_TRUE(job->high);
  EXPECT_EQ(job->replicas.size(), 4u);
  EXPECT_FALSE(read(job_object(three_tasks(1, 1, 1))).has_value());
  EXPECT_FALSE(read(job_object("{preemptible: true, tasks: []}")).has_value());
  json::Value ended = job_object(spec);
  ended["status"]["phase"] = "Succeeded";
  EXPECT_FALSE(read(ended).has_value());
  EXPECT_THAT(read(job_object("suspend: true\n" + spec))->replicas, IsEmpty());

  const auto gang = read(
      job_object("preemptible: true\ntasks:\n- {type: collector, replicas: 5, minAvailable: 2, "
                 "template: {spec: {containers: [{name: c}]}}}\n"));
  EXPECT_EQ(std::ranges::count(gang->replicas, true, &Replica::required), 2);
  const auto workers =
      read(job_object("{preemptible: true, minReplicas: 2, maxReplicas: 5, "
                      "template: {spec: {containers: [{name: c}]}}}"));
  EXPECT_TRUE(workers->gapless);
  EXPECT_EQ(workers->replicas.size(), 5u);
  EXPECT_EQ(std::ranges::count(workers->replicas, true, &Replica::required), 2);
}

TEST(PodLedger, OnlyPodsThatRunOnANodeCountAndThoseOfTheJobsStandAside) {
  std::vector<Demand> demands{demand("rl/a", 1, 0, 1)};
  std::vector<Node> nodes{node("x", 8)};
  PodLedger ledger(demands, {"uid-a"}, nodes);
  const auto add_pod = [&](std::string_view place, std::string_view phase,
                           std::string_view metadata = "{}") {
    json::Value pod =
        yaml(fmt::format("metadata: {}\nspec: {{nodeName: {}, containers: [{{name: c, resources: "
                         "{{requests: {{cpu: 1}}}}}}]}}\nstatus: {{phase: {}}}\n",
                         metadata, place, phase));
    keep_what_counts(pod);
    ledger.add_pod(pod);
  };
  add_pod("x", "Running");
  add_pod("x", "Pending");
  add_pod("x", "Succeeded");
  add_pod("x", "Failed");
  add_pod("elsewhere", "Running");
  add_pod("''", "Pending");
  add_pod("x", "Running",
          "{ownerReferences: [{uid: uid-a, controller: true}], annotations: {diengine/rank: '3'}}");
  EXPECT_EQ(nodes[0].free["cpu"], json::Quantity(6));
  EXPECT_EQ(nodes[0].free["pods"], json::Quantity(98));
  ASSERT_EQ(demands[0].held.size(), 1u);
  EXPECT_EQ(demands[0].held[0].rank, 3);
}

// --- properties, on random clusters ---

class RandomClusters : public ::testing::TestWithParam<unsigned> {
 protected:
  int between(int low, int high) { return std::uniform_int_distribution(low, high)(random_); }

  std::vector<Node> make_nodes() {
    std::vector<Node> nodes;
    for (int i = between(0, 5); i > 0; --i) {
      nodes.push_back(node(fmt::format("n{}", i), between(0, 16),
                           between(0, 5) == 0 ? "spec: {unschedulable: true}" : ""));
    }
    return nodes;
  }

  std::vector<Demand> make_jobs() {
    std::vector<Demand> jobs;
    for (int i = between(0, 6); i > 0; --i) {
      Demand job = demand(fmt::format("rl/j{}", i), between(0, 4), between(0, 4), between(0, 3));
      job.high = between(0, 2) == 0;
      job.gapless = between(0, 1) == 0;
      job.created = fmt::format("2026-01-0{}T00:00:00Z", between(1, 3));
      jobs.push_back(std::move(job));
    }
    return jobs;
  }

  std::mt19937_64 random_{GetParam()};
};

void expect_sound(const std::vector<Demand>& jobs, const std::vector<Node>& nodes,
                  const std::vector<Placement>& placements) {
  std::map<std::string, Amounts> used;
  for (std::size_t job = 0; job < jobs.size(); ++job) {
    const std::vector<std::string>& places = placements[job].nodes;
    EXPECT_LE(places.size(), jobs[job].replicas.size());
    std::size_t placed = 0;
    for (const std::string& place : places) {
      if (place.empty()) continue;
      ++placed;
      add(used[place], jobs[job].kinds[0].needs);
    }
    EXPECT_EQ(placed, placements[job].placed);
    EXPECT_FALSE(placements[job].message.empty());
    for (const Replica& replica : jobs[job].replicas) {
      const auto rank = static_cast<std::size_t>(replica.rank);
      const bool has_place = rank < places.size() && !places[rank].empty();
      if (placed > 0 && replica.required) {
        EXPECT_TRUE(has_place) << jobs[job].key << " rank " << rank;
      }
    }
  }
  for (const auto& [name, amounts] : used) {
    const auto found = std::ranges::find(nodes, name, &Node::name);
    ASSERT_NE(found, nodes.end());
    EXPECT_TRUE(fits(amounts, found->free)) << name << " is given more than it has";
  }
}

TEST_P(RandomClusters, NoNodeIsOvercommittedGangsAreWholeAndTheAnswerIsTheSame) {
  for (int round = 0; round < 40; ++round) {
    std::vector<Demand> jobs = make_jobs();
    std::vector<Node> nodes = make_nodes();
    for (int step = 0; step < 4; ++step) {
      const std::vector<Placement> placements = allocate(jobs, nodes);
      expect_sound(jobs, nodes, placements);
      std::vector<Node> shuffled = nodes;
      std::ranges::shuffle(shuffled, random_);
      const std::vector<Placement> again = allocate(jobs, shuffled);
      for (std::size_t job = 0; job < jobs.size(); ++job) {
        EXPECT_EQ(placements[job].nodes, again[job].nodes);
        jobs[job] = running(std::move(jobs[job]), placements[job].nodes);
        if (step < 3) jobs[job].held.clear();  // pods come and go; in the last step they are there
      }
      if (step == 1 && !nodes.empty()) nodes.pop_back();
    }
  }
}

TEST_P(RandomClusters, WithoutAChangeNothingMoves) {
  for (int round = 0; round < 40; ++round) {
    std::vector<Demand> jobs = make_jobs();
    const std::vector<Node> nodes = make_nodes();
    std::vector<Placement> last;
    for (int step = 0; step < 3; ++step) {
      std::vector<Placement> placements = allocate(jobs, nodes);
      for (std::size_t job = 0; job < jobs.size(); ++job) {
        if (step > 1) {
          EXPECT_EQ(placements[job].nodes, last[job].nodes) << jobs[job].key;
        }
        jobs[job].nodes = placements[job].nodes;
      }
      last = std::move(placements);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, RandomClusters, ::testing::Range(1u, 9u));

}  // namespace
}  // namespace divisi::dijob
