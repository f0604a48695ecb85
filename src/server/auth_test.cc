// Who may ask.
#include "server/auth.h"

#include "base/testing/temp_folder.h"
#include "dijob/job_secret.h"
#include "server/api_testing.h"

#include <cstdio>
#include <fstream>

namespace divisi::server {
namespace {

using namespace testing;

constexpr const char* kReplicas = "/v2alpha1/job/default.rl/replicas";

http::Headers bearer(const std::string& token) {
  return {{"Authorization", "Bearer " + token}};
}

class AuthTest : public ApiFixture {
 protected:
  void put_secret_job(const std::string& name, const std::string& secret) {
    put_tasks_job(name);
    json::Value with = job(name);
    with["status"]["secretHash"] = dijob::hash_secret(secret, with.string_at({"metadata", "uid"}));
    put(kJobs, with);
    loop_.run_for(1s);
  }
  void write_token(const std::string& text) { std::ofstream(file_) << text; }

  const divisi::testing::TempFolder folder_;
  const std::string file_ = folder_ / "token";
};

TEST_F(AuthTest, OD36_AJobsSecretSpeaksForThatJobAndNoOther) {
  put_secret_job("rl", "aaaa");
  put_secret_job("other", "bbbb");
  restart({.mode = AuthMode::kJobSecret});
  EXPECT_EQ(ask("GET", kReplicas, "", bearer("aaaa"))->status, 200);
  EXPECT_EQ(ask("GET", "/v2alpha1/job/default.other/replicas", "", bearer("bbbb"))->status, 200);
  const auto refused =
      ask("DELETE", "/v2alpha1/job/default.other/replicas", R"({"replicas":1})", bearer("aaaa"));
  EXPECT_EQ(refused->status, 401);
  EXPECT_EQ(refused->json(), *json::parse(R"({"success":false,"code":1,
      "message":"the bearer token is not the right one","data":null})"));
  EXPECT_EQ(refused->headers.get("WWW-Authenticate"), "Bearer");
  EXPECT_EQ(replicas_of(1, "other"), 2);
  const auto none = ask("GET", "/v2alpha1/job/default.none/replicas", "", bearer("aaaa"));
  EXPECT_EQ(none->body, refused->body) << "nor does it tell which jobs there are";
  EXPECT_EQ(none->status, 401);
  for (const char* path : {"/healthz", "/metrics"}) {
    EXPECT_EQ(ask("GET", path)->status, 200) << "kubelets and Prometheus have no token";
  }
}

TEST_F(AuthTest, OD36_ARequestWithoutATokenIsRefusedBeforeAnythingIsRead) {
  put_secret_job("rl", "aaaa");
  restart({.mode = AuthMode::kJobSecret});
  wait_in_step();
  const std::uint64_t before = cluster_.requests();
  for (const http::Headers& headers :
       {http::Headers{}, http::Headers{{"Authorization", "Bearer"}},
        http::Headers{{"Authorization", "Bearer   "}},
        http::Headers{{"Authorization", "Basic aaaa"}},
        http::Headers{{"Authorization", "Bearer " + std::string(5000, 'a')}}}) {
    EXPECT_EQ(ask("GET", "/v2alpha1/job/default.none/replicas", "", headers)->status, 401);
  }
  EXPECT_EQ(cluster_.requests(), before);
}

TEST_F(AuthTest, OD36_NoneIsAskedForUnlessConfigured) {
  put_secret_job("rl", "aaaa");
  EXPECT_EQ(ask("GET", kReplicas)->status, 200);
}

TEST_F(AuthTest, M18_CallersAreKnownByTheHashInTheStatusAndNoSecretIsRead) {
  int reads = 0;
  cluster_.intercept = [&](const http::Request& request) -> std::optional<http::Response> {
    reads += request.target.find("/secrets") != std::string::npos ? 1 : 0;
    return std::nullopt;
  };
  put_secret_job("rl", "aaaa");
  restart({.mode = AuthMode::kJobSecret});
  EXPECT_EQ(ask("GET", kReplicas, "", bearer("aaaa"))->status, 200);
  const std::string hash(job().string_at({"status", "secretHash"}));
  EXPECT_EQ(hash.find("aaaa"), std::string::npos);
  for (const std::string& wrong : {std::string("aaab"), std::string("aaa"), hash,
                                   hash.substr(hash.find(':') + 1), std::string(":")}) {
    EXPECT_EQ(ask("GET", kReplicas, "", bearer(wrong))->status, 401) << wrong;
  }
  put_secret_job("rl", "cccc");
  EXPECT_EQ(ask("GET", kReplicas, "", bearer("cccc"))->status, 200) << "a secret made again";
  EXPECT_EQ(ask("GET", kReplicas, "", bearer("aaaa"))->status, 401);
  EXPECT_EQ(reads, 0);
}

TEST_F(AuthTest, M18_AJobWithoutAHashLetsNobodyIn) {
  put_tasks_job();
  restart({.mode = AuthMode::kJobSecret});
  for (const char* hash : {"", ":", "salt", "salt:", ":aaaa", "salt:aaaa"}) {
    json::Value with = job();
    with["status"]["secretHash"] = hash;
    put(kJobs, with);
    loop_.run_for(1s);
    for (const char* token : {"aaaa", "salt", ":", "salt:"}) {
      EXPECT_EQ(ask("GET", kReplicas, "", bearer(token))->status, 401) << hash;
    }
  }
}

TEST_F(AuthTest, AJobThatMakesNoSenseIsNotShownToStrangersEither) {
  put_secret_job("rl", "aaaa");
  json::Value bad = job();
  bad["spec"]["tasks"] = "none";
  put(kJobs, bad);
  restart({.mode = AuthMode::kJobSecret});
  EXPECT_EQ(ask("GET", kReplicas, "", bearer("wrong"))->status, 401);
  EXPECT_EQ(ask("GET", kReplicas, "", bearer("aaaa"))->status, 400);
}

TEST_F(AuthTest, OneTokenSpeaksForAllAndMayBeReplaced) {
  put_tasks_job();
  write_token("first\n");
  restart({.mode = AuthMode::kToken, .token_file = file_});
  EXPECT_EQ(ask("GET", kReplicas, "", bearer("first"))->status, 200);
  EXPECT_EQ(ask("GET", kReplicas, "", {{"authorization", "bearer first"}})->status, 200);
  EXPECT_EQ(ask("GET", kReplicas, "", bearer("firs"))->status, 401);
  EXPECT_EQ(ask("GET", kReplicas)->status, 401);
  write_token("another one");
  EXPECT_EQ(ask("GET", kReplicas, "", bearer("first"))->status, 401);
  EXPECT_EQ(ask("GET", kReplicas, "", bearer("another one"))->status, 200);
  std::remove(file_.c_str());
  EXPECT_EQ(ask("GET", kReplicas, "", bearer("another one"))->status, 200)
      << "while the file is being replaced";
}

TEST_F(AuthTest, ATokenFileThatIsNoneStopsTheStart) {
  const auto missing = Authenticator::make({AuthMode::kToken, file_});
  ASSERT_FALSE(missing);
  EXPECT_NE(missing.error().message().find(file_), std::string::npos) << missing.error().message();
  write_token(" \n");
  const auto empty = Authenticator::make({AuthMode::kToken, file_});
  ASSERT_FALSE(empty);
  EXPECT_NE(empty.error().message().find("is empty"), std::string::npos);
}

}  // namespace
}  // namespace divisi::server
