#include "kube/controller.h"

#include "kube/expectations.h"
#include "kube/lease.h"
#include "kube/recorder.h"
#include "kube/testing/fake_api.h"
#include "kube/time.h"

#include <gmock/gmock.h>

namespace divisi::kube {
namespace {

using namespace std::chrono_literals;
using testing::FakeApi;
using testing::SimLoop;

constexpr const char* kPods = "/api/v1/pods";
constexpr const char* kEvents = "/api/v1/events";

class ControllerTest : public ::testing::Test {
 protected:
  json::Value pod(const std::string& name) {
    json::Value made;
    made["apiVersion"] = "v1";
    made["kind"] = "Pod";
    made["metadata"]["name"] = name;
    made["metadata"]["namespace"] = "default";
    return made;
  }
  void create(const std::string& name) {
    api_.store.create(kPods, "default/" + name, pod(name), "2026-01-01T00:00:00Z");
    api_.bookmark();
  }
  static std::vector<std::string> own_key(const Object& object) { return {object.key()}; }

  SimLoop loop_;
  FakeApi api_{loop_, 1};
  Client client_{loop_, api_};
  Informer pods_{client_, {.reflector = {.resource = resources::pods()}}};
};

TEST_F(ControllerTest, WhatItDoesIsCountedAndTimed) {
  Metrics metrics;
  int failures = 2;
  {
    Controller controller(loop_, {.name = "test", .metrics = &metrics},
                          [&](const std::string&, const auto& done) {
                            if (failures-- > 0) return done(failure(Code::kUnavailable, "not yet"));
                            loop_.post([done] { done(Requeue{}); });
                          });
    controller.add("a");
    controller.start();
    ASSERT_TRUE(loop_.run_until([&] { return controller.counters().succeeded == 1; }));
    const std::string text = metrics.text();
    for (const char* line : {
             "# TYPE controller_runtime_reconcile_total counter\n",
             "controller_runtime_reconcile_total{controller=\"test\",result=\"error\"} 2\n",
             "controller_runtime_reconcile_total{controller=\"test\",result=\"success\"} 1\n",
             "controller_runtime_reconcile_time_seconds_count{controller=\"test\"} 3\n",
             "workqueue_queue_duration_seconds_count{name=\"test\"} 3\n",
             "workqueue_adds_total{name=\"test\"} 3\n",
             "workqueue_retries_total{name=\"test\"} 2\n",
             "workqueue_depth{name=\"test\"} 0\n",
         }) {
      EXPECT_THAT(text, ::testing::HasSubstr(line));
    }
  }
  EXPECT_THAT(metrics.text(), ::testing::HasSubstr("workqueue_adds_total{name=\"test\"} 0\n"))
      << "read after the controller is gone";
}

TEST_F(ControllerTest, C9_ReconcilesWhatIsThereAndWhatChangesOnceEach) {
  std::vector<std::string> seen;
  Controller controller(loop_, {.name = "test"}, [&](const std::string& key, const auto& done) {
    EXPECT_TRUE(pods_.synced()) << "not before the cache is in step";
    seen.push_back(key);
    done(Requeue{});
  });
  controller.watch(pods_, own_key);
  create("a");
  create("b");
  controller.start();
  pods_.start();
  ASSERT_TRUE(loop_.run_until([&] { return seen.size() == 2; }));
  create("c");
  loop_.run_for(1s);
  EXPECT_EQ(seen, (std::vector<std::string>{"default/a", "default/b", "default/c"}));
  EXPECT_EQ(controller.counters().succeeded, 3u);
}

TEST_F(ControllerTest, C32_AFailureIsTriedAgainAndARequeueComesAtItsTime) {
  int tries = 0;
  io::TimePoint succeeded{};
  Controller controller(loop_, {.name = "test"}, [&](const std::string&, const auto& done) {
    if (++tries <= 3) return done(failure(Code::kConflict, "somebody was faster"));
    if (tries == 4) succeeded = loop_.now();
    done(Requeue{tries == 4 ? 30s : 0s});
  });
  controller.watch(pods_, own_key);
  create("a");
  controller.start();
  pods_.start();
  ASSERT_TRUE(loop_.run_until([&] { return tries == 5; }, 5min));
  EXPECT_EQ(loop_.now() - succeeded, 30s);
  loop_.run_for(1h);
  EXPECT_EQ(tries, 5);
  EXPECT_EQ(controller.counters().failed, 3u);
}

TEST_F(ControllerTest, ASuccessForgetsTheFailuresBefore) {
  std::vector<io::TimePoint> tries;
  Controller controller(loop_, {.name = "test"}, [&](const std::string&, const auto& done) {
    tries.push_back(loop_.now());
    if (tries.size() == 4) return done(Requeue{});
    done(failure(Code::kInternal, "a fault"));
  });
  controller.watch(pods_, own_key);
  create("a");
  controller.start();
  pods_.start();
  ASSERT_TRUE(loop_.run_until([&] { return tries.size() == 4; }, 5min));
  controller.add("default/a");  // fails again
  ASSERT_TRUE(loop_.run_until([&] { return tries.size() == 6; }, 5min));
  EXPECT_EQ(tries[5] - tries[4], tries[1] - tries[0]);
  EXPECT_LT(tries[1] - tries[0], tries[3] - tries[2]);
}

TEST_F(ControllerTest, AKeyIsReconciledByOneAtATimeAndAllByNoMoreThanTheWorkers) {
  std::map<std::string, std::function<void(Result<Requeue>)>> running;
  std::size_t most = 0;
  Controller controller(loop_, {.name = "test", .workers = 3},
                        [&](const std::string& key, auto done) {
                          EXPECT_FALSE(running.contains(key));
                          running[key] = std::move(done);
                          most = std::max(most, running.size());
                        });
  controller.watch(pods_, own_key);
  for (int i = 0; i < 10; ++i) create("p" + std::to_string(i));
  controller.start();
  pods_.start();
  int ended = 0;
  for (; ended < 11; ++ended) {
    ASSERT_TRUE(loop_.run_until([&] { return !running.empty(); })) << ended;
    loop_.run_for(10ms);
    const auto first = running.begin();
    const auto done = std::move(first->second);
    if (ended == 0) controller.add(first->first);  // once more
    running.erase(first);
    done(Requeue{});
  }
  loop_.run_for(1s);
  EXPECT_EQ(running.size(), 0u);
  EXPECT_EQ(most, 3u);
}

TEST_F(ControllerTest, C43_StoppingWaitsForWhatRunsAndTakesNothingMore) {
  std::function<void(Result<Requeue>)> running;
  int started = 0;
  Controller controller(loop_, {.name = "test", .workers = 1}, [&](const std::string&, auto done) {
    ++started;
    running = std::move(done);
  });
  controller.watch(pods_, own_key);
  create("a");
  create("b");
  controller.start();
  pods_.start();
  ASSERT_TRUE(loop_.run_until([&] { return started == 1; }));
  bool drained = false;
  controller.stop([&] { drained = true; });
  loop_.run_for(1s);
  EXPECT_FALSE(drained);
  running(Requeue{});
  loop_.run_for(1s);
  EXPECT_TRUE(drained);
  EXPECT_EQ(started, 1);
}

TEST(ExpectationsTest, C11_AKeyWaitsUntilAllIsSeenOrTooOld) {
  SimLoop loop;
  Expectations expectations(loop);
  EXPECT_TRUE(expectations.satisfied("job"));
  expectations.expect_created("job", "job-0");
  expectations.expect_created("job", "job-1");
  expectations.expect_deleted("job", "uid");
  expectations.created("job", "job-0");
  expectations.created("job", "job-0");  // the same event twice
  expectations.created("other", "job-1");
  EXPECT_FALSE(expectations.satisfied("job"));
  expectations.created("job", "job-1");
  EXPECT_FALSE(expectations.satisfied("job"));
  expectations.deleted("job", "uid");
  EXPECT_TRUE(expectations.satisfied("job"));
  expectations.expect_created("job", "job-2");
  loop.run_for(4min);
  EXPECT_FALSE(expectations.satisfied("job"));
  loop.run_for(1min);
  EXPECT_TRUE(expectations.satisfied("job"))
      << "an event that never comes holds up nothing for ever";
}

class RecorderTest : public ControllerTest {
 protected:
  RecorderTest() {
    about_ = api_.store.create(kPods, "default/a", pod("a"), "2026-01-01T00:00:00Z");
  }
  std::vector<json::Value> events() {
    loop_.run_for(10s);
    std::vector<json::Value> found;
    for (const auto& [key, event] : api_.store.all(kEvents)) found.push_back(event);
    return found;
  }
  json::Value about_;
  EventRecorder recorder_{client_,
                          {.component = "test", .wall_clock = [this] { return loop_.wall(); }}};
};

TEST_F(RecorderTest, AnEventNamesItsObjectAndWhoTells) {
  recorder_.record(about_, "Warning", "Failed", "it went wrong");
  const auto told = events();
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].string_at({"involvedObject", "kind"}), "Pod");
  EXPECT_EQ(told[0].string_at({"involvedObject", "uid"}), about_.string_at({"metadata", "uid"}));
  EXPECT_EQ(told[0].string_at({"reason"}), "Failed");
  EXPECT_EQ(told[0].string_at({"source", "component"}), "test");
  EXPECT_EQ(told[0].int_at({"count"}), 1);
}

TEST_F(RecorderTest, C22_TheSameAgainRaisesTheCount) {
  for (int i = 0; i < 5; ++i) recorder_.record(about_, "Normal", "Started", "pod a");
  const auto told = events();
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].int_at({"count"}), 5);
}

TEST_F(RecorderTest, C22_MoreThanTenThatAreAlikeBecomeOne) {
  for (int i = 0; i < 20; ++i)
    recorder_.record(about_, "Normal", "Pulled", "image " + std::to_string(i));
  const auto told = events();
  ASSERT_EQ(told.size(), 11u);
  const auto joined = std::count_if(told.begin(), told.end(), [](const json::Value& event) {
    return event.string_at({"message"}).starts_with("(combined from similar events)");
  });
  EXPECT_EQ(joined, 1);
}

TEST_F(RecorderTest, C22_AnObjectToldTooMuchAboutIsLeftAloneForAWhile) {
  for (int i = 0; i < 100; ++i) recorder_.record(about_, "Normal", "R" + std::to_string(i), "m");
  EXPECT_EQ(events().size(), 25u);
  loop_.run_for(300s);
  recorder_.record(about_, "Normal", "Later", "m");
  EXPECT_EQ(events().size(), 26u);
}

TEST_F(RecorderTest, OfThoseThatWaitTooLongTheWarningsStay) {
  EventRecorder slow(client_, {.component = "test",
                               .writes_per_second = 1,
                               .writes_at_once = 1,
                               .remembered = 4,
                               .wall_clock = [this] { return loop_.wall(); }});
  slow.record(about_, "Normal", "First", "is told at once");
  slow.record(about_, "Warning", "Failed", "it went wrong");
  for (int i = 0; i < 10; ++i) slow.record(about_, "Normal", "R" + std::to_string(i), "m");
  std::vector<std::string> reasons;
  for (const json::Value& event : events()) reasons.emplace_back(event.string_at({"reason"}));
  EXPECT_THAT(reasons, ::testing::UnorderedElementsAre("First", "Failed", "R7", "R8", "R9"));
}

TEST_F(RecorderTest, OneThatMadeRoomIsToldWhenItComesAgain) {
  EventRecorder slow(client_, {.component = "test",
                               .writes_per_second = 1,
                               .writes_at_once = 1,
                               .remembered = 2,
                               .wall_clock = [this] { return loop_.wall(); }});
  slow.record(about_, "Normal", "First", "is told at once");
  slow.record(about_, "Warning", "Failed", "it went wrong");
  slow.record(about_, "Warning", "Failed again", "it went wrong");
  slow.record(about_, "Normal", "Pushed", "out");
  const auto is_told = [&] {
    return std::ranges::any_of(
        events(), [](const json::Value& event) { return event.string_at({"reason"}) == "Pushed"; });
  };
  EXPECT_FALSE(is_told());
  slow.record(about_, "Normal", "Pushed", "out");
  EXPECT_TRUE(is_told());
}

TEST_F(RecorderTest, AnEventThatSomebodyDeletedIsToldAnew) {
  recorder_.record(about_, "Normal", "Started", "pod a");
  const auto told = events();
  ASSERT_EQ(told.size(), 1u);
  api_.store.remove(kEvents, "default/" + std::string(told[0].string_at({"metadata", "name"})));
  recorder_.record(about_, "Normal", "Started", "pod a");
  const auto again = events();
  ASSERT_EQ(again.size(), 1u);
  EXPECT_EQ(again[0].int_at({"count"}), 2);
  EXPECT_EQ(again[0].string_at({"message"}), "pod a");
}

TEST_F(RecorderTest, LongTextIsCutAtAWholeCharacter) {
  std::string text;
  for (int i = 0; i < 1000; ++i) text += "\u00e9";
  recorder_.record(about_, "Normal", std::string(500, 'r'), text);
  const auto told = events();
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].string_at({"message"}).size(), 1024u);
  EXPECT_EQ(told[0].string_at({"reason"}).size(), 128u);
}

// --- leases ---

// One process of several.
class Candidate {
 public:
  Candidate(SimLoop& loop, FakeApi& api, std::string identity)
      : client(loop, api),
        election(client,
                 {.space = "default",
                  .name = "lease",
                  .identity = std::move(identity),
                  .wall_clock = [&loop] { return loop.wall(); }},
                 {.on_started = [this] { leads = true; }, .on_lost = [this] { leads = false; }}) {
    election.start();
  }
  bool leads = false;
  Client client;
  LeaderElection election;
};

class LeaseTest : public ::testing::Test {
 protected:
  int leaders() const {
    int count = 0;
    for (const auto& each : candidates_) count += each != nullptr && each->leads ? 1 : 0;
    return count;
  }
  int leader() const {
    for (std::size_t i = 0; i < candidates_.size(); ++i) {
      if (candidates_[i] != nullptr && candidates_[i]->leads) return static_cast<int>(i);
    }
    return -1;
  }
  void add() {
    candidates_.push_back(
        std::make_unique<Candidate>(loop_, api_, "c" + std::to_string(candidates_.size())));
  }

  SimLoop loop_;
  FakeApi api_{loop_, 7};
  std::vector<std::unique_ptr<Candidate>> candidates_;
};

TEST_F(LeaseTest, C42_OneOfThreeLeadsAndKeepsLeading) {
  for (int i = 0; i < 3; ++i) add();
  ASSERT_TRUE(loop_.run_until([&] { return leaders() == 1; }, 30s));
  const int first = leader();
  loop_.run_for(10min);
  EXPECT_EQ(leader(), first);
  EXPECT_EQ(leaders(), 1);
}

TEST_F(LeaseTest, C42_TheLeaseOfADeadLeaderPassesOnAfterItsTimeAndNotBefore) {
  for (int i = 0; i < 3; ++i) add();
  ASSERT_TRUE(loop_.run_until([&] { return leaders() == 1; }, 30s));
  loop_.run_for(1min);
  candidates_[static_cast<std::size_t>(leader())] = nullptr;  // kill -9
  const io::TimePoint died = loop_.now();
  ASSERT_TRUE(loop_.run_until([&] { return leaders() == 1; }, 60s));
  EXPECT_GE(loop_.now() - died, 13s) << "15 s from the last renewal, at most 2 s before the death";
  EXPECT_LE(loop_.now() - died, 25s);
  EXPECT_EQ(api_.store.find("/apis/coordination.k8s.io/v1/leases", "default/lease")
                ->int_at({"spec", "leaseTransitions"}),
            1);
}

TEST_F(LeaseTest, C42_ALeaseGivenBackPassesOnAtOnce) {
  add();
  ASSERT_TRUE(loop_.run_until([&] { return leaders() == 1; }, 30s));
  add();
  loop_.run_for(10s);
  bool released = false;
  candidates_[0]->election.stop([&] { released = true; });
  candidates_[0]->leads = false;
  const io::TimePoint stopped = loop_.now();
  ASSERT_TRUE(loop_.run_until([&] { return leaders() == 1; }, 30s));
  EXPECT_TRUE(released);
  EXPECT_LE(loop_.now() - stopped, 6s);
}

TEST_F(LeaseTest, C42_AnAnswerThatComesTooLateMakesNoLeader) {
  bool refused = false;
  api_.intercept = [&](const http::Request& request) -> std::optional<http::Response> {
    if (request.method == "GET" || std::exchange(refused, true)) return std::nullopt;
    http::Response later = status_answer(429, "TooManyRequests", "later");
    later.headers.add("Retry-After", "12");
    return later;
  };
  add();
  ASSERT_TRUE(loop_.run_until([&] { return leaders() == 1; }, 60s));
  api_.faults.lose_request = 1;  // nothing can be renewed from now on
  loop_.run_for(1min);
  EXPECT_EQ(leaders(), 0);
}

TEST_F(LeaseTest, C42_ALeaderThatCannotRenewStopsBeforeAnotherBegins) {
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE(seed);
    candidates_.clear();
    SimLoop loop;
    FakeApi api(loop, seed);
    for (int i = 0; i < 3; ++i) {
      candidates_.push_back(std::make_unique<Candidate>(loop, api, "c" + std::to_string(i)));
    }
    std::mt19937_64 random(seed);
    bool all_well = true;
    for (int storm = 0; storm < 20; ++storm) {
      api.faults.lose_request = all_well ? 0 : 0.9;
      api.faults.lose_answer = all_well ? 0 : 0.5;
      all_well = !all_well;
      const io::TimePoint until = loop.now() + std::chrono::seconds(random() % 40);
      loop.run_until(
          [&] {
            EXPECT_LE(leaders(), 1);
            return loop.now() >= until;
          },
          1min);
      for (std::size_t i = 0; i < candidates_.size(); ++i) {
        if (!candidates_[i]->leads && random() % 4 == 0) {  // started anew
          candidates_[i] = std::make_unique<Candidate>(
              loop, api, "c" + std::to_string(i) + "-" + std::to_string(random()));
        }
      }
    }
    api.faults = {};
    for (auto& each : candidates_) {
      if (!each->leads) each = std::make_unique<Candidate>(loop, api, std::to_string(random()));
    }
    EXPECT_TRUE(loop.run_until([&] { return leaders() == 1; }, 2min));
    candidates_.clear();
  }
}

TEST_F(LeaseTest, ALeaderGivesUpTenSecondsAfterItAskedForItsLastRenewal) {
  for (const auto late : {0s, 4s}) {
    SCOPED_TRACE(late.count());
    SimLoop loop;
    FakeApi api(loop, 3);
    Candidate candidate(loop, api, "c");
    ASSERT_TRUE(loop.run_until([&] { return candidate.leads; }, 30s));
    loop.run_for(20s);
    ASSERT_TRUE(candidate.leads);
    // The next renewal is the last that gets through, and its answer takes its time.
    std::optional<io::TimePoint> renewed;
    api.answers_late = [&](const http::Request& request) -> io::Duration {
      if (request.method != "PUT") return 0s;
      renewed = loop.now();
      api.faults.lose_request = 1;
      return late;
    };
    ASSERT_TRUE(loop.run_until([&] { return !candidate.leads; }, 60s));
    ASSERT_TRUE(renewed);
    EXPECT_LE(loop.now() - *renewed, 10s);
    EXPECT_GE(loop.now() - *renewed, 10s - 5ms) << "the way of a request";
  }
}

TEST(TimeTest, TimesAreWrittenAndReadAsTheApiDoes) {
  const auto when =
      std::chrono::sys_days(std::chrono::year(2026) / 11 / 15) + 19h + 7min + 46s + 120ms;
  EXPECT_EQ(rfc3339(when), "2026-11-15T19:07:46Z");
  EXPECT_EQ(micro_time(when), "2026-11-15T19:07:46.120000Z");
  EXPECT_EQ(parse_time("2026-11-15T19:07:46.12Z"), when);
  EXPECT_EQ(parse_time("2026-11-15T21:07:46.120000+02:00"), when);
  EXPECT_EQ(parse_time("2026-11-15T19:07:46Z"), when - 120ms);
  EXPECT_EQ(parse_time("9999-12-31T23:59:59Z"), std::chrono::system_clock::time_point::max());
  for (const char* bad :
       {"", "2026-11-15", "2026-02-30T00:00:00Z", "2026-11-15T24:00:00Z", "2026-11-15T19:07:46",
        "2026-11-15T19:07:46+2:00", "-026-11-15T19:07:46Z"}) {
    EXPECT_EQ(parse_time(bad), std::nullopt) << bad;
  }
}

}  // namespace
}  // namespace divisi::kube
