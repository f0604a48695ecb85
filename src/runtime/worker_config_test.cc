#include "runtime/worker_config.h"

#include "base/testing/temp_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <unistd.h>
#include <utility>

namespace divisi::runtime {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;
using namespace std::chrono_literals;

TEST(WorkerConfigTest, SurvivesTheWayToTheWorker) {
  WorkerConfig config;
  config.node_id = 31;
  config.local_id = 2;
  config.n_workers = 4;
  config.topology = Topology::kStar;
  config.listen = "tcp://127.0.0.1:50515";
  config.dial = {"tcp://127.0.0.1:50514"};
  config.attach_to = {"tcp://a:1", "ipc:///tmp/x"};
  config.linked_nodes = {10, 11};
  config.expected_nodes = 6;
  config.labels = {"learn", "gpu"};
  config.job_id = "job";
  config.secret = std::string("a\0b", 3);
  config.allow_pickle = true;
  config.join_timeout = 7s;
  config.queue_bytes = 1ull << 40;
  config.send_policy = Policy::kDropOldest;
  config.auto_recover = true;
  config.max_retries = 3;
  config.entry = {"/p/libx.so", "run", "x.cc:3", true};
  config.args = {"--fast", ""};
  config.log_level = "debug";
  config.log_json = true;
  config.trace = true;

  const std::string bytes = encode(config);
  const WorkerConfig copy = decode_worker_config(bytes).value();
  EXPECT_EQ(encode(copy), bytes);
  EXPECT_EQ(copy.node_id, 31);
  EXPECT_EQ(copy.topology, Topology::kStar);
  EXPECT_EQ(copy.attach_to, config.attach_to);
  EXPECT_EQ(copy.labels, config.labels);
  EXPECT_EQ(copy.linked_nodes, config.linked_nodes);
  EXPECT_EQ(copy.secret, config.secret);
  EXPECT_EQ(copy.join_timeout, 7s);
  EXPECT_EQ(copy.queue_bytes, 1ull << 40);
  EXPECT_EQ(copy.send_policy, Policy::kDropOldest);
  EXPECT_EQ(copy.entry.library, "/p/libx.so");
  EXPECT_TRUE(copy.entry.is_symbol);
  EXPECT_EQ(copy.args, config.args);
  EXPECT_TRUE(copy.log_json);
  EXPECT_TRUE(copy.trace);
}

TEST(WorkerConfigTest, EveryCutOfTheBytesIsAnError) {
  WorkerConfig config;
  config.args = {"one", "two"};
  const std::string bytes = encode(config);
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    ASSERT_FALSE(decode_worker_config(std::string_view(bytes).substr(0, size)).has_value()) << size;
  }
  EXPECT_FALSE(decode_worker_config(bytes + "x").has_value());
}

TEST(WorkerConfigTest, ALengthBeyondTheBytesIsAnError) {
  std::string bytes = encode({});
  bytes.replace(bytes.size() - 9, 8, std::string(8, '\xff'));
  EXPECT_FALSE(decode_worker_config(bytes).has_value());
}

TEST(WorkerConfigTest, CommandsGetTheirConfigurationInVariables) {
  WorkerConfig config;
  config.node_id = 5;
  config.local_id = 1;
  config.n_workers = 2;
  config.listen = "tcp://127.0.0.1:2";
  config.dial = {"tcp://127.0.0.1:1"};
  config.attach_to = {"tcp://h:9"};
  config.linked_nodes = {4, 7};
  config.labels = {"b", "a"};
  config.job_id = "j";
  config.secret = "never shown";
  EXPECT_THAT(
      worker_environment(config),
      ElementsAre("DITASK_NODE_ID=5", "DITASK_LOCAL_ID=1", "DITASK_N_WORKERS=2",
                  "DITASK_LISTEN=tcp://127.0.0.1:2", "DITASK_ATTACH_TO=tcp://127.0.0.1:1,tcp://h:9",
                  "DITASK_LINKED_NODES=4,7", "DITASK_LABELS=a,b", "DITASK_JOB_ID=j"));

  EXPECT_EQ(worker_config_from_environment().error().code(), Code::kNotFound);
  for (const std::string& variable : worker_environment(config)) {
    const std::size_t equals = variable.find('=');
    ::setenv(variable.substr(0, equals).c_str(), variable.substr(equals + 1).c_str(), 1);
  }
  const WorkerConfig copy = worker_config_from_environment().value();
  EXPECT_EQ(copy.node_id, 5);
  EXPECT_EQ(copy.listen, config.listen);
  EXPECT_THAT(copy.attach_to, ElementsAre("tcp://127.0.0.1:1", "tcp://h:9"));
  EXPECT_EQ(copy.labels, config.labels);
  EXPECT_EQ(copy.linked_nodes, config.linked_nodes);
  EXPECT_EQ(copy.secret, "");

  const divisi::testing::TempFolder folder;
  const std::string path = folder / "secret";
  std::ofstream(path) << "from a file\n";
  ::setenv("DIVISI_SECRET_FILE", path.c_str(), 1);
  EXPECT_EQ(worker_config_from_environment().value().secret, "from a file");
  ::unlink(path.c_str());
  EXPECT_THAT(worker_config_from_environment().error().message(),
              HasSubstr("DIVISI_SECRET_FILE: cannot read '" + path + "'"));
  ::unsetenv("DIVISI_SECRET_FILE");

  ::setenv("DITASK_NODE_ID", "five", 1);
  EXPECT_THAT(worker_config_from_environment().error().message(),
              HasSubstr("DITASK_NODE_ID: 'five'"));
  ::unsetenv("DITASK_NODE_ID");
}

TEST(PlanTest, MeshOfThreeOverTcp) {
  PlanOptions options;
  options.n_parallel_workers = 3;
  options.protocol = Protocol::kTcp;
  options.address = "127.0.0.1";
  options.node_ids = {10};
  options.attach_to = {"127.0.0.9:50515"};
  options.startup_interval = 100ms;
  options.common.labels = {"a"};
  const Plan plan = plan_workers(options).value();
  ASSERT_THAT(plan.workers, SizeIs(3));
  EXPECT_THAT(plan.warnings, IsEmpty());
  const WorkerConfig& last = plan.workers[2];
  EXPECT_EQ(last.node_id, 12);
  EXPECT_EQ(last.local_id, 2);
  EXPECT_EQ(last.listen, "tcp://127.0.0.1:50517");
  EXPECT_THAT(last.dial, ElementsAre("tcp://127.0.0.1:50515", "tcp://127.0.0.1:50516"));
  EXPECT_THAT(last.attach_to, ElementsAre("tcp://127.0.0.9:50515"));
  EXPECT_THAT(last.linked_nodes, ElementsAre(10, 11));
  EXPECT_EQ(last.startup_delay, 200ms);
  EXPECT_THAT(plan.workers[0].dial, IsEmpty());
  EXPECT_THAT(plan.workers[0].linked_nodes, ElementsAre(11, 12));
  EXPECT_THAT(last.labels, Contains("a"));
  EXPECT_EQ(last.job_id, "");
}

TEST(PlanTest, IpcWorkersOfOneLauncherShareARandomSecret) {
  PlanOptions options;
  options.n_parallel_workers = 2;
  const Plan one = plan_workers(options).value();
  const Plan two = plan_workers(options).value();
  EXPECT_THAT(one.workers[0].secret, SizeIs(64));
  EXPECT_EQ(one.workers[0].secret, one.workers[1].secret);
  EXPECT_EQ(one.workers[0].job_id, one.workers[1].job_id);
  EXPECT_NE(one.workers[0].secret, two.workers[0].secret);
  EXPECT_NE(one.workers[0].job_id, two.workers[0].job_id);

  options.attach_to = {"ipc:///tmp/elsewhere.ipc"};
  const Plan attached = plan_workers(options).value();
  EXPECT_EQ(attached.workers[0].secret, "");
  EXPECT_EQ(attached.workers[0].job_id, "");
}

TEST(PlanTest, ListeningForStrangersWithoutASecretWarnsOnce) {
  PlanOptions options;
  options.n_parallel_workers = 2;
  options.protocol = Protocol::kTcp;
  options.address = "192.0.2.1";
  EXPECT_THAT(plan_workers(options).value().warnings,
              ElementsAre(HasSubstr("tcp://192.0.2.1:50515")));
  options.common.secret = "sixteen bytes it";
  EXPECT_THAT(plan_workers(options).value().warnings, IsEmpty());
}

TEST(PlanTest, AShortSecretWarnsWithoutShowingIt) {
  PlanOptions options;
  options.n_parallel_workers = 2;
  options.common.secret = "fifteen bytes!!";
  const auto warnings = plan_workers(options).value().warnings;
  ASSERT_THAT(warnings, ElementsAre(HasSubstr("only 15 bytes")));
  EXPECT_THAT(warnings[0], Not(HasSubstr("fifteen")));
}

TEST(PlanTest, A064ZeroWorkersIsAUsageError) {
  PlanOptions options;
  options.n_parallel_workers = 0;
  const auto plan = plan_workers(options);
  ASSERT_FALSE(plan.has_value());
  EXPECT_EQ(plan.error().code(), Code::kInvalid);
  EXPECT_THAT(plan.error().message(), HasSubstr("n_parallel_workers is 0"));
}

TEST(PlanTest, WrongParametersAreRefusedBeforeAnythingStarts) {
  PlanOptions options;
  options.n_parallel_workers = 2;
  options.attach_to = {"nonsense"};
  EXPECT_FALSE(plan_workers(options).has_value());
  options.attach_to = {};
  options.node_ids = {1, 1};
  EXPECT_FALSE(plan_workers(options).has_value());
  options.node_ids = {};
  EXPECT_TRUE(plan_workers(options).has_value());
}

TEST(PlanTest, TheTimeToJoinBeginsWithTheStartOfTheLastWorker) {
  PlanOptions options;
  options.n_parallel_workers = 3;
  options.startup_interval = 400ms;
  options.common.join_timeout = 500ms;
  Plan plan = plan_workers(options).value();
  for (const WorkerConfig& worker : plan.workers) {
    EXPECT_EQ(worker.startup_delay + worker.join_timeout, 1'300ms) << worker.local_id;
  }
  options.common.join_timeout = std::chrono::milliseconds::max();
  plan = plan_workers(options).value();
  EXPECT_EQ(plan.workers[0].join_timeout, std::chrono::milliseconds::max());
  EXPECT_EQ(plan.workers[2].startup_delay, 800ms);
  options.startup_interval = std::chrono::milliseconds::max();
  plan = plan_workers(options).value();
  EXPECT_EQ(plan.workers[0].join_timeout, std::chrono::milliseconds::max());
  EXPECT_EQ(plan.workers[2].startup_delay, std::chrono::milliseconds::max());
}

TEST(PlanTest, AWrongValueIsNamed) {
  using Change = void (*)(WorkerConfig&);
  const std::pair<const char*, Change> wrong[] = {
      {"queue_bytes", [](WorkerConfig& c) { c.queue_bytes = 0; }},
      {"memory_bytes", [](WorkerConfig& c) { c.memory_bytes = 0; }},
      {"max_message_bytes", [](WorkerConfig& c) { c.max_message_bytes = 0; }},
      {"join_timeout", [](WorkerConfig& c) { c.join_timeout = 0ms; }},
      {"send_timeout", [](WorkerConfig& c) { c.send_timeout = -1ms; }},
      {"grace", [](WorkerConfig& c) { c.finish_grace = -1ms; }},
      {"expected_nodes is -1", [](WorkerConfig& c) { c.expected_nodes = -1; }},
      {"max_retries is -5", [](WorkerConfig& c) { c.max_retries = -5; }},
  };
  for (const auto& [name, change] : wrong) {
    PlanOptions options;
    options.n_parallel_workers = 2;
    change(options.common);
    const auto plan = plan_workers(options);
    ASSERT_FALSE(plan.has_value()) << name;
    EXPECT_EQ(plan.error().code(), Code::kInvalid) << name;
    EXPECT_THAT(plan.error().message(), HasSubstr(name));
  }
}

}  // namespace
}  // namespace divisi::runtime
