#include "run/local_supervisor.h"

#include "io/process.h"
#include "run/job_log.h"
#include "run/record.h"
#include "run/signal_pipe.h"
#include "run/supervisor_process.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <memory>
#include <poll.h>
#include <unistd.h>

namespace divisi::run {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kSignalBase = 128;
constexpr int kTimedOut = 124;
// Reads of a pipe in one turn: a worker that writes without pause does not keep us from the others.
constexpr int kMostReads = 16;
constexpr int kWithoutEnd = std::numeric_limits<int>::max();

int code_of(const io::ExitStatus& status) {
  if (status.unknown) return 1;
  return status.signal != 0 ? kSignalBase + status.signal : status.code;
}

std::string reason_of(int rank, const io::ExitStatus& status) {
  if (status.signal != 0) {
    return fmt::format("worker {} was killed by {}", rank, io::signal_name(status.signal));
  }
  if (status.code > kSignalBase) {
    return fmt::format("worker {}: a process was killed by {}", rank,
                       io::signal_name(status.code - kSignalBase));
  }
  return fmt::format("worker {} ended with exit code {}", rank, status.code);
}

// One worker that was started.
struct Running {
  io::Process process;
  struct Stream {
    io::Descriptor pipe{};
    LineSplitter splitter{};
  };
  std::array<Stream, 2> streams{};  // output, error
};

class Supervisor : public Supervision {
 public:
  Supervisor(const JobRecords& records, JobRecord record, LocalPlan plan, JobLogWriter log,
             io::Descriptor tie)
      : records_(records),
        record_(std::move(record)),
        plan_(std::move(plan)),
        log_(std::move(log)),
        tie_(std::move(tie)) {}

  // Afterwards all workers run, or none does.
  Status start() override {
    record_.supervisor = process_of(::getpid());
    record_.state = JobState::kStarting;
    DIVISI_TRY_STATUS(records_.save(record_));
    Status status = start_workers();
    if (status.ok()) {
      record_.state = plan_.one_process ? JobState::kPending : JobState::kRunning;
      status = records_.save(record_);
    }
    if (!status.ok()) return give_up(status);
    if (plan_.timeout) deadline_ = Clock::now() + *plan_.timeout;
    return {};
  }

  // Until the last worker has ended.
  void run() override {
    while (std::ranges::any_of(running_, [](const auto& one) { return one != nullptr; })) turn();
    finish();
  }

 private:
  Status start_workers() {
    for (const RunWorker& worker : plan_.workers) DIVISI_TRY_STATUS(start_worker(worker));
    return {};
  }

  // Returns `why` when no worker runs any longer. A guard that is killed ends nothing: each is
  // asked to end, and waited for.
  Status give_up(const Status& why) {
    for (const auto& one : running_) {
      end_children(one->process.pid());
      (void)one->process.kill(SIGTERM);
    }
    for (const auto& one : running_) (void)one->process.wait();
    running_.clear();
    remove_scratch();
    record_.state = JobState::kFailed;
    record_.reason = why.message();
    (void)records_.save(record_);
    return why;
  }

  Status start_worker(const RunWorker& worker) {
    io::SpawnOptions options;
    options.program = plan_.guard;
    options.arguments = {std::to_string(::getpid()), std::to_string(plan_.grace.count()),
                         plan_.ditask};
    options.arguments.insert(options.arguments.end(), worker.arguments.begin(),
                             worker.arguments.end());
    // What a pod or a Slurm step around us says is not about this job.
    for (const char* const name : {"DI_NODES", "DI_RANK", "DI_JOB_ID", "DI_SERVER_URL"}) {
      options.environment[name] = std::nullopt;
    }
    for (const auto& [name, value] : worker.environment) options.environment[name] = value;
    if (!plan_.secret_file.empty()) options.environment["DIVISI_SECRET_FILE"] = plan_.secret_file;
    options.standard_input = io::Stdio::kNull;
    options.standard_output = io::Stdio::kPipe;
    options.standard_error = io::Stdio::kPipe;
    options.folder = plan_.folder;
    auto process = io::Process::spawn(options);
    if (!process) {
      return process.error().with_context(fmt::format("starting worker {}", worker.rank));
    }
    auto running = std::make_unique<Running>(Running{*std::move(process)});
    running->streams[0].pipe = std::move(running->process.output());
    running->streams[1].pipe = std::move(running->process.error());
    for (const Running::Stream& stream : running->streams) {
      ::fcntl(stream.pipe.get(), F_SETFL, O_NONBLOCK);
    }
    WorkerRecord& entry = record_.workers[static_cast<std::size_t>(worker.rank)];
    entry.process = process_of(running->process.pid());
    entry.state = plan_.one_process ? JobState::kPending : JobState::kRunning;
    running_.push_back(std::move(running));
    return {};
  }

  // Waits for whatever happens next, and deals with it.
  void turn() {
    std::vector<pollfd> watched{{signals_.fd(), POLLIN, 0}};
    if (tie_) watched.push_back({tie_.get(), POLLIN, 0});
    for (const auto& one : running_) {
      if (one == nullptr) continue;
      for (const Running::Stream& stream : one->streams) {
        if (stream.pipe) watched.push_back({stream.pipe.get(), POLLIN, 0});
      }
      watched.push_back({one->process.pidfd(), POLLIN, 0});
    }
    if (::poll(watched.data(), watched.size(), poll_timeout()) < 0 && errno != EINTR) {
      std::abort();  // a list of our own descriptors is always valid
    }
    while (const auto signal = signals_.next()) {
      if (*signal == SIGPIPE) continue;
      end_all(JobState::kStopped, kSignalBase + SIGTERM,
              "it was ended by divisi delete or a signal", *signal == SIGQUIT);
    }
    look_at_tie();
    if (deadline_ && Clock::now() >= *deadline_) {
      deadline_.reset();
      end_all(JobState::kFailed, kTimedOut, "--timeout has come", false);
    }
    for (std::size_t rank = 0; rank < running_.size(); ++rank) {
      if (running_[rank] != nullptr) look_at(static_cast<int>(rank));
    }
  }

  int poll_timeout() const {
    if (!deadline_) return -1;
    const auto rest =
        std::chrono::ceil<std::chrono::milliseconds>(*deadline_ - Clock::now()).count();
    return static_cast<int>(std::clamp<std::int64_t>(rest, 0, 1'000'000));
  }

  // The end of the stream is that of the `divisi run` at its other end.
  void look_at_tie() {
    if (!tie_is_cut(tie_)) return;
    tie_.reset();
    end_all(JobState::kStopped, kSignalBase + SIGKILL,
            "the divisi run that it was attached to was killed", false);
  }

  void look_at(int rank) {
    Running& one = *running_[static_cast<std::size_t>(rank)];
    // Its output is complete once it has ended: nothing of it lives any longer.
    const auto ended = one.process.try_wait();
    drain(rank, one, ended ? kWithoutEnd : kMostReads);
    if (!ended) return;
    WorkerRecord& worker = record_.workers[static_cast<std::size_t>(rank)];
    worker.exit_code = code_of(*ended);
    worker.state = *worker.exit_code == 0 ? JobState::kSucceeded
                   : ending_              ? JobState::kStopped
                                          : JobState::kFailed;
    if (*worker.exit_code != 0) worker.reason = said_reason(rank).value_or(reason_of(rank, *ended));
    running_[static_cast<std::size_t>(rank)].reset();
    if (plan_.one_process) {
      for (WorkerRecord& other : record_.workers) {
        other.exit_code = worker.exit_code;
        other.state = worker.state;
      }
    }
    if (*worker.exit_code != 0) {
      end_all(JobState::kFailed, *worker.exit_code, worker.reason, false);
    }
    save();
  }

  std::optional<std::string> said_reason(int rank) const {
    std::ifstream in(reason_file(records_.job_folder(record_.name), rank));
    std::string line;
    if (!std::getline(in, line)) return std::nullopt;
    return plan_.one_process ? line : fmt::format("worker {}: {}", rank, line);
  }

  void drain(int rank, Running& one, int most_reads) {
    for (std::size_t i = 0; i < one.streams.size(); ++i) {
      Running::Stream& stream = one.streams[i];
      if (!stream.pipe) continue;
      std::vector<std::string> lines;
      const bool over = read_pipe(stream, lines, most_reads);
      std::vector<OutputLine> entries;
      for (std::string& line : lines) {
        if (plan_.one_process && i == 0) {
          take_said(line, entries);
          continue;
        }
        entries.push_back({.rank = rank,
                           .time = std::chrono::system_clock::now(),
                           .is_error = i == 1,
                           .text = std::move(line)});
      }
      log_.write(entries);
      if (over) stream.pipe.reset();
    }
  }

  // A line of a process that stands for all workers.
  void take_said(const std::string& line, std::vector<OutputLine>& entries) {
    constexpr std::size_t kLetter = 2;  // "o "
    const char kind = line.empty() ? ' ' : line[0];
    const std::string_view rest = std::string_view(line).substr(std::min(kLetter, line.size()));
    const std::size_t blank = std::min(rest.find(' '), rest.size());
    const std::string first(rest.substr(0, blank));
    std::string second(rest.substr(std::min(blank + 1, rest.size())));
    if (kind == 'o' || kind == 'e') {
      entries.push_back({.rank = std::atoi(first.c_str()),
                         .time = std::chrono::system_clock::now(),
                         .is_error = kind == 'e',
                         .text = std::move(second)});
    } else if (kind == 'd') {
      record_.data[first] = std::move(second);
      save();
    } else if (const auto state = parse_state(first); kind == 's' && state && !ending_) {
      record_.state = *state;
      record_.reason = std::move(second);
      for (WorkerRecord& worker : record_.workers) worker.state = *state;
      save();
    }
  }

  // True at its end.
  static bool read_pipe(Running::Stream& stream, std::vector<std::string>& lines, int most_reads) {
    const auto take = [&](std::vector<std::string> more) {
      lines.insert(lines.end(), std::make_move_iterator(more.begin()),
                   std::make_move_iterator(more.end()));
    };
    std::array<char, 65536> piece{};
    for (int i = 0; i < most_reads; ++i) {
      const ssize_t got = ::read(stream.pipe.get(), piece.data(), piece.size());
      if (got < 0 && errno == EINTR) continue;
      if (got < 0 && errno == EAGAIN) return false;
      if (got <= 0) {
        take(stream.splitter.finish());
        return true;
      }
      take(stream.splitter.add({piece.data(), static_cast<std::size_t>(got)}));
    }
    return false;
  }

  // Asks every worker to end; the first reason is the job's. `now`: without grace.
  void end_all(JobState state, int code, const std::string& reason, bool now) {
    if (!ending_) {
      ending_ = true;
      outcome_ = state;
      record_.exit_code = code;
      record_.reason = reason;
      save();
    } else if (!now) {
      return;
    }
    for (const auto& one : running_) {
      if (one == nullptr) continue;
      if (now) end_children(one->process.pid());
      (void)one->process.kill(SIGTERM);
    }
  }

  // The programs of a guard: it ends the rest of them itself when they are gone.
  void end_children(pid_t guard) const {
    std::ifstream in(fmt::format("/proc/{0}/task/{0}/children", guard));
    for (pid_t child = 0; in >> child;) ::kill(child, plan_.end_now_signal);
  }

  void remove_scratch() const {
    std::error_code ignored;
    if (!plan_.scratch.empty()) std::filesystem::remove_all(plan_.scratch, ignored);
  }

  void finish() {
    remove_scratch();
    record_.state = ending_ ? outcome_ : JobState::kSucceeded;
    if (!ending_) record_.reason.clear();
    if (!record_.exit_code) record_.exit_code = 0;
    if (!log_.problem().empty()) {
      record_.reason += (record_.reason.empty() ? "" : "; ") + log_.problem();
    }
    record_.ended = std::chrono::system_clock::now();
    save();
  }

  void save() {
    // A full disk is told of where somebody still reads: the record that was is then all there is.
    if (const Status status = records_.save(record_); !status.ok()) {
      std::fprintf(stderr, "divisi: %s\n", status.message().c_str());
    }
  }

  const SignalPipe signals_;
  const JobRecords& records_;
  JobRecord record_;
  const LocalPlan plan_;
  JobLogWriter log_;
  io::Descriptor tie_;
  std::vector<std::unique_ptr<Running>> running_;  // by rank; null: ended
  std::optional<Clock::time_point> deadline_;
  bool ending_ = false;
  JobState outcome_ = JobState::kSucceeded;
};

json::Value texts_value(const std::vector<std::string>& texts) {
  json::Array array;
  for (const std::string& text : texts) array.emplace_back(text);
  return array;
}

Result<RunWorker> planned_worker(const json::Value& value) {
  RunWorker worker;
  worker.rank = static_cast<int>(value.int_at({"rank"}).value_or(-1));
  worker.host = value.string_at({"host"});
  const json::Value* const arguments = value.find("arguments");
  const json::Value* const environment = value.find("environment");
  if (worker.rank < 0 || arguments == nullptr || arguments->as_array() == nullptr ||
      environment == nullptr || environment->as_object() == nullptr) {
    return failure(Code::kInvalid, "the plan has a worker without rank, arguments or environment");
  }
  for (const json::Value& argument : *arguments->as_array()) {
    if (argument.as_string() != nullptr) worker.arguments.push_back(*argument.as_string());
  }
  for (const auto& [name, text] : *environment->as_object()) {
    if (text.as_string() != nullptr) worker.environment.emplace_back(name, *text.as_string());
  }
  return worker;
}

Result<std::unique_ptr<Supervision>> make_supervisor(const JobRecords& records,
                                                     const std::string& name, io::Descriptor tie) {
  DIVISI_TRY(JobRecord record, records.load(name));
  const std::string folder = records.job_folder(name);
  std::ifstream in(folder + "/" + kPlanFile, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  DIVISI_TRY(const json::Value value, json::parse(text));
  DIVISI_TRY(LocalPlan plan, local_plan_from(value));
  if (plan.workers.size() != (plan.one_process ? 1 : record.workers.size())) {
    return failure(Code::kInvalid, "the plan and the record differ");
  }
  DIVISI_TRY(JobLogWriter log, JobLogWriter::open(folder + "/" + kOutputFile));
  return std::make_unique<Supervisor>(records, std::move(record), std::move(plan), std::move(log),
                                      std::move(tie));
}

}  // namespace

std::string reason_file(const std::string& job_folder, int rank) {
  return fmt::format("{}/reason.{}", job_folder, rank);
}

json::Value to_json(const LocalPlan& plan) {
  json::Value value;
  value["guard"] = plan.guard;
  value["ditask"] = plan.ditask;
  value["folder"] = plan.folder;
  value["secretFile"] = plan.secret_file;
  value["oneProcess"] = plan.one_process;
  value["scratch"] = plan.scratch;
  value["endNowSignal"] = plan.end_now_signal;
  value["graceMilliseconds"] = std::int64_t{plan.grace.count()};
  if (plan.timeout) value["timeoutMilliseconds"] = std::int64_t{plan.timeout->count()};
  json::Array workers;
  for (const RunWorker& worker : plan.workers) {
    json::Value item;
    item["rank"] = worker.rank;
    item["host"] = worker.host;
    item["arguments"] = texts_value(worker.arguments);
    json::Value environment{json::Object()};
    for (const auto& [name, text] : worker.environment) environment[name] = text;
    item["environment"] = std::move(environment);
    workers.push_back(std::move(item));
  }
  value["workers"] = std::move(workers);
  return value;
}

Result<LocalPlan> local_plan_from(const json::Value& value) {
  LocalPlan plan;
  plan.guard = value.string_at({"guard"});
  plan.ditask = value.string_at({"ditask"});
  plan.folder = value.string_at({"folder"});
  plan.secret_file = value.string_at({"secretFile"});
  plan.grace = std::chrono::milliseconds(value.int_at({"graceMilliseconds"}).value_or(0));
  plan.scratch = value.string_at({"scratch"});
  plan.one_process = value.bool_at({"oneProcess"}).value_or(false);
  plan.end_now_signal = static_cast<int>(value.int_at({"endNowSignal"}).value_or(SIGKILL));
  if (const auto timeout = value.int_at({"timeoutMilliseconds"})) {
    plan.timeout = std::chrono::milliseconds(*timeout);
  }
  const json::Value* const workers = value.find("workers");
  if (workers == nullptr || workers->as_array() == nullptr || plan.ditask.empty()) {
    return failure(Code::kInvalid, "it is no plan of a local job");
  }
  for (const json::Value& item : *workers->as_array()) {
    DIVISI_TRY(RunWorker worker, planned_worker(item));
    plan.workers.push_back(std::move(worker));
  }
  return plan;
}

int local_supervisor_main(const std::vector<std::string>& arguments) {
  return supervisor_main(kSupervisorCommand, arguments, make_supervisor);
}

}  // namespace divisi::run
