#include "dist/aggregator_core.h"

#include "base/log.h"
#include "dist/aggregate.h"
#include "dist/ids.h"

#include <set>
#include <utility>

namespace divisi::dist {
namespace {

TaskOutcome failed_outcome(std::string why) {
  return {.completed = false, .result = json::Object{{"message", std::move(why)}}};
}

// One task for each of several learners, until the last has answered.
struct Round {
  std::size_t open = 0;
  std::vector<json::Value> results{};
  std::string why{};  // of the first failure
};

}  // namespace

class AggregatorCore::Runner final : public TaskRunner {
 public:
  explicit Runner(AggregatorCore& core) : core_(core) {}

  void run(json::Value data, std::function<void(TaskOutcome)> done) override {
    core_.post([this, data = std::move(data), done = std::move(done)] { core_.run(data, done); });
  }

  void master_gone(std::function<void()> done) override {
    core_.reset_group();
    core_.post(std::move(done));  // behind the reports of the tasks that this has ended
  }

  bool learners(const std::vector<std::string>& urls,
                std::function<void(std::vector<std::string>)> done) override {
    done(core_.use(urls));
    return true;
  }

 private:
  AggregatorCore& core_;
};

AggregatorCore::AggregatorCore(io::Reactor& reactor, AggregatorOptions options)
    : reactor_(reactor),
      options_(std::move(options)),
      log_(options_.print, new_id("")),
      wanted_(options_.learners) {}

AggregatorCore::~AggregatorCore() {
  slave_.reset();
  sync_.reset();
  server_.reset();
  master_.reset();
}

Status AggregatorCore::open() {
  slave_ = std::make_unique<SlaveCore>(reactor_, options_.slave, std::make_unique<Runner>(*this));
  DIVISI_TRY_STATUS(slave_->listen());
  MasterOptions master = options_.master;
  if (master.bind.port == 0 && options_.slave.bind.port != 0) {
    if (options_.slave.bind.port == 65535) {
      return {Code::kInvalid,
              "aggregator: port 65535 leaves none for its learners, which use the next one"};
    }
    master.bind.port = static_cast<std::uint16_t>(options_.slave.bind.port + 1);
  }
  master.on_lost = [this](const std::string& url) { workers_->on_lost(url); };
  auto started = Master::start(reactor_, std::move(master));
  if (!started) return std::move(started).error();
  master_ = *std::move(started);
  workers_ = std::make_unique<Workers>(reactor_, *master_, log_,
                                       WorkersOptions{.connect_retry = options_.connect_retry,
                                                      .connect_limit = options_.connect_limit,
                                                      .resource_limit = {},
                                                      .ask_resource = false},
                                       Workers::Hooks{});
  if (options_.server) {
    DiServerOptions server = *options_.server;
    server.aggregator = true;
    auto client = DiServerClient::make(reactor_, std::move(server));
    if (!client) return std::move(client).error();
    server_ = *std::move(client);
    sync_ = std::make_unique<ReplicaSync>(
        reactor_, *server_, options_.sync, false,
        ReplicaSync::Hooks{.failed =
                               [this] {
                                 std::set<std::string> all = workers_->failed(Role::kLearner);
                                 const auto& unlisted = workers_->unlisted(Role::kLearner);
                                 all.insert(unlisted.begin(), unlisted.end());
                                 return ReplicaSync::Failed{.collectors = {},
                                                            .learners = {all.begin(), all.end()}};
                               },
                           .on_reported =
                               [this](const ReplicaSync::Failed& failed, const Replicas& made) {
                                 workers_->forget_unlisted();
                                 workers_->forget_failed(Role::kLearner, failed.learners);
                                 workers_->expect(Role::kLearner, made.learners);
                               },
                           .on_unknown = [this] { workers_->forget_unlisted(); },
                           .on_replicas =
                               [this](const Replicas& replicas) {
                                 wanted_ = replicas.learners;
                                 workers_->want(Role::kLearner, wanted_);
                               }});
    sync_->start();
    return {};
  }
  want_again();
  return {};
}

// Learners that are lost, or were disconnected on purpose, are tried again.
void AggregatorCore::want_again() {
  workers_->want(Role::kLearner, wanted_);
  again_ = reactor_.after(options_.connect_retry, [this] { want_again(); });
}

std::vector<std::string> AggregatorCore::use(const std::vector<std::string>& urls) {
  if (sync_) return {};  // di-server's list counts
  wanted_ = urls;
  const auto& set = workers_->failed(Role::kLearner);
  std::vector<std::string> unusable(set.begin(), set.end());
  workers_->want(Role::kLearner, wanted_);
  workers_->forget_failed(Role::kLearner, unusable);  // who still lists them wants another try
  return unusable;
}

// --- tasks ---

void AggregatorCore::run(const json::Value& data, const Outcome& done) {
  const std::string_view name = data.string_at({"name"});
  if (name == "resource") {
    const auto count = static_cast<std::int64_t>(learners());
    return done({.completed = true, .result = json::Object{{"gpu", count}}});
  }
  if (name == "learner_start_task") return start_task(data, done);
  const bool known = name == "learner_get_data_task" || name == "learner_learn_task" ||
                     name == "learner_close_task";
  if (!known) return done(failed_outcome("task name error"));
  if (group_.empty()) return done(failed_outcome("no learner task has been started"));
  if (name == "learner_get_data_task") return get_data(data, done);
  if (name == "learner_learn_task") return learn(data, done);
  close_task(data, done);
}

void AggregatorCore::start_task(const json::Value& data, const Outcome& done) {
  if (!group_.empty()) {
    reset_group();
    return done(failed_outcome("the last learner task was not closed; its learners start again"));
  }
  // Learners learn in step, so all of them start; one that cannot be reached fails in time.
  workers_->want(Role::kLearner, wanted_);
  if (const std::size_t joining = workers_->joining(Role::kLearner); joining > 0) {
    return done(failed_outcome(fmt::format("{} learners are not connected yet", joining)));
  }
  group_ = workers_->joined_urls(Role::kLearner);
  sizes_.clear();
  if (group_.empty()) return done(failed_outcome("no learner is connected yet"));
  to_all(
      std::vector<json::Value>(group_.size(), data), done, [done](const std::vector<json::Value>&) {
        done({.completed = true, .result = json::Object{{"message", "learner task has started"}}});
      });
}

void AggregatorCore::get_data(const json::Value& data, const Outcome& done) {
  to_all(std::vector<json::Value>(group_.size(), data), done,
         [this, done](const std::vector<json::Value>& demands) {
           auto merged = merge_demands(demands);
           if (!merged) return done(failed_outcome(merged.error().message()));
           sizes_ = std::move(merged->sizes);
           done({.completed = true, .result = std::move(merged->demand)});
         });
}

void AggregatorCore::learn(const json::Value& data, const Outcome& done) {
  auto parts = split_records(data.find("data"), sizes_);
  if (!parts) return done(failed_outcome(parts.error().message()));
  std::vector<json::Value> tasks;
  for (json::Array& part : *parts) {
    tasks.emplace_back(json::Object{{"name", "learner_learn_task"}, {"data", std::move(part)}});
  }
  to_all(tasks, done, [done](const std::vector<json::Value>& results) {
    done({.completed = true, .result = merge_learned(results)});
  });
}

void AggregatorCore::close_task(const json::Value& data, const Outcome& done) {
  to_all(std::vector<json::Value>(group_.size(), data), done,
         [this, done](const std::vector<json::Value>& results) {
           group_.clear();
           sizes_.clear();
           done({.completed = true, .result = results.front()});
         });
}

void AggregatorCore::to_all(const std::vector<json::Value>& data, const Outcome& done,
                            const OnAll& on_all) {
  auto round = std::make_shared<Round>();
  round->open = group_.size();
  round->results.resize(group_.size());
  for (std::size_t i = 0; i < group_.size(); ++i) {
    master_->new_task(group_[i], data[i], options_.task_limit,
                      [this, round, i, done, on_all, url = group_[i]](const TaskReport& report) {
                        if (report.state == TaskState::kCompleted) {
                          round->results[i] = report.result;
                        } else if (round->why.empty()) {
                          round->why = fmt::format("learner {}: {}", url, report.why);
                        }
                        if (--round->open > 0) return;
                        if (round->why.empty()) return on_all(std::move(round->results));
                        log::warning("{}", log::printable(round->why));
                        // They learn in step: without one the others cannot go on.
                        reset_group();
                        done(failed_outcome(round->why));
                      });
  }
}

void AggregatorCore::reset_group() {
  for (const std::string& url : std::exchange(group_, {})) {
    master_->disconnect(url, [](const Status&) {});
    workers_->on_lost(url);
  }
  sizes_.clear();
}

void AggregatorCore::stop(std::function<void()> done) {
  sync_.reset();
  again_.reset();
  workers_->clear();
  slave_->shutdown([this, done = std::move(done)] { master_->shutdown(done); });
}

void AggregatorCore::post(std::function<void()> work) {
  reactor_.post([weak = std::weak_ptr(alive_), work = std::move(work)] {
    if (weak.lock()) work();
  });
}

Result<std::unique_ptr<Aggregator>> Aggregator::start(io::Reactor& reactor,
                                                      AggregatorOptions options) {
  auto aggregator = std::make_unique<AggregatorCore>(reactor, std::move(options));
  if (Status status = aggregator->open(); !status.ok()) return failure(std::move(status));
  return aggregator;
}

}  // namespace divisi::dist
