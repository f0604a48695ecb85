#include "ding/options.h"

#include "ding/replicas.h"
#include "ding/spawn_learner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

namespace divisi::ding {
namespace {

using ::testing::HasSubstr;
using ::testing::IsSupersetOf;

Options parsed(const std::vector<std::string>& arguments, bool dist_only = false) {
  auto options = parse_options(arguments, dist_only);
  EXPECT_TRUE(options) << (options ? "" : options.error().message());
  return options ? *options : Options();
}

std::string refusal(const std::vector<std::string>& arguments) {
  const auto options = parse_options(arguments, false);
  return options ? "it was taken" : options.error().message();
}

// Sets variables and takes them away again.
class Variables {
 public:
  using Pairs = std::initializer_list<std::pair<const char*, const char*>>;

  explicit Variables(Pairs values) {
    for (const auto& [name, value] : values) {
      ::setenv(name, value, 1);
      names_.emplace_back(name);
    }
  }
  ~Variables() {
    for (const std::string& name : names_) ::unsetenv(name.c_str());
  }
  Variables(const Variables&) = delete;
  Variables& operator=(const Variables&) = delete;

 private:
  std::vector<std::string> names_;
};

TEST(DingOptionsTest, TakesTheCommandsOfTheManifests) {
  const Options config =
      parsed({"-m", "dist", "--module", "config", "-p", "k8s", "-c", "qbert.py", "-s", "0"});
  EXPECT_EQ(config.module, Module::kConfig);
  EXPECT_EQ(config.platform, "k8s");
  EXPECT_EQ(config.config, "qbert.py");

  const Options coordinator =
      parsed({"-m", "dist", "--module", "coordinator", "-P", "k8s", "-c", "qbert.py.pkl", "-s", "3",
              "--disable-flask-log", "0", "-cdp", "22273"});
  EXPECT_EQ(coordinator.module, Module::kCoordinator);
  EXPECT_EQ(coordinator.coordinator_port, 22273);
  EXPECT_EQ(coordinator.seed, 3);

  EXPECT_EQ(parsed({"-m", "dist", "-M", "collector", "-c", "a.pkl", "-clp", "80"}).collector_port,
            80);
  EXPECT_EQ(parsed({"-m", "dist", "--module=spawn_learner", "-ca.pkl", "-lp", "81",
                    "--disable_flask_log=1"})
                .learner_port,
            81);
  EXPECT_EQ(parsed({"-m", "dist", "--module", "learner_aggregator"}).module, Module::kAggregator);
  EXPECT_EQ(parsed({"--module", "learner", "--mock"}, true).module, Module::kLearner);
}

TEST(DingOptionsTest, RefusesBadUseInOneLine) {
  EXPECT_THAT(refusal({}), HasSubstr("-m dist"));
  EXPECT_THAT(refusal({"-m", "serial", "-c", "x.py"}),
              HasSubstr("-m serial: this is not DI-engine"));
  EXPECT_THAT(refusal({"-m", "dist"}), HasSubstr("nothing to do"));
  EXPECT_THAT(refusal({"-m", "dist", "--module", "player"}), HasSubstr("--module 'player'"));
  EXPECT_THAT(refusal({"-m", "dist", "--module", "config"}), HasSubstr("-c FILE.py"));
  EXPECT_THAT(refusal({"-m", "dist", "--module", "learner"}), HasSubstr("--mock"));
  EXPECT_THAT(refusal({"-m", "dist", "--module", "learner", "--mock", "-c", "a"}),
              HasSubstr("exclude each other"));
  EXPECT_THAT(refusal({"-m", "dist", "--module", "config", "--mock"}), HasSubstr("--mock"));
  EXPECT_THAT(refusal({"-m", "dist", "--what"}), HasSubstr("unknown flag '--what'"));
  EXPECT_THAT(refusal({"-m", "dist", "what"}), HasSubstr("unexpected argument 'what'"));
  EXPECT_THAT(refusal({"-m", "dist", "-c"}), HasSubstr("--config needs a value"));
  EXPECT_THAT(refusal({"-m", "dist", "--mock=1"}), HasSubstr("--mock takes no value"));
  EXPECT_THAT(refusal({"-m", "dist", "-lp", "0"}), HasSubstr("--learner-port '0'"));
  EXPECT_THAT(refusal({"-m", "dist", "-lp", "65536"}), HasSubstr("a port from 1 to 65535"));
  EXPECT_THAT(refusal({"-m", "dist", "-lp", "80x"}), HasSubstr("--learner-port '80x'"));
  EXPECT_THAT(refusal({"-m", "dist", "-s", "-1"}), HasSubstr("--seed '-1'"));
  EXPECT_THAT(refusal({"-m", "dist", "-P", "slurm"}), HasSubstr("--platform 'slurm'"));
  EXPECT_THAT(refusal({"-m", "dist", "--train-iter", "5"}), HasSubstr("--train-iter"));
  EXPECT_THAT(refusal({"-m", "dist", "--add", "coordinator"}), HasSubstr("--add 'coordinator'"));
  EXPECT_THAT(refusal({"-m", "dist", "--add", "learner", "--delete", "learner"}),
              HasSubstr("exclude each other"));
  EXPECT_THAT(refusal({"-m", "dist", "--add", "learner", "--module", "learner"}),
              HasSubstr("exclude each other"));
  EXPECT_THAT(refusal({"-m", "dist", "--restart", "learner"}), HasSubstr("-rpn"));
  EXPECT_THAT(refusal({"-m", "dist", "--add", "learner", "-rs", "0"}), HasSubstr("--replicas '0'"));
}

TEST(DingOptionsTest, AFlagCountsMoreThanItsVariable) {
  EXPECT_EQ(*choose_port({}, "COLLECTOR_PORT", 22270), 22270);
  const Variables variables({{"COLLECTOR_PORT", "80"}, {"LEARNER_PORT", "many"}});
  EXPECT_EQ(*choose_port({}, "COLLECTOR_PORT", 22270), 80);
  EXPECT_EQ(*choose_port(81, "COLLECTOR_PORT", 22270), 81);
  EXPECT_THAT(choose_port({}, "LEARNER_PORT", 1).error().message(),
              HasSubstr("LEARNER_PORT is 'many'"));
}

TEST(ReplicasRequestTest, HasTheNamedRoleOnly) {
  const auto add = replicas_request(
      parsed({"-m", "dist", "--add", "collector", "-cdn", "job-coordinator", "-ns", "space", "-rs",
              "2", "--cpus", "3", "--gpus", "1", "--memory", "4Gi"}));
  ASSERT_TRUE(add);
  EXPECT_EQ(add->method, "POST");
  EXPECT_EQ(add->target, "/v1alpha1/replicas");
  EXPECT_EQ(add->body, R"({"namespace":"space","coordinator":"job-coordinator",)"
                       R"("collectors":{"replicas":2,"cpus":3,"gpus":1,"memory":"4Gi"}})");

  const auto remove =
      replicas_request(parsed({"-m", "dist", "--delete", "learner", "-cdn", "c", "-rs", "1"}));
  EXPECT_EQ(remove->method, "DELETE");
  EXPECT_EQ(remove->body, R"({"namespace":"default","coordinator":"c","learners":{"replicas":1}})");

  const auto restart = replicas_request(
      parsed({"-m", "dist", "--restart", "learner", "-cdn", "c", "-rpn", "c-learner-x"}));
  EXPECT_EQ(restart->method, "POST");
  EXPECT_EQ(restart->target, "/v1alpha1/replicas/failed");
  EXPECT_EQ(restart->body,
            R"({"namespace":"default","coordinator":"c","learners":["c-learner-x"]})");
}

TEST(ReplicasRequestTest, SaysWhatIsMissing) {
  const Options options = parsed({"-m", "dist", "--add", "learner"});
  EXPECT_THAT(replicas_request(options).error().message(), HasSubstr("-cdn POD"));
  EXPECT_THAT(change_replicas(options).error().message(), HasSubstr("KUBERNETES_SERVER_URL"));
  const Variables variables({{"KUBERNETES_POD_NAME", "own"}, {"KUBERNETES_POD_NAMESPACE", "n"}});
  EXPECT_THAT(replicas_request(options)->body, HasSubstr(R"("namespace":"n","coordinator":"own")"));
}

TEST(SpawnLearnerTest, WithoutRanksThereIsOnePlainLearner) {
  const Options options = parsed({"-m", "dist", "--module", "spawn_learner", "-c", "a.pkl"});
  EXPECT_TRUE(learner_processes(options)->empty());
  const Variables variables({{"LOCAL_WORLD_SIZE", "0"}});
  EXPECT_TRUE(learner_processes(options)->empty());
}

TEST(SpawnLearnerTest, RanksOfASecondPodListenBehindThoseOfTheFirst) {
  const Variables variables({{"WORLD_SIZE", "10"}, {"LOCAL_WORLD_SIZE", "2"}, {"START_RANK", "8"}});
  const auto processes = learner_processes(
      parsed({"-m", "dist", "--module", "spawn_learner", "-c", "a.pkl", "-s", "5", "-lp", "100"}));
  ASSERT_TRUE(processes) << processes.error().message();
  ASSERT_EQ(processes->size(), 2U);
  const auto& second = (*processes)[1];
  EXPECT_EQ(second.environment.at("RANK"), "9");
  EXPECT_EQ(second.environment.at("LOCAL_RANK"), "1");
  EXPECT_EQ(second.environment.at("WORLD_SIZE"), "10");
  EXPECT_THAT(second.arguments, IsSupersetOf({"learner", "109", "a.pkl", "5"}));
  EXPECT_TRUE(parse_options(second.arguments, false));
}

TEST(SpawnLearnerTest, RanksThatMakeNoSenseAreRefused) {
  const Options options =
      parsed({"-m", "dist", "--module", "spawn_learner", "-c", "a.pkl", "-lp", "65535"});
  const auto with = [&](Variables::Pairs values) {
    const Variables variables(values);
    const auto processes = learner_processes(options);
    return processes ? "it was taken" : processes.error().message();
  };
  EXPECT_THAT(with({{"LOCAL_WORLD_SIZE", "-1"}}), HasSubstr("LOCAL_WORLD_SIZE=-1"));
  EXPECT_THAT(with({{"LOCAL_WORLD_SIZE", "x"}}), HasSubstr("LOCAL_WORLD_SIZE is 'x'"));
  EXPECT_THAT(with({{"LOCAL_WORLD_SIZE", "2"}, {"WORLD_SIZE", "1"}}), HasSubstr("WORLD_SIZE=1"));
  EXPECT_THAT(with({{"LOCAL_WORLD_SIZE", "2"}}), HasSubstr("port 65536"));
}

}  // namespace
}  // namespace divisi::ding
