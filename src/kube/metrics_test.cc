#include "kube/metrics.h"

#include "kube/health.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

namespace divisi::kube {
namespace {

using ::testing::HasSubstr;

TEST(MetricsTest, C47_TheTextIsWhatPrometheusReads) {
  Metrics metrics;
  metrics.counter("calls_total", "Calls.", {{"verb", "get"}, {"code", "200"}}).add(3);
  metrics.counter("calls_total", "Calls.", {{"code", "200"}, {"verb", "get"}}).add();
  metrics.counter("calls_total", "Calls.", {{"verb", "a\"b\\c\n"}}).add();
  metrics.counter("seconds_total", "Kept elsewhere.", [] { return 1.5; });
  metrics.gauge("depth", "Two\nlines.", [] { return 2.5; });
  Histogram& times = metrics.histogram("call_seconds", "How long.");
  times.observe(0.002);
  times.observe(60);
  const std::string text = metrics.text();
  EXPECT_THAT(text, HasSubstr("# TYPE calls_total counter\n"));
  EXPECT_THAT(text, HasSubstr("calls_total{code=\"200\",verb=\"get\"} 4\n"));
  EXPECT_THAT(text, HasSubstr("calls_total{verb=\"a\\\"b\\\\c\\n\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("# HELP depth Two\\nlines.\n"));
  EXPECT_THAT(text, HasSubstr("depth 2.5\n"));
  EXPECT_THAT(text, HasSubstr("# TYPE seconds_total counter\nseconds_total 1.5\n"));
  EXPECT_THAT(text, HasSubstr("call_seconds_bucket{le=\"0.001\"} 0\n"));
  EXPECT_THAT(text, HasSubstr("call_seconds_bucket{le=\"0.0025\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("call_seconds_bucket{le=\"30\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("call_seconds_bucket{le=\"+Inf\"} 2\n"));
  EXPECT_THAT(text, HasSubstr("call_seconds_count 2\n"));
}

TEST(MetricsTest, ManyThreadsCountTogether) {
  Metrics metrics;
  Histogram& times = metrics.histogram("t", "");
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int j = 0; j < 1000; ++j) {
        metrics.counter("c", "").add();
        times.observe(0.5);
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_THAT(metrics.text(), HasSubstr("c 4000\n"));
  EXPECT_THAT(metrics.text(), HasSubstr("t_sum 2000\n"));
}

TEST(HealthTest, C43_TheProcessIsHealthyBeforeItIsReady) {
  Metrics metrics;
  metrics.counter("c", "").add();
  bool synced = false;
  const HealthOptions options{
      .healthy = {{"ping", [] { return Status(); }}},
      .ready = {{"caches",
                 [&] {
                   return synced ? Status() : make_status(Code::kUnavailable, "pods are listed");
                 }}},
      .metrics = &metrics};
  const auto get = [&](const char* target) {
    return health_answer(options, {"GET", target, {}, {}});
  };
  EXPECT_EQ(get("/healthz").status, 200);
  EXPECT_EQ(get("/healthz").body, "ok");
  EXPECT_EQ(get("/readyz").status, 503);
  EXPECT_THAT(get("/readyz").body, HasSubstr("[-]caches failed: pods are listed"));
  synced = true;
  EXPECT_EQ(get("/readyz").status, 200);
  EXPECT_THAT(get("/readyz?verbose").body, HasSubstr("[+]caches ok"));
  EXPECT_THAT(get("/metrics").body, HasSubstr("c 1"));
  EXPECT_EQ(get("/other").status, 404);
  EXPECT_EQ(health_answer(options, {"POST", "/healthz", {}, {}}).status, 405);
}

}  // namespace
}  // namespace divisi::kube
