// Replicas: where they are, and more or fewer of them.
#include "server/api_testing.h"

#include <vector>

namespace divisi::server {
namespace {

using namespace testing;

class ReplicasTest : public ApiFixture {
 protected:
  void put_running_pods() {
    put(kPods, pod("learner", 0, 0, "10.0.0.1"));
    put(kPods, pod("collector", 0, 1, "10.0.0.2"));
    json::Value ported = pod("collector", 1, 2, "10.0.0.3");
    ported["spec"]["containers"] = *json::parse(
        R"([{"name": "side"}, {"name": "di-container", "ports": [{"name": "di-port", "containerPort": 80}]}])");
    put(kPods, ported);
    put(kPods, pod("evaluator", 0, 3, ""));
  }
  std::string data_of(const Seen& seen) const {
    const json::Value answer = seen.json();
    const json::Value* data = answer.find("data");
    return data == nullptr ? "missing" : json::print(*data);
  }
};

TEST_F(ReplicasTest, O077_AreListedByRankWithTheirPorts) {
  put_tasks_job();
  put_running_pods();
  wait_in_step();
  const auto seen = ask("GET", "/v2alpha1/job/default.rl/replicas", "{}");
  EXPECT_EQ(seen->status, 200);
  EXPECT_EQ(seen->json(),
            *json::parse(R"({"success":true,"code":0,"message":"successfully get replicas",
      "data":["10.0.0.1:22270","10.0.0.2:22270","10.0.0.3:80",""]})"));
}

TEST_F(ReplicasTest, O077_AreNullWhenNoneHasAnAddress) {
  put_tasks_job();
  put(kPods, pod("learner", 0, 0, ""));
  wait_in_step();
  EXPECT_EQ(data_of(*ask("GET", "/v2alpha1/job/default.rl/replicas")), "null");
}

TEST_F(ReplicasTest, O077_OfATemplateFormAreThoseOfTheGangThatRuns) {
  put_template_job(3);
  put(kPods, gang_pod(2, 0, "10.0.0.8"));
  put(kPods, gang_pod(3, 0, "10.0.0.1"));
  put(kPods, gang_pod(3, 1, "10.0.0.2"));
  wait_in_step();
  EXPECT_EQ(data_of(*ask("GET", "/v2alpha1/job/default.gang.3/replicas")),
            R"(["10.0.0.1:22270","10.0.0.2:22270",""])");
}

TEST_F(ReplicasTest, AResizeLeavesABudgetWithoutALimitInTheSpec) {
  put(kJobs, *json::parse(R"({"metadata": {"name": "rl"}, "spec": {"tasks": [
      {"type": "collector", "name": "collector", "replicas": 2, "backoffLimit": null,
       "template": {"spec": {"containers": [{"name": "a", "image": "i"}]}}}]},
      "status": {"phase": "Running"}})"));
  wait_in_step();
  EXPECT_EQ(ask("POST", "/v2alpha1/job/default.rl/replicas", R"({"replicas": 3})")->status, 200);
  const json::Value job = this->job();
  const json::Value& collector = job.find_path({"spec", "tasks"})->as_array()->front();
  EXPECT_EQ(collector.int_at({"replicas"}), 5);
  ASSERT_NE(collector.find("backoffLimit"), nullptr);
  EXPECT_TRUE(collector.find("backoffLimit")->is_null());
}

TEST_F(ReplicasTest, O077_AnAddressOfIPv6IsInBrackets) {
  put_tasks_job();
  put(kPods, pod("learner", 0, 0, "fd00::1"));
  EXPECT_EQ(data_of(*ask("GET", "/v2alpha1/job/default.rl/replicas")),
            R"(["[fd00::1]:22270","","",""])");
}

TEST_F(ReplicasTest, OD35_FollowAResizeAndLeaveOutThoseThatGo) {
  put_tasks_job();
  put_running_pods();
  wait_in_step();
  json::Value going = pod("collector", 1, 2, "10.0.0.3");
  going["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:30Z";
  put(kPods, going);
  json::Value ended = pod("collector", 0, 1, "10.0.0.2");
  ended["status"]["phase"] = "Failed";
  put(kPods, ended);
  put(kPods, pod("collector", 2, 5, "10.0.0.7"));  // after others came and went
  loop_.run_for(1s);
  EXPECT_EQ(data_of(*ask("GET", "/v2alpha1/job/default.rl/replicas")),
            R"(["10.0.0.1:22270","","","","","10.0.0.7:22270"])");
}

TEST_F(ReplicasTest, ARankThatCannotBeTakesNoMemory) {
  put_tasks_job();
  put(kPods, pod("learner", 0, 0, "10.0.0.1"));
  put(kPods, pod("collector", 0, 2'000'000'000, "10.0.0.2"));
  EXPECT_EQ(data_of(*ask("GET", "/v2alpha1/job/default.rl/replicas")),
            R"(["10.0.0.1:22270","","",""])");
}

TEST_F(ReplicasTest, O078_AMalformedIdIs400AndAnUnknownJob404) {
  const auto bad = ask("GET", "/v2alpha1/job/rl/replicas");
  EXPECT_EQ(bad->status, 400);
  EXPECT_EQ(bad->json(), *json::parse(R"({"success":false,"code":1,
      "message":"job id rl must be in namespace.name format","data":null})"));
  EXPECT_EQ(ask("GET", "/v2alpha1/job/a.b.c.d/replicas")->message(),
            "job id a.b.c.d must be in namespace.name.generation format");
  put_template_job(3);
  EXPECT_EQ(ask("GET", "/v2alpha1/job/default.gang.x/replicas")->message(),
            "request generation x is not a valid number");
  const auto old = ask("GET", "/v2alpha1/job/default.gang.2/replicas");
  EXPECT_EQ(old->status, 400);
  EXPECT_EQ(old->message(), "request generation 2 is not matched with job generation 3");
  for (const char* method : {"GET", "POST"}) {
    EXPECT_EQ(ask(method, "/v2alpha1/job/default.none/replicas", R"({"replicas":1})")->status, 404);
  }
}

TEST_F(ReplicasTest, OD26_AMissingJobIs404ForEveryVerb) {
  wait_in_step();
  const auto seen = ask("DELETE", "/v2alpha1/job/default.none/replicas", R"({"replicas":1})");
  EXPECT_EQ(seen->status, 404);
  EXPECT_EQ(seen->message(), "DIJob: default/none not exists");
  EXPECT_EQ(ask("POST", "/v2alpha1/job/default.none/profilings", R"({"a":1})")->status, 404);
  EXPECT_EQ(ask("GET", "/v2alpha1/job/default.none/members?watch=true")->status, 404);
}

TEST_F(ReplicasTest, OD39_EveryFormOfAnIdAndOfAPathIsUnderstood) {
  put_tasks_job();
  put_template_job(3);
  wait_in_step();
  for (const char* path :
       {"/v2alpha1/job/default.rl/replicas", "/v2alpha1/job/default.rl.7/replicas",
        "/v2alpha1/job/default.rl.any/replicas", "/v2alpha1/job/default/rl/replicas",
        "/v2alpha1/job/default%2Frl/replicas", "/v2alpha1/default.rl/replicas",
        "/v2alpha1/default.rl.0/replicas", "//v2alpha1/job/default.rl/replicas?x=y",
        "/v2alpha1/job/default.gang/replicas", "/v2alpha1/job/default.gang.3/replicas",
        "/v2alpha1/job/default/gang/replicas", "/v2alpha1/default.gang.3/replicas"}) {
    EXPECT_EQ(ask("GET", path, "{}")->status, 200) << path;
  }
}

TEST_F(ReplicasTest, UnknownRoutesAndMethodsArePlain404) {
  put_tasks_job();
  for (const auto& [method, path] : std::vector<std::pair<std::string, std::string>>{
           {"GET", "/"},
           {"GET", "/v2alpha1"},
           {"GET", "/v1alpha1"},
           {"POST", "/v1alpha1/replicas/other"},
           {"POST", "/v2alpha1/job/default.rl/nothing"},
           {"DELETE", "/v2alpha1/job/default.rl"},
           {"PUT", "/v2alpha1/job/default.rl/replicas"},
           {"DELETE", "/v2alpha1/job/default.rl/profilings"},
           {"POST", "/v2alpha1/job/default.rl/members"},
           {"GET", "/v2alpha1/job/default/rl/more/replicas"}}) {
    const auto seen = ask(method, path, "{}");
    EXPECT_EQ(seen->status, 404) << method << " " << path;
    EXPECT_EQ(seen->body, "404 page not found\n");
  }
}

TEST_F(ReplicasTest, O079_AreAddedAndDeletedInTheCollectorTask) {
  put_tasks_job();
  wait_in_step();
  const auto more =
      ask("POST", "/v2alpha1/job/default.rl/replicas", R"({"replicas": 3, "cpu": "1"})");
  EXPECT_EQ(more->json(), *json::parse(R"({"success":true,"code":0,
      "message":"successfully add replicas","data":null})"));
  EXPECT_EQ(replicas_of(1), 5);
  const auto fewer = ask("DELETE", "/v2alpha1/job/default.rl/replicas", R"({"replicas": 2})");
  EXPECT_EQ(fewer->json(), *json::parse(R"({"success":true,"code":0,
      "message":"successfully delete replicas","data":null})"));
  EXPECT_EQ(replicas_of(1), 3);
  EXPECT_EQ(replicas_of(0), 1);
  EXPECT_EQ(replicas_of(2), 1);
}

TEST_F(ReplicasTest, NobodyIsRefusedOnTheWordOfTheCache) {
  put_tasks_job();
  wait_in_step();
  cluster_.faults.late_events = 1;  // the cache still has two collectors
  ask("POST", "/v2alpha1/job/default.rl/replicas", R"({"replicas": 3})");
  const auto fewer = ask("DELETE", "/v2alpha1/job/default.rl/replicas", R"({"replicas": 4})");
  EXPECT_EQ(fewer->status, 200) << fewer->body;
  EXPECT_EQ(replicas_of(1), 1);
}

TEST_F(ReplicasTest, OD05_ReallyChangeTheJobInBothForms) {
  put_tasks_job();
  put_template_job(3);
  ask("POST", "/v2alpha1/job/default.rl/replicas", R"({"replicas": 1, "task": "evaluator"})");
  EXPECT_EQ(replicas_of(2), 2);
  EXPECT_EQ(replicas_of(1), 2);
  ask("POST", "/v2alpha1/job/default.gang.3/replicas", R"({"replicas": 2})");
  EXPECT_EQ(job("gang").int_at({"status", "replicas"}), 5);
  const auto beyond = ask("POST", "/v2alpha1/job/default.gang.3/replicas", R"({"replicas": 1})");
  EXPECT_EQ(beyond->status, 409);
  EXPECT_EQ(beyond->message(),
            "job default/gang has 5 replicas: 1 cannot be added, at most 5 are allowed");
  EXPECT_EQ(ask("DELETE", "/v2alpha1/job/default.gang/replicas", R"({"replicas": 4})")->status,
            409);
  EXPECT_EQ(job("gang").int_at({"status", "replicas"}), 5);
  ask("DELETE", "/v2alpha1/job/default.gang/replicas", R"({"replicas": 3})");
  EXPECT_EQ(job("gang").int_at({"status", "replicas"}), 2);
}

TEST_F(ReplicasTest, OfAPreemptibleGangAreAWishToTheAllocator) {
  put_template_job(3);
  json::Value gang = job("gang");
  gang["spec"]["preemptible"] = true;
  cluster_.store.update(kJobs, "default/gang", gang);
  ask("POST", "/v2alpha1/job/default.gang/replicas", R"({"replicas": 1})");
  EXPECT_EQ(job("gang").int_at({"spec", "replicas"}), 4);
  EXPECT_EQ(job("gang").int_at({"status", "replicas"}), 3) << "that is the allocator's to write";
  ask("POST", "/v2alpha1/job/default.gang/replicas", R"({"replicas": 1})");
  EXPECT_EQ(job("gang").int_at({"spec", "replicas"}), 5);
}

TEST_F(ReplicasTest, AServerThatMayNotListSaysSo) {
  cluster_.intercept = [](const http::Request& request) {
    return request.target.find("/dijobs") == std::string::npos
               ? std::nullopt
               : std::optional(kube::status_answer(403, "Forbidden", "nobody may list dijobs"));
  };
  restart();
  loop_.run_for(10s);
  const auto seen = ask("GET", "/readyz?verbose");
  EXPECT_EQ(seen->status, 503);
  EXPECT_NE(seen->body.find("nobody may list dijobs"), std::string::npos) << seen->body;
}

TEST_F(ReplicasTest, NeverGoBelowOne) {
  put_tasks_job();
  const auto seen = ask("DELETE", "/v2alpha1/job/default.rl/replicas", R"({"replicas": 2})");
  EXPECT_EQ(seen->status, 409);
  EXPECT_EQ(seen->message(), "task collector has 2 replicas: 2 cannot be deleted, at least 1 stay");
  EXPECT_EQ(replicas_of(1), 2);
}

TEST_F(ReplicasTest, ASizeThatCannotRunIs400InTheOperatorsWords) {
  put_tasks_job();
  put_template_job(3);
  json::Value open = job("gang");
  open["spec"].erase("maxReplicas");
  put(kJobs, open);
  wait_in_step();
  const std::uint64_t before = cluster_.store.version();
  for (const char* id : {"rl", "gang"}) {
    const auto seen =
        ask("POST", fmt::format("/v2alpha1/job/default.{}/replicas", id), R"({"replicas": 3000})");
    EXPECT_EQ(seen->status, 400);
    EXPECT_EQ(seen->message().substr(0, 41), "the hosts of the job would make DI_NODES ") << id;
  }
  const auto most =
      ask("POST", "/v2alpha1/job/default.rl/replicas", R"({"replicas": 10000, "task": "learner"})");
  EXPECT_EQ(most->status, 400);
  EXPECT_EQ(most->message(), "the job asks for 10001 replicas; more than 10000 are refused");
  EXPECT_EQ(cluster_.store.version(), before);
}

TEST_F(ReplicasTest, OfATaskThatAFileKeepsAreInSpecReplicasAlone) {
  put_tasks_job();
  json::Value applied = job();
  applied["metadata"]["annotations"]["kubectl.kubernetes.io/last-applied-configuration"] = "{}";
  put(kJobs, applied);
  wait_in_step();
  ask("POST", "/v2alpha1/job/default.rl/replicas", R"({"replicas": 3})");
  EXPECT_EQ(replicas_of(1), 2);
  EXPECT_EQ(job().int_at({"spec", "replicas"}), 5);
  json::Value chosen = job();
  chosen["status"]["sizes"] = *json::parse(R"({"spec": 5, "task": 2, "size": 5})");
  put(kJobs, chosen);
  loop_.run_for(1s);
  ask("DELETE", "/v2alpha1/job/default.rl/replicas", R"({"replicas": 1})");
  EXPECT_EQ(job().int_at({"spec", "replicas"}), 4);
  ask("POST", "/v2alpha1/job/default.rl/replicas", R"({"replicas": 1, "task": "evaluator"})");
  EXPECT_EQ(replicas_of(2), 2) << "no other field carries it";
}

TEST_F(ReplicasTest, EveryBadBodyIs400WithItsReason) {
  put_tasks_job();
  wait_in_step();
  const std::uint64_t before = cluster_.store.version();
  for (const auto& [body, message] : std::vector<std::pair<std::string, std::string>>{
           {"", "failed to decode request body: EOF"},
           {"  \n", "failed to decode request body: EOF"},
           {"{", "failed to decode request body: "},
           {"[1]", "failed to decode request body: it must be an object, not array"},
           {"{}", "the request has no replicas"},
           {R"({"replicas": 0})", "replicas must be a whole number from 1 to 10000"},
           {R"({"replicas": -1})", "replicas must be a whole number from 1 to 10000"},
           {R"({"replicas": 1.5})", "replicas must be a whole number from 1 to 10000"},
           {R"({"replicas": "2"})", "replicas must be a whole number from 1 to 10000"},
           {R"({"replicas": null})", "replicas must be a whole number from 1 to 10000"},
           {R"({"replicas": 10001})", "replicas must be a whole number from 1 to 10000"},
           {R"({"replicas": 99999999999999999999})", ""},
           {R"({"replicas": 1, "replicas": 1})", "failed to decode request body: "},
           {R"({"replicas": 1, "task": 5})", "task must be a string, not number"},
           {R"({"replicas": 1, "task": "no"})", "job default/rl has no task named no"},
           {std::string(100, '['), "failed to decode request body: "}}) {
    for (const char* method : {"POST", "DELETE"}) {
      const auto seen = ask(method, "/v2alpha1/job/default.rl/replicas", body);
      EXPECT_EQ(seen->status, 400) << body;
      EXPECT_EQ(seen->message().substr(0, message.size()), message) << body;
      EXPECT_EQ(seen->message().find_first_of("'\""), std::string::npos) << seen->message();
    }
  }
  EXPECT_EQ(cluster_.store.version(), before);
}

TEST_F(ReplicasTest, AJobWithoutATaskToScaleSaysSo) {
  put(kJobs, *json::parse(R"({"metadata": {"name": "two"}, "spec": {"tasks": [
      {"type": "none", "name": "a", "template": {"spec": {"containers": [{"name": "a"}]}}},
      {"type": "none", "name": "b", "template": {"spec": {"containers": [{"name": "a"}]}}}]}})"));
  const auto seen = ask("POST", "/v2alpha1/job/default.two/replicas", R"({"replicas": 1})");
  EXPECT_EQ(seen->status, 400);
  EXPECT_EQ(seen->message(),
            "job default/two has several tasks and none of type collector: say which with task");
  put_template_job(3);
  EXPECT_EQ(
      ask("POST", "/v2alpha1/job/default.gang/replicas", R"({"replicas": 1, "task": "a"})")->status,
      400);
  put(kJobs, *json::parse(R"({"metadata": {"name": "old"}, "spec": {"coordinator": {}}})"));
  EXPECT_EQ(ask("GET", "/v2alpha1/job/default.old/replicas")->status, 400);
}

TEST_F(ReplicasTest, AJobThatHasEndedIsNotResized) {
  put_tasks_job();
  json::Value ended = job();
  ended["status"]["phase"] = "Succeeded";
  put(kJobs, ended);
  const auto seen = ask("POST", "/v2alpha1/job/default.rl/replicas", R"({"replicas": 1})");
  EXPECT_EQ(seen->status, 409);
  EXPECT_EQ(replicas_of(1), 2);
}

TEST_F(ReplicasTest, AWishOfKubectlScaleThatTheOperatorHasNotSeenCounts) {
  put_tasks_job();
  json::Value scaled = job();
  scaled["spec"]["replicas"] = 16;
  scaled["status"]["sizes"] = *json::parse(R"({"spec": 2, "task": 2, "size": 2})");
  put(kJobs, scaled);
  ask("POST", "/v2alpha1/job/default.rl/replicas", R"({"replicas": 1})");
  EXPECT_EQ(replicas_of(1), 17);
  EXPECT_EQ(job().int_at({"spec", "replicas"}), 17);
}

TEST_F(ReplicasTest, OD24_TheFirstRequestOfAServerIsAnsweredAsAnyLaterOne) {
  put_tasks_job();
  put_running_pods();
  restart();
  const auto seen = send({"GET", "/v2alpha1/job/default.rl/replicas", {}, "{}"});
  const auto ready = send({"GET", "/readyz", {}, ""});
  EXPECT_EQ(ready->status, 503);
  EXPECT_EQ(send({"GET", "/healthz", {}, ""})->status, 200);
  loop_.run_until([&] { return seen->status != 0; });
  EXPECT_EQ(seen->status, 200);
  EXPECT_EQ(data_of(*seen), R"(["10.0.0.1:22270","10.0.0.2:22270","10.0.0.3:80",""])");
  wait_in_step();
  EXPECT_EQ(ask("GET", "/readyz")->status, 200);
}

TEST_F(ReplicasTest, OD24_AJobThatTheCacheHasNotSeenYetIsReadLive) {
  wait_in_step();
  cluster_.faults.silence = 1;  // the watches tell nothing more
  put_tasks_job();
  put_running_pods();
  loop_.run_for(1s);
  EXPECT_EQ(data_of(*ask("GET", "/v2alpha1/job/default.rl/replicas")),
            R"(["10.0.0.1:22270","10.0.0.2:22270","10.0.0.3:80",""])");
  EXPECT_EQ(ask("POST", "/v2alpha1/job/default.rl/replicas", R"({"replicas": 1})")->status, 200);
  EXPECT_EQ(replicas_of(1), 3);
}

TEST_F(ReplicasTest, NoneOfManyRequestsThroughTwoServersIsLost) {
  put_tasks_job();
  wait_in_step();
  Replica other(loop_, cluster_, {});
  loop_.run_until([&] { return other.api.in_step(); });
  std::vector<std::shared_ptr<Seen>> answers;
  for (int i = 0; i < 50; ++i) {
    answers.push_back(send({"POST", "/v2alpha1/job/default.rl/replicas", {}, R"({"replicas": 1})"},
                           i % 2 == 0 ? nullptr : &other));
  }
  loop_.run_for(1min);
  for (const auto& seen : answers) EXPECT_EQ(seen->status, 200) << seen->body;
  EXPECT_EQ(replicas_of(1), 52);
}

TEST_F(ReplicasTest, AStormOfConflictsDelaysAndLosesNothing) {
  put_tasks_job();
  wait_in_step();
  cluster_.faults.conflict = 0.8;
  std::vector<std::shared_ptr<Seen>> answers;
  for (int i = 0; i < 5; ++i) {
    answers.push_back(
        send({"POST", "/v2alpha1/job/default.rl/replicas", {}, R"({"replicas": 1})"}));
  }
  loop_.run_for(2min);
  std::int64_t taken = 0;
  for (const auto& seen : answers) {
    ASSERT_TRUE(seen->status == 200 || seen->status == 409) << seen->body;
    taken += seen->status == 200 ? 1 : 0;
  }
  EXPECT_EQ(replicas_of(1), 2 + taken);
  EXPECT_GT(taken, 0);
}

TEST_F(ReplicasTest, WhatTheClusterRefusesUsIs500WithItsWords) {
  put_tasks_job();
  wait_in_step();
  cluster_.intercept = [](const http::Request& request) -> std::optional<http::Response> {
    if (request.method != "PATCH") return std::nullopt;
    return kube::status_answer(403, "Forbidden", "di-server cannot patch \"dijobs\"");
  };
  const auto seen = ask("POST", "/v2alpha1/job/default.rl/replicas", R"({"replicas": 1})");
  EXPECT_EQ(seen->status, 500);
  EXPECT_NE(seen->message().find("di-server cannot patch `dijobs`"), std::string::npos);
}

TEST_F(ReplicasTest, AJobThatIsDeletedWhileItIsResizedIs404) {
  put_tasks_job();
  wait_in_step();
  const auto seen = send({"POST", "/v2alpha1/job/default.rl/replicas", {}, R"({"replicas": 1})"});
  remove(kJobs, "rl");
  loop_.run_until([&] { return seen->status != 0; });
  EXPECT_EQ(seen->status, 404);
}

TEST_F(ReplicasTest, RequestsAndJobsAreCounted) {
  put_tasks_job();
  wait_in_step();
  ask("GET", "/v2alpha1/job/default.rl/replicas");
  ask("BREW", "/pot");
  const std::string text = ask("GET", "/metrics")->body;
  for (const char* line :
       {"divisi_server_requests_total{code=\"200\",method=\"GET\",route=\"replicas\"} 1",
        "divisi_server_requests_total{code=\"404\",method=\"other\",route=\"none\"} 1",
        "divisi_server_jobs{phase=\"Running\"} 1", "divisi_server_jobs{phase=\"Failed\"} 0"}) {
    EXPECT_NE(text.find(line), std::string::npos) << line << " in\n" << text;
  }
}

TEST_F(ReplicasTest, AServerThatEndsWhileRequestsRunAnswersNoneOfThem) {
  put_tasks_job();
  restart();
  const auto live = send({"GET", "/v2alpha1/job/default.rl/replicas", {}, ""});
  wait_in_step();
  const auto write = send({"POST", "/v2alpha1/job/default.rl/replicas", {}, R"({"replicas": 1})"});
  server_.reset();
  loop_.run_for(1min);
  EXPECT_EQ(write->status, 0);
  EXPECT_TRUE(write->dropped);
}

}  // namespace
}  // namespace divisi::server
