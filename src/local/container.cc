#include "local/container.h"

#include "kube/time.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <fstream>
#include <future>
#include <mutex>
#include <optional>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

namespace divisi::local {
namespace {

constexpr std::size_t kMaxLine = std::size_t{64} << 10;  // longer ones are cut into several

// Cuts a stream of bytes into lines.
class LineCutter {
 public:
  explicit LineCutter(std::function<void(std::string_view)> on_line)
      : on_line_(std::move(on_line)) {}

  void add(std::string_view bytes) {
    while (!bytes.empty()) {
      const std::size_t end = bytes.find('\n');
      const std::size_t length = end == std::string_view::npos ? bytes.size() : end;
      const std::size_t taken = std::min(length, kMaxLine - rest_.size());
      rest_.append(bytes.substr(0, taken));
      const bool whole = end != std::string_view::npos && taken == length;
      bytes.remove_prefix(taken + (whole ? 1 : 0));
      if (!whole && rest_.size() < kMaxLine) return;
      on_line_(rest_);
      rest_.clear();
    }
  }
  void finish() {
    if (!rest_.empty()) on_line_(rest_);
    rest_.clear();
  }

 private:
  const std::function<void(std::string_view)> on_line_;
  std::string rest_;
};

void write_all(int file, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(file, bytes.data(), bytes.size());
    if (written < 0 && errno != EINTR) return;  // a full disk stops the log, not the job
    if (written > 0) bytes.remove_prefix(static_cast<std::size_t>(written));
  }
}

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) {
    text += word;
    text += '\0';
  }
  return text;
}

// The child of a process that has one; 0 otherwise.
pid_t only_child(pid_t parent) {
  if (parent == 0) return 0;
  std::ifstream children(fmt::format("/proc/{}/task/{}/children", parent, parent));
  pid_t child = 0;
  children >> child;
  return children ? child : 0;
}

class ThreadContainer final : public Container {
 public:
  explicit ThreadContainer(ContainerOptions options) : options_(std::move(options)) {}

  ~ThreadContainer() override {
    kill();
    if (thread_.joinable()) thread_.join();
  }

  Status open() {
    log_.reset(::open(options_.log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
    if (!log_) {
      return make_status(Code::kUnavailable, "cannot open the log {}: {}", options_.log,
                         std::strerror(errno));
    }
    // bwrap ends with the thread that starts it, so that has to be the one which lives as long as
    // the process.
    std::promise<Status> started;
    auto result = started.get_future();
    thread_ = std::thread([this, &started] { run(started); });
    return result.get();
  }

  void stop() override {
    const std::lock_guard lock(mutex_);
    if (!process_ || process_->reaped()) return;
    // bwrap, the first process of the namespace, and the command below that.
    const pid_t bwrap = has_guard() ? only_child(process_->pid()) : process_->pid();
    const pid_t command = only_child(only_child(bwrap));
    if (command == 0 || ::kill(command, SIGTERM) != 0) kill_all();
  }

  void kill() override {
    const std::lock_guard lock(mutex_);
    if (process_ && !process_->reaped()) kill_all();
  }

 private:
  // bwrap and the first process of the namespace. The second ends with the first only once the
  // sandbox is complete.
  // A guard does all of it when it is asked to end: it has no grace.
  void kill_all() {
    if (has_guard()) {
      static_cast<void>(process_->kill(SIGTERM));
    } else {
      process_->kill_group(SIGKILL);
    }
  }

  bool has_guard() const { return !options_.guard.empty(); }

  Result<io::Process> spawn() {
    DIVISI_TRY(io::PipePair pipe, io::make_pipe());
    DIVISI_TRY(io::Descriptor arguments, io::make_memory_file("sandbox", joined(options_.sandbox)));
    io::SpawnOptions how;
    how.program = has_guard() ? options_.guard : "bwrap";
    if (has_guard()) how.arguments = {std::to_string(::getpid()), "0", "bwrap"};
    for (const std::string& word :
         {std::string("--args"), std::to_string(arguments.get()), std::string("--")}) {
      how.arguments.push_back(word);
    }
    how.arguments.insert(how.arguments.end(), options_.command.begin(), options_.command.end());
    how.standard_input = io::Stdio::kNull;
    how.output_to = pipe.write.get();
    how.error_to = pipe.write.get();
    how.inherited = {arguments.get()};
    how.new_process_group = true;        // Ctrl-C is for this program
    how.die_with_parent = !has_guard();  // which sees to it
    how.clear_signal_mask = true;
    auto process = io::Process::spawn(how);
    output_ = std::move(pipe.read);
    return process;
  }

  void run(std::promise<Status>& started) {
    {
      const std::lock_guard lock(mutex_);
      auto process = spawn();
      if (!process) return started.set_value(process.error());
      process_.emplace(*std::move(process));
    }
    started.set_value({});
    copy_output();
    const Result<io::ExitStatus> status = wait();
    options_.on_end(status ? *status : io::ExitStatus{.unknown = true});
  }

  void copy_output() {
    LineCutter cutter([this](std::string_view line) {
      write_all(log_.get(), log_line(line, std::chrono::system_clock::now()));
      options_.on_line(line);
    });
    std::string buffer(64 << 10, '\0');
    while (true) {
      const ssize_t got = ::read(output_.get(), buffer.data(), buffer.size());
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) break;
      cutter.add(std::string_view(buffer).substr(0, static_cast<std::size_t>(got)));
    }
    cutter.finish();
  }

  Result<io::ExitStatus> wait() {
    // Waits without the lock, so that stop() still reaches a process that closed its output.
    siginfo_t info{};
    while (::waitid(P_PID, static_cast<id_t>(process_->pid()), &info, WEXITED | WNOWAIT) < 0 &&
           errno == EINTR) {
    }
    const std::lock_guard lock(mutex_);
    return process_->wait();
  }

  const ContainerOptions options_;
  io::Descriptor log_;
  io::Descriptor output_;
  std::mutex mutex_;  // of process_
  std::optional<io::Process> process_;
  std::thread thread_;
};

}  // namespace

std::string log_line(std::string_view text, std::chrono::system_clock::time_point when) {
  return fmt::format("{} {}\n", kube::micro_time(when), text);
}

Result<std::unique_ptr<Container>> Container::start(ContainerOptions options) {
  auto made = std::make_unique<ThreadContainer>(std::move(options));
  if (Status status = made->open(); !status.ok()) return failure(std::move(status));
  return made;
}

}  // namespace divisi::local
