#include "kube_exec.h"

#include "input_pump.h"
#include "kube_print.h"

#include <cstdio>
#include <memory>
#include <optional>
#include <unistd.h>
#include <utility>

namespace divisi::apps {
namespace {

// Our standard input goes on as it comes, and no faster than the command takes it.
class ExecInput {
 public:
  explicit ExecInput(io::Reactor& reactor)
      : reactor_(reactor), pump_(STDIN_FILENO, [this](std::string piece) {
          reactor_.post([this, piece = std::move(piece)] { take(piece); });
        }) {}

  // From the loop; the command must stay until stop() and a turn of the loop behind it.
  void start(kube::Exec& command) {
    command_ = &command;
    pump_.next();
  }
  void stop() { pump_.stop(); }
  void on_progress() {
    if (!holds_ || command_->unsent() > kWindow) return;
    holds_ = false;
    pump_.next();
  }

 private:
  // Some round trips of a fast network.
  static constexpr std::size_t kWindow = std::size_t{1} << 20;

  void take(const std::string& piece) {
    if (piece.empty()) return command_->close_input();
    command_->write(piece);
    holds_ = true;
    on_progress();
  }

  io::Reactor& reactor_;
  kube::Exec* command_ = nullptr;
  bool holds_ = false;  // the pump waits for the command
  InputPump pump_;
};

}  // namespace

Result<int> exec_in_pod(kube::Session& session, const std::string& pod,
                        const kube::ExecOptions& options) {
  std::unique_ptr<kube::Exec> running;
  std::optional<ExecInput> input;
  auto outcome = kube::wait_for<int>(session.reactor(), [&](auto done) {
    if (options.input) input.emplace(session.reactor());
    running = kube::Exec::start(
        session.client(), session.config().default_namespace, pod, options,
        {.on_output = print,
         .on_error =
             [](std::string_view text) { std::fwrite(text.data(), 1, text.size(), stderr); },
         .on_progress =
             [&input] {
               if (input) input->on_progress();
             },
         .on_done = std::move(done)});
    if (input) input->start(*running);
  });
  if (input) input->stop();
  session.reactor().run_on_loop([&] { running.reset(); });
  return outcome;
}

}  // namespace divisi::apps
