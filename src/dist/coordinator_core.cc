#include "dist/coordinator_core.h"

#include "base/log.h"
#include "dist/ids.h"
#include "dist/python_repr.h"

#include <algorithm>
#include <utility>

namespace divisi::dist {
namespace {

// While training the lists are printed when they change, and now and then.
constexpr int kTurnsUnprinted = 60;

double seconds(io::Duration duration) {
  return std::chrono::duration<double>(duration).count();
}

std::vector<std::string> both(std::vector<std::string> first,
                              const std::vector<std::string>& second) {
  for (const std::string& each : second) {
    if (std::ranges::find(first, each) == first.end()) first.push_back(each);
  }
  return first;
}

std::vector<std::string> as_list(const std::set<std::string>& set) {
  return {set.begin(), set.end()};
}

}  // namespace

CoordinatorCore::CoordinatorCore(io::Reactor& reactor, CoordinatorOptions options,
                                 std::shared_ptr<Commander> commander,
                                 std::function<void(Status)> on_end)
    : reactor_(reactor),
      options_(std::move(options)),
      commander_(std::move(commander)),
      on_end_(std::move(on_end)),
      log_(options_.print, new_id("")) {}

CoordinatorCore::~CoordinatorCore() {
  sync_.reset();
  server_.reset();
  master_.reset();
}

Status CoordinatorCore::open() {
  MasterOptions master = options_.master;
  master.on_lost = [this](const std::string& url) { workers_->on_lost(url); };
  master.on_shutdown = [this] { stop({Code::kCancelled, "DELETE /shutdown was called"}); };
  auto started = Master::start(reactor_, std::move(master));
  if (!started) return std::move(started).error();
  master_ = *std::move(started);
  make_workers();
  if (!options_.server) return {};
  auto client = DiServerClient::make(reactor_, *options_.server);
  if (!client) return std::move(client).error();
  server_ = *std::move(client);
  make_sync();
  return {};
}

void CoordinatorCore::make_workers() {
  workers_ = std::make_unique<Workers>(
      reactor_, *master_, log_,
      WorkersOptions{.connect_retry = options_.connect_retry,
                     .connect_limit = options_.connect_limit,
                     .resource_limit = options_.resource_limit},
      Workers::Hooks{
          .on_joined = [this](Role role, const std::string& url) { on_joined(role, url); },
          .on_idle =
              [this](Role role, const std::string&) {
                (role == Role::kLearner ? learner_queue_ : collector_queue_).kick();
              },
          .on_gone =
              [this](Role role, const std::string&) {
                if (!training_ || ending_) return;
                commander_->worker_removed(role);
                look();
              },
          .on_failed = [this](Role role, const std::string& url) { on_failed(role, url); }});
}

void CoordinatorCore::make_sync() {
  const io::Duration interval = options_.sync.value_or(
      oldest_layout() ? io::Duration(std::chrono::seconds(2)) : std::chrono::seconds(1));
  sync_ = std::make_unique<ReplicaSync>(
      reactor_, *server_, interval, oldest_layout(),
      ReplicaSync::Hooks{
          .failed = [this] { return failed_workers(); },
          .on_reported =
              [this](const ReplicaSync::Failed& failed, const Replicas& made) {
                workers_->forget_unlisted();
                workers_->forget_failed(Role::kCollector, failed.collectors);
                workers_->forget_failed(Role::kLearner, failed.learners);
                workers_->expect(Role::kCollector, made.collectors);
                if (!oldest_layout()) workers_->expect(Role::kLearner, made.learners);
                for (const std::string& url : failed.learners) failed_learners_.erase(url);
              },
          // The reference knows no pods that are gone.
          .on_unknown = [this] { workers_->forget_unlisted(); },
          .on_replicas = [this](const Replicas& replicas) { on_replicas(replicas); }});
}

// Workers that cannot be used, and those that were listed once and are not any more: somebody may
// have deleted their pods.
ReplicaSync::Failed CoordinatorCore::failed_workers() const {
  const auto both_of = [this](Role role, const std::set<std::string>& failed) {
    std::set<std::string> all = failed;
    all.insert(workers_->unlisted(role).begin(), workers_->unlisted(role).end());
    return as_list(all);
  };
  return {.collectors = both_of(Role::kCollector, workers_->failed(Role::kCollector)),
          .learners = oldest_layout() ? as_list(failed_learners_)
                                      : both_of(Role::kLearner, workers_->failed(Role::kLearner))};
}

// --- before training ---

void CoordinatorCore::begin() {
  if (!oldest_layout()) return ask_for_workers();
  workers_->want(Role::kLearner, {options_.aggregator});
}

void CoordinatorCore::on_joined(Role role, const std::string& url) {
  if (ending_) return;
  if (url == options_.aggregator && !asked_) {
    log_.line("have connected to aggregator");
    return ask_for_workers();
  }
  if (training_) {
    commander_->worker_added(role);
    return look();
  }
  if (enough()) begin_training();
}

void CoordinatorCore::on_failed(Role role, const std::string& url) {
  if (url == options_.aggregator) {
    workers_->forget_failed(role, {url});
    if (!asked_) {
      return end(make_status(Code::kUnavailable, "the aggregator {} cannot be used within {:g} s",
                             url, seconds(options_.connect_limit)));
    }
    return post([this] { want_all(); });
  }
  if (server_) return;
  // Nobody replaces it: it is tried again.
  workers_->forget_failed(role, {url});
}

void CoordinatorCore::ask_for_workers() {
  asked_ = true;
  asked_at_ = reactor_.now();
  want_all();
  if (server_) return demand();
  follow_workers();
  wait_for_workers();
}

void CoordinatorCore::demand() {
  server_->post_demand(options_.demand, [this](const Result<Replicas>& answer) {
    if (ending_) return;
    if (answer) {
      log_.line("Recevied replicas response from server {}", python_repr(answer->data));
      collectors_ = answer->collectors;
      learners_ = answer->learners;
      want_all();
      waited_since_ = reactor_.now();
      wait_for_workers();
      follow_workers();
      return;
    }
    log::warning("{}", log::printable(answer.error().message()));
    if (reactor_.now() - asked_at_ >= options_.demand_limit) {
      return end(answer.error().with_context(fmt::format(
          "di-server did not take the demand within {:g} s", seconds(options_.demand_limit))));
    }
    demand_timer_ = reactor_.after(options_.demand_retry, [this] { demand(); });
  });
}

// Workers that are lost are tried again as long as they are listed.
void CoordinatorCore::follow_workers() {
  if (sync_) return sync_->start();
  static_timer_ = reactor_.after(options_.connect_retry, [this] {
    want_all();
    follow_workers();
  });
}

void CoordinatorCore::on_replicas(const Replicas& replicas) {
  if (ending_) return;
  collectors_ = replicas.collectors;
  learners_ = replicas.learners;
  print_lists(replicas);
  want_all();
  if (oldest_layout()) send_learners();
}

void CoordinatorCore::want_all() {
  workers_->want(Role::kCollector, both(options_.collectors, collectors_));
  workers_->want(Role::kLearner, oldest_layout() ? std::vector<std::string>{options_.aggregator}
                                                 : both(options_.learners, learners_));
}

void CoordinatorCore::send_learners() {
  if (!workers_->is_joined(options_.aggregator)) return;
  master_->send_learners(options_.aggregator, both(options_.learners, learners_),
                         [this](const Result<std::vector<std::string>>& unusable) {
                           if (!unusable) {
                             return log::warning("{}", log::printable(unusable.error().message()));
                           }
                           failed_learners_ = {unusable->begin(), unusable->end()};
                         });
}

void CoordinatorCore::print_lists(const Replicas& replicas) {
  const std::string failed = fmt::format(
      "failed list: {} {}", python_repr(as_list(workers_->failed(Role::kCollector))),
      python_repr(as_list(oldest_layout() ? failed_learners_ : workers_->failed(Role::kLearner))));
  const std::string current = fmt::format("currnet list: {} {}", python_repr(replicas.collectors),
                                          python_repr(replicas.learners));
  const std::string lists = failed + current;
  if (training_ && lists == printed_ && ++unprinted_ < kTurnsUnprinted) return;
  unprinted_ = 0;
  printed_ = lists;
  log_.line("{}", failed);
  log_.line("{}", current);
}

bool CoordinatorCore::enough() const {
  const auto reached = [this](Role role, int target) {
    return workers_->joined(role) >= static_cast<std::size_t>(std::max(target, 0));
  };
  const bool collectors = reached(Role::kCollector, options_.collector_target);
  const bool learners = reached(Role::kLearner, options_.learner_target);
  return options_.wait_for_both.value_or(oldest_layout()) ? collectors && learners
                                                          : collectors || learners;
}

void CoordinatorCore::wait_for_workers() {
  if (training_ || ending_) return;
  if (waited_since_ == io::TimePoint()) waited_since_ = reactor_.now();
  if (enough()) return begin_training();
  if (reactor_.now() - waited_since_ >= options_.wait_limit) {
    return end(make_status(
        Code::kTimeout,
        "waiting for workers: {} collectors and {} learners are connected after {:g} s, {} and {} "
        "are wanted; look at their pods, or raise the limit",
        workers_->joined(Role::kCollector), workers_->joined(Role::kLearner),
        seconds(options_.wait_limit), options_.collector_target, options_.learner_target));
  }
  log_.line("Only can connect {} collectors, {} learners.", workers_->joined(Role::kCollector),
            workers_->joined(Role::kLearner));
  wait_timer_ = reactor_.after(options_.wait_retry, [this] { wait_for_workers(); });
}

// --- training ---

void CoordinatorCore::begin_training() {
  if (training_ || ending_) return;
  training_ = true;
  wait_timer_.reset();
  log_.line("Have connected {} collectors, {} learners, match limit requests.",
            workers_->joined(Role::kCollector), workers_->joined(Role::kLearner));
  log_.line("Start...");
  if (options_.release && server_) {
    release_timer_ = reactor_.after(options_.release_after, [this] { release(*options_.release); });
  }
  turn();
}

void CoordinatorCore::turn() {
  if (ending_) return;
  if (!queue_tasks(Role::kLearner) || !queue_tasks(Role::kCollector)) return;
  look();
  turn_timer_ = reactor_.after(options_.queue_turn, [this] { turn(); });
}

bool CoordinatorCore::queue_tasks(Role role) {
  // A commander whose space has no end must not hold up the loop.
  constexpr int kMostTasksATurn = 256;
  TaskQueue& queue = role == Role::kLearner ? learner_queue_ : collector_queue_;
  for (int i = 0; i < kMostTasksATurn; ++i) {
    auto task = commander_->next_task(role);
    if (!task) return true;
    const std::string id(task->string_at({"task_id"}));
    if (id.empty() || task->string_at({"buffer_id"}).empty() || queue.contains(id) ||
        runs_.contains(id)) {
      end(make_status(Code::kInternal,
                      "the commander made a {} task without a new task_id or without a buffer_id",
                      role_name(role)));
      return false;
    }
    queue.put(*std::move(task));
    if (ending_) return false;
  }
  return true;
}

bool CoordinatorCore::has_buffer(std::string_view buffer_id) const {
  return buffers_.contains(buffer_id);
}

bool CoordinatorCore::open_buffer(const json::Value& task) {
  const std::string buffer(task.string_at({"buffer_id"}));
  if (Status status = commander_->open_buffer(buffer, task); !status.ok()) {
    log::error("replay_buffer({}): {}", buffer, status.message());
    return false;
  }
  buffers_.insert(buffer);
  log_.named("replay_buffer({}) is created", buffer);
  return true;
}

void CoordinatorCore::close_buffer(std::string_view buffer_id) {
  const auto found = buffers_.find(buffer_id);
  if (found == buffers_.end()) return;
  const auto node = buffers_.extract(found);
  commander_->close_buffer(node.value());
  log::info("replay_buffer({}) is closed", node.value());
}

void CoordinatorCore::on_assigned(Role role, json::Value task, const std::string& url) {
  const std::string id(task.string_at({"task_id"}));
  if (ending_) return commander_->dropped(role, task, DropReason::kStopped, "");
  if (role == Role::kLearner) {
    if (!open_buffer(task)) {
      commander_->dropped(role, task, DropReason::kFailed, "its replay buffer cannot be made");
      master_->disconnect(url, [](const Status&) {});  // it trains: the connection ends that
      workers_->on_lost(url);
      return look();
    }
    log::info("learner task({}) is assigned to learner({})", id, url);
  } else {
    log_.line("collector task({}) is assigned to collector({})", id, url);
  }
  log_.named("{}_task({}) is successful to be assigned", role_name(role), id);
  commander_->accepted(role, task);
  auto run = role == Role::kLearner ? make_learner_run(*this, std::move(task), url)
                                    : make_collector_run(*this, std::move(task), url);
  runs_.emplace(id, run);
  look();
  run->start();
  if (role == Role::kLearner) collector_queue_.kick();
}

void CoordinatorCore::on_run_over(const std::string& task_id) {
  auto node = runs_.extract(task_id);
  if (node.empty()) return;
  const std::shared_ptr<TaskRun> run = std::move(node.mapped());
  if (run->role() == Role::kLearner) close_buffer(run->buffer_id());
  post([run] {});  // it may be the caller
}

// --- the end ---

void CoordinatorCore::look() {
  if (ending_) return;
  auto outcome = commander_->outcome();
  if (!outcome) return;
  post([this, status = *std::move(outcome)] { end(status); });
}

void CoordinatorCore::release(const Demand& demand) {
  if (!server_) return;
  server_->remove(demand, [this](const Result<Replicas>& answer) {
    if (!answer) return log::warning("{}", log::printable(answer.error().message()));
    log_.line("send delete and received {}", python_repr(answer->data));
    workers_->forget_known(Role::kCollector, answer->collectors);
    workers_->forget_known(Role::kLearner, answer->learners);
  });
}

void CoordinatorCore::stop(Status why) {
  post([this, why = std::move(why)] { end(why); });
}

void CoordinatorCore::end(Status status) {
  if (ending_) return;
  ending_ = true;
  sync_.reset();
  demand_timer_.reset();
  wait_timer_.reset();
  turn_timer_.reset();
  static_timer_.reset();
  release_timer_.reset();
  learner_queue_.drop_all();
  collector_queue_.drop_all();
  for (const auto& [id, run] : runs_) run->stop();
  workers_->clear();
  std::vector<std::string> open(buffers_.begin(), buffers_.end());
  for (const std::string& buffer : open) close_buffer(buffer);
  master_->shutdown([this, status = std::move(status)] {
    post([done = std::exchange(on_end_, nullptr), status] {
      if (done) done(status);
    });
  });
}

void CoordinatorCore::post(std::function<void()> work) {
  reactor_.post([weak = std::weak_ptr(alive_), work = std::move(work)] {
    if (weak.lock()) work();
  });
}

Result<std::unique_ptr<Coordinator>> Coordinator::start(io::Reactor& reactor,
                                                        CoordinatorOptions options,
                                                        std::shared_ptr<Commander> commander,
                                                        std::function<void(Status)> on_end) {
  auto coordinator = std::make_unique<CoordinatorCore>(reactor, std::move(options),
                                                       std::move(commander), std::move(on_end));
  if (Status status = coordinator->open(); !status.ok()) return failure(std::move(status));
  coordinator->begin();
  return coordinator;
}

}  // namespace divisi::dist
