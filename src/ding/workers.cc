#include "ding/workers.h"

#include "base/log.h"
#include "ding/end_signal.h"
#include "ding/prepare_config.h"
#include "dist/aggregator.h"
#include "dist/coordinator.h"
#include "dist/slave.h"
#include "dist_rl/collector_worker.h"
#include "dist_rl/dqn_commander.h"
#include "dist_rl/learner_worker.h"
#include "dist_rl/mock.h"
#include "dist_rl/shared_files.h"
#include "io/reactor.h"

#include <arpa/inet.h>
#include <cstdio>
#include <cstdlib>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

namespace divisi::ding {

namespace {

std::string variable_or(const char* name, std::string otherwise) {
  const char* text = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): nothing sets variables
  return text != nullptr && *text != '\0' ? text : std::move(otherwise);
}

bool is_ip(const std::string& host) {
  in6_addr address{};
  return ::inet_pton(AF_INET, host.c_str(), &address) == 1 ||
         ::inet_pton(AF_INET6, host.c_str(), &address) == 1;
}

// On Kubernetes a host name ("$HOSTNAME.default" in manifests) is what others call the pod. It may
// not resolve before the service of the pod is there, so the pod listens on all its addresses.
io::Address bind_address(const Options& options, const std::string& host, std::uint16_t port) {
  const bool all = options.platform == "k8s" && !is_ip(host);
  return {io::Address::Scheme::kTcp, all ? "0.0.0.0" : host, port, {}};
}

// Set by the loop, waited for by the main thread beside the signals.
class Ended {
 public:
  Ended() : event_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

  void set(Status status) {
    status_ = std::move(status);
    const std::uint64_t one = 1;
    (void)!::write(event_.get(), &one, sizeof(one));
  }

  // Nothing when a signal came first.
  std::optional<Status> wait(const EndSignal& signal) {
    std::array<pollfd, 2> watched{{{event_.get(), POLLIN, 0}, {signal.descriptor(), POLLIN, 0}}};
    while (true) {
      ::poll(watched.data(), watched.size(), -1);
      if (watched[0].revents != 0) {
        std::uint64_t count = 0;
        (void)!::read(event_.get(), &count, sizeof(count));
        return status_;
      }
      if (watched[1].revents != 0 && signal.take() != 0) return std::nullopt;
    }
  }

 private:
  io::Descriptor event_;
  Status status_;  // written before the event, read after it
};

Result<dist_rl::TrainConfig> load_config(const Options& options) {
  DIVISI_TRY(const json::Value document, read_config(options.config));
  auto config = dist_rl::read_train_config(document, options.seed);
  if (!config) return failure(config.error().with_context(options.config));
  return config;
}

// Serves tasks until a signal or /shutdown.
Result<int> serve_tasks(const Options& options, const std::string& host, std::uint16_t port,
                        std::shared_ptr<dist::TaskHandler> handler) {
  const EndSignal signal;
  Ended ended;
  const auto reactor = io::make_reactor();
  Result<std::unique_ptr<dist::Slave>> slave = failure(Code::kInternal, "it was not started");
  reactor->run_on_loop([&] {
    slave = dist::Slave::start(
        *reactor,
        {.bind = bind_address(options, host, port), .on_shutdown = [&ended] { ended.set({}); }},
        std::move(handler));
  });
  if (!slave) return failure(slave.error());
  log::info("waiting for a coordinator on {}", (*slave)->address().to_string());
  if (!ended.wait(signal)) {
    reactor->run_on_loop([&] { (*slave)->shutdown([&ended] { ended.set({}); }); });
    (void)ended.wait(signal);
  }
  reactor->run_on_loop([&] { slave->reset(); });
  return 0;
}

// The folder of this job's files: as its coordinator pod is called, so that a pod that is made
// again finds them.
std::string job_name(const dist_rl::TrainConfig& config) {
  const std::string pod = variable_or("KUBERNETES_POD_NAME", config.dqn.exp_name);
  return dist_rl::is_plain_name(pod) ? pod : "job";
}

Status set_server(dist::CoordinatorOptions& options, const std::string& url,
                  const std::string& api_version) {
  const bool listed = !options.collectors.empty() || !options.learners.empty();
  if (url.empty() && listed) return {};
  auto server = dist::di_server_from_environment(url, api_version);
  if (!server) return server.error();
  options.server = *std::move(server);
  return {};
}

Result<dist::CoordinatorOptions> training_options(const dist_rl::TrainConfig& config) {
  dist::CoordinatorOptions options;
  options.collectors = config.collectors;
  options.learners = config.learners;
  options.demand = config.demand;
  options.collector_target = config.collector_target;
  options.learner_target = config.learner_target;
  // A learner that waits for data looks again soon: rows come in milliseconds here.
  options.sample_pause = std::chrono::milliseconds(2);
  options.sample_pause_limit = std::chrono::milliseconds(50);
  options.queue_turn = std::chrono::milliseconds(20);
  options.assign_retry = std::chrono::seconds(1);
  if (Status status = set_server(options, config.server, config.api_version); !status.ok()) {
    return failure(std::move(status));
  }
  return options;
}

Result<dist::CoordinatorOptions> mock_options() {
  dist::CoordinatorOptions options;
  options.demand.collectors.replicas = 2;
  options.demand.learners.replicas = 2;
  options.collector_limit = std::chrono::seconds(5);
  options.learner_limit = std::chrono::seconds(5);
  options.assign_retry = std::chrono::seconds(1);
  // The job of the first documents gives one of its two collectors back.
  options.release = dist::Demand{};
  options.release->collectors.replicas = 1;
  if (Status status = set_server(options, "", ""); !status.ok()) return failure(std::move(status));
  return options;
}

Result<int> coordinate(const Options& options) {
  const EndSignal signal;  // before the commander, which has a thread
  dist::CoordinatorOptions how;
  std::shared_ptr<dist::Commander> commander;
  std::uint16_t otherwise = 22'273;
  if (options.mock) {
    DIVISI_TRY(how, mock_options());
    commander = dist_rl::make_mock_commander();
  } else {
    DIVISI_TRY(const dist_rl::TrainConfig config, load_config(options));
    otherwise = config.coordinator_port;
    DIVISI_TRY(how, training_options(config));
    DIVISI_TRY(commander, dist_rl::make_dqn_commander({.config = config, .job = job_name(config)}));
  }
  DIVISI_TRY(const std::uint16_t port,
             choose_port(options.coordinator_port, "COORDINATOR_PORT", otherwise));
  how.master.bind = bind_address(options, options.coordinator_host, port);
  how.aggregator = variable_or("KUBERNETES_AGGREGATOR_URL", "");

  Ended ended;
  const auto reactor = io::make_reactor();
  Result<std::unique_ptr<dist::Coordinator>> coordinator = failure(Code::kInternal, "not started");
  reactor->run_on_loop([&] {
    coordinator =
        dist::Coordinator::start(*reactor, std::move(how), commander,
                                 [&ended](Status status) { ended.set(std::move(status)); });
  });
  if (!coordinator) return failure(coordinator.error());
  std::optional<Status> status = ended.wait(signal);
  if (!status) {
    reactor->run_on_loop(
        [&] { (*coordinator)->stop(make_status(Code::kCancelled, "asked to end by a signal")); });
    status = ended.wait(signal);
  }
  reactor->run_on_loop([&] { coordinator->reset(); });
  commander.reset();
  if (!status) return failure(Code::kCancelled, "asked to end twice");
  // kInvalid would read as a mistake of the command line.
  if (!status->ok()) return failure(Code::kUnavailable, "{}", status->message());
  log::info("the job is done");
  return 0;
}

Result<int> collect(const Options& options) {
  std::uint16_t otherwise = 22'270;
  std::shared_ptr<dist::TaskHandler> handler;
  if (options.mock) {
    handler = dist_rl::make_mock_collector();
  } else {
    DIVISI_TRY(dist_rl::TrainConfig config, load_config(options));
    otherwise = config.collector_port;
    handler = dist_rl::make_collector_worker(std::move(config));
  }
  DIVISI_TRY(const std::uint16_t port,
             choose_port(options.collector_port, "COLLECTOR_PORT", otherwise));
  return serve_tasks(options, options.collector_host, port, std::move(handler));
}

Result<int> learn(const Options& options) {
  std::uint16_t otherwise = 22'271;
  std::shared_ptr<dist::TaskHandler> handler;
  if (options.mock) {
    handler = dist_rl::make_mock_learner();
  } else {
    DIVISI_TRY(dist_rl::TrainConfig config, load_config(options));
    otherwise = config.learner_port;
    DIVISI_TRY(auto group, dist_rl::ParameterGroup::from_environment());
    handler = dist_rl::make_learner_worker(std::move(config), std::move(group));
  }
  DIVISI_TRY(const std::uint16_t port,
             choose_port(options.learner_port, "LEARNER_PORT", otherwise));
  return serve_tasks(options, options.learner_host, port, std::move(handler));
}

Result<int> aggregate(const Options& options) {
  DIVISI_TRY(const std::uint16_t port,
             choose_port(options.aggregator_port, "AGGREGATOR_PORT", 22'272));
  if (port == 65'535) return failure(Code::kInvalid, "the aggregator needs the next port, too");
  dist::AggregatorOptions how;
  how.slave.bind = bind_address(options, options.aggregator_host, port);
  how.master.bind =
      bind_address(options, options.aggregator_host, static_cast<std::uint16_t>(port + 1));
  // In the oldest layout the coordinator sends the list of learners.
  if (!variable_or("KUBERNETES_SERVER_URL", "").empty() &&
      variable_or("KUBERNETES_AGGREGATOR_URL", "").empty()) {
    DIVISI_TRY(how.server, dist::di_server_from_environment("", ""));
    how.server->aggregator = true;
  }
  const EndSignal signal;
  Ended ended;
  how.slave.on_shutdown = [&ended] { ended.set({}); };
  const auto reactor = io::make_reactor();
  Result<std::unique_ptr<dist::Aggregator>> aggregator = failure(Code::kInternal, "not started");
  reactor->run_on_loop([&] { aggregator = dist::Aggregator::start(*reactor, std::move(how)); });
  if (!aggregator) return failure(aggregator.error());
  log::info("waiting for a coordinator on {}", (*aggregator)->address().to_string());
  if (!ended.wait(signal)) {
    reactor->run_on_loop([&] { (*aggregator)->stop([&ended] { ended.set({}); }); });
    (void)ended.wait(signal);
  }
  reactor->run_on_loop([&] { aggregator->reset(); });
  return 0;
}

}  // namespace

Result<int> run_worker(const Options& options) {
  switch (options.module) {
    case Module::kCoordinator: return coordinate(options);
    case Module::kCollector: return collect(options);
    case Module::kLearner:
    case Module::kSpawnLearner: return learn(options);
    case Module::kAggregator: return aggregate(options);
    case Module::kNone:
    case Module::kConfig: break;
  }
  return failure(Code::kInternal, "this module does not run");
}

}  // namespace divisi::ding
