#include "runtime/supervisor.h"

#include "base/deadline.h"
#include "base/log.h"
#include "runtime/worker.h"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <poll.h>
#include <unistd.h>
#include <utility>

namespace divisi::runtime {

namespace {

using namespace std::chrono_literals;

constexpr std::size_t kTailLines = 20;
constexpr std::chrono::milliseconds kGraceWithoutJoin = 500ms;
constexpr auto kLongestRestartDelay = 5s;
// How long the last lines may wait for a reader that does not read, once we were told to end.
constexpr auto kFlushAfterSignal = 1s;

bool is_failure(WorkerReport::Kind kind) {
  return kind != WorkerReport::Kind::kJoined && kind != WorkerReport::Kind::kDone;
}

Code code_of(WorkerReport::Kind kind) {
  switch (kind) {
    case WorkerReport::Kind::kBindFailed: return Code::kUnavailable;
    case WorkerReport::Kind::kRefused: return Code::kUnauthorized;
    case WorkerReport::Kind::kJoinTimeout: return Code::kTimeout;
    case WorkerReport::Kind::kUsage: return Code::kInvalid;
    default: return Code::kInternal;
  }
}

int milliseconds_until(std::chrono::steady_clock::time_point when) {
  const auto left =
      std::chrono::ceil<std::chrono::milliseconds>(when - std::chrono::steady_clock::now());
  return static_cast<int>(std::clamp<std::int64_t>(left.count(), 0, 1'000'000));
}

void remove_socket_file(const WorkerConfig& config) {
  if (const std::string path = ipc_path(config.listen); !path.empty()) ::unlink(path.c_str());
}

}  // namespace

// The check loses sight of an optional behind a pointer; a worker that is looked at here runs.
// NOLINTBEGIN(bugprone-unchecked-optional-access)

SigpipeBlock::SigpipeBlock() {
  sigset_t set;
  sigset_t previous;
  ::sigemptyset(&set);
  ::sigaddset(&set, SIGPIPE);
  ::pthread_sigmask(SIG_BLOCK, &set, &previous);
  changed_ = ::sigismember(&previous, SIGPIPE) == 0;
}

SigpipeBlock::~SigpipeBlock() {
  if (!changed_) return;
  sigset_t set;
  ::sigemptyset(&set);
  ::sigaddset(&set, SIGPIPE);
  const timespec now{};
  while (::sigtimedwait(&set, nullptr, &now) == SIGPIPE) {
  }
  ::pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
}

Supervisor::Supervisor(const RunnerOptions& options, const std::vector<WorkerConfig>& workers)
    : options_(options),
      own_signals_(options.signals == nullptr ? std::make_unique<const SignalWatch>(kEndSignals)
                                              : nullptr),
      signals_(options.signals == nullptr ? *own_signals_ : *options.signals),
      stdout_(STDOUT_FILENO),
      stderr_(STDERR_FILENO) {
  for (const WorkerConfig& config : workers) {
    workers_.push_back(std::make_unique<Worker>());
    workers_.back()->config = config;
  }
}

Supervisor::~Supervisor() {
  for (const auto& worker : workers_) {
    worker->process.reset();
    remove_socket_file(worker->config);
  }
}

RunResult Supervisor::run() {
  const auto began = Clock::now();
  for (const auto& worker : workers_) {
    // Workers of ours wait by themselves, before they listen.
    if (!is_configured() && worker->config.startup_delay > 0ms) {
      worker->again_at = deadline_after(worker->config.startup_delay, began);
      continue;
    }
    if (const Status status = start(*worker); !status.ok()) {
      fail(*worker, kExitUsage, status.code(), status.message());
      break;
    }
  }
  std::vector<pollfd> fds;
  std::vector<Watched> watched;
  while (any_left()) {
    collect_watched(fds, watched);
    const int ready = ::poll(fds.data(), fds.size(), poll_timeout());
    if (ready > 0) {
      // Signals stand first: a Ctrl-C is known before the deaths it may have caused are judged.
      for (std::size_t i = 0; i < fds.size(); ++i) {
        if (fds[i].revents != 0) dispatch(watched[i]);
      }
    }
    check_clock();
    stdout_.write_some();
    stderr_.write_some();
    if (options_.end_with_reader && stdout_.error() == EPIPE && signal_ == 0) {
      signal_ = SIGPIPE;
      begin_shutdown(options_.grace);
    }
  }
  flush_output();
  report_lost_output();
  if (signal_ != 0) {
    result_ = {exit_code_of_signal(signal_),
               make_status(Code::kCancelled, "ended by {}", io::signal_name(signal_)),
               -1,
               {}};
  } else if (result_.ok() && !shutting_down_ && !workers_.empty() &&
             std::ranges::none_of(workers_, [](const auto& worker) { return worker->finished; })) {
    result_.exit_code = kExitMainFailed;
    result_.status = {Code::kUnavailable, "every worker was lost"};
  }
  return std::move(result_);
}

io::SpawnOptions Supervisor::spawn_options(const Worker& worker) const {
  io::SpawnOptions spawn;
  spawn.environment[kWorkerFdVariable] = std::nullopt;
  if (options_.command.empty()) {
    spawn.program = io::current_program();
    spawn.arguments = {fmt::format("divisi-worker-node-{}", worker.config.node_id)};
  } else {
    spawn.program = options_.command.front();
    spawn.arguments.assign(options_.command.begin() + 1, options_.command.end());
  }
  if (!is_configured()) {
    for (const std::string& variable : worker_environment(worker.config)) {
      const std::size_t equals = variable.find('=');
      spawn.environment[variable.substr(0, equals)] = variable.substr(equals + 1);
    }
  }
  // Workers have groups of their own, so that a Ctrl-C reaches us alone and we tell them to finish;
  // from such a group a read from the terminal would stop them.
  spawn.new_process_group = true;
  spawn.die_with_parent = true;
  const bool may_read = workers_.size() == 1 && ::isatty(STDIN_FILENO) == 0;
  spawn.standard_input = may_read ? io::Stdio::kInherit : io::Stdio::kNull;
  if (options_.relay_output) {
    spawn.standard_output = io::Stdio::kPipe;
    spawn.standard_error = io::Stdio::kPipe;
  }
  return spawn;
}

// A sibling that ended as it should does not come back: a later life of this one, which begins
// with nothing, has neither to dial it nor to wait for it.
void Supervisor::forget_finished_siblings(WorkerConfig& config) const {
  for (const auto& sibling : workers_) {
    if (!sibling->finished) continue;
    std::erase(config.dial, sibling->config.listen);
    const bool was_linked = std::erase(config.linked_nodes, sibling->config.node_id) > 0;
    // In a star those that are linked are counted anew, see node_options().
    const bool was_counted = config.topology == Topology::kMesh && config.expected_nodes > 0;
    if (was_linked && was_counted) --config.expected_nodes;
  }
}

Status Supervisor::start(Worker& worker) {
  if (worker.config.restarts > 0) forget_finished_siblings(worker.config);
  DIVISI_TRY_STATUS(open_log_file(worker));
  io::SpawnOptions spawn = spawn_options(worker);
  io::Descriptor config;
  WorkerChannel theirs;
  if (is_configured()) {
    auto file = io::make_memory_file("divisi-worker", encode(worker.config));
    if (!file) return file.error();
    config = *std::move(file);
    auto channel = WorkerChannel::make_pair();
    if (!channel) return channel.error();
    worker.channel = std::move(channel->first);
    theirs = std::move(channel->second);
    spawn.inherited = {config.get(), theirs.fd()};
    spawn.environment[kWorkerFdVariable] = fmt::format("{},{}", config.get(), theirs.fd());
  }
  auto process = io::Process::spawn(spawn);
  if (!process) return process.error();
  worker.process.emplace(*std::move(process));
  worker.joined = false;
  worker.outcome.reset();
  attach_output(worker);
  tell(WorkerEvent::Kind::kStarted, worker, worker.process->pid(), "started");
  return {};
}

Status Supervisor::open_log_file(Worker& worker) const {
  if (!options_.relay_output || options_.log_dir.empty() || worker.log_file) return {};
  auto file = LogFile::open(fmt::format("{}/node_{}.log", options_.log_dir, worker.config.node_id));
  if (!file) return file.error();
  worker.log_file = *std::move(file);
  return {};
}

void Supervisor::attach_output(Worker& worker) {
  if (!options_.relay_output) return;
  const int id = worker.config.node_id;
  const auto options = [&](OutputSink& sink, std::size_t keep_last) {
    return LineRelay::Options{
        .sink = &sink,
        .prefix = options_.prefix ? node_prefix(id, wants_colour(sink.fd())) : std::string(),
        .log = worker.log_file.get(),
        .keep_last = keep_last};
  };
  worker.output.emplace(options(stdout_, 0), std::move(worker.process->output()));
  worker.error.emplace(options(stderr_, kTailLines), std::move(worker.process->error()));
}

bool Supervisor::any_left() const {
  return std::ranges::any_of(workers_, [this](const auto& worker) {
    return worker->process || (worker->again_at && !shutting_down_);
  });
}

void Supervisor::collect_watched(std::vector<pollfd>& fds, std::vector<Watched>& watched) {
  using Kind = Watched::Kind;
  fds.clear();
  watched.clear();
  const auto add = [&](int fd, short events, Watched what) {
    if (fd < 0) return;
    fds.push_back({fd, events, 0});
    watched.push_back(what);
  };
  add(signals_.fd(), POLLIN, {Kind::kSignals, nullptr, nullptr});
  if (!shutting_down_) add(options_.stop_fd, POLLIN, {Kind::kStop, nullptr, nullptr});
  for (const auto& worker : workers_) {
    if (!worker->process) continue;
    // Reports and lines before the end of their process.
    if (worker->channel) add(worker->channel.fd(), POLLIN, {Kind::kChannel, worker.get(), nullptr});
    if (worker->output && !stdout_.is_full()) {
      add(worker->output->fd(), POLLIN, {Kind::kOutput, worker.get(), nullptr});
    }
    if (worker->error && !stderr_.is_full()) {
      add(worker->error->fd(), POLLIN, {Kind::kError, worker.get(), nullptr});
    }
    add(worker->process->pidfd(), POLLIN, {Kind::kProcess, worker.get(), nullptr});
  }
  for (OutputSink* const sink : {&stdout_, &stderr_}) {
    if (sink->has_pending()) add(sink->fd(), POLLOUT, {Kind::kSink, nullptr, sink});
  }
}

int Supervisor::poll_timeout() const {
  std::optional<Clock::time_point> next;
  if (shutting_down_ && kill_at_ != Clock::time_point::max()) next = kill_at_;
  for (const auto& worker : workers_) {
    if (worker->again_at && !shutting_down_)
      next = next ? std::min(*next, *worker->again_at) : *worker->again_at;
  }
  return next ? milliseconds_until(*next) : -1;
}

void Supervisor::dispatch(const Watched& watched) {
  Worker* const worker = watched.worker;
  switch (watched.kind) {
    case Watched::Kind::kSignals: take_signals(); break;
    case Watched::Kind::kStop: begin_shutdown(options_.grace); break;
    case Watched::Kind::kChannel: take_reports(*worker); break;
    case Watched::Kind::kOutput:
      if (!worker->output->read_some()) worker->output->finish();
      break;
    case Watched::Kind::kError:
      if (!worker->error->read_some()) worker->error->finish();
      break;
    case Watched::Kind::kProcess: take_exit(*worker); break;
    case Watched::Kind::kSink: break;  // written after every round
  }
}

void Supervisor::check_clock() {
  const auto now = Clock::now();
  if (shutting_down_ && now >= kill_at_) kill_all();
  for (const auto& worker : workers_) {
    if (!worker->again_at || shutting_down_ || now < *worker->again_at) continue;
    worker->again_at.reset();
    if (const Status status = start(*worker); !status.ok()) {
      fail(*worker, kExitMainFailed, status.code(), status.message());
    }
  }
}

void Supervisor::take_signals() {
  while (const auto caught = signals_.next_caught()) {
    if (signal_ == 0) {
      first_signal_ = *caught;
      signal_ = caught->number;
      log::info("{} received: ending {} workers", io::signal_name(signal_), workers_.size());
      begin_shutdown(options_.grace);
    } else if (is_impatient(first_signal_, *caught)) {
      kill_all();
    }
  }
}

void Supervisor::take_reports(Worker& worker) {
  bool ended = false;
  while (auto report = worker.channel.receive(ended)) {
    if (report->kind == WorkerReport::Kind::kJoined) {
      worker.joined = true;
      tell(WorkerEvent::Kind::kJoined, worker, worker.process->pid(), "joined");
      continue;
    }
    if (is_failure(report->kind)) fail(worker, report->value, code_of(report->kind), report->text);
    worker.outcome = std::move(report);
  }
  if (ended) worker.channel.close();
}

void Supervisor::take_exit(Worker& worker) {
  if (worker.channel) take_reports(worker);
  worker.process->kill_group(SIGKILL);  // what it has started and left
  const auto status = worker.process->try_wait();
  if (!status) return;
  if (worker.output) worker.output->finish();
  if (worker.error) worker.error->finish();
  worker.channel.close();
  remove_socket_file(worker.config);
  judge(worker, *status);
  worker.process.reset();
}

void Supervisor::judge(Worker& worker, const io::ExitStatus& status) {
  const bool reported_done = worker.outcome && worker.outcome->kind == WorkerReport::Kind::kDone;
  if (status.ok() || (status.unknown && reported_done)) {
    worker.finished = true;
    tell_joining_siblings_of_end(worker);
    tell(WorkerEvent::Kind::kEnded, worker, worker.process->pid(), "ended");
  } else if (worker.outcome && is_failure(worker.outcome->kind)) {
    tell(WorkerEvent::Kind::kEnded, worker, worker.process->pid(), worker.outcome->text);
  } else if (shutting_down_) {
    tell_siblings_of_death(worker);
    tell(WorkerEvent::Kind::kEnded, worker, worker.process->pid(), "ended by the launcher");
  } else if (status.signal != 0) {
    lose(worker, exit_code_of_signal(status.signal),
         fmt::format("was killed by {}", io::signal_name(status.signal)));
  } else if (status.unknown) {
    lose(worker, kExitMainFailed, "has ended, and something else in this process took its status");
  } else if (status.code == kExitUsage && options_.command_is_worker && !worker.outcome) {
    fail(worker, kExitUsage, Code::kInvalid, "could not be started, see its line above");
  } else {
    tell_siblings_of_death(worker);
    // A program that is no worker of ours speaks for itself: a script asks for its code.
    fail(worker, is_configured() ? kExitMainFailed : status.code, Code::kInternal,
         fmt::format("ended with exit code {}", status.code));
  }
}

// Or they would wait for its heartbeat, and then for its acknowledgements, when they end.
void Supervisor::tell_siblings_of_death(const Worker& worker) {
  for (const auto& sibling : workers_) {
    if (sibling.get() == &worker || !sibling->channel) continue;
    sibling->channel.send(
        {WorkerReport::Kind::kPeerDied, worker.config.node_id,
         options_.worker_lost == WorkerLost::kIgnore ? worker.config.listen : ""});
  }
}

// The others were linked with it and heard its goodbye.
void Supervisor::tell_joining_siblings_of_end(const Worker& worker) {
  for (const auto& sibling : workers_) {
    if (!sibling->channel || sibling->joined || sibling->config.restarts == 0) continue;
    sibling->channel.send(
        {WorkerReport::Kind::kPeerDied, worker.config.node_id, worker.config.listen});
  }
}

void Supervisor::lose(Worker& worker, int exit_code, const std::string& what) {
  const int pid = worker.process->pid();
  tell(WorkerEvent::Kind::kLost, worker, pid, what);
  tell_siblings_of_death(worker);
  const bool restart = options_.worker_lost == WorkerLost::kRestart &&
                       worker.config.restarts < options_.max_restarts;
  if (!restart && options_.worker_lost != WorkerLost::kIgnore) {
    const bool tried = options_.worker_lost == WorkerLost::kRestart;
    fail(worker, exit_code, Code::kUnavailable,
         tried ? fmt::format("{}, after {} restarts", what, worker.config.restarts) : what);
    return;
  }
  if (!restart) {
    log::warning("node {} {}; going on without it (worker_lost=ignore)", worker.config.node_id,
                 what);
    return;
  }
  const int exponent = std::min(worker.config.restarts, 16);
  const auto delay = std::min<std::chrono::milliseconds>(options_.restart_delay * (1 << exponent),
                                                         kLongestRestartDelay);
  ++worker.config.restarts;
  worker.config.startup_delay = 0ms;
  worker.again_at = Clock::now() + delay;
  log::warning("node {} {}; starting it again in {} ms ({} of {})", worker.config.node_id, what,
               delay.count(), worker.config.restarts, options_.max_restarts);
  tell(WorkerEvent::Kind::kRestarting, worker, pid, what);
}

void Supervisor::fail(Worker& worker, int exit_code, Code code, const std::string& what) {
  if (shutting_down_) return;  // the first failure is the cause; the rest follow from it
  if (worker.error) {
    worker.error->read_some();  // its report may have overtaken its last lines
    result_.stderr_tail = worker.error->tail();
  }
  result_.exit_code = exit_code;
  result_.failed_node = worker.config.node_id;
  result_.status = make_status(code, "node {}: {}", worker.config.node_id, what);
  // Where the nodes never came together, those that got further have little to lose. Once one was
  // started again, the others may have come a long way.
  const bool came_together =
      exit_code != kExitNoJoin ||
      std::ranges::any_of(workers_, [](const auto& each) { return each->config.restarts > 0; });
  begin_shutdown(came_together ? options_.grace : std::min(options_.grace, kGraceWithoutJoin));
}

void Supervisor::begin_shutdown(std::chrono::milliseconds grace) {
  if (shutting_down_) return;
  shutting_down_ = true;
  kill_at_ = deadline_after(grace);
  for (const auto& worker : workers_) {
    if (!worker->process || worker->outcome) continue;
    // One that has not joined runs nothing of the user's: it has nothing to finish.
    const bool runs_main = worker->joined || !options_.command.empty();
    // Told twice: the signal may be blocked, or taken by the user's own handler.
    if (runs_main && worker->channel) worker->channel.send({WorkerReport::Kind::kFinish, 0, {}});
    [[maybe_unused]] const Status sent = worker->process->kill(runs_main ? SIGTERM : SIGKILL);
  }
}

void Supervisor::kill_all() {
  kill_at_ = Clock::time_point::max();
  for (const auto& worker : workers_) {
    if (!worker->process) continue;
    worker->process->kill_group(SIGKILL);
    [[maybe_unused]] const Status sent = worker->process->kill(SIGKILL);
  }
}

void Supervisor::flush_output() {
  const auto deadline = Clock::now() + kFlushAfterSignal;
  while (stdout_.has_pending() || stderr_.has_pending()) {
    if (signal_ != 0 && Clock::now() >= deadline) return;
    std::vector<pollfd> fds{{signals_.fd(), POLLIN, 0}};
    for (OutputSink* const sink : {&stdout_, &stderr_}) {
      if (sink->has_pending()) fds.push_back({sink->fd(), POLLOUT, 0});
    }
    ::poll(fds.data(), fds.size(), signal_ != 0 ? milliseconds_until(deadline) : -1);
    take_signals();
    stdout_.write_some();
    stderr_.write_some();
  }
}

// A reader that went away wanted no more; a full disk is another matter. What main did stands.
void Supervisor::report_lost_output() const {
  for (const OutputSink* const sink : {&stdout_, &stderr_}) {
    if (sink->error() == 0 || sink->error() == EPIPE) continue;
    log::error("writing {}: {}; the rest of what the workers printed is lost",
               sink == &stdout_ ? "stdout" : "stderr", errno_text(sink->error()));
  }
}

void Supervisor::tell(WorkerEvent::Kind kind, const Worker& worker, int pid,
                      const std::string& text) const {
  log::debug("worker node={} pid={}: {}", worker.config.node_id, pid, text);
  if (options_.on_event) options_.on_event({kind, worker.config.node_id, pid, text});
}

// NOLINTEND(bugprone-unchecked-optional-access)

}  // namespace divisi::runtime
