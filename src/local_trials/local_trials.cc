#include "local_trials/local_trials.h"

#include "local_trials/line_tail.h"
#include "local_trials/output_log.h"
#include "local_trials/process_tree.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <csignal>
#include <fcntl.h>
#include <poll.h>
#include <sys/inotify.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

namespace divisi::local_trials {
namespace {

// Rounds of killing what keeps forking before we go on without it.
constexpr int kMaxSweeps = 100;
// In place of a watch: the kernel's queue was full, so any file may have changed.
constexpr int kEventsLost = -1;
// For a killed process to end. One that the kernel holds (a dead disk), or that a debugger has,
// takes longer and is left to a later sweep.
constexpr int kReapMs = 1000;

struct Running {
  ProcessTrial trial;
  io::Process process;
  OutputLog output;
  LineTail metrics;
  int metrics_watch = -1;         // of inotify
  std::string token;              // NAME=VALUE in the environment of all its processes
  std::vector<std::string> gpus;  // that it holds
  Clock::time_point started;
  EndReason reason = EndReason::kNone;
  std::optional<Clock::time_point> terminate_at;  // its time limit
  std::optional<Clock::time_point> kill_at;       // after SIGTERM

  bool is_ending() const { return reason != EndReason::kNone; }
  std::optional<Clock::time_point> next_deadline() const {
    return is_ending() ? kill_at : terminate_at;
  }
};

class ProcessTrials final : public LocalTrials {
 public:
  ProcessTrials(LocalTrialsOptions options, io::Descriptor changes)
      : options_(std::move(options)), free_gpus_(options_.gpus), changes_(std::move(changes)) {}

  ~ProcessTrials() override {
    for (auto& [task, running] : running_) signal_all(running, SIGKILL);
    while (!running_.empty()) {
      Running& running = running_.begin()->second;
      running.process.kill_group(SIGKILL);
      static_cast<void>(running.process.wait());
      end_orphans(running.token);
      running_.erase(running_.begin());
    }
    end_orphans("");
  }

  bool has_room() const override {
    if (running_.size() >= static_cast<std::size_t>(options_.slots)) return false;
    return options_.gpus.empty() ||
           free_gpus_.size() >= static_cast<std::size_t>(options_.gpus_per_trial);
  }

  std::size_t running() const override { return running_.size(); }

  Result<pid_t> start(ProcessTrial trial) override {
    DIVISI_CHECK(has_room(), "start() needs room");
    DIVISI_CHECK(!running_.contains(trial.task), "the task number is in use");
    if (trial.command.empty()) return failure(Code::kInvalid, "a trial without a command");
    io::Descriptor log(
        ::open(trial.log_file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
    if (!log) {
      return failure(Code::kUnavailable, "making {}: {}", trial.log_file, errno_text(errno));
    }
    const std::string token = fmt::format("{}-{}", ::getpid(), ++tokens_);
    std::vector<std::string> gpus = take_gpus();
    const int metrics_watch = watch_metrics(trial.metrics_file);
    Result<io::Process> process = spawn(trial, token, gpus, log.get());
    if (!process) {
      give_back(gpus);
      if (metrics_watch >= 0) ::inotify_rm_watch(changes_.get(), metrics_watch);
      return failure(process.error());
    }
    const pid_t pid = process->pid();
    OutputLog output(std::move(process->output()), std::move(log));
    const std::uint64_t task = trial.task;
    const std::string metrics_file = trial.metrics_file;
    Running running{.trial = std::move(trial),
                    .process = *std::move(process),
                    .output = std::move(output),
                    .metrics = LineTail(metrics_file),
                    .metrics_watch = metrics_watch,
                    .token = fmt::format("{}={}", kTokenVariable, token),
                    .gpus = std::move(gpus),
                    .started = Clock::now(),
                    .terminate_at = std::nullopt,
                    .kill_at = std::nullopt};
    if (running.trial.time_limit) {
      running.terminate_at = running.started + *running.trial.time_limit;
    }
    running_.emplace(task, std::move(running));
    return pid;
  }

  void end(std::uint64_t task, EndReason reason, bool now) override {
    const auto found = running_.find(task);
    if (found != running_.end()) begin_end(found->second, reason, now);
  }

  std::vector<TrialEvent> wait(std::optional<Clock::time_point> until, int wake) override {
    std::vector<pollfd> polled;
    const auto add = [&](int fd) { polled.push_back({.fd = fd, .events = POLLIN, .revents = 0}); };
    add(wake);
    add(changes_.get());
    for (const auto& [task, running] : running_) {
      add(running.process.pidfd());
      add(running.output.descriptor());
      const auto next = running.next_deadline();
      if (next && (!until || *next < *until)) until = next;
    }
    if (::poll(polled.data(), polled.size(), timeout_of(until)) < 0) return {};
    return collect(polled);
  }

 private:
  // Rounded up, so that a deadline has come when poll returns.
  static int timeout_of(std::optional<Clock::time_point> until) {
    if (!until) return -1;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(*until - Clock::now()).count();
    return static_cast<int>(std::clamp<std::int64_t>(left, 0, INT_MAX));
  }

  static Result<io::Process> spawn(const ProcessTrial& trial, const std::string& token,
                                   const std::vector<std::string>& gpus, int log) {
    io::SpawnOptions options;
    options.program = trial.command.front();
    options.arguments.assign(trial.command.begin() + 1, trial.command.end());
    options.environment = trial.environment;
    options.environment[std::string(kTokenVariable)] = token;
    if (!gpus.empty()) {
      options.environment["CUDA_VISIBLE_DEVICES"] = fmt::format("{}", fmt::join(gpus, ","));
    }
    options.folder = trial.folder;
    options.standard_input = io::Stdio::kNull;
    options.standard_output = io::Stdio::kPipe;
    options.error_to = log;
    options.new_process_group = true;
    options.die_with_parent = true;
    return io::Process::spawn(options);
  }

  std::vector<std::string> take_gpus() {
    if (options_.gpus.empty()) return {};
    const auto end = free_gpus_.begin() + options_.gpus_per_trial;
    std::vector<std::string> taken(free_gpus_.begin(), end);
    free_gpus_.erase(free_gpus_.begin(), end);
    return taken;
  }

  void give_back(std::vector<std::string>& gpus) {
    for (std::string& gpu : gpus) free_gpus_.push_back(std::move(gpu));
  }

  // Before the trial is started: what it writes at once must be noticed. The file is made here, so
  // that there is something to watch.
  int watch_metrics(const std::string& path) {
    if (path.empty()) return -1;
    const io::Descriptor made(::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644));
    return ::inotify_add_watch(changes_.get(), path.c_str(), IN_MODIFY);
  }

  // Group, descendants, and orphans that carry its token.
  static void signal_all(Running& running, int signal) {
    std::vector<pid_t> others = descendants_of(running.process.pid());
    for (const pid_t child : children_of(::getpid())) {
      if (child == running.process.pid() || !has_environment(child, running.token)) continue;
      others.push_back(child);
      for (const pid_t below : descendants_of(child)) others.push_back(below);
    }
    running.process.kill_group(signal);
    for (const pid_t pid : others) {
      if (::getpgid(pid) != running.process.pid()) ::kill(pid, signal);
    }
  }

  void begin_end(Running& running, EndReason reason, bool now) {
    if (!running.is_ending()) running.reason = reason;
    if (now || options_.grace.count() == 0) {
      running.kill_at.reset();
      signal_all(running, SIGKILL);
      return;
    }
    if (running.kill_at) return;
    running.kill_at = Clock::now() + options_.grace;
    signal_all(running, SIGTERM);
  }

  std::vector<TrialEvent> collect(const std::vector<pollfd>& polled) {
    std::vector<TrialEvent> events;
    const std::vector<int> changed = polled[1].revents != 0 ? changed_files() : std::vector<int>();
    std::size_t next = 2;
    for (auto entry = running_.begin(); entry != running_.end(); next += 2) {
      Running& running = entry->second;
      if (polled[next + 1].revents != 0) running.output.drain();
      TrialEvent event{.task = entry->first};
      const bool reported = std::ranges::find(changed, running.metrics_watch) != changed.end() ||
                            std::ranges::find(changed, kEventsLost) != changed.end();
      const bool ended = polled[next].revents != 0;
      if (reported || ended) event.reports = running.metrics.take();
      if (ended) finish(running, event);
      if (!ended) meet_deadline(running);
      if (event.ended || !event.reports.empty()) events.push_back(std::move(event));
      entry = ended ? running_.erase(entry) : std::next(entry);
    }
    if (running_.empty()) end_orphans("");
    return events;
  }

  std::vector<int> changed_files() {
    std::vector<int> watches;
    alignas(inotify_event) std::array<char, 1 << 14> buffer;
    ssize_t size = 0;
    while ((size = ::read(changes_.get(), buffer.data(), buffer.size())) > 0) {
      for (const char* at = buffer.data(); at < buffer.data() + size;) {
        // NOLINTNEXTLINE(cppcoreguidelines-pro-type-reinterpret-cast): as inotify(7) lays it out
        const auto* event = reinterpret_cast<const inotify_event*>(at);
        watches.push_back((event->mask & IN_Q_OVERFLOW) != 0 ? kEventsLost : event->wd);
        at += sizeof(inotify_event) + event->len;
      }
    }
    return watches;
  }

  void meet_deadline(Running& running) {
    const auto deadline = running.next_deadline();
    if (!deadline || Clock::now() < *deadline) return;
    if (!running.is_ending()) {
      begin_end(running, EndReason::kTimeOut, false);
    } else {
      running.kill_at.reset();
      signal_all(running, SIGKILL);
    }
  }

  void finish(Running& running, TrialEvent& event) {
    running.process.kill_group(SIGKILL);  // before it is reaped: the number is still its own
    event.exit = running.process.try_wait().value_or(io::ExitStatus{.unknown = true});
    event.duration = Clock::now() - running.started;
    running.output.drain();
    end_orphans(running.token);
    event.ended = true;
    event.reason = running.reason;
    event.last_line = running.output.last_line();
    event.log_problem = running.output.problem();
    if (running.metrics_watch >= 0) ::inotify_rm_watch(changes_.get(), running.metrics_watch);
    give_back(running.gpus);
  }

  bool is_first_process(pid_t pid) const {
    return std::ranges::any_of(
        running_, [&](const auto& entry) { return entry.second.process.pid() == pid; });
  }

  // Kills and reaps children of this process that are no first process of a trial: those that carry
  // the token, all of them for an empty one.
  void end_orphans(std::string_view token) {
    std::vector<pid_t> held;  // that do not end
    for (int sweep = 0; sweep < kMaxSweeps; ++sweep) {
      bool found = false;
      for (const pid_t child : children_of(::getpid())) {
        if (is_first_process(child) || std::ranges::find(held, child) != held.end()) continue;
        if (::waitpid(child, nullptr, WNOHANG) == child) continue;
        if (!token.empty() && !has_environment(child, token)) continue;
        found = true;
        for (const pid_t below : descendants_of(child)) ::kill(below, SIGKILL);
        ::kill(child, SIGKILL);
        if (!reap(child)) held.push_back(child);
      }
      if (!found) return;
    }
  }

  // Whether the killed child has ended in time.
  static bool reap(pid_t child) {
    const io::Descriptor end(static_cast<int>(::syscall(SYS_pidfd_open, child, 0)));
    pollfd one{.fd = end.get(), .events = POLLIN, .revents = 0};
    if (end) ::poll(&one, 1, kReapMs);
    return ::waitpid(child, nullptr, WNOHANG) != 0;
  }

  const LocalTrialsOptions options_;
  std::vector<std::string> free_gpus_;
  io::Descriptor changes_;  // inotify
  std::uint64_t tokens_ = 0;
  std::map<std::uint64_t, Running> running_;
};

}  // namespace

Result<std::unique_ptr<LocalTrials>> LocalTrials::open(LocalTrialsOptions options) {
  if (options.slots < 1) return failure(Code::kInvalid, "{} trials at a time", options.slots);
  if (options.grace.count() < 0) return failure(Code::kInvalid, "a grace below zero");
  const auto gpus = static_cast<int>(options.gpus.size());
  if (gpus > 0 && (options.gpus_per_trial < 1 || options.gpus_per_trial > gpus)) {
    return failure(Code::kInvalid, "{} GPUs per trial of {}", options.gpus_per_trial, gpus);
  }
  if (Status status = adopt_orphans(); !status.ok()) return failure(status);
  io::Descriptor changes(::inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
  if (!changes) {
    return failure(Code::kUnavailable, "watching files (inotify): {}; see fs.inotify limits",
                   errno_text(errno));
  }
  return std::make_unique<ProcessTrials>(std::move(options), std::move(changes));
}

}  // namespace divisi::local_trials
