// Members: the list, and the stream that tells running workers of their peers.
#include "server/api_testing.h"

namespace divisi::server {
namespace {

using namespace testing;

constexpr const char* kMembers = "/v2alpha1/job/default.rl/members";

class MembersTest : public ApiFixture {
 protected:
  MembersTest() {
    put_tasks_job();
    put(kPods, pod("learner", 0, 0, "10.0.0.1"));
  }

  std::shared_ptr<Seen> follow() {
    return ask("GET", kMembers, "", {{"Accept", "text/event-stream"}});
  }
  // The members that the last event told.
  static std::string last_pods(const Seen& seen) {
    const std::size_t data = seen.body.rfind("data: ") + 6;
    const auto value = json::parse(seen.body.substr(data, seen.body.find('\n', data) - data));
    std::string names;
    const json::Value* members = value ? value->find("members") : nullptr;
    if (members == nullptr) return "no members";
    for (const json::Value& member : *members->as_array()) {
      names += fmt::format("{}={} ", *member.int_at({"rank"}), member.string_at({"pod"}));
    }
    return names;
  }
  static int events(const Seen& seen) {
    int count = 0;
    for (std::size_t at = 0; (at = seen.body.find("event: members\n", at)) != std::string::npos;
         ++at)
      ++count;
    return count;
  }
};

TEST_F(MembersTest, AreListedByRankWithAllThatAPeerNeeds) {
  json::Value ready = pod("collector", 1, 2, "10.0.0.3");
  ready["status"]["conditions"] = *json::parse(R"([{"type": "Ready", "status": "True"}])");
  put(kPods, ready);
  json::Value going = pod("collector", 0, 1, "10.0.0.2");
  going["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:30Z";
  put(kPods, going);
  wait_in_step();
  const auto seen = ask("GET", kMembers);
  EXPECT_EQ(seen->json(),
            *json::parse(R"({"success":true,"code":0,"message":"successfully get members",
    "data":{"members":[
    {"rank":0,"task":"learner","index":0,"pod":"rl-learner-0","host":"rl-learner-0.di-rl.default.svc.cluster.local",
     "ip":"10.0.0.1","port":22270,"ready":false},
    {"rank":2,"task":"collector","index":1,"pod":"rl-collector-1","host":"rl-collector-1.di-rl.default.svc.cluster.local",
     "ip":"10.0.0.3","port":22270,"ready":true}]}})"));
}

TEST_F(MembersTest, OfAPodOfAnotherJobOfThatNameAreNone) {
  json::Value stale = pod("collector", 0, 1, "10.0.0.2");
  stale["metadata"]["ownerReferences"] = *json::parse(
      R"([{"kind": "DIJob", "name": "rl", "uid": "of-an-older-one", "controller": true}])");
  put(kPods, stale);
  const auto seen = follow();
  EXPECT_EQ(last_pods(*seen), "0=rl-learner-0 ");
}

TEST_F(MembersTest, OD35_AStreamTellsAtOnceAndAtEachChange) {
  wait_in_step();
  const auto seen = follow();
  EXPECT_EQ(seen->status, 200);
  EXPECT_EQ(seen->headers.get("Content-Type"), "text/event-stream");
  EXPECT_EQ(seen->body.substr(0, 36), "event: members\ndata: {\"members\":[{\"r");
  EXPECT_EQ(seen->body.substr(seen->body.size() - 2), "\n\n");
  loop_.run_for(1s);
  EXPECT_EQ(events(*seen), 1);
  put(kPods, pod("collector", 0, 1, "10.0.0.2"));
  loop_.run_for(1s);
  EXPECT_EQ(last_pods(*seen), "0=rl-learner-0 1=rl-collector-0 ");
  remove(kPods, "rl-learner-0");
  loop_.run_for(1s);
  EXPECT_EQ(last_pods(*seen), "1=rl-collector-0 ");
  EXPECT_EQ(events(*seen), 3);
  json::Value same = pod("collector", 0, 1, "10.0.0.2");
  same["metadata"]["annotations"]["seen"] = "yes";
  put(kPods, same);
  loop_.run_for(1s);
  EXPECT_EQ(events(*seen), 3) << "a change that shows in no list";
  EXPECT_FALSE(seen->finished);
}

TEST_F(MembersTest, AStreamOfAServerThatHasJustStartedIsRightFromTheBeginning) {
  restart();
  const auto seen = ask("GET", std::string(kMembers) + "?watch=true");
  EXPECT_EQ(last_pods(*seen), "0=rl-learner-0 ");
  put(kPods, pod("collector", 0, 1, "10.0.0.2"));
  loop_.run_for(5s);
  EXPECT_EQ(last_pods(*seen), "0=rl-learner-0 1=rl-collector-0 ");
}

TEST_F(MembersTest, WhatChangesTogetherIsToldTogether) {
  wait_in_step();
  const auto seen = follow();
  for (int i = 0; i < 16; ++i) put(kPods, pod("collector", i, i + 1, "10.0.0.2"));
  loop_.run_for(5s);
  EXPECT_LE(events(*seen), 3);
  EXPECT_NE(last_pods(*seen).find("16=rl-collector-15"), std::string::npos);
}

TEST_F(MembersTest, AStreamSaysThatItIsStillThere) {
  const auto seen = follow();
  loop_.run_for(31s);
  const std::size_t first = seen->body.find(": still here\n\n");
  ASSERT_NE(first, std::string::npos);
  EXPECT_NE(seen->body.find(": still here\n\n", first + 1), std::string::npos);
}

TEST_F(MembersTest, AStreamEndsWhenItsJobIsGone) {
  wait_in_step();
  const auto seen = follow();
  put_tasks_job("other");
  const auto other = ask("GET", "/v2alpha1/job/default.other/members?watch=true");
  remove(kJobs, "rl");
  loop_.run_for(1s);
  EXPECT_TRUE(seen->body.ends_with("event: gone\ndata: {}\n\n")) << seen->body;
  EXPECT_TRUE(seen->finished);
  EXPECT_FALSE(other->finished);
}

TEST_F(MembersTest, AStreamEndsAlsoWhenAnotherJobTookTheName) {
  wait_in_step();
  const auto seen = follow();
  cluster_.cut_all_streams();  // the cache will see only the new one
  cluster_.store.compact();
  remove(kJobs, "rl");
  put_tasks_job();
  cluster_.store.compact();
  loop_.run_for(2min);
  EXPECT_TRUE(seen->finished);
  EXPECT_TRUE(seen->body.ends_with("event: gone\ndata: {}\n\n"));
}

TEST_F(MembersTest, AStreamOfAJobThatTheCacheNeverSawEndsToo) {
  wait_in_step();
  cluster_.faults.silence = 1;
  put_tasks_job("brief");
  const auto seen = ask("GET", "/v2alpha1/job/default.brief/members?watch=true");
  EXPECT_EQ(seen->status, 200);
  remove(kJobs, "brief");
  loop_.run_for(16s);
  EXPECT_TRUE(seen->finished);
}

TEST_F(MembersTest, AReaderThatDoesNotReadIsDropped) {
  wait_in_step();
  const auto slow = follow();
  const auto good = follow();
  slow->unsent = 1 << 20;
  put(kPods, pod("collector", 0, 1, "10.0.0.2"));
  loop_.run_for(1s);
  EXPECT_TRUE(slow->dropped);
  EXPECT_EQ(last_pods(*good), "0=rl-learner-0 1=rl-collector-0 ");
}

TEST_F(MembersTest, AReaderThatGoesIsForgotten) {
  wait_in_step();
  const auto seen = follow();
  EXPECT_NE(ask("GET", "/metrics")->body.find("divisi_server_member_streams 1"), std::string::npos);
  seen->gone();
  EXPECT_TRUE(seen->dropped);
  EXPECT_NE(ask("GET", "/metrics")->body.find("divisi_server_member_streams 0"), std::string::npos);
  put(kPods, pod("collector", 0, 1, "10.0.0.2"));
  loop_.run_for(1min);
  EXPECT_EQ(events(*seen), 1);
}

TEST_F(MembersTest, AStreamFollowsThroughFaultsOfTheWatch) {
  wait_in_step();
  cluster_.faults.cut_stream = 0.2;
  cluster_.faults.garbage = 0.1;
  cluster_.faults.repeat_event = 0.2;
  cluster_.faults.compact = 0.2;
  const auto seen = follow();
  for (int round = 0; round < 50; ++round) {
    if (round % 2 == 0) {
      put(kPods, pod("collector", round, round + 1, "10.0.0.2"));
    } else {
      remove(kPods, fmt::format("rl-collector-{}", round - 1));
    }
    loop_.run_for(100ms);
  }
  put(kPods, pod("evaluator", 0, 3, "10.0.0.4"));
  cluster_.faults = {};
  loop_.run_for(10min);
  EXPECT_EQ(last_pods(*seen), "0=rl-learner-0 3=rl-evaluator-0 ");
}

}  // namespace
}  // namespace divisi::server
