#include "trial_report/report_program.h"

#include "io/process.h"
#include "io/reactor.h"
#include "kube/blocking.h"
#include "runtime/job_server.h"
#include "trial_report/reporter.h"

#include <cerrno>
#include <charconv>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <optional>
#include <poll.h>
#include <string_view>
#include <sys/signalfd.h>
#include <thread>
#include <utility>
#include <vector>

namespace divisi::trial_report {
namespace {

using Clock = std::chrono::steady_clock;

constexpr const char* kUsage = "usage: divisi-report [--patience SECONDS] PROGRAM ARGUMENTS...";
constexpr const char* kHelp =
    R"(divisi-report [--patience SECONDS] PROGRAM ARGUMENTS...

Runs the program of a tuner's trial in its pod, and posts its reports ($HPO_METRICS_FILE) and its
result ($HPO_RESULT_FILE, or the files that trials write) to di-server, so that both outlive the pod.
Ends as the program does.

  --patience SECONDS  how long the end waits for a di-server that does not answer (default 60)

example: divisi-report python3 -u main.py
)";
constexpr int kBadUsage = 2;
constexpr int kNotRun = 127;  // as a shell says it
constexpr std::chrono::milliseconds kEvery{1000};
constexpr std::chrono::seconds kAnswerWithin{10};

struct Options {
  std::chrono::seconds patience{60};
  std::vector<std::string> command{};
};

void say(const std::string& line) {
  std::fprintf(stderr, "divisi-report: %s\n", line.c_str());
}

std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? std::string() : std::string(value);
}

Result<Options> read_options(std::vector<std::string> words) {
  Options options;
  if (!words.empty() && words[0] == "--patience") {
    int seconds = -1;
    const std::string text = words.size() > 1 ? words[1] : std::string();
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seconds);
    constexpr int kDay = 86400;
    if (error != std::errc() || end != text.data() + text.size() || seconds < 0 || seconds > kDay) {
      return failure(Code::kInvalid, "--patience: '{}' is no number of seconds from 0 to {}; {}",
                     text, kDay, kUsage);
    }
    options.patience = std::chrono::seconds(seconds);
    words.erase(words.begin(), words.begin() + 2);
  }
  if (!words.empty() && words[0] == "--") words.erase(words.begin());
  if (words.empty()) return failure(Code::kInvalid, "which program? {}", kUsage);
  if (words[0].starts_with("--")) {
    return failure(Code::kInvalid, "there is no option {}; {}", words[0], kUsage);
  }
  options.command = std::move(words);
  return options;
}

// The program, and the signals that are for it.
class Child {
 public:
  static Result<Child> start(const std::vector<std::string>& command) {
    DIVISI_TRY(io::Process process,
               io::Process::spawn(
                   {.program = command[0], .arguments = {command.begin() + 1, command.end()}}));
    // After the start: the program keeps the mask that it was given. Before any thread: all of them
    // leave the signals to the descriptor.
    sigset_t passed;
    ::sigemptyset(&passed);
    for (const int signal : {SIGTERM, SIGINT, SIGHUP}) ::sigaddset(&passed, signal);
    ::pthread_sigmask(SIG_BLOCK, &passed, nullptr);
    return Child(std::move(process), io::Descriptor(::signalfd(-1, &passed, SFD_CLOEXEC)));
  }

  // Whether the program has ended; waits for that for so long.
  bool ended_within(std::chrono::milliseconds time) {
    pollfd watched[2] = {{process_.pidfd(), POLLIN, 0}, {signals_.get(), POLLIN, 0}};
    if (::poll(watched, 2, static_cast<int>(time.count())) < 0 && errno != EINTR) return true;
    if ((watched[1].revents & POLLIN) != 0) pass_on();
    return (watched[0].revents & POLLIN) != 0;
  }

  int exit_code() {
    const auto status = process_.wait();
    if (!status) return kNotRun;
    constexpr int kBySignal = 128;
    return status->signal == 0 ? status->code : kBySignal + status->signal;
  }

 private:
  Child(io::Process process, io::Descriptor signals)
      : process_(std::move(process)), signals_(std::move(signals)) {}

  void pass_on() {
    signalfd_siginfo signal{};
    if (::read(signals_.get(), &signal, sizeof signal) != sizeof signal) return;
    (void)process_.kill(static_cast<int>(signal.ssi_signo));
  }

  io::Process process_;
  io::Descriptor signals_;
};

// Posts from its own thread: an answer that takes long must not keep a signal from the program.
class Posting {
 public:
  Posting(TrialFiles& files, runtime::JobServer server, std::chrono::seconds patience)
      : server_(std::move(server)),
        patience_(patience),
        reactor_(io::make_reactor()),
        reporter_(files, [this](const std::string& body) { return post(body); }, say) {
    reactor_->run_on_loop([this] { client_ = server_.connect(*reactor_); });
    thread_ = std::thread([this] { run(); });
  }
  Posting(const Posting&) = delete;
  Posting& operator=(const Posting&) = delete;

  ~Posting() {
    {
      const std::scoped_lock hold(lock_);
      ended_ = true;
    }
    changed_.notify_all();
    thread_.join();
    reactor_->run_on_loop([this] {
      call_.reset();
      client_.reset();
    });
  }

 private:
  Result<http::Response> post(const std::string& body) {
    return kube::wait_for<http::Response>(*reactor_, [&](auto done) {
      http::Request request = server_.request("POST", "/trial");
      request.headers.add("Content-Type", "application/json");
      request.body = body;
      http::CallOptions options;
      options.deadline = kAnswerWithin;
      call_ = client_->fetch(std::move(request), options, std::move(done));
    });
  }

  bool ended_within(Clock::duration time) {
    std::unique_lock hold(lock_);
    return changed_.wait_for(hold, time, [this] { return ended_; });
  }

  void run() {
    while (!ended_within(kEvery)) {
      reporter_.look();
      (void)reporter_.send();
    }
    reporter_.look_at_the_end();
    const Clock::time_point deadline = Clock::now() + patience_;
    while (!reporter_.send() && Clock::now() < deadline) std::this_thread::sleep_for(kEvery);
    if (const std::string unsent = reporter_.unsent(); !unsent.empty()) {
      say(fmt::format("{} to {}", unsent, server_.url.origin()));
    }
  }

  const runtime::JobServer server_;
  const std::chrono::seconds patience_;
  const std::unique_ptr<io::Reactor> reactor_;
  std::unique_ptr<http::Client> client_;  // of the loop
  std::unique_ptr<http::Call> call_;      // likewise
  Reporter reporter_;                     // of the thread
  std::mutex lock_;
  std::condition_variable changed_;
  bool ended_ = false;  // guarded by lock_
  std::thread thread_;
};

// Where to post; nothing, with a line that says why, outside of a trial.
std::optional<runtime::JobServer> find_server(const TrialPlace& place) {
  auto server = runtime::job_server_of_environment();
  if (!server) {
    say(server.error().message() + "; nothing is reported");
    return std::nullopt;
  }
  if (!*server || place.task.empty() || place.result_file.empty()) {
    say("DI_SERVER_URL, DI_JOB_ID, HPO_TASK_NAME or HPO_RESULT_FILE is not set, so this is no "
        "trial "
        "of a DIJob; nothing is reported");
    return std::nullopt;
  }
  return *std::move(*server);
}

}  // namespace

int report_main(int argc, char** argv) {
  if (argc > 1 && std::string_view(argv[1]) == "--help") {
    std::fputs(kHelp, stdout);
    return 0;
  }
  auto options = read_options(std::vector<std::string>(argv + 1, argv + argc));
  if (!options) {
    say(options.error().message());
    return kBadUsage;
  }
  const TrialPlace place{variable("HPO_TASK_NAME"), variable("HPO_PROJECT"),
                         variable("HPO_RESULT_FILE"), variable("HPO_METRICS_FILE")};
  auto server = find_server(place);
  TrialFiles files(place);
  auto child = Child::start(options->command);
  if (!child) {
    say(child.error().message());
    return kNotRun;
  }
  std::optional<Posting> posting;
  if (server) posting.emplace(files, *std::move(server), options->patience);
  while (!child->ended_within(kEvery)) {
  }
  posting.reset();  // what is left is posted
  return child->exit_code();
}

}  // namespace divisi::trial_report
