#include "kube/exec_plugin.h"

#include "kube/credentials_testing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <signal.h>

namespace divisi::kube {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr const char* kV1 = "client.authentication.k8s.io/v1";
constexpr const char* kBeta = "client.authentication.k8s.io/v1beta1";

std::string credential(const std::string& status, const std::string& version = kV1) {
  return R"({"kind":"ExecCredential","apiVersion":")" + version + R"(","status":)" + status + "}";
}

std::string refusal(const std::string& text) {
  const auto parsed = parse_exec_credential(text, kV1);
  return parsed ? "accepted" : parsed.error().message();
}

TEST(ExecCredentialTest, TakesTokensCertificatesAndTheirExpiry) {
  const auto token = parse_exec_credential(
      credential(R"({"token":"abc","expirationTimestamp":"2030-01-02T03:04:05Z"})"), kV1);
  ASSERT_TRUE(token) << token.error().message();
  EXPECT_EQ(token->token, "abc");
  EXPECT_FALSE(token->identity);
  using namespace std::chrono;
  EXPECT_EQ(token->expires, sys_days(2030y / 1 / 2) + 3h + 4min + 5s);

  const auto pair = parse_exec_credential(
      credential(R"({"clientCertificateData":"C","clientKeyData":"K"})", kBeta), kBeta);
  ASSERT_TRUE(pair) << pair.error().message();
  const auto identity = pair->identity.value_or(io::TlsIdentity());
  EXPECT_EQ(identity.certificate_pem, "C");
  EXPECT_EQ(identity.key_pem, "K");
  EXPECT_FALSE(pair->expires);
}

TEST(ExecCredentialTest, SaysWhatIsWrongAndNeverShowsTheText) {
  EXPECT_EQ(refusal(""), "it printed nothing");
  EXPECT_EQ(refusal("token: s3cret"), "what it printed is no JSON");
  EXPECT_EQ(refusal(R"("s3cret")"), "it is no JSON object");
  EXPECT_EQ(refusal("{}"), "its kind is not ExecCredential");
  EXPECT_THAT(refusal(credential("{}", kBeta)), HasSubstr("v1beta1', but the kubeconfig says"));
  EXPECT_EQ(refusal(credential("null")), "it gave no status");
  EXPECT_EQ(refusal(credential("{}")), "it gave neither a token nor a certificate");
  EXPECT_EQ(refusal(credential(R"({"clientKeyData":"s3cret"})")),
            "it gave only one of certificate and key");
  EXPECT_EQ(refusal(credential(R"({"token":["s3cret"]})")), "token is no text, but array");
  EXPECT_EQ(refusal(credential(R"({"token":"s3cret","expirationTimestamp":"soon"})")),
            "expirationTimestamp is no time of RFC 3339");
}

TEST(ExecCredentialTest, AVeryDistantExpiryIsAFutureOne) {
  const auto parsed = parse_exec_credential(
      credential(R"({"token":"a","expirationTimestamp":"9999-12-31T23:59:59Z"})"), kV1);
  ASSERT_TRUE(parsed) << parsed.error().message();
  const auto now = std::chrono::system_clock::now();
  EXPECT_GT(parsed->expires.value_or(std::chrono::system_clock::time_point::max()), now);
}

TEST(ExecInfoTest, NamesTheClusterOnlyToPluginsThatAskForIt) {
  Config config;
  config.server = "https://10.0.0.1:6443";
  config.tls_server_name = "api";
  ExecPlugin plugin{.api_version = kV1};
  EXPECT_EQ(exec_info(plugin, config, "CA", true),
            R"({"kind":"ExecCredential","apiVersion":"client.authentication.k8s.io/v1",)"
            R"("spec":{"interactive":true}})");

  plugin.provide_cluster_info = true;
  plugin.cluster_config = json::Object{{"audience", "x"}};
  EXPECT_EQ(
      exec_info(plugin, config, "CA", false),
      R"({"kind":"ExecCredential","apiVersion":"client.authentication.k8s.io/v1",)"
      R"("spec":{"cluster":{"server":"https://10.0.0.1:6443","tls-server-name":"api",)"
      R"("certificate-authority-data":"Q0E=","config":{"audience":"x"}},"interactive":false}})");
}

TEST(ExecInfoTest, InteractiveModeDecidesWhetherATerminalIsUsedOrNeeded) {
  using Interactive = ExecPlugin::Interactive;
  EXPECT_FALSE(*plays_interactive({.interactive = Interactive::kNever}, true));
  EXPECT_TRUE(*plays_interactive({.interactive = Interactive::kIfAvailable}, true));
  EXPECT_FALSE(*plays_interactive({.interactive = Interactive::kIfAvailable}, false));
  EXPECT_TRUE(*plays_interactive({.interactive = Interactive::kAlways}, true));
  const auto refused =
      plays_interactive({.command = "login", .interactive = Interactive::kAlways}, false);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message(), AllOf(HasSubstr("login"), HasSubstr("no terminal")));
}

class ExecRunTest : public ::testing::Test {
 protected:
  Result<ExecCredential> run(ExecRequest request) {
    std::optional<Result<ExecCredential>> outcome;
    const ExecRun run(reactor_, std::move(request),
                      [&](Result<ExecCredential> got) { outcome = std::move(got); });
    EXPECT_TRUE(reactor_.run_until([&] { return outcome.has_value(); }));
    return outcome.value_or(failure(Code::kTimeout, "no outcome"));
  }

  Result<ExecCredential> run_script(const std::string& body) {
    return run({.plugin = {.command = folder_.script("plugin", body), .api_version = kV1}});
  }

  std::string complaint(const std::string& body) {
    const auto outcome = run_script(body);
    return outcome ? "it worked" : outcome.error().message();
  }

  // "the exec plugin /tmp/.../plugin".
  std::string name() const { return "the exec plugin " + (folder_ / "plugin"); }

  TempFolder folder_;
  ManualReactor reactor_;
};

TEST_F(ExecRunTest, C40_GivesArgumentsAsTheyAreAndAddsToTheEnvironment) {
  ExecRequest request{.plugin = {.command = folder_.script("plugin", R"(
printf '{"kind":"ExecCredential","apiVersion":"client.authentication.k8s.io/v1","status":{"token":"%s|%s|%s|%s|%s"}}' \
  "$1" "$2" "$COLOUR" "$KUBERNETES_EXEC_INFO" "${PATH:+path}")"),
                                 .arguments = {"a b", "$HOME;*"},
                                 .environment = {{"COLOUR", "red"}},
                                 .api_version = kV1},
                      .info = "INFO"};
  const auto outcome = run(request);
  ASSERT_TRUE(outcome) << outcome.error().message();
  EXPECT_EQ(outcome->token, "a b|$HOME;*|red|INFO|path");
}

TEST_F(ExecRunTest, StandardInputIsEmptyUnlessAPersonMayBeAsked) {
  const auto outcome = run_script("cat; echo '" + credential(R"({"token":"t"})") + "'");
  ASSERT_TRUE(outcome) << outcome.error().message();
}

TEST_F(ExecRunTest, AMissingProgramComesWithItsHint) {
  const auto outcome = run({.plugin = {.command = "no-such-plugin-of-ours",
                                       .api_version = kV1,
                                       .install_hint = "get it\nfrom example.org"}});
  ASSERT_FALSE(outcome);
  EXPECT_THAT(outcome.error().message(),
              AllOf(StartsWith("the exec plugin no-such-plugin-of-ours is not there: get it"),
                    HasSubstr("from example.org"), Not(HasSubstr("\n"))));
}

TEST_F(ExecRunTest, AFileThatCannotBeRunSaysWhy) {
  const auto outcome =
      run({.plugin = {.command = folder_.write("plugin", "text"), .api_version = kV1}});
  ASSERT_FALSE(outcome);
  EXPECT_THAT(outcome.error().message(), HasSubstr("Permission denied"));
}

TEST_F(ExecRunTest, AFailureShowsTheLastLineOfItsComplaints) {
  EXPECT_EQ(complaint("echo first >&2; echo 'please log in' >&2; echo >&2; echo s3cret; exit 3"),
            name() + " failed with exit code 3: please log in");
  EXPECT_EQ(complaint("exit 4"), name() + " failed with exit code 4");
  EXPECT_THAT(complaint("kill -9 $$"), HasSubstr("was ended by SIGKILL"));
}

TEST_F(ExecRunTest, ComplaintsAreShortPrintableAndWithoutGivenSecrets) {
  ExecRequest request{
      .plugin = {.command = folder_.script(
                     "plugin",
                     R"(printf 'bad \033[31m%s %s %01000d\n' "$SECRET" "$SECRET" 7 >&2; exit 1)"),
                 .environment = {{"SECRET", "hunter22"}},
                 .api_version = kV1}};
  const auto outcome = run(request);
  ASSERT_FALSE(outcome);
  EXPECT_THAT(outcome.error().message(),
              AllOf(HasSubstr("*** ***"), Not(HasSubstr("hunter22")), Not(HasSubstr("\033"))));
  EXPECT_LT(outcome.error().message().size(), 600u);
}

TEST_F(ExecRunTest, GarbageIsRefusedWithoutBeingShown) {
  EXPECT_EQ(complaint("echo s3cret"),
            name() + " gave no usable credentials: what it printed is no JSON");
}

TEST_F(ExecRunTest, OutputWithoutEndIsCutOff) {
  EXPECT_EQ(complaint("while :; do echo s3cret s3cret s3cret s3cret s3cret; done"),
            name() + " printed more than 1 MB");
}

TEST_F(ExecRunTest, ComplaintsWithoutEndDoNotHideTheDeadline) {
  const auto outcome =
      run({.plugin = {.command = folder_.script("plugin", "exec yes no >&2"), .api_version = kV1},
           .deadline = 200ms});
  ASSERT_FALSE(outcome);
  EXPECT_EQ(outcome.error().code(), Code::kTimeout);
  EXPECT_THAT(outcome.error().message(),
              StartsWith(name() + " did not end in time and was killed: "));
}

// The pid that the script wrote, once it is there.
pid_t started(const TempFolder& folder, const std::string& file) {
  const auto deadline = std::chrono::steady_clock::now() + 60s;
  while (std::chrono::steady_clock::now() < deadline) {
    const std::string text = folder.read(file);
    if (text.ends_with('\n')) return static_cast<pid_t>(std::stol(text));
    std::this_thread::yield();
  }
  return -1;
}

// Killed, and reaped by whoever inherited it, or still waiting for that.
bool ends(pid_t pid) {
  const auto deadline = std::chrono::steady_clock::now() + 60s;
  while (std::chrono::steady_clock::now() < deadline) {
    std::ifstream status("/proc/" + std::to_string(pid) + "/stat");
    std::string number, program, state;
    if (!(status >> number >> program >> state) || state == "Z" || state == "X") return true;
    std::this_thread::yield();
  }
  return false;
}

TEST_F(ExecRunTest, AtTheDeadlineAllThatItStartedIsKilled) {
  const auto outcome =
      run({.plugin = {.command = folder_.script(
                          "plugin", "sleep 1000 & echo $! > " + (folder_ / "pid") + "; wait"),
                      .api_version = kV1},
           .deadline = 2s});
  ASSERT_FALSE(outcome);
  EXPECT_EQ(outcome.error().code(), Code::kTimeout);
  const pid_t grandchild = started(folder_, "pid");
  ASSERT_GT(grandchild, 0);
  EXPECT_TRUE(ends(grandchild));
}

TEST_F(ExecRunTest, DestroyingARunKillsThePluginAndDropsTheCallback) {
  bool called = false;
  auto run = std::make_unique<ExecRun>(
      reactor_,
      ExecRequest{.plugin = {.command = folder_.script(
                                 "plugin", "echo $$ > " + (folder_ / "pid") + "; sleep 1000"),
                             .api_version = kV1}},
      [&](const Result<ExecCredential>&) { called = true; });
  const pid_t plugin = started(folder_, "pid");
  ASSERT_GT(plugin, 0);
  run.reset();
  EXPECT_TRUE(ends(plugin));
  reactor_.advance(1s);
  EXPECT_FALSE(called);
}

TEST_F(ExecRunTest, AChildOfThePluginThatHoldsItsOutputDoesNotHoldUsUp) {
  const auto outcome = run_script("sleep 1000 & echo $! > " + (folder_ / "pid") + "; echo '" +
                                  credential(R"({"token":"t"})") + "'");
  ASSERT_TRUE(outcome) << outcome.error().message();
  EXPECT_EQ(outcome->token, "t");
  ::kill(started(folder_, "pid"), SIGKILL);
}

}  // namespace
}  // namespace divisi::kube
