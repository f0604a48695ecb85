#include "run/job.h"

#include "run/rendering.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace divisi::run {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::IsEmpty;
using ::testing::Pair;

RunOptions star_of_three() {
  RunOptions options;
  options.workers = 3;
  options.gpus = 2;
  options.package = "/p";
  options.topology = "star";
  options.name = "t";
  return options;
}

Place three_hosts() {
  Place place;
  place.hosts = {"h_0", "h_1", "h_2"};
  place.package = "/p";
  return place;
}

std::vector<std::string> table_row(std::vector<std::string> extra, std::string topology = "star") {
  std::vector<std::string> row = {
      "--package",  "/p",  "--main",  "m.main", "--parallel-workers", "1",
      "--protocol", "tcp", "--ports", "50515",  "--topology",         std::move(topology)};
  row.insert(row.end(), extra.begin(), extra.end());
  return row;
}

// The table of spec 6.9.
TEST(RunJobTest, A129StarOfThreeWithTwoGpusEqualsTheTable) {
  const auto job = make_job(star_of_three(), BackendKind::kSsh, "m.main", three_hosts());
  ASSERT_TRUE(job) << job.error().message();
  EXPECT_THAT(job->workers[0].arguments,
              ElementsAreArray(table_row({"--node-ids", "0", "--labels", "gpu"})));
  EXPECT_THAT(job->workers[1].arguments,
              ElementsAreArray(table_row(
                  {"--node-ids", "1", "--labels", "gpu", "--attach-to", "tcp://h_0:50515"})));
  EXPECT_THAT(job->workers[2].arguments,
              ElementsAreArray(table_row({"--node-ids", "2", "--attach-to", "tcp://h_0:50515"})));
}

TEST(RunJobTest, A129InAMeshEveryWorkerAttachesToAllLowerOnes) {
  RunOptions options = star_of_three();
  options.gpus = 0;
  options.topology = "mesh";
  const auto job = make_job(options, BackendKind::kSsh, "m.main", three_hosts());
  ASSERT_TRUE(job);
  EXPECT_THAT(job->workers[0].arguments, ElementsAreArray(table_row({"--node-ids", "0"}, "mesh")));
  EXPECT_THAT(job->workers[2].arguments,
              ElementsAreArray(table_row(
                  {"--node-ids", "2", "--attach-to", "tcp://h_0:50515,tcp://h_1:50515"}, "mesh")));
}

TEST(RunJobTest, A129AloneNobodyAttaches) {
  RunOptions options = star_of_three();
  options.gpus = 0;
  options.topology = "alone";
  const auto job = make_job(options, BackendKind::kSsh, "m.main", three_hosts());
  ASSERT_TRUE(job);
  EXPECT_THAT(job->workers[2].arguments, ElementsAreArray(table_row({"--node-ids", "2"}, "alone")));
}

TEST(RunJobTest, SeveralProcessesOfAWorkerCountOnIdsAndPorts) {
  RunOptions options = star_of_three();
  options.parallel_workers = 2;
  options.gpus = 0;
  const auto job = make_job(options, BackendKind::kSsh, "m.main", three_hosts());
  ASSERT_TRUE(job);
  const auto& arguments = job->workers[1].arguments;
  EXPECT_EQ(*(std::ranges::find(arguments, "--node-ids") + 1), "2");
  EXPECT_EQ(*(std::ranges::find(arguments, "--attach-to") + 1), "tcp://h_0:50515,tcp://h_0:50516");
}

TEST(RunJobTest, LocalWorkersSeeOneDeviceEachOrNone) {
  Place place = three_hosts();
  place.devices = {"4", "7"};
  const auto job = make_job(star_of_three(), BackendKind::kLocal, "m.main", place);
  ASSERT_TRUE(job);
  EXPECT_THAT(job->workers[0].environment, ElementsAre(Pair("CUDA_VISIBLE_DEVICES", "4")));
  EXPECT_THAT(job->workers[1].environment, ElementsAre(Pair("CUDA_VISIBLE_DEVICES", "7")));
  EXPECT_THAT(job->workers[2].environment, ElementsAre(Pair("CUDA_VISIBLE_DEVICES", "")));
}

TEST(RunJobTest, BeyondTheDevicesThatMayBeUsedAWorkerHasNone) {
  Place place = three_hosts();
  for (const std::vector<std::string>& devices : {std::vector<std::string>{"4"}, {}}) {
    place.devices = devices;
    const auto job = make_job(star_of_three(), BackendKind::kLocal, "m.main", place);
    ASSERT_TRUE(job);
    EXPECT_THAT(job->workers[0].environment,
                ElementsAre(Pair("CUDA_VISIBLE_DEVICES", devices.empty() ? "" : "4")));
    EXPECT_THAT(job->workers[1].environment, ElementsAre(Pair("CUDA_VISIBLE_DEVICES", "")));
  }
  place.devices.reset();
  const auto job = make_job(star_of_three(), BackendKind::kLocal, "m.main", place);
  ASSERT_TRUE(job);
  EXPECT_THAT(job->workers[1].environment, ElementsAre(Pair("CUDA_VISIBLE_DEVICES", "1")));
}

TEST(RunJobTest, AVariableThatTheUserSetsStays) {
  RunOptions options = star_of_three();
  options.environment = {{"CUDA_VISIBLE_DEVICES", "0,1"}};
  const auto job = make_job(options, BackendKind::kLocal, "m.main", three_hosts());
  ASSERT_TRUE(job);
  EXPECT_THAT(job->workers[2].environment, ElementsAre(Pair("CUDA_VISIBLE_DEVICES", "0,1")));
}

TEST(RunJobTest, AProgramBehindTheDashesStandsLast) {
  RunOptions options = star_of_three();
  options.command = {"./program", "--flag"};
  const auto job = make_job(options, BackendKind::kLocal, "", three_hosts());
  ASSERT_TRUE(job);
  const auto& arguments = job->workers[1].arguments;
  EXPECT_EQ(std::ranges::find(arguments, "--package"), arguments.end());
  EXPECT_THAT(std::vector(arguments.end() - 3, arguments.end()),
              ElementsAre("--", "./program", "--flag"));
}

TEST(RunJobTest, ADijobHasTheGpuTaskFirst) {
  const auto job = plan_cluster(star_of_three(), BackendKind::kDijob, "m.main");
  ASSERT_TRUE(job);
  const auto documents = dijob_documents(*job, "");
  ASSERT_EQ(documents.size(), 1U);
  const json::Array& tasks = *documents[0].find_path({"spec", "tasks"})->as_array();
  ASSERT_EQ(tasks.size(), 2U);
  EXPECT_EQ(tasks[0].string_at({"name"}), "gpu");
  EXPECT_EQ(tasks[0].int_at({"replicas"}), 2);
  EXPECT_EQ(tasks[1].int_at({"replicas"}), 1);
  const json::Value& container =
      tasks[0].find_path({"template", "spec", "containers"})->as_array()->front();
  EXPECT_EQ(container.int_at({"resources", "limits", "nvidia.com/gpu"}), 1);
  EXPECT_EQ(job->workers[2].host, "t-worker-0.di-t.default.svc.cluster.local");
}

TEST(RunJobTest, IndexedJobsCountTheirRanksOn) {
  const auto job = plan_cluster(star_of_three(), BackendKind::kJob, "m.main");
  ASSERT_TRUE(job);
  const auto documents = job_documents(*job, "bytes");
  ASSERT_EQ(documents.size(), 4U);
  EXPECT_EQ(documents[0].string_at({"kind"}), "ConfigMap");
  EXPECT_EQ(documents[1].string_at({"spec", "clusterIP"}), "None");
  EXPECT_EQ(documents[3].int_at({"spec", "completions"}), 1);
  const json::Value& container =
      documents[3].find_path({"spec", "template", "spec", "containers"})->as_array()->front();
  const json::Array& command = *container.find("command")->as_array();
  EXPECT_THAT(*command[2].as_string(),
              ::testing::HasSubstr("DI_RANK=$((2 + JOB_COMPLETION_INDEX))"));
}

TEST(RunJobTest, MadeUpNamesAreNamesOfJobs) {
  for (const char* entry : {"my_module.main", "a.b.Train.main", "libfoo.so:start", "_x.main",
                            "9lives.main", "a_very_long_name_of_a_module_that_never_ends.main"}) {
    const std::string name = make_up_name(entry);
    EXPECT_TRUE(check_job_name(name).ok()) << entry << " gave " << name;
  }
  EXPECT_TRUE(make_up_name("my_module.main").starts_with("my-module-"));
  EXPECT_NE(make_up_name("m.main"), make_up_name("m.main"));
}

TEST(RunJobTest, AShellGetsEveryWordBackAsItWas) {
  EXPECT_EQ(shell_quote("plain-word.py"), "plain-word.py");
  EXPECT_EQ(shell_quote(""), "''");
  EXPECT_EQ(shell_quote("it's $HOME"), "'it'\\''s $HOME'");
}

}  // namespace
}  // namespace divisi::run
