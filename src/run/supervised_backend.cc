#include "run/supervised_backend.h"

#include "io/crypto.h"
#include "io/process.h"
#include "run/environment.h"
#include "run/job_log.h"
#include "run/local_supervisor.h"
#include "run/supervisor_process.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <fcntl.h>
#include <filesystem>
#include <poll.h>
#include <sys/inotify.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace divisi::run {
namespace {

namespace fs = std::filesystem;

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

// Of a worker with a name: its task stands in that, behind the job's name, also once it is gone.
bool is_of_task(const std::string& worker, const std::string& job, const std::string& task) {
  const std::string start = fmt::format("{}-{}-", job, task);
  return worker.starts_with(start) &&
         worker.find_first_not_of("0123456789", start.size()) == std::string::npos;
}

bool is_wanted(const OutputLine& line, const JobRecord& record, const FollowOptions& options) {
  if (options.ranks.empty() && options.workers.empty()) return true;
  if (options.ranks.contains(line.rank)) return true;
  return std::ranges::any_of(options.workers, [&](const std::string& wanted) {
    return line.worker == wanted || is_of_task(line.worker, record.name, wanted);
  });
}

}  // namespace

Result<std::string> installed_program(const std::string& name) {
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

std::string random_secret() {
  std::array<std::byte, 32> bytes{};
  io::fill_random(bytes);
  return io::hexadecimal(bytes);
}

Status SupervisedBackend::refresh(const JobRecords& records, JobRecord& record) {
  auto now = records.load_settled(record.name);
  if (!now) return now.error();
  record = *std::move(now);
  return {};
}

Status SupervisedBackend::follow(const JobRecords& records, JobRecord& record,
                                 const FollowOptions& options, OutputSink& sink) {
  const std::string folder = records.job_folder(record.name);
  JobChanges changes(folder, record);
  JobLogReader reader(folder + "/" + kOutputFile);
  const auto began = std::chrono::system_clock::now();
  std::string waits_for;
  while (true) {
    // The record first: its end is written behind the last line.
    DIVISI_TRY_STATUS(refresh(records, record));
    changes.watch(record);
    if (options.follow && record.state == JobState::kPending && record.reason != waits_for) {
      waits_for = record.reason;
      if (!waits_for.empty()) sink.note(waits_for);
    }
    for (const OutputLine& line : reader.take()) {
      if (!options.follow && line.time > began) return {};  // it writes faster than we do
      if (options.since && line.time < *options.since) continue;
      if (line.is_note) {
        if (options.notes) sink.note(line.text);
      } else if (is_wanted(line, record, options)) {
        sink.line(line);
      }
    }
    if (reader.at_end() && (has_ended(record.state) || !options.follow)) return {};
    const bool woken =
        reader.at_end() ? changes.wait(options.wake_fd) : JobChanges::is_readable(options.wake_fd);
    if (woken && options.on_wake && !options.on_wake()) {
      return make_status(Code::kCancelled, "following {} was given up", record.name);
    }
  }
}

Status SupervisedBackend::stop(const JobRecords& records, JobRecord& record, bool now) {
  DIVISI_TRY_STATUS(refresh(records, record));
  if (has_ended(record.state)) return {};
  return signal_supervisor(record, now ? SIGQUIT : SIGTERM);
}

Status SupervisedBackend::start_local_supervisor(const JobRecords& records, JobRecord& record,
                                                 const std::vector<io::Descriptor>& held,
                                                 int attached_fd) {
  std::vector<int> kept;
  for (const io::Descriptor& descriptor : held) kept.push_back(descriptor.get());
  DIVISI_TRY_STATUS(
      start_supervisor(kSupervisorCommand, records, record.name, std::move(kept), attached_fd));
  auto started = records.load(record.name);
  if (!started) return started.error();
  record = *std::move(started);
  return {};
}

}  // namespace divisi::run
