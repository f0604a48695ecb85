#include "run/local_backend.h"

#include "io/crypto.h"
#include "io/process.h"
#include "run/environment.h"
#include "run/job_log.h"
#include "run/local_supervisor.h"
#include "run/port_choice.h"
#include "run/rendering.h"

#include <fmt/format.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <optional>
#include <poll.h>
#include <sys/inotify.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace divisi::run {
namespace {

namespace fs = std::filesystem;

// What is installed beside this program, or found in the search path.
Result<std::string> beside(const std::string& name) {
  const fs::path here = fs::path(io::current_program()).parent_path() / name;
  if (::access(here.c_str(), X_OK) == 0) return here.string();
  const launch::Environment environment = process_environment();
  const auto path = launch::lookup(environment, "PATH");
  for (const std::string& folder : launch::split_list(path.value_or(""), ':')) {
    std::string candidate = fmt::format("{}/{}", folder, name);
    if (::access(candidate.c_str(), X_OK) == 0) return candidate;
  }
  return failure(Code::kUnavailable, "{} is neither beside this program ({}) nor in PATH", name,
                 here.parent_path().string());
}

Status write_private(const std::string& path, const std::string& text) {
  const io::Descriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  if (!file || ::write(file.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
    return make_status(Code::kUnavailable, "writing {}: {}", path, errno_text(errno));
  }
  return {};
}

// A secret of this job: other jobs and users of the machine are refused by its workers.
std::string random_secret() {
  std::array<std::byte, 32> bytes{};
  io::fill_random(bytes);
  return io::hexadecimal(bytes);
}

// The devices that worker 0, 1... get: those that this process may see itself, if it is told. An
// empty variable says that there is none.
std::optional<std::vector<std::string>> visible_devices() {
  const launch::Environment environment = process_environment();
  const auto said = environment.find("CUDA_VISIBLE_DEVICES");
  if (said == environment.end()) return std::nullopt;
  return launch::split_list(said->second);
}

std::size_t devices_of_machine() {
  std::error_code error;
  std::size_t count = 0;
  for (fs::directory_iterator entry("/proc/driver/nvidia/gpus", error), end; !error && entry != end;
       entry.increment(error)) {
    ++count;
  }
  return count;
}

// Sends to this very process, never to another one with its number.
Status signal_supervisor(const JobRecord& record, int signal) {
  if (!record.supervisor) return make_status(Code::kNotFound, "nobody looks after {}", record.name);
  const pid_t pid = record.supervisor->pid;
  const io::Descriptor handle(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  if (!handle || !is_alive(*record.supervisor)) return {};  // it has ended
  if (::syscall(SYS_pidfd_send_signal, handle.get(), signal, nullptr, 0) != 0 && errno != ESRCH) {
    return make_status(Code::kForbidden, "ending {}: {}", record.name, errno_text(errno));
  }
  return {};
}

// Changes of a job: its folder, and the end of its supervisor.
class JobChanges {
 public:
  JobChanges(const std::string& folder, const JobRecord& record)
      : notify_(::inotify_init1(IN_CLOEXEC | IN_NONBLOCK)) {
    constexpr std::uint32_t kChanges = IN_MODIFY | IN_MOVED_TO | IN_CREATE;
    if (::inotify_add_watch(notify_.get(), folder.c_str(), kChanges) < 0) notify_.reset();
    watch(record);
  }

  void watch(const JobRecord& record) {
    if (handle_ || !record.supervisor || !is_alive(*record.supervisor)) return;
    handle_.reset(static_cast<int>(::syscall(SYS_pidfd_open, record.supervisor->pid, 0)));
  }

  static bool is_readable(int fd) {
    pollfd watched{fd, POLLIN, 0};
    return ::poll(&watched, 1, 0) > 0;
  }

  // True when `wake_fd` is readable.
  bool wait(int wake_fd) {
    std::array<pollfd, 3> watched{pollfd{notify_.get(), POLLIN, 0},
                                  pollfd{handle_.get(), POLLIN, 0}, pollfd{wake_fd, POLLIN, 0}};
    // What ended before it could be watched, or cannot be watched because this user has no inotify
    // instance left, is found by looking again.
    constexpr int kLookAgain = 200;  // milliseconds
    const int timeout = handle_ && notify_ ? -1 : kLookAgain;
    if (::poll(watched.data(), watched.size(), timeout) < 0) return false;
    if (watched[1].revents != 0) handle_.reset();
    std::array<char, 65536> events{};
    while (notify_ && ::read(notify_.get(), events.data(), events.size()) > 0) {
    }
    return watched[2].revents != 0;
  }

 private:
  io::Descriptor notify_;
  io::Descriptor handle_;
};

class LocalBackend : public Backend {
 public:
  BackendKind kind() const noexcept override { return BackendKind::kLocal; }
  bool sends_package() const noexcept override { return false; }

  Result<RunJob> plan(const RunOptions& options, const std::string& entry) const override {
    return plan_local(options, entry, visible_devices());
  }

  Result<std::vector<json::Value>> documents(const RunJob& job, const PackageCut*) const override {
    return std::vector<json::Value>{job_document(job)};
  }
  Result<std::string> script(const RunJob& job, const PackageCut*) const override {
    return local_script(job);
  }

  Status start(const RunJob& wanted, const PackageCut*, const JobRecords& records,
               JobRecord& record, int attached_fd, OutputSink& sink) override {
    warn_of_devices(wanted, sink);
    auto ports = choose_ports(wanted, sink);
    if (!ports) return ports.error();
    RunJob job = wanted;
    if (ports->first != job.options.port) {
      job.options.port = ports->first;
      auto again = plan(job.options, job.entry);
      if (!again) return again.error();
      again->name = job.name;
      job = *std::move(again);
    }
    auto plan = local_plan(job, records.job_folder(record.name));
    if (!plan) return plan.error();
    DIVISI_TRY_STATUS(write_private(plan->secret_file, random_secret() + "\n"));
    DIVISI_TRY_STATUS(write_private(records.job_folder(record.name) + "/" + kPlanFile,
                                    json::print(to_json(*plan), 2) + "\n"));
    record.data["port"] = job.options.port;
    DIVISI_TRY_STATUS(records.save(record));
    DIVISI_TRY_STATUS(start_supervisor(records, record, *ports, attached_fd));
    auto started = records.load(record.name);
    if (!started) return started.error();
    record = *std::move(started);
    return {};
  }

  Status refresh(const JobRecords& records, JobRecord& record) override {
    auto now = records.load_settled(record.name);
    if (!now) return now.error();
    record = *std::move(now);
    return {};
  }

  Status follow(const JobRecords& records, JobRecord& record, const FollowOptions& options,
                OutputSink& sink) override {
    const std::string folder = records.job_folder(record.name);
    JobChanges changes(folder, record);
    JobLogReader reader(folder + "/" + kOutputFile);
    const auto began = std::chrono::system_clock::now();
    while (true) {
      // The record first: its end is written behind the last line.
      DIVISI_TRY_STATUS(refresh(records, record));
      changes.watch(record);
      for (const OutputLine& line : reader.take()) {
        if (!options.follow && line.time > began) return {};  // it writes faster than we do
        if (options.since && line.time < *options.since) continue;
        if (!options.ranks.empty() && !options.ranks.contains(line.rank)) continue;
        sink.line(line);
      }
      if (reader.at_end() && (has_ended(record.state) || !options.follow)) return {};
      const bool woken = reader.at_end() ? changes.wait(options.wake_fd)
                                         : JobChanges::is_readable(options.wake_fd);
      if (woken && options.on_wake && !options.on_wake()) {
        return make_status(Code::kCancelled, "following {} was given up", record.name);
      }
    }
  }

  Status stop(const JobRecords& records, JobRecord& record, bool now) override {
    DIVISI_TRY_STATUS(refresh(records, record));
    if (has_ended(record.state)) return {};
    return signal_supervisor(record, now ? SIGQUIT : SIGTERM);
  }

  Status remove(const JobRecords&, const JobRecord&) override { return {}; }

 private:
  static void warn_of_devices(const RunJob& job, OutputSink& sink) {
    const auto visible = visible_devices();
    const std::size_t there = visible ? visible->size() : devices_of_machine();
    if (static_cast<std::size_t>(job.options.gpus) <= there) return;
    sink.note(fmt::format("{} of {} workers want a GPU, {} {}", job.options.gpus,
                          job.workers.size(),
                          visible ? "CUDA_VISIBLE_DEVICES has" : "this machine has", there));
  }

  static Result<TakenPorts> choose_ports(const RunJob& job, OutputSink& sink) {
    std::vector<std::string> hosts;
    for (const RunWorker& worker : job.workers) hosts.push_back(worker.host);
    const RunOptions& options = job.options;
    auto taken = take_ports(hosts, options.port, options.parallel_workers);
    if (taken) return taken;
    if (options.port_given) {
      return failure(taken.error().code(), "{}; say another --port, or none",
                     taken.error().message());
    }
    DIVISI_TRY(TakenPorts other, take_any_ports(hosts, options.parallel_workers));
    sink.note(fmt::format("{}; {} is taken instead", taken.error().message(), other.first));
    return other;
  }

  static Result<LocalPlan> local_plan(const RunJob& job, const std::string& folder) {
    LocalPlan plan;
    DIVISI_TRY(plan.guard, beside("divisi-trial"));
    DIVISI_TRY(plan.ditask, beside("ditask"));
    plan.folder = fs::current_path().string();
    plan.secret_file = folder + "/secret";
    plan.grace = job.options.grace;
    plan.timeout = job.options.timeout;
    plan.workers = job.workers;
    return plan;
  }

  // Returns when the workers run. The process that is started ends at once; the supervisor is its
  // child, in a session of its own.
  static Status start_supervisor(const JobRecords& records, const JobRecord& record,
                                 const TakenPorts& ports, int attached_fd) {
    auto ready = io::make_pipe();
    if (!ready) return ready.error();
    io::SpawnOptions options;
    options.program = io::current_program();
    options.arguments = {kSupervisorCommand, records.folder(), record.name,
                         std::to_string(ready->write.get()), std::to_string(attached_fd)};
    options.standard_input = io::Stdio::kNull;
    options.standard_output = io::Stdio::kNull;
    options.standard_error = io::Stdio::kNull;
    options.inherited = {ready->write.get()};
    if (attached_fd >= 0) options.inherited.push_back(attached_fd);
    for (const io::Descriptor& lock : ports.locks) options.inherited.push_back(lock.get());
    auto process = io::Process::spawn(options);
    if (!process) return process.error().with_context("starting the supervisor");
    ready->write.reset();
    const auto said = io::read_all(ready->read.get());
    if (const auto ended = process->wait(); !ended) return ended.error();
    if (said && *said == "ok") return {};
    return make_status(Code::kUnavailable, "{}",
                       said && !said->empty() ? *said : "the supervisor ended before it began");
  }
};

}  // namespace

std::unique_ptr<Backend> make_local_backend() {
  return std::make_unique<LocalBackend>();
}

}  // namespace divisi::run
