#include "launch/options.h"

#include "launch/dry_run.h"
#include "launch/secret.h"
#include "launch/temp_dir.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <sys/stat.h>
#include <vector>

namespace divisi::launch {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

using Arguments = std::vector<std::string>;

DitaskOptions parse(const Arguments& arguments, const Environment& environment = {}) {
  auto options = parse_command_line(arguments, environment);
  EXPECT_TRUE(options.has_value()) << (options ? "" : options.error().message());
  return options.value_or(DitaskOptions());
}

std::string parse_error(const Arguments& arguments) {
  const auto options = parse_command_line(arguments, {});
  EXPECT_FALSE(options.has_value());
  if (options) return "";
  EXPECT_EQ(options.error().code(), Code::kInvalid);
  EXPECT_THAT(options.error().message(), Not(HasSubstr("\n")));
  return options.error().message();
}

TEST(OptionsTest, DefaultsAreThoseOfTheSpec) {
  const DitaskOptions options = parse({});
  EXPECT_EQ(options.action, DitaskOptions::Action::kRun);
  EXPECT_EQ(options.package, ".");
  EXPECT_FALSE(options.main);
  EXPECT_FALSE(options.request.topology);
  EXPECT_EQ(options.join_timeout, 60s);
  EXPECT_EQ(options.startup_interval, 0s);
  EXPECT_EQ(options.max_retries, runtime::kUnlimitedRetries);
  EXPECT_EQ(options.worker_lost, runtime::WorkerLost::kFail);
}

TEST(OptionsTest, ReadsEveryFlag) {
  const DitaskOptions options = parse({"-p",
                                       "pk",
                                       "-m",
                                       "a.main",
                                       "--parallel-workers",
                                       "2",
                                       "--protocol=ipc",
                                       "--ports",
                                       "1,2",
                                       "--attach-to",
                                       "h:1",
                                       "--address",
                                       "x",
                                       "--labels",
                                       "a, b",
                                       "--node-ids",
                                       "5",
                                       "--topology",
                                       "mesh",
                                       "--platform",
                                       "none",
                                       "--platform-spec",
                                       "{}",
                                       "--mq-type",
                                       "nng",
                                       "--startup-interval",
                                       "1",
                                       "--local_rank",
                                       "3",
                                       "--auto-recover",
                                       "--max-retries",
                                       "4",
                                       "--job-id",
                                       "j",
                                       "--secret-file",
                                       "s",
                                       "--join-timeout",
                                       "2.5",
                                       "--codec",
                                       "native",
                                       "--worker-lost",
                                       "restart",
                                       "--log-level",
                                       "debug",
                                       "--dry-run",
                                       "--log-dir",
                                       "logs",
                                       "--allow-pickle",
                                       "--send-timeout",
                                       "7",
                                       "--log-json"});
  EXPECT_EQ(options.package, "pk");
  EXPECT_EQ(options.main, "a.main");
  EXPECT_EQ(options.request.parallel_workers, "2");
  EXPECT_EQ(options.request.protocol, "ipc");
  EXPECT_EQ(options.request.ports, "1,2");
  EXPECT_EQ(options.request.attach_to, "h:1");
  EXPECT_EQ(options.request.address, "x");
  EXPECT_EQ(options.request.labels, "a, b");
  EXPECT_EQ(options.request.node_ids, "5");
  EXPECT_EQ(options.request.topology, "mesh");
  EXPECT_EQ(options.request.platform, "none");
  EXPECT_EQ(options.request.platform_spec, "{}");
  EXPECT_EQ(options.request.job_id, "j");
  EXPECT_EQ(options.secret_file, "s");
  EXPECT_TRUE(options.auto_recover);
  EXPECT_EQ(options.max_retries, 4);
  EXPECT_EQ(options.join_timeout, 2500ms);
  EXPECT_EQ(options.send_timeout, 7s);
  EXPECT_EQ(options.startup_interval, 1s);
  EXPECT_EQ(options.worker_lost, runtime::WorkerLost::kRestart);
  EXPECT_EQ(options.log_level, "debug");
  EXPECT_EQ(options.log_dir, "logs");
  EXPECT_TRUE(options.allow_pickle);
  EXPECT_TRUE(options.log_json);
  EXPECT_EQ(options.action, DitaskOptions::Action::kDryRun);
}

TEST(OptionsTest, AProgramComesAfterTwoDashes) {
  const DitaskOptions options =
      parse({"--parallel-workers", "2", "--", "./program", "--flag", "--", "x"});
  EXPECT_THAT(options.command, ElementsAre("./program", "--flag", "--", "x"));
  EXPECT_THAT(parse_error({"--"}), HasSubstr("no program after --"));
  EXPECT_THAT(parse_error({"--main", "a.b", "--", "x"}), HasSubstr("excludes"));
}

TEST(OptionsTest, TheLastOfARepeatedFlagCounts) {
  EXPECT_EQ(parse({"--ports", "1", "--ports", "2"}).request.ports, "2");
}

TEST(OptionsTest, TheSecretFileMayComeFromTheEnvironment) {
  EXPECT_EQ(parse({}, {{"DIVISI_SECRET_FILE", "/s"}}).secret_file, "/s");
  EXPECT_EQ(parse({"--secret-file", "mine"}, {{"DIVISI_SECRET_FILE", "/s"}}).secret_file, "mine");
}

TEST(OptionsTest, AnUnknownFlagNamesTheNearest) {
  EXPECT_EQ(parse_error({"--topologi", "mesh"}),
            "unknown flag --topologi; did you mean --topology?");
  EXPECT_EQ(parse_error({"--worker-lots=fail"}),
            "unknown flag --worker-lots; did you mean --worker-lost?");
  EXPECT_EQ(parse_error({"--zzzzzzzzzzzzzzzz"}),
            "unknown flag --zzzzzzzzzzzzzzzz; see ditask --help");
  EXPECT_THAT(parse_error({"stray"}), HasSubstr("unexpected argument 'stray'"));
}

TEST(OptionsTest, WhatOtherLaunchersAreCalledSaysWhatThereIs) {
  EXPECT_THAT(parse_error({"--workers", "3"}), HasSubstr("--parallel-workers N"));
  EXPECT_THAT(parse_error({"--workers=3"}), HasSubstr("--parallel-workers N"));
}

TEST(OptionsTest, WhatIsNotPartOfThisVersionSaysSo) {
  EXPECT_THAT(parse_error({"--mq-type", "redis"}), HasSubstr("not part of this version"));
  EXPECT_THAT(parse_error({"--redis-host", "h"}), HasSubstr("--redis-host: redis is not part"));
  EXPECT_THAT(parse_error({"--redis-port", "1"}), HasSubstr("--redis-port: redis is not part"));
  EXPECT_THAT(parse_error({"--mq-type", "torchrpc:cuda"}), HasSubstr("torchrpc is reserved"));
  EXPECT_THAT(parse_error({"--mq-type", "kafka"}), HasSubstr("'kafka' is not known"));
  EXPECT_THAT(parse_error({"--init-method", "x"}), HasSubstr("--init-method belongs to"));
  EXPECT_THAT(parse_error({"--local-cuda-devices", "x"}), HasSubstr("--local-cuda-devices"));
  EXPECT_THAT(parse_error({"--cuda-device-map", "x"}), HasSubstr("--cuda-device-map"));
}

TEST(OptionsTest, BadValuesNameTheirFlag) {
  EXPECT_THAT(parse_error({"--ports"}), HasSubstr("--ports"));
  EXPECT_THAT(parse_error({"--join-timeout", "soon"}), HasSubstr("--join-timeout: 'soon'"));
  EXPECT_THAT(parse_error({"--join-timeout", "0"}), HasSubstr("--join-timeout"));
  EXPECT_THAT(parse_error({"--join-timeout", "nan"}), HasSubstr("--join-timeout"));
  EXPECT_THAT(parse_error({"--startup-interval=-1"}), HasSubstr("--startup-interval"));
  EXPECT_THAT(parse_error({"--worker-lost", "cry"}), HasSubstr("--worker-lost"));
  EXPECT_THAT(parse_error({"--log-level", "loud"}), HasSubstr("--log-level"));
  EXPECT_THAT(parse_error({"--codec", "yaml"}), HasSubstr("--codec"));
  EXPECT_THAT(parse_error({"--auto-recover", "--max-retries", "-1"}), HasSubstr("--max-retries"));
  EXPECT_THAT(parse_error({"--max-retries", "1"}), HasSubstr("without --auto-recover"));
}

TEST(OptionsTest, HelpAndVersionAreTexts) {
  const DitaskOptions help = parse({"--help"});
  EXPECT_EQ(help.action, DitaskOptions::Action::kPrint);
  EXPECT_THAT(help.text, HasSubstr("Examples:"));
  EXPECT_THAT(help.text, HasSubstr("--secret-file"));
  EXPECT_THAT(help.text, Not(HasSubstr("--redis-host")));
  EXPECT_THAT(parse({"-v"}).text, HasSubstr("compatible with DI-engine v0.5.3"));
}

TEST(DryRunTest, TheSecretIsNeverPrinted) {
  runtime::WorkerConfig worker;
  worker.secret = "do-not-show";
  const std::string text = json::print(describe({}, "a.main", {}, {worker}));
  EXPECT_THAT(text, HasSubstr(R"("secret":"set")"));
  EXPECT_THAT(text, Not(HasSubstr("do-not-show")));
  worker.secret.clear();
  EXPECT_THAT(json::print(describe({}, "a.main", {}, {worker})), HasSubstr(R"("secret":"none")"));
}

class SecretTest : public ::testing::Test {
 protected:
  std::string file(const std::string& content, mode_t mode = 0600) {
    const std::string path = dir_.path() + "/secret";
    std::ofstream(path) << content;
    ::chmod(path.c_str(), mode);
    return path;
  }

  TempDir dir_ = TempDir::make("divisi_secret_test").value();
};

TEST_F(SecretTest, IsTheContentWithoutBlanksAroundIt) {
  const Secret secret = read_secret_file(file("s3cret word\n")).value();
  EXPECT_EQ(secret.value, "s3cret word");
  EXPECT_EQ(secret.warning, "");
  EXPECT_THAT(read_secret_file(file("x", 0644)).value().warning, HasSubstr("chmod 600"));
}

TEST_F(SecretTest, MistakesNameTheFileAndNotItsContent) {
  EXPECT_THAT(read_secret_file(dir_.path() + "/none").error().message(), HasSubstr("/none"));
  EXPECT_THAT(read_secret_file(dir_.path()).error().message(), HasSubstr("--secret-file"));
  EXPECT_THAT(read_secret_file(file(" \n")).error().message(), HasSubstr("is empty"));
  const std::string message = read_secret_file(file(std::string(5000, 'q'))).error().message();
  EXPECT_THAT(message, HasSubstr("longer than 4096"));
  // More than six: the name of the folder has random letters.
  EXPECT_THAT(message, Not(HasSubstr("qqqqqqqq")));
}

}  // namespace
}  // namespace divisi::launch
