#include "launch/plan.h"

#include "base/testing/temp_folder.h"
#include "launch/platform_spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace divisi::launch {
namespace {

using runtime::Topology;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

const Environment kSixPods = {{"DI_NODES", "SH-0,SH-1,SH-2,SH-3,SH-4,SH-5"}, {"DI_RANK", "3"}};

constexpr const char* kSixTasks = R"({"tasks": [
  {"labels": "league,collect", "node_ids": 10},
  {"labels": "league,collect", "node_ids": 11},
  {"labels": "evaluate", "node_ids": 20, "attach_to": "$node.10,$node.11"},
  {"labels": "learn", "node_ids": 31, "ports": 50000, "attach_to": "$node.10,$node.11,$node.20"},
  {"labels": "learn", "node_ids": 32, "attach_to": "$node.10,$node.11,$node.20"},
  {"labels": "learn", "node_ids": 33, "attach_to": "$node.10,$node.11,$node.20"}]})";

LaunchPlan plan(const LaunchRequest& request, const Environment& environment = {}) {
  auto result = make_plan(request, environment);
  EXPECT_TRUE(result.has_value()) << (result ? "" : result.error().message());
  return result.value_or(LaunchPlan());
}

std::string plan_error(const LaunchRequest& request, const Environment& environment = {}) {
  const auto result = make_plan(request, environment);
  EXPECT_FALSE(result.has_value());
  return result ? "" : result.error().message();
}

Environment pods(std::string nodes, std::string rank) {
  return {{"DI_NODES", std::move(nodes)}, {"DI_RANK", std::move(rank)}};
}

std::string six_tasks_without_port() {
  std::string text = kSixTasks;
  const std::string port = R"("ports": 50000, )";
  return text.erase(text.find(port), port.size());
}

Environment six_slurm_tasks() {
  return {{"SLURM_NTASKS", "6"},
          {"SLURM_NTASKS_PER_NODE", "3"},
          {"SLURM_NODELIST", "SH-IDC1-10-5-38-[190,215]"},
          {"SLURM_PROCID", "3"},
          {"SLURMD_NODENAME", "SH-IDC1-10-5-38-215"}};
}

TEST(PlanTest, A120KubernetesWithASpecOfSixTasks) {
  const LaunchPlan result = plan({.platform = "k8s", .platform_spec = kSixTasks}, kSixPods);
  EXPECT_THAT(result.labels, ElementsAre("learn"));
  EXPECT_EQ(result.address, "SH-3");
  EXPECT_THAT(result.ports, ElementsAre(50000));
  EXPECT_THAT(result.node_ids, ElementsAre(31));
  EXPECT_EQ(result.workers, 1);
  EXPECT_THAT(result.attach_to,
              ElementsAre("tcp://SH-0:50515", "tcp://SH-1:50515", "tcp://SH-2:50515"));
  EXPECT_EQ(result.job_nodes, 6);
  EXPECT_THAT(result.job_peers, ElementsAre(ElementsAre(10, 11, 20)));
}

TEST(PlanTest, A120KubernetesMeshWithoutASpec) {
  const LaunchPlan result = plan({.topology = "mesh", .platform = "k8s"}, kSixPods);
  EXPECT_EQ(result.address, "SH-3");
  EXPECT_THAT(result.node_ids, ElementsAre(3));
  EXPECT_EQ(result.workers, 1);
  EXPECT_THAT(result.ports, ElementsAre(50515));
  EXPECT_THAT(result.attach_to,
              ElementsAre("tcp://SH-0:50515", "tcp://SH-1:50515", "tcp://SH-2:50515"));
  EXPECT_THAT(result.job_peers, ElementsAre(ElementsAre(0, 1, 2, 4, 5)));
}

TEST(PlanTest, A120KubernetesMeshWithTwoWorkers) {
  const LaunchPlan result =
      plan({.parallel_workers = "2", .topology = "mesh", .platform = "k8s"}, kSixPods);
  EXPECT_THAT(result.node_ids, ElementsAre(6, 7));
  EXPECT_THAT(result.attach_to,
              ElementsAre("tcp://SH-0:50515", "tcp://SH-0:50516", "tcp://SH-1:50515",
                          "tcp://SH-1:50516", "tcp://SH-2:50515", "tcp://SH-2:50516"));
  EXPECT_EQ(result.job_nodes, 12);
  EXPECT_THAT(result.job_peers, ElementsAre(SizeIs(10), SizeIs(10)));
}

TEST(PlanTest, O083_APodOfADIJobNeedsNoFlagsToBeOneOfSix) {
  const LaunchPlan one = plan({}, kSixPods);
  EXPECT_EQ(one.platform, Platform::kKubernetes);
  EXPECT_EQ(one.topology, runtime::Topology::kMesh);
  EXPECT_EQ(one.address, "SH-3");
  EXPECT_THAT(one.node_ids, ElementsAre(3));
  EXPECT_THAT(one.attach_to,
              ElementsAre("tcp://SH-0:50515", "tcp://SH-1:50515", "tcp://SH-2:50515"));

  const LaunchPlan two = plan({.parallel_workers = "2"}, kSixPods);
  EXPECT_EQ(two.address, "SH-3");
  EXPECT_THAT(two.node_ids, ElementsAre(6, 7));
  EXPECT_THAT(two.ports, ElementsAre(50515, 50516));
  EXPECT_THAT(two.attach_to,
              ElementsAre("tcp://SH-0:50515", "tcp://SH-0:50516", "tcp://SH-1:50515",
                          "tcp://SH-1:50516", "tcp://SH-2:50515", "tcp://SH-2:50516"));
}

TEST(PlanTest, O083_WithThePlatformAndAMeshSaidAloudItIsTheSame) {
  const LaunchPlan said = plan({.topology = "mesh", .platform = "k8s"}, kSixPods);
  const LaunchPlan unsaid = plan({}, kSixPods);
  EXPECT_EQ(said.attach_to, unsaid.attach_to);
  EXPECT_EQ(said.node_ids, unsaid.node_ids);
  EXPECT_EQ(said.job_peers, unsaid.job_peers);
}

TEST(PlanTest, InADIJobFlagsWin) {
  const LaunchPlan local = plan({.ports = "6000", .node_ids = "9", .platform = "none"}, kSixPods);
  EXPECT_EQ(local.platform, Platform::kNone);
  EXPECT_THAT(local.attach_to, IsEmpty());
  EXPECT_EQ(plan({.topology = "star"}, kSixPods).topology, runtime::Topology::kStar);
}

TEST(PlanTest, TheArgumentsOfTheTemplateFormSayEverythingThemselves) {
  Environment environment = pods("job-0-0.job,job-0-1.job", "1");
  environment["DI_NODE_IDS_ARG"] = "--node-ids=2,3";
  const LaunchPlan result = plan({.parallel_workers = "2",
                                  .ports = "22270,22271",
                                  .attach_to = "tcp://job-0-0.job:22270",
                                  .node_ids = "2,3"},
                                 environment);
  EXPECT_EQ(result.platform, Platform::kNone);
  EXPECT_THAT(result.ports, ElementsAre(22270, 22271));
  EXPECT_THAT(result.node_ids, ElementsAre(2, 3));
  EXPECT_THAT(result.attach_to, ElementsAre("tcp://job-0-0.job:22270"));
  EXPECT_EQ(result.job_links.topology, runtime::Topology::kAlone);
}

TEST(PlanTest, APodFollowsTheSizeOfItsJobWhereIdsAndLinksAreByRank) {
  const runtime::JobLinks links =
      plan({.parallel_workers = "2", .ports = "6000"}, kSixPods).job_links;
  EXPECT_EQ(links.topology, runtime::Topology::kMesh);
  EXPECT_EQ(links.rank, 3);
  EXPECT_THAT(links.ports, ElementsAre(6000, 6001));
  EXPECT_THAT(links.hosts, ElementsAre("SH-0", "SH-1", "SH-2", "SH-3", "SH-4", "SH-5"));

  const auto is_alone = [](const LaunchRequest& request, const Environment& environment) {
    return plan(request, environment).job_links.topology == runtime::Topology::kAlone;
  };
  EXPECT_TRUE(is_alone({.attach_to = "SH-0:50515"}, kSixPods));
  EXPECT_TRUE(is_alone({.node_ids = "7"}, kSixPods));
  EXPECT_TRUE(
      is_alone({.topology = "mesh", .platform = "k8s", .platform_spec = kSixTasks}, kSixPods));
  EXPECT_TRUE(is_alone({.topology = "mesh", .platform = "slurm"}, six_slurm_tasks()));
}

TEST(PlanTest, KubernetesStarAttachesToTheWorkersOfRankZero) {
  LaunchRequest request{.parallel_workers = "2", .topology = "star", .platform = "k8s"};
  LaunchPlan result = plan(request, pods("h0,h1,h2", "1"));
  EXPECT_THAT(result.node_ids, ElementsAre(2, 3));
  EXPECT_THAT(result.attach_to, ElementsAre("tcp://h0:50515", "tcp://h0:50516"));
  EXPECT_THAT(result.job_peers, ElementsAre(ElementsAre(0, 1), ElementsAre(0, 1)));

  result = plan(request, pods("h0,h1,h2", "0"));
  EXPECT_THAT(result.attach_to, IsEmpty());
  EXPECT_THAT(result.job_peers, ElementsAre(ElementsAre(2, 3, 4, 5), ElementsAre(2, 3, 4, 5)));

  result = plan({.ports = "6000", .topology = "star", .platform = "k8s"}, pods("h0,h1,h2", "1"));
  EXPECT_THAT(result.attach_to, ElementsAre("tcp://h0:6000"));
}

TEST(PlanTest, A121SlurmWithASpecOfSixTasks) {
  const LaunchPlan result =
      plan({.platform = "slurm", .platform_spec = six_tasks_without_port()}, six_slurm_tasks());
  EXPECT_THAT(result.labels, ElementsAre("learn"));
  EXPECT_EQ(result.address, "SH-IDC1-10-5-38-215");
  EXPECT_THAT(result.ports, ElementsAre(15151));
  EXPECT_THAT(result.node_ids, ElementsAre(31));
  EXPECT_THAT(result.attach_to,
              ElementsAre("tcp://SH-IDC1-10-5-38-190:15151", "tcp://SH-IDC1-10-5-38-190:15152",
                          "tcp://SH-IDC1-10-5-38-190:15153"));
  EXPECT_THAT(result.warnings, IsEmpty());
}

TEST(PlanTest, A121SlurmMeshWithoutASpec) {
  const LaunchPlan result = plan({.topology = "mesh", .platform = "slurm"}, six_slurm_tasks());
  EXPECT_THAT(result.node_ids, ElementsAre(3));
  EXPECT_EQ(result.workers, 1);
  EXPECT_THAT(result.attach_to,
              ElementsAre("tcp://SH-IDC1-10-5-38-190:15151", "tcp://SH-IDC1-10-5-38-190:15152",
                          "tcp://SH-IDC1-10-5-38-190:15153"));
}

TEST(PlanTest, SlurmStarWithTwoWorkersOffsetsThePortsOfTasksOnOneHost) {
  const LaunchPlan result = plan({.parallel_workers = "2", .topology = "star", .platform = "slurm"},
                                 {{"SLURM_NTASKS", "4"},
                                  {"SLURM_NTASKS_PER_NODE", "2"},
                                  {"SLURM_NODELIST", "n[1-2]"},
                                  {"SLURM_PROCID", "3"}});
  EXPECT_THAT(result.ports, ElementsAre(15153, 15154));
  EXPECT_THAT(result.node_ids, ElementsAre(6, 7));
  EXPECT_THAT(result.attach_to, ElementsAre("tcp://n1:15151", "tcp://n1:15152"));
  EXPECT_EQ(result.job_nodes, 8);
}

TEST(PlanTest, A126LabelsAndNodeIdsOfTheCommandLine) {
  const LaunchPlan result = plan({.labels = "a, b", .node_ids = "5"});
  EXPECT_THAT(result.labels, ElementsAre("a", "b"));
  EXPECT_THAT(result.node_ids, ElementsAre(5));
  EXPECT_EQ(result.protocol, runtime::Protocol::kIpc);
  EXPECT_EQ(result.topology, Topology::kMesh);
  EXPECT_EQ(result.job_nodes, 0);
}

TEST(PlanTest, WithoutAWordAboutOtherHostsItIsIpcElseTcp) {
  using runtime::Protocol;
  EXPECT_EQ(plan({}).protocol, Protocol::kIpc);
  EXPECT_EQ(plan({.parallel_workers = "2", .topology = "star"}).protocol, Protocol::kIpc);
  EXPECT_EQ(plan({.ports = "6000"}).protocol, Protocol::kTcp);
  EXPECT_EQ(plan({.attach_to = "b:1"}).protocol, Protocol::kTcp);
  EXPECT_EQ(plan({.address = "127.0.0.1"}).protocol, Protocol::kTcp);
  EXPECT_EQ(plan({.platform = "none"}).protocol, Protocol::kTcp);
  EXPECT_EQ(plan({}, kSixPods).protocol, Protocol::kTcp);
  EXPECT_EQ(plan({.platform = "slurm"}, six_slurm_tasks()).protocol, Protocol::kTcp);
  EXPECT_EQ(plan({.protocol = "tcp"}).protocol, Protocol::kTcp);
  EXPECT_EQ(plan({.protocol = "ipc", .ports = "6000"}).protocol, Protocol::kIpc);
  EXPECT_THAT(plan({.protocol = "tcp"}).ports, ElementsAre(50515));
}

TEST(PlanTest, ASpecThatSaysWhoDialsWhomIsNotAddedTo) {
  const Environment second = {{"DI_NODES", "SH-0,SH-1,SH-2,SH-3,SH-4,SH-5"}, {"DI_RANK", "1"}};
  EXPECT_THAT(plan({.platform = "k8s", .platform_spec = kSixTasks}, second).attach_to, IsEmpty());
  EXPECT_THAT(
      plan({.topology = "mesh", .platform = "k8s", .platform_spec = kSixTasks}, second).attach_to,
      ElementsAre("tcp://SH-0:50515"));
}

TEST(PlanTest, CountsPortsAndIdsUpOrTakesThemAsGiven) {
  LaunchPlan result = plan({.parallel_workers = "3", .ports = "6000", .node_ids = "7"});
  EXPECT_THAT(result.ports, ElementsAre(6000, 6001, 6002));
  EXPECT_THAT(result.node_ids, ElementsAre(7, 8, 9));
  result = plan({.parallel_workers = "2", .ports = "50515,50517", .node_ids = "4, 2"});
  EXPECT_THAT(result.ports, ElementsAre(50515, 50517));
  EXPECT_THAT(result.node_ids, ElementsAre(4, 2));
}

TEST(PlanTest, D08AnAddressWithoutSchemeIsTcp) {
  const LaunchPlan result =
      plan({.attach_to = "192.168.0.1:50515, tcp://b:1, ipc:///tmp/x.ipc,192.168.0.1:50515"});
  EXPECT_THAT(result.attach_to,
              ElementsAre("tcp://192.168.0.1:50515", "tcp://b:1", "ipc:///tmp/x.ipc"));
}

TEST(PlanTest, P10TheOperatorsVariablesTurnKubernetesOn) {
  const LaunchPlan automatic = plan({.parallel_workers = "2"}, pods("h0,h1,h2", "1"));
  EXPECT_EQ(automatic.platform, Platform::kKubernetes);
  EXPECT_EQ(automatic.topology, Topology::kMesh);
  EXPECT_THAT(automatic.node_ids, ElementsAre(2, 3));
  EXPECT_EQ(automatic.job_nodes, 6);
  EXPECT_THAT(automatic.warnings, IsEmpty());

  const LaunchPlan off = plan({.parallel_workers = "2", .platform = "none"}, pods("h0,h1,h2", "1"));
  EXPECT_EQ(off.platform, Platform::kNone);
  EXPECT_EQ(off.topology, Topology::kMesh);
  EXPECT_THAT(off.node_ids, ElementsAre(0, 1));
}

TEST(PlanTest, WithoutATopologyEverybodyHearsEverybody) {
  EXPECT_EQ(plan({.parallel_workers = "2"}).topology, Topology::kMesh);
  EXPECT_EQ(plan({.parallel_workers = "2", .topology = "alone"}).topology, Topology::kAlone);
  const LaunchPlan cluster = plan({.platform = "k8s"}, kSixPods);
  EXPECT_EQ(cluster.topology, Topology::kMesh);
  EXPECT_THAT(cluster.attach_to, SizeIs(3));
  EXPECT_THAT(cluster.warnings, IsEmpty());
}

TEST(PlanTest, TheJobIdComesFromTheCommandLineOrThePlatform) {
  Environment environment = pods("h0", "0");
  environment["DI_JOB_ID"] = "lab/train";
  EXPECT_EQ(plan({}, environment).job_id, "lab/train");
  EXPECT_EQ(plan({.job_id = "mine"}, environment).job_id, "mine");
  EXPECT_EQ(plan({}).job_id, "");
}

TEST(PrecedenceTest, TheSpecWinsOverTheCommandLineWhichWinsOverThePlatform) {
  const LaunchRequest typed{.ports = "7000",
                            .address = "10.0.0.9",
                            .attach_to = "elsewhere:1",
                            .labels = "typed",
                            .node_ids = "70",
                            .topology = "mesh",
                            .platform = "k8s"};
  LaunchPlan result = plan(typed, pods("h0,h1", "1"));
  EXPECT_THAT(result.ports, ElementsAre(7000));
  EXPECT_EQ(result.address, "10.0.0.9");
  EXPECT_THAT(result.attach_to, ElementsAre("tcp://elsewhere:1"));
  EXPECT_THAT(result.labels, ElementsAre("typed"));
  EXPECT_THAT(result.node_ids, ElementsAre(70));
  EXPECT_THAT(result.warnings, ElementsAre(HasSubstr("10.0.0.9 is not the name h1")));
  EXPECT_THAT(result.job_peers, IsEmpty());

  LaunchRequest both = typed;
  both.platform_spec = R"({"tasks": [{}, {"ports": 8000, "address": "h1", "labels": "spec",
      "node_ids": 80, "attach_to": "h0:9", "parallel_workers": 2}]})";
  result = plan(both, pods("h0,h1", "1"));
  EXPECT_THAT(result.ports, ElementsAre(8000, 8001));
  EXPECT_EQ(result.address, "h1");
  EXPECT_THAT(result.attach_to, ElementsAre("tcp://h0:9"));
  EXPECT_THAT(result.labels, ElementsAre("spec"));
  EXPECT_THAT(result.node_ids, ElementsAre(80, 81));
  EXPECT_EQ(result.workers, 2);
  EXPECT_EQ(result.job_nodes, 3);
}

TEST(PrecedenceTest, WorkersOfASpecEntryShiftTheDerivedIdsAndLinksOfLaterTasks) {
  const LaunchPlan result =
      plan({.topology = "mesh",
            .platform = "k8s",
            .platform_spec = R"({"tasks": [{"parallel_workers": 3}, {}, {}]})"},
           pods("h0,h1,h2", "2"));
  EXPECT_THAT(result.node_ids, ElementsAre(4));
  EXPECT_THAT(result.attach_to,
              ElementsAre("tcp://h0:50515", "tcp://h0:50516", "tcp://h0:50517", "tcp://h1:50515"));
  EXPECT_THAT(result.job_peers, ElementsAre(ElementsAre(0, 1, 2, 3)));
}

TEST(PlatformSpecTest, D26AJsonFileIsRead) {
  const divisi::testing::TempFolder folder;
  const std::string path = folder / "spec.json";
  std::FILE* file = std::fopen(path.c_str(), "w");
  ASSERT_NE(file, nullptr);
  std::fputs(kSixTasks, file);
  std::fclose(file);
  EXPECT_EQ(read_platform_spec(path).value(), kSixTasks);
  EXPECT_EQ(read_platform_spec(R"({"tasks": []})").value(), R"({"tasks": []})");
  std::remove(path.c_str());
  EXPECT_THAT(read_platform_spec(path).error().message(), HasSubstr(path));
}

std::string spec_error(const std::string& spec, const std::string& nodes = "h0,h1") {
  return plan_error({.platform = "k8s", .platform_spec = spec}, pods(nodes, "0"));
}

TEST(PlatformSpecTest, D27ReferencesResolveInAnyOrder) {
  const LaunchPlan result =
      plan({.platform = "k8s",
            .platform_spec = R"({"tasks": [{"node_ids": 1, "attach_to": "$node.2, far:77"},
                                      {"node_ids": 2, "ports": 6000, "address": "other"}]})"},
           pods("h0,h1", "0"));
  EXPECT_THAT(result.attach_to, ElementsAre("tcp://other:6000", "tcp://far:77"));
  EXPECT_THAT(result.job_peers, ElementsAre(ElementsAre(2)));
}

TEST(PlatformSpecTest, ATaskWaitsForThoseThatDialItsOwnWorker) {
  const LaunchRequest request{.platform = "k8s",
                              .platform_spec = R"({"tasks": [{"parallel_workers": 2},
                                     {"attach_to": "$node.0"}, {"attach_to": "h0:50516"}]})"};
  EXPECT_THAT(plan(request, pods("h0,h1,h2", "0")).job_peers,
              ElementsAre(ElementsAre(2), ElementsAre(3)));
}

TEST(PlatformSpecTest, D27UnknownOwnAndMutualReferencesAreNamed) {
  EXPECT_THAT(spec_error(R"({"tasks": [{}, {"attach_to": "$node.9"}]})"),
              HasSubstr("tasks[1].attach_to: $node.9 names no task (node ids: 0, 1)"));
  EXPECT_THAT(spec_error(R"({"tasks": [{}, {"attach_to": "$node.1"}]})"),
              HasSubstr("tasks[1].attach_to: $node.1 is this task itself"));
  EXPECT_THAT(spec_error(R"({"tasks": [{"attach_to": "$node.1"}, {"attach_to": "$node.0"}]})"),
              HasSubstr("tasks 0 and 1 (nodes 0 and 1) attach to each other"));
  EXPECT_THAT(spec_error(R"({"tasks": [{}, {"attach_to": "$node.x"}]})"), HasSubstr("$node.x"));
}

TEST(PlatformSpecTest, MistakesAreNamed) {
  EXPECT_THAT(spec_error("{'tasks': []}"), HasSubstr("not valid JSON at line 1, column 2"));
  EXPECT_THAT(spec_error("[]"), HasSubstr("must be an object"));
  EXPECT_THAT(spec_error(R"({"tasks": [], "x": 1})"), HasSubstr("unknown key: x"));
  EXPECT_THAT(spec_error(R"({"tasks": [{}]})"),
              HasSubstr("has 1 tasks, the job has 2 (no entry for tasks[1])"));
  EXPECT_THAT(spec_error(R"({"tasks": [{"color": 1, "size": 2}, {}]})"),
              HasSubstr("unknown keys: color, size"));
  EXPECT_THAT(spec_error(R"({"tasks": [{"ports": "many"}, {}]})"), HasSubstr("tasks[0].ports"));
  EXPECT_THAT(spec_error(R"({"tasks": [{"ports": 70000}, {}]})"), HasSubstr("70000"));
  EXPECT_THAT(spec_error(R"({"tasks": [{"labels": 3}, {}]})"), HasSubstr("tasks[0].labels"));
  EXPECT_THAT(spec_error(R"({"tasks": [3, {}]})"), HasSubstr("tasks[0] is a number"));
  EXPECT_THAT(spec_error(R"({"tasks": [{"node_ids": 1}, {}]})"),
              HasSubstr("node id 1 belongs to task 0 and to task 1"));
  EXPECT_THAT(spec_error(R"({"tasks": [{"parallel_workers": 0}, {}]})"),
              HasSubstr("parallel_workers"));
  EXPECT_THAT(spec_error(R"({"tasks": [{"attach_to": "nowhere"}, {}]})"),
              HasSubstr("tasks[0].attach_to"));
  EXPECT_THAT(
      plan({.platform = "k8s", .platform_spec = R"({"tasks": [{}, {}, {}]})"}, pods("h0,h1", "0"))
          .warnings,
      ::testing::Contains(HasSubstr("3 tasks, the job has 2")));
}

TEST(PlanTest, MistakesOfTheCommandLineNameTheirFlag) {
  EXPECT_THAT(plan_error({.parallel_workers = "0"}), HasSubstr("--parallel-workers: '0'"));
  EXPECT_THAT(plan_error({.parallel_workers = "9999999999"}), HasSubstr("--parallel-workers"));
  EXPECT_THAT(plan_error({.protocol = "udp"}), HasSubstr("--protocol"));
  EXPECT_THAT(plan_error({.topology = "ring"}), HasSubstr("--topology"));
  EXPECT_THAT(plan_error({.platform = "cloud"}), HasSubstr("--platform: 'cloud'"));
  EXPECT_THAT(plan_error({.ports = "50x"}), HasSubstr("--ports: '50x'"));
  EXPECT_THAT(plan_error({.parallel_workers = "3", .ports = "1,2"}),
              HasSubstr("2 ports were given for 3 workers"));
  EXPECT_THAT(plan_error({.parallel_workers = "2", .ports = "65535"}), HasSubstr("65536"));
  EXPECT_THAT(plan_error({.node_ids = "-1"}), HasSubstr("--node-ids: '-1'"));
  EXPECT_THAT(plan_error({.parallel_workers = "3", .node_ids = "1,2"}),
              HasSubstr("2 node ids were given for 3 workers"));
  EXPECT_THAT(plan_error({.attach_to = "host"}), HasSubstr("--attach-to"));
  EXPECT_THAT(plan_error({.attach_to = "host:0"}), HasSubstr("port 0"));
  EXPECT_THAT(plan_error({.attach_to = "udp://host:1"}), HasSubstr("scheme"));
  EXPECT_THAT(plan_error({.address = "tcp://x"}), HasSubstr("--address"));
  EXPECT_THAT(plan_error({.address = "x:1"}), HasSubstr("--address"));
  EXPECT_THAT(plan_error({.platform_spec = "{}"}), HasSubstr("--platform-spec needs --platform"));
  EXPECT_THAT(plan_error({.protocol = "ipc", .topology = "mesh", .platform = "k8s"}, kSixPods),
              HasSubstr("--protocol ipc"));
  std::string many_hosts = "h";
  for (int i = 0; i < 100; ++i) many_hosts += ",h";
  EXPECT_THAT(plan_error({.parallel_workers = "1024", .platform = "k8s"}, pods(many_hosts, "0")),
              HasSubstr("more than 16384"));
}

}  // namespace
}  // namespace divisi::launch
