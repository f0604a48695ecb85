#include "ding/spawn_learner.h"

#include "ding/end_signal.h"
#include "io/process.h"

#include <chrono>
#include <csignal>
#include <cstdio>
#include <poll.h>

namespace divisi::ding {

namespace {

constexpr std::uint16_t kLearnerPort = 22'271;
constexpr std::int64_t kMostLocal = 1024;  // GPUs of one machine, generously
constexpr auto kGrace = std::chrono::seconds(10);

// Learners that run, and what became of the others.
class Group {
 public:
  explicit Group(const EndSignal& signal) : signal_(signal) {}

  bool start(const std::string& program, const LearnerProcess& process) {
    auto started = io::Process::spawn({.program = program,
                                       .arguments = process.arguments,
                                       .environment = process.environment,
                                       .die_with_parent = true});
    if (!started) {
      std::fprintf(stderr, "ding: starting a learner: %s\n", started.error().message().c_str());
      code_ = 1;
      return false;
    }
    running_.push_back(*std::move(started));
    return true;
  }

  // Until one has failed, all have ended, or a signal has come.
  void watch() {
    while (!running_.empty() && code_ == 0) {
      wait(-1);
      if (signal_.take() != 0) return;
      reap();
    }
  }

  void end() {
    for (io::Process& process : running_) (void)process.kill(SIGTERM);
    const auto deadline = std::chrono::steady_clock::now() + kGrace;
    while (!running_.empty()) {
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
          deadline - std::chrono::steady_clock::now());
      if (left.count() <= 0) break;
      wait(static_cast<int>(left.count()));
      (void)signal_.take();
      reap(true);
    }
    running_.clear();  // kills and reaps what is left
  }

  int code() const { return code_; }

 private:
  void wait(int milliseconds) {
    std::vector<pollfd> watched{{signal_.descriptor(), POLLIN, 0}};
    for (const io::Process& process : running_) watched.push_back({process.pidfd(), POLLIN, 0});
    ::poll(watched.data(), watched.size(), milliseconds);
  }

  void reap(bool ending = false) {
    std::erase_if(running_, [&](io::Process& process) {
      const auto status = process.try_wait();
      if (!status) return false;
      if (!status->ok() && !ending && code_ == 0) {
        code_ = status->code != 0 ? status->code : 1;
        std::fprintf(stderr,
                     "ding: the learner with pid %d ended with %s: the others are ended too\n",
                     process.pid(),
                     status->signal != 0 ? io::signal_name(status->signal).c_str()
                                         : fmt::format("exit code {}", status->code).c_str());
      }
      return true;
    });
  }

  const EndSignal& signal_;
  std::vector<io::Process> running_;
  int code_ = 0;
};

}  // namespace

Result<std::vector<LearnerProcess>> learner_processes(const Options& options) {
  DIVISI_TRY(const std::int64_t local, integer_variable("LOCAL_WORLD_SIZE", 0));
  DIVISI_TRY(const std::int64_t first, integer_variable("START_RANK", 0));
  DIVISI_TRY(const std::int64_t world, integer_variable("WORLD_SIZE", first + local));
  DIVISI_TRY(const std::uint16_t port,
             choose_port(options.learner_port, "LEARNER_PORT", kLearnerPort));
  std::vector<LearnerProcess> processes;
  if (local == 0) return processes;
  if (local < 0 || local > kMostLocal || first < 0 || first > 65'535 || world < first + local) {
    return failure(
        Code::kInvalid,
        "LOCAL_WORLD_SIZE={}, START_RANK={}, WORLD_SIZE={}: expected up to {} local ranks "
        "that lie within the world",
        local, first, world, kMostLocal);
  }
  if (port + first + local - 1 > 65'535) {
    return failure(Code::kInvalid, "rank {} would listen on port {}: choose a smaller -lp",
                   first + local - 1, port + first + local - 1);
  }
  for (std::int64_t i = 0; i < local; ++i) {
    LearnerProcess process;
    process.arguments = {"-m",       "dist",
                         "--module", "learner",
                         "-s",       std::to_string(options.seed),
                         "-lh",      options.learner_host,
                         "-lp",      std::to_string(port + first + i)};
    if (options.mock) {
      process.arguments.emplace_back("--mock");
    } else {
      process.arguments.insert(process.arguments.end(), {"-c", options.config});
    }
    if (!options.module_name.empty()) {
      process.arguments.insert(process.arguments.end(), {"--module-name", options.module_name});
    }
    process.environment = {{"RANK", std::to_string(first + i)},
                           {"LOCAL_RANK", std::to_string(i)},
                           {"WORLD_SIZE", std::to_string(world)}};
    processes.push_back(std::move(process));
  }
  return processes;
}

int run_learners(const std::string& program, const std::vector<LearnerProcess>& processes) {
  const EndSignal signal;
  Group group(signal);
  for (const LearnerProcess& process : processes) {
    if (!group.start(program, process)) break;
  }
  group.watch();
  group.end();
  return group.code();
}

}  // namespace divisi::ding
