// dist_aggregator [server=host:port] [learners=host:port,...]: an aggregator until SIGTERM. Prints
// "listening <port>".
#include "dist/aggregator.h"
#include "program.h"

int main(int argc, char** argv) {
  using namespace divisi;
  using namespace divisi::dist;
  const dist::testing::Arguments arguments(argc, argv);
  const sigset_t signals = dist::testing::block_signals();
  const auto reactor = io::make_reactor();
  AggregatorOptions options;
  options.slave.bind.host = options.master.bind.host = "127.0.0.1";
  options.slave.bind.port = static_cast<std::uint16_t>(arguments.number("port", 0));
  options.slave.heartbeat = arguments.ms("heartbeat_ms", 200);
  options.master.check = arguments.ms("check_ms", 100);
  options.master.tolerance = arguments.ms("tolerance_ms", 17'000);
  options.sync = arguments.ms("sync_ms", 100);
  options.connect_retry = arguments.ms("retry_ms", 100);
  options.learners = arguments.list("learners");
  if (const std::string server = arguments.text("server"); !server.empty()) {
    options.server =
        DiServerOptions{.url = server, .space = "default", .pod = "dijob-example-1-aggregator"};
  }
  options.print = dist::testing::print_line;
  Result<std::unique_ptr<Aggregator>> aggregator = failure(Code::kInternal, "not started");
  reactor->run_on_loop([&] {
    aggregator = Aggregator::start(*reactor, options);
    if (!aggregator) return;
    dist::testing::print_line(fmt::format("listening {}", (*aggregator)->address().port));
  });
  if (!aggregator) {
    fmt::print(stderr, "{}\n", aggregator.error().message());
    return 1;
  }
  dist::testing::wait_for_signal(signals);
  reactor->run_on_loop([&] { aggregator->reset(); });
  return 0;
}
