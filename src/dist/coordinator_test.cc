// A whole coordinator with our workers and a di-server that answers from a list.
#include "dist/coordinator.h"

#include "dist/aggregator.h"
#include "dist/testing/dist_fixture.h"
#include "dist/testing/mock_training.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <atomic>
#include <mutex>

namespace divisi::dist {
namespace {

using ::testing::Contains;
using testing::get;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::MatchesRegex;
using testing::MockCollector;
using testing::MockCommander;
using testing::MockLearner;
using ::testing::Not;
using ::testing::StartsWith;
using testing::wait_until;

using std::chrono::milliseconds;
using std::chrono::seconds;

class CoordinatorTest : public testing::DistFixture {
 protected:
  CoordinatorTest() {
    serve([this](const std::shared_ptr<http::ServerCall>& call) { answer(call); });
    options_.master = master_options();
    options_.server = DiServerOptions{.url = fmt::format("127.0.0.1:{}", url_.port),
                                      .space = "default",
                                      .pod = "job-coordinator"};
    options_.demand.collectors.replicas = 1;
    options_.demand.learners.replicas = 1;
    options_.wait_for_both = true;
    options_.demand_retry = options_.connect_retry = options_.wait_retry = milliseconds(50);
    options_.assign_retry = options_.sample_pause = options_.task_retry = milliseconds(20);
    options_.sync = milliseconds(50);
    options_.queue_turn = milliseconds(20);
    options_.print = [this](std::string_view line) {
      const std::scoped_lock lock(mutex_);
      lines_.emplace_back(line);
    };
  }
  ~CoordinatorTest() override {
    on_loop([&] {
      coordinator_.reset();
      commander_.reset();
      server_.reset();  // its handler uses this object
    });
  }

  // di-server.
  void answer(const std::shared_ptr<http::ServerCall>& call) {
    requests_.push_back(call->request());
    if (down_) return call->respond({.status = 500, .body = "down"});
    const bool failed = call->request().target.ends_with("/failed");
    if (failed && !refusal_.empty()) {
      const json::Value no =
          json::Object{{"success", false}, {"code", 1}, {"message", refusal_}, {"data", {}}};
      return call->respond({.status = 404, .body = json::print(no)});
    }
    if (call->request().method == "DELETE" && !collectors_.empty()) {
      deleted_ = {collectors_.back()};
      collectors_.pop_back();
    }
    const bool deletion = call->request().method == "DELETE";
    json::Value data = json::Object{{"namespace", "default"}, {"coordinator", "job-coordinator"}};
    data["collectors"] = as_json(failed     ? std::exchange(made_again_, {})
                                 : deletion ? deleted_
                                            : collectors_);
    data["learners"] = as_json(failed || deletion ? std::vector<std::string>() : learners_);
    call->respond({.body = json::print(json::Object{{"success", true},
                                                    {"code", 0},
                                                    {"message", "successfully get replicas"},
                                                    {"data", data}})});
  }
  json::Value as_json(const std::vector<std::string>& urls) const {
    if (!keyed_) return json::Array(urls.begin(), urls.end());
    json::Object object;
    for (const std::string& url : urls) object.emplace_back(url, json::Object{{"gpus", 0}});
    return object;
  }

  void add_collector(std::shared_ptr<TaskHandler> handler) {
    const std::string url = start_slave(std::move(handler));
    on_loop([&] { collectors_.push_back(url); });
  }
  void add_learner(std::shared_ptr<TaskHandler> handler) {
    const std::string url = start_slave(std::move(handler));
    on_loop([&] { learners_.push_back(url); });
  }

  void start(MockCommander::Options training = {}) {
    commander_ = std::make_shared<MockCommander>(training);
    ended_ = std::make_shared<std::promise<Status>>();
    future_ = ended_->get_future();
    on_loop([&] {
      auto coordinator = Coordinator::start(
          *reactor_, options_, commander_,
          [ended = ended_](Status status) { ended->set_value(std::move(status)); });
      ASSERT_TRUE(coordinator) << coordinator.error().message();
      coordinator_ = *std::move(coordinator);
    });
  }
  Status end() { return get(std::move(future_)); }

  std::vector<std::string> lines() const {
    const std::scoped_lock lock(mutex_);
    return lines_;
  }
  // The place of the first line that contains `text`.
  std::size_t first(std::string_view text) const {
    const auto all = lines();
    const auto found = std::ranges::find_if(
        all, [&](const std::string& line) { return line.find(text) != std::string::npos; });
    EXPECT_NE(found, all.end()) << "no line has: " << text;
    return static_cast<std::size_t>(found - all.begin());
  }
  bool said(std::string_view text) const {
    const auto all = lines();
    return std::ranges::any_of(
        all, [&](const std::string& line) { return line.find(text) != std::string::npos; });
  }
  // Whether di-server was sent a failure report that names the pod of this worker.
  bool reported(const std::string& url) {
    bool found = false;
    on_loop([&] {
      for (const http::Request& each : requests_) {
        found = found || (each.target.ends_with("/failed") &&
                          each.body.find(pod_of_url(url)) != std::string::npos);
      }
    });
    return found;
  }
  template <class F>
  auto on_commander(F&& look) {
    decltype(look(*commander_)) value{};
    on_loop([&] { value = look(*commander_); });
    return value;
  }

  CoordinatorOptions options_;
  std::shared_ptr<MockCommander> commander_;
  std::unique_ptr<Coordinator> coordinator_;
  std::shared_ptr<std::promise<Status>> ended_;
  std::future<Status> future_;
  // di-server, on the loop.
  bool keyed_ = false;
  bool down_ = false;
  std::vector<std::string> collectors_;
  std::vector<std::string> learners_;
  std::vector<std::string> deleted_;
  std::string refusal_;  // of failure reports
  std::size_t asked_ = 0;
  std::vector<std::string> made_again_;  // what the next failure report is answered with
  std::vector<http::Request> requests_;

  mutable std::mutex mutex_;
  std::vector<std::string> lines_;
};

TEST_F(CoordinatorTest, O087_ListsAsArraysDriveAFullRun) {
  add_collector(std::make_shared<MockCollector>(6));
  add_learner(std::make_shared<MockLearner>(3, 4));
  start();
  const Status status = end();
  EXPECT_TRUE(status.ok()) << status.message();
  EXPECT_GE(on_commander([](MockCommander& c) { return c.pushed; }), 12);
  EXPECT_EQ(on_commander([](MockCommander& c) { return c.updates; }), 2);
  EXPECT_FALSE(connected(0));
  EXPECT_FALSE(connected(1));
}

TEST_F(CoordinatorTest, O087_ListsKeyedByUrlDriveAFullRun) {
  keyed_ = true;
  add_collector(std::make_shared<MockCollector>(6));
  add_learner(std::make_shared<MockLearner>(3, 4));
  start();
  const Status status = end();
  EXPECT_TRUE(status.ok()) << status.message();
}

TEST_F(CoordinatorTest, TheLogReadsAsInTheDocument) {
  add_collector(std::make_shared<MockCollector>(6));
  add_learner(std::make_shared<MockLearner>(3, 4));
  start();
  ASSERT_TRUE(end().ok());
  const std::string collector = collectors_[0];
  const std::string learner = learners_[0];
  const std::vector<std::string> wanted = {
      fmt::format("Recevied replicas response from server {{'namespace': 'default', 'coordinator': "
                  "'job-coordinator', 'collectors': ['{}'], 'learners': ['{}']}}",
                  collector, learner),
      "try to connect to " + collector,
      "Only can connect 0 collectors, 0 learners.",
      "Successed to connect to ",
      "Have connected 1 collectors, 1 learners, match limit requests.",
      "Start...",
      "]: learner task(learner_task_PID",
      "]: collector task(collector_task_PID",
      "]: replay_buffer(buffer_PID",
      "]: learner_task(learner_task_PID",
  };
  for (std::size_t i = 1; i < wanted.size(); ++i) {
    EXPECT_LT(first(wanted[i - 1]), first(wanted[i])) << wanted[i - 1] << " before " << wanted[i];
  }
  EXPECT_LT(first("is created"), first("is successful to be assigned"));
  const auto all = lines();
  const auto assigned = std::ranges::find_if(all, [](const std::string& line) {
    return line.find("]: collector_task(") != std::string::npos &&
           line.ends_with(") is successful to be assigned");
  });
  ASSERT_NE(assigned, all.end());
  EXPECT_LT(first("is assigned to collector(" + collector + ")"),
            static_cast<std::size_t>(assigned - all.begin()));
  EXPECT_LT(first("is assigned to collector("), first(" send data("));
  EXPECT_TRUE(said("failed list: [] []"));
  EXPECT_TRUE(said(fmt::format("currnet list: ['{}'] ['{}']", collector, learner)));
  const std::string prefix = fmt::format("[Coordinator({})]: ", coordinator_->id());
  EXPECT_THAT(lines(), Contains(MatchesRegex(".*learner task\\(.*\\) put into queue")));
  EXPECT_THAT(lines(), Contains(StartsWith(prefix + "collector task(")));
  EXPECT_THAT(lines(), Contains(StartsWith("collector task(")));  // "... is assigned to"
}

TEST_F(CoordinatorTest, ACollectorTaskWithoutBufferTimesOut) {
  options_.collector_limit = milliseconds(300);
  options_.wait_for_both = false;
  add_collector(std::make_shared<MockCollector>(6));  // and no learner: no buffer
  start();
  wait_until("the task is too old", [&] { return said("timeout: ["); });
  EXPECT_TRUE(said("can't find proper buffer_id(buffer_"));
  EXPECT_TRUE(said("reput into queue"));
  EXPECT_THAT(lines(),
              Contains(MatchesRegex("\\[Coordinator\\(.*\\)\\]: collector task\\(.*\\) timeout: "
                                    "\\[[0-9]+\\.[0-9]+, [0-9]+\\.[0-9]+, 0\\.[0-9]+/0\\.3\\]")));
  on_loop([&] {
    EXPECT_EQ(commander_->drops.front(), DropReason::kTimedOut);
    coordinator_->stop({Code::kCancelled, "enough"});
  });
  EXPECT_EQ(end().code(), Code::kCancelled);
}

TEST_F(CoordinatorTest, AVanishedCollectorLosesItsTask) {
  options_.master.tolerance = milliseconds(1000);
  const auto dying = std::make_shared<MockCollector>(1000000);
  dying->hold_data();
  add_collector(dying);
  add_learner(std::make_shared<MockLearner>(3, 4));
  start();
  wait_until("the collector has its task",
             [&] { return said("collector_task(") && said("is assigned to collector("); });
  on_loop([&] { slaves_.erase(slaves_.begin()); });
  wait_until("its task is dropped",
             [&] { return on_commander([](MockCommander& c) { return !c.drops.empty(); }); });
  EXPECT_EQ(on_commander([](MockCommander& c) { return c.drops[0]; }), DropReason::kWorkerLost);
  // Another one takes over.
  on_loop([&] { collectors_.clear(); });
  add_collector(std::make_shared<MockCollector>(6));
  const Status status = end();
  EXPECT_TRUE(status.ok()) << status.message();
}

TEST_F(CoordinatorTest, AnUnlistedWorkerIsDisconnectedAndItsTaskDropped) {
  const auto endless = std::make_shared<MockCollector>(1000000);
  endless->hold_data();
  add_collector(endless);
  add_learner(std::make_shared<MockLearner>(3, 4));
  options_.release = Demand{.collectors = {.replicas = 1}};
  options_.release_after = milliseconds(300);
  start();
  wait_until("the collector is given back", [&] { return said("send delete and received {'"); });
  wait_until("it is disconnected", [&] { return !connected(0); });
  wait_until("its task is dropped",
             [&] { return on_commander([](MockCommander& c) { return !c.drops.empty(); }); });
  EXPECT_TRUE(said(fmt::format("'collectors': ['{}'], 'learners': []}}", deleted_[0])));
  EXPECT_FALSE(reported(deleted_[0])) << "it was given back";
  add_collector(std::make_shared<MockCollector>(6));
  EXPECT_TRUE(end().ok());
  EXPECT_EQ(on_commander([](MockCommander& c) { return c.removed; }), 1);
  EXPECT_EQ(on_commander([](MockCommander& c) { return c.added; }), 1);
}

TEST_F(CoordinatorTest, AWorkerThatCannotBeReachedIsReportedByItsPod) {
  options_.connect_limit = milliseconds(200);
  add_collector(std::make_shared<MockCollector>(6));
  add_learner(std::make_shared<MockLearner>(3, 4));
  on_loop([&] { collectors_.emplace_back("job-collector-x.127.0.0.1.invalid:1"); });
  options_.wait_for_both = true;
  options_.collector_target = 2;
  start();
  const auto reported = [&] {
    bool found = false;
    on_loop([&] {
      found = std::ranges::any_of(requests_, [](const http::Request& request) {
        return request.target == "/v1alpha1/replicas/failed" &&
               request.body.find(R"(["job-collector-x.127.0.0.1"])") != std::string::npos;
      });
    });
    return found;
  };
  wait_until("it is reported", reported);
  EXPECT_TRUE(said("can't acquire resource for collector(job-collector-x.127.0.0.1.invalid:1)"));
  on_loop([&] { collectors_.pop_back(); });
  add_collector(std::make_shared<MockCollector>(6));
  EXPECT_TRUE(end().ok());
}

TEST_F(CoordinatorTest, O016_AWorkerWhosePodWasDeletedIsReported) {
  const auto endless = std::make_shared<MockCollector>(1000000);
  endless->hold_data();
  add_collector(endless);
  add_learner(std::make_shared<MockLearner>(3, 4));
  start();
  wait_until("the collector has its task", [&] { return said("is assigned to collector"); });
  std::string gone;
  std::size_t asked = 0;
  on_loop([&] { gone = std::exchange(collectors_, {}).front(); });
  wait_until("it is disconnected", [&] { return !connected(0); });
  on_loop([&] {
    down_ = true;
    requests_.clear();
  });
  wait_until("di-server refuses some turns", [&] {
    on_loop([&] { asked = requests_.size(); });
    return asked >= 8;
  });
  on_loop([&] {
    down_ = false;
    requests_.clear();
  });
  wait_until("it is reported again", [&] { return reported(gone); });
  add_collector(std::make_shared<MockCollector>(6));
  EXPECT_TRUE(end().ok());
}

TEST_F(CoordinatorTest, O016_AWorkerWhosePodWasDeletedBeforeItWasReachedIsReported) {
  add_learner(std::make_shared<MockLearner>(3, 4));
  const std::string never = "job-collector-never.invalid:1";
  on_loop([&] { collectors_ = {never}; });
  options_.wait_for_both = true;
  start();
  wait_until("it is tried", [&] { return said("try to connect to " + never); });
  on_loop([&] { collectors_.clear(); });
  wait_until("it is reported", [&] { return reported(never); });
  add_collector(std::make_shared<MockCollector>(6));
  EXPECT_TRUE(end().ok());
}

TEST_F(CoordinatorTest, O016_AReplacementThatIsNeverListedIsReported) {
  add_learner(std::make_shared<MockLearner>(3, 4));
  on_loop([&] {
    collectors_ = {"job-collector-first.invalid:1"};
    made_again_ = {"job-collector-second.invalid:1"};
  });
  start();
  wait_until("the first is tried", [&] { return said("try to connect to job-collector-first"); });
  on_loop([&] { collectors_.clear(); });
  wait_until("the second is reported", [&] { return reported("job-collector-second.invalid:1"); });
  add_collector(std::make_shared<MockCollector>(6));
  EXPECT_TRUE(end().ok());
}

TEST_F(CoordinatorTest, AReportThatLacksTheAggregatorConfigIsRepeated) {
  add_learner(std::make_shared<MockLearner>(3, 4));
  const std::string never = "job-collector-never.invalid:1";
  on_loop([&] {
    collectors_ = {never};
    refusal_ = "AGConfig: di-system/aggregator-config not exists in cache";
  });
  start();
  wait_until("it is tried", [&] { return said("try to connect to " + never); });
  on_loop([&] { collectors_.clear(); });
  const auto reports = [&] {
    std::ptrdiff_t count = 0;
    on_loop([&] {
      count = std::ranges::count_if(
          requests_, [](const http::Request& each) { return each.target.ends_with("/failed"); });
    });
    return count;
  };
  wait_until("it is reported again and again", [&] { return reports() >= 3; });
  on_loop([&] { refusal_ = "pod: default/job-collector-never not exists in cache"; });
  std::ptrdiff_t before = reports();
  wait_until("a server that does not know it is believed", [&] {
    std::ptrdiff_t now = reports();
    std::size_t asked = 0;
    on_loop([&] { asked = requests_.size(); });
    const bool same = std::exchange(before, now) == now;
    if (!same) asked_ = asked;
    return same && asked >= asked_ + 5;  // lists only
  });
  add_collector(std::make_shared<MockCollector>(6));
  EXPECT_TRUE(end().ok());
}

TEST_F(CoordinatorTest, ADiServerThatFailsForAWhileKillsNothing) {
  down_ = true;
  const auto held = std::make_shared<MockCollector>(6);
  add_collector(held);
  add_learner(std::make_shared<MockLearner>(3, 4));
  start();
  const auto asked = [&](std::size_t times) {
    std::size_t count = 0;
    on_loop([&] { count = requests_.size(); });
    return count >= times;
  };
  wait_until("the demand was refused twice", [&] { return asked(2); });
  on_loop([&] { down_ = false; });
  EXPECT_TRUE(end().ok());
}

TEST_F(CoordinatorTest, WithoutDiServerItEndsWithAFailure) {
  options_.demand_limit = milliseconds(200);
  down_ = true;
  start();
  EXPECT_THAT(end().message(), HasSubstr("did not take the demand within 0.2 s"));
}

TEST_F(CoordinatorTest, TooFewWorkersEndItWithAFailure) {
  options_.wait_limit = milliseconds(200);
  add_learner(std::make_shared<MockLearner>(3, 4));
  start();
  EXPECT_THAT(end().message(), HasSubstr("0 collectors and 1 learners are connected"));
  EXPECT_TRUE(said("Only can connect 0 collectors, 1 learners."));
  EXPECT_FALSE(said("Start..."));
}

TEST_F(CoordinatorTest, ALostLearnerIsReplacedByTheNextTask) {
  options_.master.tolerance = milliseconds(1000);
  add_learner(std::make_shared<MockLearner>(1000000, 4));
  const auto held = std::make_shared<MockCollector>(1000000);
  held->hold_data();
  add_collector(held);
  start();
  wait_until("the learner has its task", [&] { return said("is created"); });
  on_loop([&] {
    slaves_.erase(slaves_.begin());
    learners_.clear();
    collectors_.clear();
  });
  add_learner(std::make_shared<MockLearner>(3, 4));
  add_collector(std::make_shared<MockCollector>(6));
  EXPECT_TRUE(end().ok());
  EXPECT_GE(on_commander([](MockCommander& c) { return c.learners_made; }), 2);
}

// Starts no task.
class UnwillingLearner final : public TaskHandler {
 public:
  TaskOutcome run(const json::Value& data) override {
    const bool starts = data.string_at({"name"}) == "learner_start_task";
    if (starts) ++refused;
    return {.completed = !starts, .result = json::Object{{"message", "not yet"}}};
  }
  std::atomic<int> refused{0};
};

TEST_F(CoordinatorTest, ARefusedTaskIsTriedAgainAfterThePauseOnly) {
  options_.assign_retry = milliseconds(300);
  options_.learner_limit = milliseconds(1000);
  const auto unwilling = std::make_shared<UnwillingLearner>();
  add_learner(unwilling);
  add_collector(std::make_shared<MockCollector>(6));
  start();
  wait_until("the task is too old",
             [&] { return on_commander([](MockCommander& c) { return !c.drops.empty(); }); });
  // One at once and one for each pause that the limit has room for.
  EXPECT_LE(unwilling->refused, 5);
  EXPECT_GE(unwilling->refused, 1);
}

TEST_F(CoordinatorTest, StopEndsEveryTaskOnce) {
  const auto held = std::make_shared<MockCollector>(1000000);
  held->hold_data();
  add_collector(held);
  add_learner(std::make_shared<MockLearner>(3, 4));
  start({.collector_space = 4});
  wait_until("a collector has its task", [&] { return said("is assigned to collector("); });
  on_loop([&] { coordinator_->stop({Code::kCancelled, "SIGTERM"}); });
  EXPECT_EQ(end().message(), "SIGTERM");
  EXPECT_EQ(on_commander([](MockCommander& c) { return c.ended; }),
            on_commander([](MockCommander& c) { return c.learners_made + c.collectors_made; }));
  EXPECT_FALSE(connected(0));
  EXPECT_FALSE(connected(1));
}

TEST_F(CoordinatorTest, ManyCollectorsShareTheWork) {
  for (int i = 0; i < 8; ++i) add_collector(std::make_shared<MockCollector>(3));
  add_learner(std::make_shared<MockLearner>(20, 4));
  options_.collector_target = 8;
  start({.collector_space = 8});
  const Status status = end();
  EXPECT_TRUE(status.ok()) << status.message();
  EXPECT_GE(on_commander([](MockCommander& c) { return c.pushed; }), 80);
}

TEST_F(CoordinatorTest, TheOldestLayoutGoesThroughTheAggregator) {
  AggregatorOptions aggregator;
  aggregator.slave = slave_options();
  aggregator.master = master_options();
  aggregator.connect_retry = milliseconds(50);
  aggregator.print = [](std::string_view) {};
  std::unique_ptr<Aggregator> running;
  on_loop([&] {
    auto started = Aggregator::start(*reactor_, aggregator);
    ASSERT_TRUE(started) << started.error().message();
    running = *std::move(started);
    options_.aggregator = fmt::format("127.0.0.1:{}", running->address().port);
  });
  add_collector(std::make_shared<MockCollector>(6));
  add_learner(std::make_shared<MockLearner>(3, 4));
  add_learner(std::make_shared<MockLearner>(3, 2));
  options_.wait_for_both.reset();
  start();
  const Status status = end();
  EXPECT_TRUE(status.ok()) << status.message();
  EXPECT_LT(first("try to connect to " + options_.aggregator),
            first("Successed to connect to " + options_.aggregator));
  EXPECT_LT(first("Successed to connect to " + options_.aggregator),
            first("have connected to aggregator"));
  EXPECT_LT(first("have connected to aggregator"), first("Recevied replicas response"));
  EXPECT_TRUE(said("Only can connect 0 collectors, 1 learners."));
  EXPECT_FALSE(said("try to connect to " + learners_[0]));
  EXPECT_TRUE(said("Have connected 1 collectors, 1 learners, match limit requests."));
  on_loop([&] { running.reset(); });
}

TEST_F(CoordinatorTest, FixedWorkersNeedNoDiServer) {
  options_.server.reset();
  add_collector(std::make_shared<MockCollector>(6));
  add_learner(std::make_shared<MockLearner>(3, 4));
  options_.collectors = collectors_;
  options_.learners = learners_;
  start();
  EXPECT_TRUE(end().ok());
  EXPECT_THAT(requests_, IsEmpty());
  EXPECT_FALSE(said("currnet list"));
}

}  // namespace
}  // namespace divisi::dist
