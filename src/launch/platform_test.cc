#include "launch/platform.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace divisi::launch {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

Environment slurm(std::string nodes, std::string tasks, std::string per_node, std::string procid) {
  return {{"SLURM_NODELIST", std::move(nodes)},
          {"SLURM_NTASKS", std::move(tasks)},
          {"SLURM_NTASKS_PER_NODE", std::move(per_node)},
          {"SLURM_PROCID", std::move(procid)}};
}

std::vector<std::string> host_names(const Cluster& cluster) {
  std::vector<std::string> names;
  for (const Place& place : cluster.places) names.push_back(place.host);
  return names;
}

TEST(KubernetesTest, ReadsTheOperatorsVariables) {
  const auto cluster =
      read_kubernetes({{"DI_NODES", "h0, h1,h2"}, {"DI_RANK", "2"}, {"DI_JOB_ID", "lab/train"}});
  ASSERT_TRUE(cluster.has_value());
  EXPECT_THAT(host_names(*cluster), ElementsAre("h0", "h1", "h2"));
  EXPECT_EQ(cluster->rank, 2);
  EXPECT_EQ(cluster->job_id, "lab/train");
  EXPECT_EQ(cluster->default_port, 50515);
}

TEST(KubernetesTest, NamesTheVariableThatIsMissingOrWrong) {
  const auto error = [](const Environment& environment) {
    const auto cluster = read_kubernetes(environment);
    EXPECT_FALSE(cluster.has_value());
    return cluster ? "" : cluster.error().message();
  };
  EXPECT_THAT(error({}), HasSubstr("DI_NODES is not set"));
  EXPECT_THAT(error({{"DI_NODES", "a"}}), HasSubstr("DI_RANK is not set"));
  EXPECT_THAT(error({{"DI_NODES", " , "}, {"DI_RANK", "0"}}), HasSubstr("an empty place"));
  EXPECT_THAT(error({{"DI_NODES", "a,,b"}, {"DI_RANK", "1"}}), HasSubstr("an empty place"));
  EXPECT_THAT(error({{"DI_NODES", "a,b"}, {"DI_RANK", "2"}}),
              HasSubstr("DI_RANK=2 is out of range: DI_NODES names 2 hosts"));
  EXPECT_THAT(error({{"DI_NODES", "a,b"}, {"DI_RANK", "-1"}}), HasSubstr("DI_RANK: '-1'"));
  EXPECT_THAT(error({{"DI_NODES", "a,b"}, {"DI_RANK", "1x"}}), HasSubstr("DI_RANK: '1x'"));
  EXPECT_THAT(error({{"DI_NODES", "a,b/c"}, {"DI_RANK", "0"}}), HasSubstr("'b/c' is not a host"));
}

TEST(SlurmTest, A121RepeatsEachHostForItsTasks) {
  const auto cluster = read_slurm(slurm("SH-IDC1-10-5-[38-40]", "9", "3", "0"));
  ASSERT_TRUE(cluster.has_value()) << cluster.error().message();
  EXPECT_THAT(host_names(*cluster),
              ElementsAre("SH-IDC1-10-5-38", "SH-IDC1-10-5-38", "SH-IDC1-10-5-38",
                          "SH-IDC1-10-5-39", "SH-IDC1-10-5-39", "SH-IDC1-10-5-39",
                          "SH-IDC1-10-5-40", "SH-IDC1-10-5-40", "SH-IDC1-10-5-40"));
  EXPECT_EQ(cluster->default_port, 15151);
}

TEST(SlurmTest, ReadsTasksPerNodeAndJobNodeList) {
  const auto cluster = read_slurm({{"SLURM_JOB_NODELIST", "n[08-11]"},
                                   {"SLURM_TASKS_PER_NODE", "2(x3),1"},
                                   {"SLURM_PROCID", "6"},
                                   {"SLURM_JOB_ID", "4711"}});
  ASSERT_TRUE(cluster.has_value()) << cluster.error().message();
  EXPECT_THAT(host_names(*cluster), ElementsAre("n08", "n08", "n09", "n09", "n10", "n10", "n11"));
  EXPECT_EQ(cluster->job_id, "4711");
  EXPECT_THAT(cluster->warnings, IsEmpty());
}

TEST(SlurmTest, TheNodeListOfTheStepWinsOverThatOfTheJob) {
  Environment environment = slurm("n[1-2]", "2", "1", "0");
  environment["SLURM_JOB_NODELIST"] = "n[1-4]";
  const auto cluster = read_slurm(environment);
  ASSERT_TRUE(cluster.has_value()) << cluster.error().message();
  EXPECT_THAT(host_names(*cluster), ElementsAre("n1", "n2"));
}

TEST(SlurmTest, UsesNodeIdAndLocalIdUnderACyclicDistribution) {
  Environment environment = slurm("n[1-2]", "4", "2", "1");
  environment["SLURM_NODEID"] = "1";
  environment["SLURM_LOCALID"] = "0";
  const auto guessed = read_slurm(environment);
  ASSERT_TRUE(guessed.has_value());
  const std::vector<Place> cyclic = {{"n1", 0}, {"n2", 0}, {"n1", 1}, {"n2", 1}};
  EXPECT_EQ(guessed->places, cyclic);
  EXPECT_THAT(guessed->warnings, IsEmpty());

  environment = slurm("n[1-2]", "4", "2", "0");
  environment["SLURM_DISTRIBUTION"] = "cyclic:block";
  EXPECT_EQ(read_slurm(environment)->places, cyclic);
}

TEST(SlurmTest, DealsPlanes) {
  Environment environment = slurm("n[1-2]", "7", "4", "0");
  environment["SLURM_DISTRIBUTION"] = "plane=2";
  const std::vector<Place> planes = {{"n1", 0}, {"n1", 1}, {"n2", 0}, {"n2", 1},
                                     {"n1", 2}, {"n1", 3}, {"n2", 2}};
  EXPECT_EQ(read_slurm(environment)->places, planes);
}

TEST(SlurmTest, TrustsTheTasksOwnPlaceAndWarnsWhenNoDistributionFits) {
  Environment environment = slurm("n[1-2]", "4", "2", "0");
  environment["SLURM_NODEID"] = "1";
  environment["SLURM_LOCALID"] = "1";
  const auto cluster = read_slurm(environment);
  ASSERT_TRUE(cluster.has_value());
  EXPECT_EQ(cluster->places[0], (Place{"n2", 1}));
  EXPECT_THAT(cluster->warnings, ElementsAre(HasSubstr("fit no task distribution")));
}

TEST(SlurmTest, AnotherNameOfThisHostIsAWarning) {
  Environment environment = slurm("n[1-2]", "2", "1", "1");
  environment["SLURMD_NODENAME"] = "n2.lab.example";
  const auto cluster = read_slurm(environment);
  ASSERT_TRUE(cluster.has_value());
  EXPECT_THAT(cluster->warnings, ElementsAre(HasSubstr("SLURMD_NODENAME is n2.lab.example")));
}

TEST(SlurmTest, NamesTheVariableThatIsMissingOrWrong) {
  const auto error = [](Environment environment, const char* without) {
    environment.erase(without);
    const auto cluster = read_slurm(environment);
    EXPECT_FALSE(cluster.has_value());
    return cluster ? "" : cluster.error().message();
  };
  const Environment good = slurm("n[1-2]", "4", "2", "0");
  EXPECT_THAT(error(good, "SLURM_NODELIST"), HasSubstr("SLURM_NODELIST"));
  EXPECT_THAT(error(good, "SLURM_PROCID"), HasSubstr("SLURM_PROCID is not set"));
  EXPECT_THAT(error(good, "SLURM_NTASKS_PER_NODE"), HasSubstr("SLURM_TASKS_PER_NODE"));
  EXPECT_THAT(error(slurm("n[1-2]", "5", "2", "0"), ""),
              HasSubstr("SLURM_NTASKS=5, but the hosts take only 4"));
  EXPECT_THAT(error(slurm("n[1-2]", "4", "2", "4"), ""), HasSubstr("SLURM_PROCID=4"));
  EXPECT_THAT(error(slurm("n[1-60000]", "4", "60000", "0"), ""), HasSubstr("more than"));
  Environment environment = good;
  environment["SLURM_NODEID"] = "2";
  EXPECT_THAT(error(environment, ""), HasSubstr("SLURM_NODEID=2 is out of range"));
  environment = good;
  environment["SLURM_TASKS_PER_NODE"] = "2(x3)";
  EXPECT_THAT(error(environment, ""), HasSubstr("for 3 hosts, the node list names 2"));
}

}  // namespace
}  // namespace divisi::launch
