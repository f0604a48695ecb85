// dist_coordinator [server=host:port] [collectors=n] [learners=n] [aggregator=host:port]
//                  [collector_target=1] [learner_target=1] [..._ms=...]: a coordinator with a
//                  training
// that learns nothing. Its log is on standard output, "listening <port>" first. Exit 0 when
// training is done.
#include "dist/coordinator.h"
#include "dist/testing/mock_training.h"
#include "program.h"

#include <atomic>

namespace {

using namespace divisi;
using namespace divisi::dist;

CoordinatorOptions read_options(const dist::testing::Arguments& arguments) {
  CoordinatorOptions options;
  options.master.bind.host = "127.0.0.1";
  options.master.bind.port = static_cast<std::uint16_t>(arguments.number("port", 0));
  options.master.channel = arguments.number("channel", 0);
  options.master.check = arguments.ms("check_ms", 100);
  options.master.tolerance = arguments.ms("tolerance_ms", 17'000);
  options.master.retry.retries = arguments.number("retries", 5);
  options.master.retry.pause = arguments.ms("pause_ms", 100);
  options.master.retry.answer_timeout = arguments.ms("answer_ms", 10'000);
  if (const std::string server = arguments.text("server"); !server.empty()) {
    options.server =
        DiServerOptions{.url = server, .space = "default", .pod = "dijob-example-1-coordinator"};
  }
  options.demand.collectors.replicas = arguments.number("collectors", 1);
  options.demand.learners.replicas = arguments.number("learners", 1);
  options.aggregator = arguments.text("aggregator");
  options.collector_target = arguments.number("collector_target", 1);
  options.learner_target = arguments.number("learner_target", 1);
  options.wait_for_both = true;
  options.sync = arguments.ms("sync_ms", 100);
  options.demand_retry = options.connect_retry = options.wait_retry = arguments.ms("retry_ms", 100);
  options.connect_limit = arguments.ms("connect_limit_ms", 60'000);
  options.wait_limit = arguments.ms("wait_limit_ms", 60'000);
  options.resource_limit = arguments.ms("resource_ms", 30'000);
  options.collector_limit = arguments.ms("collector_limit_ms", 30'000);
  options.assign_retry = options.task_retry = options.sample_pause = arguments.ms("pause_ms", 100);
  options.print = dist::testing::print_line;
  if (const int given_back = arguments.number("release", 0); given_back > 0) {
    options.release = Demand{.collectors = {.replicas = given_back}};
    options.release_after = std::chrono::milliseconds(200);
  }
  return options;
}

}  // namespace

int main(int argc, char** argv) {
  const dist::testing::Arguments arguments(argc, argv);
  const sigset_t signals = dist::testing::block_signals();
  const auto reactor = io::make_reactor();
  auto commander =
      std::make_shared<dist::testing::MockCommander>(dist::testing::MockCommander::Options{
          .collector_space = arguments.number("collector_space", 1)});
  std::unique_ptr<Coordinator> coordinator;
  Status outcome;
  std::atomic<bool> over{false};
  reactor->run_on_loop([&] {
    auto started =
        Coordinator::start(*reactor, read_options(arguments), commander, [&](const Status& status) {
          outcome = status;
          over = true;
          kill(getpid(), SIGTERM);
        });
    if (!started) {
      outcome = started.error();
      return;
    }
    coordinator = *std::move(started);
    dist::testing::print_line(fmt::format("listening {}", coordinator->address().port));
  });
  if (coordinator) {
    dist::testing::wait_for_signal(signals);
    if (!over) {
      reactor->run_on_loop([&] { coordinator->stop({Code::kCancelled, "ended by a signal"}); });
      dist::testing::wait_for_signal(signals);
    }
    reactor->run_on_loop([&] { coordinator.reset(); });
  }
  if (outcome.ok()) return 0;
  fmt::print(stderr, "{}\n", outcome.message());
  return 1;
}
