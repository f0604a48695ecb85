// A plugin's process: what it prints, until when it may run, and how its end is told.
#include "base/log.h"
#include "kube/exec_plugin.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <fcntl.h>
#include <poll.h>
#include <unistd.h>
#include <utility>

namespace divisi::kube {
namespace {

using std::chrono::steady_clock;

constexpr std::size_t kMaxOutput = std::size_t{1} << 20;  // credentials are some kilobytes
constexpr std::size_t kMaxShown = 300;                    // of what it complained about
constexpr std::chrono::minutes kPeopleNeed(10);           // to find a telephone and type a code

// What a process wrote to one pipe.
class Captured {
 public:
  enum class Overflow { kKeep, kDropOldest };

  Captured(io::Descriptor pipe, Overflow overflow) : pipe_(std::move(pipe)), overflow_(overflow) {
    if (pipe_) ::fcntl(pipe_.get(), F_SETFL, O_NONBLOCK);
  }

  int fd() const { return pipe_.get(); }  // -1 (which poll() skips) after the end
  const std::string& text() const { return text_; }
  bool too_long() const { return too_long_; }

  // What is there now, which is at most what a pipe holds: one that is filled as fast as we read
  // must not keep us from looking at the clock.
  void read() {
    std::array<char, 16384> piece{};
    constexpr std::size_t kPipeHolds = std::size_t{1} << 20;  // the system's largest
    for (std::size_t total = 0; pipe_ && !too_long_ && total < kPipeHolds;) {
      const ssize_t got = ::read(pipe_.get(), piece.data(), piece.size());
      if (got < 0 && errno == EINTR) continue;
      if (got < 0 && errno == EAGAIN) return;
      if (got <= 0) return pipe_.reset();
      total += static_cast<std::size_t>(got);
      text_.append(piece.data(), static_cast<std::size_t>(got));
      if (text_.size() <= kMaxOutput) continue;
      if (overflow_ == Overflow::kDropOldest) {
        text_.erase(0, text_.size() - kMaxOutput / 2);
      } else {
        too_long_ = true;
      }
    }
  }

 private:
  io::Descriptor pipe_;
  const Overflow overflow_;
  std::string text_;
  bool too_long_ = false;
};

std::string shown_name(const ExecPlugin& plugin) {
  return fmt::format("the exec plugin {}", log::printable(plugin.command));
}

// The last line with something in it, short, and without what the kubeconfig gave the plugin in
// its environment: that may be a secret.
std::string complaint(const std::string& errors, const ExecPlugin& plugin) {
  const std::size_t end = errors.find_last_not_of(" \t\r\n");
  if (end == std::string::npos) return {};
  const std::size_t begin = errors.find_last_of("\r\n", end) + 1;
  std::string line = errors.substr(begin, end + 1 - begin);
  for (const auto& [name, secret] : plugin.environment) {
    constexpr std::size_t kShortest = 6;  // "true" and "1" are no secrets, and would hide words
    if (secret.size() < kShortest) continue;
    for (std::size_t at = 0; (at = line.find(secret, at)) != std::string::npos; at += 3) {
      line.replace(at, secret.size(), "***");
    }
  }
  if (line.size() > kMaxShown) line = line.substr(0, kMaxShown) + "...";
  return ": " + log::printable(std::move(line));
}

Result<io::Process> start(const ExecRequest& request) {
  const ExecPlugin& plugin = request.plugin;
  io::SpawnOptions options;
  options.program = plugin.command;
  options.arguments = plugin.arguments;
  for (const auto& [name, value] : plugin.environment) options.environment[name] = value;
  options.environment["KUBERNETES_EXEC_INFO"] = request.info;
  options.standard_output = io::Stdio::kPipe;
  // Whoever is asked must see the question; and a terminal gives nothing to a group of processes
  // in its background, so an interactive plugin stays in ours.
  options.standard_input = request.interactive ? io::Stdio::kInherit : io::Stdio::kNull;
  options.standard_error = request.interactive ? io::Stdio::kInherit : io::Stdio::kPipe;
  options.new_process_group = !request.interactive;
  options.die_with_parent = true;
  auto child = io::Process::spawn(options);
  if (child) return child;
  if (child.error().code() == Code::kNotFound) {
    return failure(Code::kUnauthorized, "{} is not there{}{}", shown_name(plugin),
                   plugin.install_hint.empty() ? "; install it or correct the kubeconfig" : ": ",
                   log::printable(plugin.install_hint));
  }
  return failure(Code::kUnauthorized, "{} cannot be started: {}", shown_name(plugin),
                 child.error().message());
}

// Until the child has ended (nothing), or why we do not wait for that.
Status watch(io::Process& child, Captured& output, Captured& errors, int cancelled,
             steady_clock::time_point deadline) {
  while (true) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - steady_clock::now());
    if (left.count() <= 0) return {Code::kTimeout, "did not end in time and was killed"};
    std::array<pollfd, 4> files{pollfd{child.pidfd(), POLLIN, 0}, pollfd{output.fd(), POLLIN, 0},
                                pollfd{errors.fd(), POLLIN, 0}, pollfd{cancelled, POLLIN, 0}};
    constexpr std::int64_t kLongest = 3'600'000;  // what poll() takes is an int
    const int wait = static_cast<int>(std::min<std::int64_t>(left.count(), kLongest));
    if (::poll(files.data(), files.size(), wait) < 0 && errno != EINTR) {
      return {Code::kInternal, "cannot be waited for: " + errno_text(errno)};
    }
    if (files[3].revents != 0) return {Code::kCancelled, "is no longer needed"};
    // In this order: what it wrote before it ended is in the pipes by then. They need not end with
    // it, since it may have started others that hold them.
    const bool ended = files[0].revents != 0;
    output.read();
    errors.read();
    if (output.too_long()) return {Code::kInvalid, "printed more than 1 MB"};
    if (ended) return {};
  }
}

Result<ExecCredential> run(const ExecRequest& request, int cancelled) {
  const ExecPlugin& plugin = request.plugin;
  const auto allowed = request.interactive ? std::max<io::Duration>(request.deadline, kPeopleNeed)
                                           : request.deadline;
  const auto deadline = steady_clock::now() + allowed;
  DIVISI_TRY(io::Process child, start(request));
  Captured output(std::move(child.output()), Captured::Overflow::kKeep);
  Captured errors(std::move(child.error()), Captured::Overflow::kDropOldest);
  // On an early way out the destructor kills the child and its group.
  if (const Status status = watch(child, output, errors, cancelled, deadline); !status.ok()) {
    return failure(status.code(), "{} {}{}", shown_name(plugin), status.message(),
                   complaint(errors.text(), plugin));
  }
  DIVISI_TRY(const io::ExitStatus exit, child.wait());
  if (!exit.ok()) {
    const std::string how = exit.signal != 0
                                ? fmt::format("was ended by {}", io::signal_name(exit.signal))
                                : fmt::format("failed with exit code {}", exit.code);
    return failure(Code::kUnauthorized, "{} {}{}", shown_name(plugin), how,
                   complaint(errors.text(), plugin));
  }
  auto credential = parse_exec_credential(output.text(), plugin.api_version);
  if (!credential) {
    return failure(Code::kUnauthorized, "{} gave no usable credentials: {}", shown_name(plugin),
                   credential.error().message());
  }
  return credential;
}

}  // namespace

ExecRun::ExecRun(io::Reactor& reactor, ExecRequest request,
                 std::function<void(Result<ExecCredential>)> on_done) {
  auto pipe = io::make_pipe();
  if (!pipe) {
    reactor.post(
        [on_done = std::move(on_done), status = pipe.error(), alive = std::weak_ptr(alive_)] {
          if (!alive.expired()) on_done(failure(status));
        });
    return;
  }
  cancel_ = std::move(pipe->write);
  thread_ =
      std::thread([&reactor, request = std::move(request), on_done = std::move(on_done),
                   cancelled = std::move(pipe->read), alive = std::weak_ptr(alive_)]() mutable {
        auto outcome = run(request, cancelled.get());
        reactor.post([on_done = std::move(on_done), outcome = std::move(outcome), alive] {
          if (!alive.expired()) on_done(outcome);
        });
      });
}

ExecRun::~ExecRun() {
  cancel_.reset();
  if (thread_.joinable()) thread_.join();
}

}  // namespace divisi::kube
