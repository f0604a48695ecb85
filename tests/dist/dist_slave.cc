// dist_slave [role=collector|learner] [port=0] [channel=0] [heartbeat_ms=200] [max_body=...]: a
// slave until SIGTERM. Prints "listening <port> <self token>".
//
// A collector also knows the tasks "throw" (an exception) and "wait" (until the master is gone).
#include "dist/slave.h"
#include "dist/testing/mock_training.h"
#include "program.h"

#include <stdexcept>

namespace {

using namespace divisi;
using namespace divisi::dist;

class SpoiledCollector final : public TaskHandler {
 public:
  TaskOutcome run(const json::Value& data) override {
    const std::string_view name = data.string_at({"name"});
    if (name == "throw") throw std::runtime_error("broken on purpose");
    if (name != "wait") return collector_.run(data);
    collector_.run(
        *json::parse(R"({"name": "collector_start_task", "task_info": {"task_id": "t"}})"));
    collector_.hold_data();
    return collector_.run(json::Object{{"name", "collector_data_task"}});
  }
  void stop() override { collector_.stop(); }
  void master_gone() override {
    collector_.master_gone();
    dist::testing::print_line("master gone");
  }

 private:
  dist::testing::MockCollector collector_{3};
};

}  // namespace

int main(int argc, char** argv) {
  const dist::testing::Arguments arguments(argc, argv);
  const sigset_t signals = dist::testing::block_signals();
  const auto reactor = io::make_reactor();
  SlaveOptions options;
  options.bind.host = "127.0.0.1";
  options.bind.port = static_cast<std::uint16_t>(arguments.number("port", 0));
  options.channel = arguments.number("channel", 0);
  options.heartbeat = arguments.ms("heartbeat_ms", 200);
  options.retry.retries = arguments.number("retries", 1);
  options.retry.pause = arguments.ms("pause_ms", 50);
  std::shared_ptr<TaskHandler> handler;
  if (arguments.text("role", "collector") == "learner") {
    handler = std::make_shared<dist::testing::MockLearner>(3, arguments.number("batch", 4));
  } else {
    handler = std::make_shared<SpoiledCollector>();
  }
  Result<std::unique_ptr<Slave>> slave = failure(Code::kInternal, "not started");
  reactor->run_on_loop([&] {
    slave = Slave::start(*reactor, options, handler);
    if (!slave) return;
    dist::testing::print_line(
        fmt::format("listening {} {}", (*slave)->address().port, (*slave)->self_token()));
  });
  if (!slave) {
    fmt::print(stderr, "{}\n", slave.error().message());
    return 1;
  }
  dist::testing::wait_for_signal(signals);
  reactor->run_on_loop([&] { slave->reset(); });
  return 0;
}
