#include "flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

namespace divisi::apps {
namespace {

using testing::HasSubstr;
using namespace std::chrono_literals;

Result<CommandLine> parse(std::string_view program, std::vector<std::string> arguments,
                          const std::map<std::string, std::string>& environment = {}) {
  return parse_command_line(program, std::move(arguments),
                            [environment](const std::string& name) -> std::optional<std::string> {
                              const auto found = environment.find(name);
                              if (found == environment.end()) return std::nullopt;
                              return found->second;
                            });
}

OperatorFlags operator_flags(std::vector<std::string> arguments,
                             const std::map<std::string, std::string>& environment = {}) {
  const auto line = parse("di-operator", std::move(arguments), environment);
  if (!line) ADD_FAILURE() << line.error().message();
  return line ? std::get<OperatorFlags>(*line) : OperatorFlags{};
}

std::string text(const Listen& address) {
  return address ? address->to_string() : "nowhere";
}

std::string complaint(std::string_view program, std::vector<std::string> arguments) {
  const auto line = parse(program, std::move(arguments));
  return line ? "it was accepted" : line.error().message();
}

TEST(FlagsTest, WithoutAnyTheOperatorHasTheDefaultsOfTheReference) {
  const OperatorFlags flags = operator_flags({});
  EXPECT_EQ(flags.sync_period, 1min);
  EXPECT_EQ(flags.force_delete_after, 5min);
  EXPECT_EQ(text(flags.probe), "tcp://0.0.0.0:8080");
  EXPECT_EQ(text(flags.common.metrics), "tcp://0.0.0.0:8443");
  EXPECT_FALSE(flags.leader_elect);
  EXPECT_EQ(flags.common.names.service_domain, "svc.cluster.local");
  EXPECT_EQ(flags.common.names.server_url, "http://di-server.di-system.svc.cluster.local:8081");
}

TEST(FlagsTest, TheOperatorHasTheFlagsOfTheFirstGeneration) {
  const OperatorFlags usual = operator_flags({});
  EXPECT_EQ(usual.common.first_server_url, "di-server.di-system:8080");
  EXPECT_FALSE(usual.aggregator_at_start);
  EXPECT_EQ(usual.common.aggregator_config_space, "di-system");
  EXPECT_EQ(usual.common.aggregator_config, "aggregator-config");
  const OperatorFlags other =
      operator_flags({"--server-address=http://di:80", "--aggregator-at-start",
                      "--agconfig-namespace=team", "--agconfig-name=mine"});
  EXPECT_EQ(other.common.first_server_url, "http://di:80");
  EXPECT_TRUE(other.aggregator_at_start);
  EXPECT_EQ(other.common.aggregator_config_space, "team");
  EXPECT_EQ(other.common.aggregator_config, "mine");
}

TEST(FlagsTest, TheNameItIsCalledByStandsForTheSubcommand) {
  EXPECT_TRUE(std::holds_alternative<OperatorFlags>(*parse("/di-operator", {})));
  EXPECT_TRUE(std::holds_alternative<ServerFlags>(*parse("/usr/bin/di-server", {})));
  EXPECT_TRUE(std::holds_alternative<ServerFlags>(*parse("/di-orchestrator", {"server"})));
  EXPECT_THAT(complaint("di-orchestrator", {}), HasSubstr("subcommand is required"));
  EXPECT_THAT(complaint("/di-webhook", {}), HasSubstr("deploy/admission.yaml"));
}

TEST(FlagsTest, EveryFlagOfTheReferencesReleasesIsAccepted) {
  const OperatorFlags now =
      operator_flags({"--qps=100", "--burst=200", "--service-domain-name=svc.k8s.cluster",
                      "--di-server-url=http://di:8081", "--sync-period=1m30s",
                      "--force-delete-after=0", "--metric-addr=0", "--probe-addr=127.0.0.1:0",
                      "--leader-elect", "--zap-devel=true", "--zap-encoder=json",
                      "--zap-log-level=2", "--zap-stacktrace-level=error", "--kubeconfig=/x"});
  EXPECT_EQ(now.sync_period, 90s);
  EXPECT_EQ(now.force_delete_after, 0s);
  EXPECT_EQ(text(now.common.metrics), "nowhere");
  EXPECT_TRUE(now.leader_elect);
  EXPECT_EQ(now.common.names.service_domain, "svc.k8s.cluster");
  EXPECT_EQ(now.common.names.server_url, "http://di:8081");
  EXPECT_EQ(now.common.log_level, log::Level::kDebug);
  EXPECT_TRUE(now.common.log_json);
  EXPECT_EQ(now.common.config.kubeconfig, "/x");

  const OperatorFlags then =
      operator_flags({"--metrics-bind-address", ":8090", "--health-probe-bind-address", ":8091",
                      "--server-address", "di-server.di-system:8080", "--leader-elect=false"});
  EXPECT_EQ(text(then.common.metrics), "tcp://0.0.0.0:8090");
  EXPECT_EQ(text(then.probe), "tcp://0.0.0.0:8091");
  EXPECT_FALSE(then.leader_elect);

  const auto server =
      parse("di-server",
            {"-s", ":18081", "-p", ":18080", "--leader-elect", "--lease-lock-namespace=di-system",
             "--lease-lock-name=di-server", "--agconfig-namespace=di-system",
             "--agconfig-name=aggregator-config", "--gpu-alloc-policy=simple"});
  ASSERT_TRUE(server) << server.error().message();
  EXPECT_EQ(std::get<ServerFlags>(*server).api.port, 18081);
  EXPECT_EQ(std::get<ServerFlags>(*server).probe.port, 18080);
}

TEST(FlagsTest, TheServerKnowsTheFlagsOfTheFirstGeneration) {
  const auto absent = parse("di-server", {});
  ASSERT_TRUE(absent);
  EXPECT_EQ(std::get<ServerFlags>(*absent).first.config_space, "di-system");
  EXPECT_EQ(std::get<ServerFlags>(*absent).first.config_name, "aggregator-config");
  EXPECT_EQ(std::get<ServerFlags>(*absent).first.server_url, "di-server.di-system:8080");
  const auto given = parse("di-server", {"--agconfig-namespace=rl", "--agconfig-name=mine",
                                         "--server-address", "di:80"});
  ASSERT_TRUE(given) << given.error().message();
  EXPECT_EQ(std::get<ServerFlags>(*given).first.config_space, "rl");
  EXPECT_EQ(std::get<ServerFlags>(*given).first.config_name, "mine");
  EXPECT_EQ(std::get<ServerFlags>(*given).first.server_url, "di:80");
  EXPECT_THAT(complaint("di-server", {"--gpu-alloc-policy=best"}), HasSubstr("--gpu-alloc-policy"));
  EXPECT_THAT(complaint("di-server", {"--agconfig-namespace=A_b"}),
              HasSubstr("--agconfig-namespace"));
  EXPECT_THAT(complaint("di-server", {"--agconfig-name="}), HasSubstr("--agconfig-name"));
  EXPECT_THAT(complaint("di-server", {"--server-address="}), HasSubstr("--server-address"));
}

TEST(FlagsTest, TheEnvironmentHasTheServersUrlWhenTheCommandLineDoesNot) {
  const std::map<std::string, std::string> v1_0{{"DI_SERVER_URL", "http://from-environment:8080"}};
  EXPECT_EQ(operator_flags({}, v1_0).common.names.server_url, "http://from-environment:8080");
  EXPECT_EQ(operator_flags({"--di-server-url=http://flag"}, v1_0).common.names.server_url,
            "http://flag");
}

TEST(FlagsTest, TheEnvironmentHasWhatAReplicaNeedsThatDoesNotSay) {
  const std::string variable = "DI_JOB_DEFAULT_RESOURCES";
  const OperatorFlags flags =
      operator_flags({}, {{variable, R"({"resources":{"requests":{"cpu":2,"memory":"3Gi"}}})"}});
  EXPECT_EQ(dijob::text_of(flags.default_resources, flags.default_resources), "cpu 2, memory 3Gi");
  const auto bad = parse("di-operator", {}, {{variable, "much"}});
  ASSERT_FALSE(bad);
  EXPECT_THAT(bad.error().message(), HasSubstr(variable));
}

TEST(FlagsTest, BadFlagsGetOneLineThatNamesThem) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases{
      {{"--bogus"}, "--bogus"},
      {{"stray"}, "stray"},
      {{"--sync-period=fast"}, "'fast' is no duration"},
      {{"--sync-period=1ms"}, "at least 1s"},
      {{"--probe-addr=8080"}, "'8080' is no address"},
      {{"--probe-addr=:808080"}, "':808080' is no address"},
      {{"--qps=many"}, "--qps"},
      {{"--qps=-1"}, "--qps"},
      {{"--zap-encoder=xml"}, "--zap-encoder"},
      {{"--zap-log-level=loud"}, "loud"},
      {{"--namespace=Not_One"}, "--namespace"},
      {{"--di-server-url=di-server:8081"}, "--di-server-url"},
      {{"--server-address=di-server"}, "--server-address"},
      {{"--server-address=di-server:port"}, "--server-address"},
      {{"--server-address=:80"}, "--server-address"},
      {{"--agconfig-namespace=A_B"}, "--agconfig-namespace"},
      {{"--agconfig-name="}, "--agconfig-name"},
  };
  for (const auto& [arguments, part] : cases) {
    const std::string said = complaint("di-operator", arguments);
    EXPECT_THAT(said, HasSubstr(part)) << arguments[0];
    EXPECT_EQ(said.find('\n'), std::string::npos) << said;
  }
  EXPECT_THAT(complaint("di-server", {"-s", "0"}), HasSubstr("needs both addresses"));
  EXPECT_THAT(complaint("di-server", {"--auth=token-file"}), HasSubstr("go together"));
  EXPECT_THAT(complaint("di-server", {"--token-file=x"}), HasSubstr("go together"));
}

TEST(FlagsTest, HelpHasExamplesAndTheExitCodes) {
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{"--help"}, {"operator", "--help"}, {"server", "-h"}}) {
    const auto line = parse("di-orchestrator", arguments);
    ASSERT_TRUE(line) << line.error().message();
    EXPECT_THAT(std::get<HelpText>(*line).text, HasSubstr("di-orchestrator"));
  }
  EXPECT_THAT(std::get<HelpText>(*parse("di-orchestrator", {"--help"})).text,
              HasSubstr("Exit code: 0"));
}

TEST(FlagsTest, DurationsAreThoseOfGo) {
  EXPECT_EQ(*parse_duration("1m30s"), 90s);
  EXPECT_EQ(*parse_duration("250ms"), 250ms);
  EXPECT_EQ(*parse_duration("1.5h"), 90min);
  EXPECT_EQ(*parse_duration("2h0m1s"), 2h + 1s);
  EXPECT_EQ(*parse_duration("0"), 0s);
  for (const char* bad : {"", "1", "s", "-1s", "1d", "1s ", "1e3s", "nan", "infs", "99999h"}) {
    EXPECT_FALSE(parse_duration(bad)) << bad;
  }
}

}  // namespace
}  // namespace divisi::apps
