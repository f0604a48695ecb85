// What trials of the tuner post about themselves.
#include "server/trial_posts.h"

#include "dijob/job_secret.h"
#include "http/base64.h"
#include "server/api_testing.h"

#include <string>

namespace divisi::server {
namespace {

using namespace testing;

constexpr const char* kTrial = "/v2alpha1/job/default/rl/trial";

class TrialPostsTest : public ApiFixture {
 protected:
  TrialPostsTest() { put_tasks_job(); }

  std::shared_ptr<Seen> post(const std::string& body, http::Headers headers = {}) {
    return ask("POST", kTrial, body, std::move(headers));
  }
  std::string stored(json::Path path = {"status", "trial"}) const {
    const json::Value* found = job().find_path(path);
    return found == nullptr ? "missing" : json::print(*found);
  }
};

std::string result_post(const std::string& name, std::size_t bytes) {
  return fmt::format(R"({{"result": {{"name": "{}", "bytes": "{}"}}}})", name,
                     http::encode_base64(std::string(bytes, 'x')));
}

TEST_F(TrialPostsTest, AnsweredPostIsInTheStatus) {
  EXPECT_EQ(post(R"({"reports": {"1": {"loss": 0.5}}})")->status, 200);
  EXPECT_EQ(stored(), R"({"reports":{"1":{"loss":0.5}}})") << "written before it is answered";
  EXPECT_EQ(post(R"({"reports": {"2": {"loss": null}}})")->status, 200);
  EXPECT_EQ(post(result_post("result.pkl", 3))->status, 200);
  EXPECT_EQ(stored(), R"({"reports":{"1":{"loss":0.5},"2":{"loss":"nan"}},)"
                      R"("result":{"name":"result.pkl","bytes":"eHh4"}})");
  EXPECT_EQ(job().string_at({"status", "phase"}), "Running") << "what others wrote stays";
}

TEST_F(TrialPostsTest, RepeatedPostChangesNothingAndValuesOfAStepMeet) {
  for (int i = 0; i < 2; ++i) EXPECT_EQ(post(R"({"reports": {"7": {"loss": 1}}})")->status, 200);
  post(R"({"reports": {"7": {"reward": 2}}})");
  EXPECT_EQ(stored({"status", "trial", "reports"}), R"({"7":{"loss":1,"reward":2}})");
}

TEST_F(TrialPostsTest, RestartedServerHasLostNothing) {
  post(R"({"reports": {"1": {"loss": 1}}})");
  restart();
  post(R"({"reports": {"2": {"loss": 2}}})");
  EXPECT_EQ(stored({"status", "trial", "reports"}), R"({"1":{"loss":1},"2":{"loss":2}})");
}

TEST_F(TrialPostsTest, WhatIsNoReportInTheStatusGoesWithTheNextPost) {
  json::Value edited = job();
  edited["status"]["trial"] =
      *json::parse(R"({"reports": {"5": {}, "6": null, "7": 1, "-0": {"loss": 3}, "x": {}}})");
  put(kJobs, edited);
  EXPECT_EQ(post(R"({"reports": {"0": {"loss": 3}}})")->status, 200);
  EXPECT_EQ(stored({"status", "trial", "reports"}), R"({"0":{"loss":3}})");
}

TEST_F(TrialPostsTest, OldestReportsGoWhenThereAreTooMany) {
  for (std::size_t block = 0; block < 3; ++block) {
    json::Value body;
    for (std::size_t i = 0; i < 500; ++i) {
      body["reports"][std::to_string(500 * block + i)]["loss"] = 1;
    }
    ASSERT_EQ(post(json::print(body))->status, 200);
  }
  const json::Value* const reports = job().find_path({"status", "trial", "reports"});
  EXPECT_EQ(reports->as_object()->size(), kMaxReports);
  EXPECT_EQ(reports->find("499"), nullptr);
  EXPECT_NE(reports->find("500"), nullptr);
  EXPECT_NE(reports->find("1499"), nullptr);
}

TEST_F(TrialPostsTest, OldestReportsGoWhenTheyAreTooLong) {
  for (int step = 0; step < 40; ++step) {
    json::Value body;
    for (std::size_t i = 0; i < 20; ++i) {
      body["reports"][std::to_string(step)][std::string(100, 'n') + std::to_string(i)] = 1.25;
    }
    ASSERT_EQ(post(json::print(body))->status, 200);
  }
  const json::Value* const reports = job().find_path({"status", "trial", "reports"});
  EXPECT_LE(json::print(*reports).size(), kMaxReportBytes);
  EXPECT_GT(reports->as_object()->size(), 15u);
  EXPECT_NE(reports->find("39"), nullptr);
  EXPECT_EQ(reports->find("0"), nullptr);
}

TEST_F(TrialPostsTest, BadPostsAreRefusedByOneLine) {
  const std::pair<std::string, const char*> posts[] = {
      {R"([1])", "failed to decode"},
      {R"({"result": 3})", "result.name is no name"},
      {R"({"result": {"name": "../x", "bytes": ""}})", "result.name is no name"},
      {R"({"result": {"name": "x", "bytes": "%"}})", "result.bytes is no base64"},
      {result_post("result.pkl", kMaxTrialResult + 1),
       "the result result.pkl has 32769 bytes: di-server keeps 32768"},
      {R"({"reports": []})", "reports is no object"},
      {R"({"reports": {"-1": {"a": 1}}})", "steps from 0 on, not `-1`"},
      {R"({"reports": {"01": {"a": 1}}})", "steps from 0 on, not `01`"},
      {R"({"reports": {"1": {"a": "b"}}})", "the figure `a` of step 1 is no number"},
      {R"({"reports": {"1": {}}})", "has 0 figures: 1 to 64"},
      {R"({"other": 1})", "and not `other`"},
      {R"({"trouble": 1})", "trouble is no text"},
  };
  for (const auto& [body, text] : posts) {
    const auto seen = post(body);
    EXPECT_EQ(seen->status, 400) << body.substr(0, 80);
    EXPECT_NE(seen->message().find(text), std::string::npos) << seen->message();
  }
  EXPECT_EQ(stored(), "missing");
  EXPECT_EQ(post(result_post("result.pkl", kMaxTrialResult))->status, 200);
}

TEST_F(TrialPostsTest, AnotherJobsSecretIsRefused) {
  json::Value with = job();
  with["status"]["secretHash"] = dijob::hash_secret("aaaa", with.string_at({"metadata", "uid"}));
  put(kJobs, with);
  restart({.mode = AuthMode::kJobSecret});
  const std::string body = R"({"reports": {"1": {"loss": 1}}})";
  EXPECT_EQ(post(body)->status, 401);
  EXPECT_EQ(post(body, {{"Authorization", "Bearer bbbb"}})->status, 401);
  EXPECT_EQ(stored(), "missing");
  EXPECT_EQ(post(body, {{"Authorization", "Bearer aaaa"}})->status, 200);
}

}  // namespace
}  // namespace divisi::server
