#include "kube/credentials.h"

#include "kube/credentials_testing.h"
#include "kube/time.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <sys/stat.h>

namespace divisi::kube {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::Pair;
using ::testing::StartsWith;

class CredentialsTest : public ::testing::Test {
 protected:
  void make(Config config) {
    config.described_by = "the test";
    auto made = Credentials::make(reactor_, std::move(config),
                                  {.on_changed = [this] { ++changes_; },
                                   .wall_clock = [this] { return wall_; },
                                   .terminal = false,
                                   .make_tls = make_tls_});
    ASSERT_TRUE(made) << made.error().message();
    credentials_ = *std::move(made);
  }

  Result<RequestAuth> get() {
    std::optional<Result<RequestAuth>> outcome;
    credentials_->get([&](Result<RequestAuth> got) { outcome = std::move(got); });
    EXPECT_TRUE(reactor_.run_until([&] { return outcome.has_value(); }));
    return outcome.value_or(failure(Code::kTimeout, "no outcome"));
  }

  std::string authorization() {
    const auto auth = get();
    return auth ? std::string(auth->headers.get("Authorization")) : auth.error().message();
  }

  void advance(std::chrono::seconds by) {
    wall_ += by;
    reactor_.advance(by);
  }

  // A plugin that counts its runs in the folder and prints what `status` makes of the number $n.
  ExecPlugin plugin(const std::string& status) const {
    const std::string body = "n=$(($(cat " + (folder_ / "runs") +
                             " 2>/dev/null || echo 0) + 1))\n" + "echo $n > " + (folder_ / "runs") +
                             "\n" +
                             "cat <<END\n{\"kind\":\"ExecCredential\",\"apiVersion\":"
                             "\"client.authentication.k8s.io/v1\",\"status\":" +
                             status + "}\nEND";
    return {.command = folder_.script("plugin", body),
            .api_version = "client.authentication.k8s.io/v1"};
  }

  std::string in(std::chrono::seconds time) const { return rfc3339(wall_ + time); }

  TempFolder folder_;
  ManualReactor reactor_;
  std::chrono::system_clock::time_point wall_ = std::chrono::sys_days(std::chrono::days(20000));
  int changes_ = 0;
  MakeTls make_tls_ = &io::TlsContext::client;
  std::unique_ptr<Credentials> credentials_;
};

TEST_F(CredentialsTest, NobodyInParticularSendsNoHeaders) {
  make({});
  EXPECT_EQ(get()->headers.size(), 0u);
}

TEST_F(CredentialsTest, TokensAndPasswordsBecomeHeaders) {
  make({.auth = {.token = "abc"}});
  EXPECT_EQ(authorization(), "Bearer abc");
  make({.auth = {.username = "ann", .password = "pass:word"}});
  EXPECT_EQ(authorization(), "Basic YW5uOnBhc3M6d29yZA==");
}

TEST_F(CredentialsTest, ImpersonationIsSpelledOut) {
  make({.auth = {.impersonate = {.user = "bob",
                                 .uid = "7",
                                 .groups = {"dev", "ops"},
                                 .extra = {{"example.org/a b%", {"1", "2"}}}}}});
  const auto auth = get();
  ASSERT_TRUE(auth);
  using Fields = std::vector<std::pair<std::string, std::string>>;
  EXPECT_THAT(Fields(auth->headers.begin(), auth->headers.end()),
              ElementsAre(Pair("Impersonate-User", "bob"), Pair("Impersonate-Uid", "7"),
                          Pair("Impersonate-Group", "dev"), Pair("Impersonate-Group", "ops"),
                          Pair("Impersonate-Extra-example.org%2Fa%20b%25", "1"),
                          Pair("Impersonate-Extra-example.org%2Fa%20b%25", "2")));
}

TEST_F(CredentialsTest, WhatNoHeaderCanCarryIsRefusedWithoutBeingShown) {
  const auto token = Credentials::make(reactor_, {.auth = {.token = "s3cret\r\nX-Evil: 1"}});
  ASSERT_FALSE(token);
  EXPECT_THAT(token.error().message(), Not(HasSubstr("s3cret")));
  const auto user = Credentials::make(reactor_, {.auth = {.impersonate = {.user = "a\nb"}}});
  ASSERT_FALSE(user);
  EXPECT_EQ(user.error().message(), "Impersonate-User: its value has control characters");
}

TEST_F(CredentialsTest, C38_ATokenFileIsReadAgainBeforeAMinuteIsOver) {
  make({.auth = {.token_file = folder_.write("token", "one\n")}});
  EXPECT_EQ(authorization(), "Bearer one");
  folder_.write("token", "two\n");
  advance(49s);
  EXPECT_EQ(authorization(), "Bearer one");
  advance(1s);
  EXPECT_EQ(authorization(), "Bearer two");
}

TEST_F(CredentialsTest, C38_ATokenFileIsReadAgainAfterARefusal) {
  make({.auth = {.token_file = folder_.write("token", "one")}});
  const auto first = get();
  folder_.write("token", "two");
  credentials_->refused(first->version);
  const auto second = get();
  EXPECT_EQ(second->headers.get("Authorization"), "Bearer two");
  EXPECT_NE(first->version, second->version);

  folder_.write("token", "three");
  credentials_->refused(first->version);  // a late answer to a request with the first token
  EXPECT_EQ(authorization(), "Bearer two");
}

TEST_F(CredentialsTest, TheLastTokenStaysWhileItsFileCannotBeRead) {
  make({.auth = {.token_file = folder_.write("token", "one")}});
  EXPECT_EQ(authorization(), "Bearer one");
  folder_.write("token", " \n");
  advance(60s);
  EXPECT_EQ(authorization(), "Bearer one");
  std::filesystem::remove(folder_ / "token");
  EXPECT_EQ(authorization(), "Bearer one");
  folder_.write("token", "two");
  EXPECT_EQ(authorization(), "Bearer two");  // no minute has to pass after a failure
}

TEST_F(CredentialsTest, ATokenFileThatWasNeverThereIsAnErrorThatNamesIt) {
  make({.auth = {.token_file = folder_ / "token"}});
  EXPECT_EQ(authorization(),
            "reading the token file " + (folder_ / "token") + ": No such file or directory");
  make({.auth = {.token = "given", .token_file = folder_ / "token"}});
  EXPECT_EQ(authorization(), "Bearer given");
}

TEST_F(CredentialsTest, TokenFilesAreRegularFilesOfSomeKilobytes) {
  ASSERT_EQ(::mkfifo((folder_ / "pipe").c_str(), 0600), 0);
  make({.auth = {.token_file = folder_ / "pipe"}});
  EXPECT_THAT(authorization(), HasSubstr("it is not a regular file"));
  make({.auth = {.token_file = folder_.path()}});
  EXPECT_THAT(authorization(), HasSubstr("Is a directory"));
  make({.auth = {.token_file = folder_.write("long", std::string(100'000, 'a'))}});
  EXPECT_THAT(authorization(), HasSubstr("longer than 65536 bytes"));
}

TEST_F(CredentialsTest, APluginRunsOnceForAllWhoAskMeanwhile) {
  make({.auth = {.exec = plugin(R"({"token":"run$n"})")}});
  std::vector<std::string> tokens;
  for (int i = 0; i < 3; ++i) {
    credentials_->get([&](const Result<RequestAuth>& auth) {
      tokens.emplace_back(auth ? auth->headers.get("Authorization") : auth.error().message());
    });
  }
  EXPECT_TRUE(tokens.empty());
  ASSERT_TRUE(reactor_.run_until([&] { return tokens.size() == 3; }));
  EXPECT_THAT(tokens, ElementsAre("Bearer run1", "Bearer run1", "Bearer run1"));
  advance(24h);
  EXPECT_EQ(authorization(), "Bearer run1");  // it gave no expiry
}

TEST_F(CredentialsTest, C40_APluginRunsAgainShortlyBeforeWhatItGaveExpires) {
  make(
      {.auth = {.exec = plugin(R"({"token":"run$n","expirationTimestamp":")" + in(600s) + "\"}")}});
  EXPECT_EQ(authorization(), "Bearer run1");
  advance(589s);
  EXPECT_EQ(authorization(), "Bearer run1");
  advance(1s);
  EXPECT_EQ(authorization(), "Bearer run2");
}

TEST_F(CredentialsTest, MostOfAShortLifeIsUsed) {
  make({.auth = {.exec = plugin(R"({"token":"run$n","expirationTimestamp":")" + in(5s) + "\"}")}});
  EXPECT_EQ(authorization(), "Bearer run1");
  advance(3s);
  EXPECT_EQ(authorization(), "Bearer run1");
  advance(1s);
  EXPECT_EQ(authorization(), "Bearer run2");
}

TEST_F(CredentialsTest, C40_ARefusalRunsThePluginOnceUntilSomethingWasAccepted) {
  make({.auth = {.exec = plugin(R"({"token":"run$n"})")}});
  auto auth = get();
  credentials_->refused(auth->version);
  auth = get();
  EXPECT_EQ(auth->headers.get("Authorization"), "Bearer run2");
  credentials_->refused(auth->version);
  EXPECT_EQ(authorization(), "Bearer run2");  // the server refuses everybody

  credentials_->accepted(auth->version);
  credentials_->refused(auth->version);
  EXPECT_EQ(authorization(), "Bearer run3");

  credentials_->refused(get()->version);
  EXPECT_EQ(authorization(), "Bearer run3");
  advance(300s);  // somebody may have logged in by now
  credentials_->refused(get()->version);
  EXPECT_EQ(authorization(), "Bearer run4");
}

TEST_F(CredentialsTest, AFailedPluginIsAnErrorForAllUntilAWhileThatGrowsHasPassed) {
  ExecPlugin failing = plugin("{}");
  const std::string log_in =
      "echo run >> " + (folder_ / "tries") + "; echo 'please log in' >&2; exit 1";
  folder_.script("plugin", log_in);
  make({.auth = {.exec = failing}});
  const std::string failed =
      "the exec plugin " + failing.command + " failed with exit code 1: please log in";
  for (int request = 0; request < 5; ++request) EXPECT_EQ(authorization(), failed);
  EXPECT_EQ(folder_.read("tries"), "run\n");
  advance(1s);
  EXPECT_EQ(authorization(), failed);
  advance(1s);
  EXPECT_EQ(authorization(), failed) << "the second while is longer";
  EXPECT_EQ(folder_.read("tries"), "run\nrun\n");

  plugin(R"({"token":"run$n"})");
  advance(1s);
  EXPECT_EQ(authorization(), "Bearer run1");
}

TEST_F(CredentialsTest, APluginsTokenMustFitAHeader) {
  make({.auth = {.exec = plugin(R"({"token":"s3cret \\n"})")}});
  EXPECT_THAT(authorization(), StartsWith("the exec plugin "));
  EXPECT_THAT(authorization(), Not(HasSubstr("s3cret")));
}

TEST_F(CredentialsTest, APluginThatMustAskAPersonIsNotStartedWithoutATerminal) {
  ExecPlugin asks = plugin(R"({"token":"run$n"})");
  asks.interactive = ExecPlugin::Interactive::kAlways;
  make({.auth = {.exec = asks}});
  EXPECT_THAT(authorization(), HasSubstr("no terminal"));
  EXPECT_EQ(folder_.read("runs"), "");
}

TEST_F(CredentialsTest, PluginsLearnTheClusterWithTheCertificatesOfAFile) {
  ExecPlugin curious = plugin("{}");
  curious.provide_cluster_info = true;
  folder_.script("plugin", "printf '%s' \"$KUBERNETES_EXEC_INFO\" > " + (folder_ / "info"));
  make({.server = "https://api", .ca_file = folder_.write("ca", "CA"), .auth = {.exec = curious}});
  EXPECT_FALSE(get());
  EXPECT_THAT(folder_.read("info"), HasSubstr(R"("certificate-authority-data":"Q0E=")"));
}

TEST_F(CredentialsTest, ACallbackMayDestroyTheCredentials) {
  make({.auth = {.exec = plugin(R"({"token":"run$n"})")}});
  int called = 0;
  for (int i = 0; i < 2; ++i) {
    credentials_->get([&](const Result<RequestAuth>&) {
      ++called;
      credentials_.reset();
    });
  }
  ASSERT_TRUE(reactor_.run_until([&] { return called > 0; }));
  reactor_.advance(1s);
  EXPECT_EQ(called, 1);
}

TEST_F(CredentialsTest, DestroyedWhileAPluginRunsNobodyIsCalled) {
  ExecPlugin slow = plugin("{}");
  folder_.script("plugin", "sleep 1000");
  make({.auth = {.exec = slow}});
  bool called = false;
  credentials_->get([&](const Result<RequestAuth>&) { called = true; });
  credentials_.reset();
  reactor_.advance(1s);
  EXPECT_FALSE(called);
}

// Those that show which certificates a new connection uses.
class CredentialsTlsTest : public CredentialsTest {
 protected:
  struct FakeContext final : io::TlsContext {};

  CredentialsTlsTest() {
    make_tls_ = [this](const io::TlsClientOptions& options) -> Result<TlsContextPtr> {
      if (options.identity && options.identity->key_pem == "bad") {
        return failure(Code::kInvalid, "the key does not fit");
      }
      used_ = options;
      return std::make_shared<const FakeContext>();
    };
  }

  io::TlsIdentity identity() const { return used_.identity.value_or(io::TlsIdentity()); }

  io::TlsClientOptions used_;  // of the last context that was made
};

TEST_F(CredentialsTlsTest, GivesOneContextToAllConnectionsUntilAFileChanges) {
  make({.ca_file = folder_.write("ca", "CA1"),
        .auth = {.client_certificate_file = folder_.write("crt", "C1"),
                 .client_key_file = folder_.write("key", "K1")}});
  const TlsContextPtr first = credentials_->tls().value();
  EXPECT_TRUE(used_.verify);
  EXPECT_EQ(used_.ca_pem, "CA1");
  EXPECT_EQ(identity().certificate_pem, "C1");
  EXPECT_EQ(identity().key_pem, "K1");
  advance(10s);
  EXPECT_EQ(credentials_->tls().value(), first);

  folder_.write("ca", "CA2");
  EXPECT_EQ(credentials_->tls().value(), first);  // looked a moment ago
  advance(2s);
  EXPECT_NE(credentials_->tls().value(), first);
  EXPECT_EQ(used_.ca_pem, "CA2");
  EXPECT_EQ(changes_, 0);  // told after the connection is on its way
  advance(0s);
  EXPECT_EQ(changes_, 1);
}

TEST_F(CredentialsTlsTest, C39_FilesArePolledWhileNobodyConnects) {
  make({.ca_file = folder_.write("ca", "CA1")});
  ASSERT_TRUE(credentials_->tls());
  folder_.write("ca", "CA2");
  advance(299s);
  EXPECT_EQ(changes_, 0);
  advance(1s);
  EXPECT_EQ(changes_, 1);
  advance(3600s);
  EXPECT_EQ(changes_, 1);
  folder_.write("ca", "CA3");
  advance(300s);
  EXPECT_EQ(changes_, 2);
}

// Connections that are kept open still carry the certificate they were made with.
TEST_F(CredentialsTlsTest, ARefusalIsAReasonToLookAtTheFiles) {
  make({.auth = {.client_certificate_file = folder_.write("crt", "C1"),
                 .client_key_file = folder_.write("key", "K1")}});
  ASSERT_TRUE(credentials_->tls());
  const auto auth = get();
  advance(2s);
  credentials_->refused(auth->version);
  advance(2s);
  EXPECT_EQ(changes_, 0) << "nothing else is there";
  folder_.write("crt", "C2");
  folder_.write("key", "K2");
  credentials_->refused(auth->version);
  advance(0s);
  EXPECT_EQ(changes_, 1);
  EXPECT_EQ(identity().certificate_pem, "C2");
}

TEST_F(CredentialsTlsTest, InTheMiddleOfARotationTheLastGoodPairStays) {
  make({.auth = {.client_certificate_file = folder_.write("crt", "C1"),
                 .client_key_file = folder_.write("key", "K1")}});
  const TlsContextPtr first = credentials_->tls().value();
  folder_.write("key", "bad");
  advance(5s);
  EXPECT_EQ(credentials_->tls().value(), first);
  std::filesystem::remove(folder_ / "key");
  advance(5s);
  EXPECT_EQ(credentials_->tls().value(), first);
  folder_.write("key", "K2");
  advance(5s);
  EXPECT_NE(credentials_->tls().value(), first);
  EXPECT_EQ(identity().key_pem, "K2");
}

TEST_F(CredentialsTlsTest, MissingAndEmptyFilesAreErrorsAndNotTheSystemsCertificates) {
  make({.ca_file = folder_ / "ca"});
  EXPECT_EQ(
      credentials_->tls().error().message(),
      "reading the certificate authority " + (folder_ / "ca") + ": No such file or directory");
  folder_.write("ca", "");
  EXPECT_THAT(credentials_->tls().error().message(), HasSubstr("it is empty"));
  folder_.write("ca", "CA");
  EXPECT_TRUE(credentials_->tls());  // a first failure is not kept
}

TEST_F(CredentialsTlsTest, VerifiesUnlessToldNotTo) {
  make({.insecure_skip_tls_verify = true});
  ASSERT_TRUE(credentials_->tls());
  EXPECT_FALSE(used_.verify);
}

TEST_F(CredentialsTlsTest, APluginsCertificateIsUsedAndChangesWithIt) {
  make({.ca_pem = "CA",
        .auth = {.exec = plugin(R"({"clientCertificateData":"C$n","clientKeyData":"K$n"})")}});
  const auto auth = get();
  ASSERT_TRUE(auth) << auth.error().message();
  EXPECT_FALSE(auth->headers.has("Authorization"));
  const TlsContextPtr first = credentials_->tls().value();
  EXPECT_EQ(used_.ca_pem, "CA");
  EXPECT_EQ(identity().certificate_pem, "C1");
  advance(0s);
  EXPECT_EQ(changes_, 0);

  credentials_->refused(auth->version);
  ASSERT_TRUE(get());
  EXPECT_NE(credentials_->tls().value(), first);
  EXPECT_EQ(identity().certificate_pem, "C2");
  advance(0s);
  EXPECT_EQ(changes_, 1);
}

TEST_F(CredentialsTlsTest, APluginsUnusableCertificateIsItsError) {
  make({.auth = {.exec = plugin(R"({"clientCertificateData":"C","clientKeyData":"bad"})")}});
  EXPECT_EQ(authorization(), "the exec plugin " + (folder_ / "plugin") + ": the key does not fit");
}

// The same with real certificates.
TEST_F(CredentialsTest, RealCertificatesMakeAContextAndStrangersKeysDoNot) {
  const io::TlsIdentity ann = make_identity(folder_, "ann");
  const io::TlsIdentity bob = make_identity(folder_, "bob");
  make({.ca_file = folder_ / "bob.crt",
        .auth = {.client_certificate_file = folder_ / "ann.crt",
                 .client_key_file = folder_ / "ann.key"}});
  const auto made = credentials_->tls();
  ASSERT_TRUE(made) << made.error().message();

  make({.auth = {.client_certificate_pem = ann.certificate_pem, .client_key_pem = bob.key_pem}});
  const auto mixed = credentials_->tls();
  ASSERT_FALSE(mixed);
  EXPECT_THAT(mixed.error().message(), Not(HasSubstr("PRIVATE KEY")));
}

}  // namespace
}  // namespace divisi::kube
