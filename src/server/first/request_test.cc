// What requests of the first generation say, and how answers look. Pure.
#include "server/envelope.h"
#include "server/first/demand.h"
#include "server/first/gpu_split.h"
#include "server/first/replicas.h"
#include "server/first/route.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>

namespace divisi::server::first {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string demand_error(std::string_view body) {
  const auto demand = read_demand(body);
  if (demand) return "it was accepted";
  EXPECT_EQ(demand.error().code(), Code::kInvalid);
  return demand.error().message();
}

TEST(FirstRouteTest, OnlyTheTwoPathsAreRoutes) {
  EXPECT_EQ(find_route("/v1alpha1/replicas"), Subject::kReplicas);
  EXPECT_EQ(find_route("//v1alpha1/replicas/?namespace=a"), Subject::kReplicas);
  EXPECT_EQ(find_route("/v1alpha1/replicas/failed"), Subject::kFailed);
  for (const char* other : {"/", "/v1alpha1", "/v1alpha1/replica", "/v2alpha1/replicas",
                            "/v1alpha1/replicas/failed/x", "/v1alpha1/replicas/x"}) {
    EXPECT_EQ(find_route(other), std::nullopt) << other;
  }
}

TEST(FirstRouteTest, QueryKeysMatchInAnyCase) {
  const auto query =
      parse_query("/v1alpha1/replicas?NameSpace=a%2Db&Coordinator=c&AGGREGATOR=d&name=e");
  ASSERT_TRUE(query);
  EXPECT_EQ(query->space, "a-b");
  EXPECT_EQ(query->coordinator, "c");
  EXPECT_EQ(query->aggregator, "d");
  EXPECT_EQ(query->name, "e");
  EXPECT_TRUE(parse_query("/v1alpha1/replicas?")->space.empty());
}

TEST(FirstRouteTest, UnknownQueryKeysAreRefusedByName) {
  const auto query = parse_query("/v1alpha1/replicas?namespace=a&job=b");
  ASSERT_FALSE(query);
  EXPECT_EQ(query.error().message(), "request param job is not supported");
  EXPECT_EQ(query.error().code(), Code::kInvalid);
  EXPECT_FALSE(parse_query("/v1alpha1/replicas?namespace=%zz"));
}

TEST(FirstDemandTest, QuantitiesAreStringsOrNumbers) {
  const auto demand = read_demand(R"({"namespace": "n", "coordinator": "c", "cpu": 7,
      "collectors": {"replicas": 2, "cpus": "500m", "memory": "1Gi", "gpu": "x"},
      "learners": {"replicas": 1, "cpus": 0.5, "gpus": 2}})");
  ASSERT_TRUE(demand) << demand.error().message();
  EXPECT_EQ(demand->space, "n");
  EXPECT_EQ(demand->coordinator, "c");
  EXPECT_EQ(demand->collectors->replicas, 2);
  EXPECT_EQ(demand->collectors->cpus.to_string(), "500m");
  EXPECT_EQ(demand->collectors->memory.to_string(), "1Gi");
  EXPECT_EQ(demand->collectors->gpus, 0);
  EXPECT_EQ(demand->learners->cpus.to_string(), "500m");
  EXPECT_EQ(demand->learners->gpus, 2);
  EXPECT_EQ(read_demand(R"({"learners": {"gpus": "4"}})")->learners->gpus, 4);
}

TEST(FirstDemandTest, AbsentAndNullSizesSayNothing) {
  const auto demand = read_demand(R"({"collectors": null, "learners": {"replicas": null}})");
  ASSERT_TRUE(demand);
  EXPECT_FALSE(demand->collectors);
  EXPECT_EQ(demand->learners->replicas, 0);
}

TEST(FirstDemandTest, EveryBadBodyIsOneClearLine) {
  EXPECT_EQ(demand_error(""), "failed to decode request body: EOF");
  EXPECT_THAT(demand_error("{"), HasSubstr("failed to decode request body: "));
  EXPECT_THAT(demand_error("[]"), HasSubstr("must be an object"));
  EXPECT_EQ(demand_error(R"({"namespace": 3})"),
            "failed to decode request body: namespace must be a string, not number");
  EXPECT_EQ(demand_error(R"({"collectors": 3})"),
            "failed to decode request body: collectors must be an object, not number");
  EXPECT_EQ(
      demand_error(R"({"collectors": {"replicas": "2"}})"),
      "failed to decode request body: collectors.replicas must be a whole number, not string");
  EXPECT_EQ(demand_error(R"({"learners": {"replicas": -1}})"),
            "learners.replicas is -1: it must be between 0 and 10000");
  EXPECT_EQ(demand_error(R"({"learners": {"replicas": 10001}})"),
            "learners.replicas is 10001: it must be between 0 and 10000");
  EXPECT_EQ(demand_error(R"({"learners": {"cpus": -1}})"),
            "learners.cpus is -1: it must not be negative");
  EXPECT_EQ(demand_error(R"({"learners": {"gpus": 0.5}})"),
            "learners.gpus is 500m: GPUs are whole");
  EXPECT_EQ(demand_error(R"({"learners": {"gpus": 2000}})"),
            "learners.gpus is 2k: one replica has at most 1024");
}

// What DI-engine's command line does with the answer that it reads from the coordinator pod.
std::string swap_quotes(std::string text) {
  const auto replace = [&text](const std::string& what, const std::string& with) {
    for (std::size_t at = text.find(what); at != std::string::npos;
         at = text.find(what, at + with.size())) {
      text.replace(at, what.size(), with);
    }
  };
  replace("'", "\"");
  replace("None", "null");
  replace(": False", ": 0");
  replace(": True", ": 1");
  const std::string syntax = R"(^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$)";
  replace("\"" + syntax + "\"", "\\\"" + syntax + "\\\"");
  return text;
}

TEST(FirstDemandTest, BadQuantitiesKeepTheTextThatTheHelperKnows) {
  for (const char* body :
       {R"({"collectors": {"cpus": "x"}})", R"({"collectors": {"cpus": ""}})",
        R"({"collectors": {"cpus": true}})", R"({"collectors": {"cpus": {}}})"}) {
    const auto demand = read_demand(body);
    ASSERT_FALSE(demand) << body;
    const http::Response answer = failed(demand.error());
    EXPECT_EQ(answer.status, 400);
    EXPECT_THAT(answer.body, HasSubstr("'^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"));
    const auto parsed = json::parse(swap_quotes(answer.body));
    ASSERT_TRUE(parsed) << parsed.error().message();
    EXPECT_EQ(parsed->int_at({"code"}), 1);
    EXPECT_THAT(std::string(parsed->string_at({"message"})),
                HasSubstr("quantities must match the regular expression"));
  }
}

TEST(FirstReportTest, NamesAreReadFromEveryFormOnce) {
  const auto report = read_report(R"({"namespace": "n", "coordinator": "c",
      "collectors": ["a-collector-x", "a-collector-x.n:80", "http://a-collector-y.n:80"],
      "learners": ["a-collector-x", "b.other"]})");
  ASSERT_TRUE(report);
  EXPECT_THAT(report->pods, ElementsAre("a-collector-x", "a-collector-y", "b.other"));
  EXPECT_TRUE(read_report(R"({"collectors": null})")->pods.empty());
  EXPECT_EQ(read_report(R"({"collectors": [1]})").error().message(),
            "failed to decode request body: each of collectors must be a string, not number");
  EXPECT_EQ(read_report(R"({"learners": "a"})").error().message(),
            "failed to decode request body: learners must be a list of names, not string");
}

TEST(FirstAnswerTest, ErrorsCarryWhatWasDone) {
  const http::Response early =
      failed({Code::kNotFound, "pod: default/not-exists not exists in cache"});
  EXPECT_EQ(early.status, 404);
  EXPECT_EQ(early.body,
            R"({"success":false,"code":1,"message":"pod: default/not-exists not exists in cache",)"
            R"("data":{"namespace":"","coordinator":"","collectors":null,"learners":null}})"
            "\n");
  const http::Response late =
      failed({Code::kInternal, "exceeded quota"}, {"n", "c", Urls{"a.n:80"}, std::nullopt});
  EXPECT_EQ(late.status, 500);
  EXPECT_THAT(late.body, HasSubstr(R"("collectors":["a.n:80"],"learners":null)"));
  EXPECT_EQ(not_implemented("PATCH").body,
            R"({"success":false,"code":1,"message":"PATCH not implemented","data":null})"
            "\n");
}

TEST(FirstGpuTest, O036_TiesResolveToTheLargerValue) {
  const std::int64_t tied[] = {1, 2, 2, 2, 2, 3, 3, 3, 3, 4};
  EXPECT_EQ(most_frequent(tied), 3);
  const std::int64_t clear[] = {5, 1, 1, 5, 1};
  EXPECT_EQ(most_frequent(clear), 1);
  EXPECT_EQ(most_frequent({}), 0);
}

std::vector<int> split_over(int gpus, std::initializer_list<std::pair<int, int>> nodes) {
  std::vector<std::int64_t> all;
  for (const auto& [has, times] : nodes)
    all.insert(all.end(), static_cast<std::size_t>(times), has);
  return split_gpus(gpus, all);
}

TEST(FirstGpuTest, O037_GpusAreSplitByTheUsualNode) {
  EXPECT_THAT(split_over(12, {{8, 4}, {10, 3}, {6, 3}}), ElementsAre(8, 4));
  EXPECT_THAT(split_over(16, {{8, 4}, {10, 3}, {6, 3}}), ElementsAre(8, 8));
  EXPECT_THAT(split_over(16, {{8, 4}, {10, 4}, {6, 3}}), ElementsAre(10, 6));
  EXPECT_THAT(split_over(8, {{8, 4}, {10, 4}, {6, 3}}), ElementsAre(8));
}

TEST(FirstGpuTest, NodesWithoutGpusDoNotHideTheOthers) {
  EXPECT_THAT(split_over(10, {{0, 9}, {4, 1}, {8, 1}}), ElementsAre(8, 2));
  EXPECT_THAT(split_over(10, {{0, 9}}), ElementsAre(10));
  EXPECT_THAT(split_over(10, {}), ElementsAre(10));
}

}  // namespace
}  // namespace divisi::server::first
