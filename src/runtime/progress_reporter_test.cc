#include "runtime/progress_reporter.h"

#include "runtime/testing/fake_di_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace divisi::runtime {
namespace {

using namespace std::chrono_literals;
using testing::FakeDiServer;

class ProgressReporterTest : public ::testing::Test {
 protected:
  JobServer job() {
    return {*http::Url::parse(server_.url()), "/v2alpha1/job/lab/train", "00ff", 3};
  }

  FakeDiServer server_;
  const std::unique_ptr<io::Reactor> reactor_ = io::make_reactor();
};

TEST_F(ProgressReporterTest, TheFirstReportGoesAtOnceWithTheSecretOfTheJob) {
  ProgressReporter reporter(*reactor_, job(), 1h);
  reporter.report({{"return", 12.5}}, "3", {{"return", 12.5}, {"loss", 0.25}});
  ASSERT_TRUE(server_.wait_for_posts(1));
  const http::Request post = server_.posts()[0];
  EXPECT_EQ(post.target, "/v2alpha1/job/lab/train/profilings");
  EXPECT_EQ(post.headers.get("Authorization"), "Bearer 00ff");
  EXPECT_EQ(post.body, R"({"progress":{"return":12.5},"ranks":{"3":{"loss":0.25,"return":12.5}}})");
}

TEST_F(ProgressReporterTest, OfManyReportsTheLatestFigureOfEachNameIsSent) {
  ProgressReporter reporter(*reactor_, job(), 1h);
  reporter.report({}, "3", {{"first", 1}});
  ASSERT_TRUE(server_.wait_for_posts(1));
  for (int i = 0; i < 1000; ++i) reporter.report({{"steps", i + 0.5}}, "3", {});
  reporter.report({{"eta", 7.5}}, "3", {});
  EXPECT_TRUE(reporter.flush(60s)) << "the end does not wait for the interval";
  ASSERT_EQ(server_.posts().size(), 2u);
  EXPECT_EQ(server_.posts()[1].body, R"({"progress":{"eta":7.5,"steps":999.5}})");
}

TEST_F(ProgressReporterTest, WhatTheServerRefusedIsSentAgainUnlessThereIsSomethingNewer) {
  server_.set_status(503);
  ProgressReporter reporter(*reactor_, job(), 1ms);
  reporter.report({{"a", 1.5}, {"b", 1.5}}, "3", {});
  ASSERT_TRUE(server_.wait_for_posts(2));
  reporter.report({{"b", 2.5}}, "3", {});
  server_.set_status(0);
  EXPECT_TRUE(reporter.flush(60s));
  EXPECT_EQ(server_.posts().back().body, R"({"progress":{"a":1.5,"b":2.5}})");
}

TEST_F(ProgressReporterTest, AServerThatIsNotThereHoldsNobodyUp) {
  JobServer nobody = job();
  nobody.url = *http::Url::parse("http://127.0.0.1:1");
  ProgressReporter reporter(*reactor_, nobody, 1ms);
  for (int i = 0; i < 100; ++i) reporter.report({{"a", i}}, "3", {});
  EXPECT_FALSE(reporter.flush(10ms));
}

}  // namespace
}  // namespace divisi::runtime
