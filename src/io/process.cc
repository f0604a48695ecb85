#include "io/process.h"

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

namespace divisi::io {

namespace {

Status errno_status(std::string_view doing) {
  return make_status(Code::kUnavailable, "{}: {}", doing, errno_text(errno));
}

std::vector<char*> pointers_to(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (auto& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

std::vector<std::string> merged_environment(
    const std::map<std::string, std::optional<std::string>>& changes) {
  std::vector<std::string> merged;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    if (!changes.contains(std::string(text.substr(0, text.find('='))))) merged.emplace_back(text);
  }
  for (const auto& [name, value] : changes) {
    if (value) merged.push_back(name + "=" + *value);
  }
  return merged;
}

// Where execvp would find it. Searched in the parent, because the child may not allocate.
std::string find_program(const std::string& program) {
  if (program.find('/') != std::string::npos) return program;
  const char* const variable = std::getenv("PATH");
  std::string_view path = variable == nullptr ? "/usr/local/bin:/usr/bin:/bin" : variable;
  while (true) {
    const std::size_t colon = std::min(path.find(':'), path.size());
    std::string candidate =
        colon == 0 ? "./" + program : std::string(path.substr(0, colon)) + "/" + program;
    if (::access(candidate.c_str(), X_OK) == 0) return candidate;
    if (colon == path.size()) return program;
    path.remove_prefix(colon + 1);
  }
}

// All the child needs, made before it exists.
struct ChildPlan {
  const char* program;
  char* const* argv;
  char* const* envp;
  const char* folder;        // null: stays where it is
  std::array<int, 3> stdio;  // to become 0, 1, 2; -1 keeps what is there
  const std::vector<int>* inherited;
  bool new_process_group;
  bool die_with_parent;
  pid_t parent;
  sigset_t mask;     // the caller's
  int error_report;  // close-on-exec: an errno comes through it, or nothing
};

// Runs in the vfork child: shares the parent's memory, so it only makes system calls, and writes
// nothing but its own locals. Returns the errno of what failed.
int become(const ChildPlan& plan) {
  // A handler of the parent must not run here; exec would reset it anyhow.
  for (int signal = 1; signal < NSIG; ++signal) {
    struct sigaction action{};
    if (::sigaction(signal, nullptr, &action) != 0) continue;
    if (action.sa_handler == SIG_DFL || action.sa_handler == SIG_IGN) continue;
    action = {};
    action.sa_handler = SIG_DFL;
    ::sigaction(signal, &action, nullptr);
  }
  if (plan.new_process_group && ::setpgid(0, 0) != 0) return errno;
  if (plan.die_with_parent) {
    if (::prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) return errno;
    if (::getppid() != plan.parent) return ESRCH;  // it died before the request was in place
  }
  // Sources may themselves be 0, 1 or 2: move them out of the way before overwriting any.
  std::array<int, 3> sources = plan.stdio;
  for (int& source : sources) {
    if (source >= 0 && source <= 2) source = ::fcntl(source, F_DUPFD_CLOEXEC, 3);
  }
  for (int target = 0; target < 3; ++target) {
    const int source = sources[static_cast<std::size_t>(target)];
    if (source >= 0 && ::dup2(source, target) < 0) return errno;
  }
  if (plan.folder != nullptr && ::chdir(plan.folder) != 0) return errno;
  // Libraries that forgot O_CLOEXEC do not hand their files to workers. Kernels before 5.11 lack
  // the flag; then only our own care protects.
  ::close_range(3, ~0u, CLOSE_RANGE_CLOEXEC);
  for (const int fd : *plan.inherited) {
    if (::fcntl(fd, F_SETFD, 0) != 0) return errno;
  }
  ::sigprocmask(SIG_SETMASK, &plan.mask, nullptr);
  ::execve(plan.program, plan.argv, plan.envp);
  return errno;
}

// Not inlined: the child's frame must not overlap anything the parent uses after the call. What
// went wrong comes back through a pipe, because where a sanitizer turns vfork into fork the child
// has memory of its own.
[[gnu::noinline]] pid_t vfork_and_become(const ChildPlan& plan) {
  // posix_spawn cannot set a parent-death signal, nor close descriptors by range.
  // NOLINTNEXTLINE(bugprone-unsafe-functions,clang-analyzer-security.insecureAPI.vfork)
  const pid_t pid = ::vfork();
  if (pid == 0) {
    // NOLINTNEXTLINE(clang-analyzer-unix.Vfork): it makes system calls only, in this frame's depth
    const int error = become(plan);
    [[maybe_unused]] const ssize_t written = ::write(plan.error_report, &error, sizeof(error));
    ::_exit(127);
  }
  return pid;
}

struct StdioEnds {
  Descriptor child;
  Descriptor parent;
};

Result<StdioEnds> open_stdio(Stdio kind, bool child_reads) {
  StdioEnds ends;
  if (kind == Stdio::kNull) {
    ends.child.reset(::open("/dev/null", O_RDWR | O_CLOEXEC));
    if (!ends.child) return failure(errno_status("opening /dev/null"));
  } else if (kind == Stdio::kPipe) {
    DIVISI_TRY(PipePair pipe, make_pipe());
    ends.child = std::move(child_reads ? pipe.read : pipe.write);
    ends.parent = std::move(child_reads ? pipe.write : pipe.read);
  }
  return ends;
}

int open_pidfd(pid_t pid) {
  return static_cast<int>(::syscall(SYS_pidfd_open, pid, 0));
}

}  // namespace

void Descriptor::reset(int fd) noexcept {
  if (fd_ >= 0) ::close(fd_);
  fd_ = fd;
}

Result<PipePair> make_pipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return failure(errno_status("making a pipe"));
  return PipePair{Descriptor(ends[0]), Descriptor(ends[1])};
}

Result<Descriptor> make_memory_file(const std::string& name, std::string_view bytes) {
  Descriptor file(::memfd_create(name.c_str(), MFD_CLOEXEC));
  if (!file) return failure(errno_status("making a file in memory"));
  while (!bytes.empty()) {
    const ssize_t written = ::write(file.get(), bytes.data(), bytes.size());
    if (written < 0) {
      if (errno == EINTR) continue;
      return failure(errno_status("writing to a file in memory"));
    }
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
  if (::lseek(file.get(), 0, SEEK_SET) != 0)
    return failure(errno_status("rewinding a memory file"));
  return file;
}

Result<std::string> read_all(int fd) {
  std::string bytes;
  std::array<char, 4096> chunk{};
  while (true) {
    const ssize_t size = ::read(fd, chunk.data(), chunk.size());
    if (size == 0) return bytes;
    if (size < 0) {
      if (errno == EINTR) continue;
      return failure(errno_status(fmt::format("reading descriptor {}", fd)));
    }
    bytes.append(chunk.data(), static_cast<std::size_t>(size));
  }
}

Result<std::string> read_from_start(int fd) {
  if (::lseek(fd, 0, SEEK_SET) != 0) return failure(errno_status("rewinding a file"));
  return read_all(fd);
}

Result<Process> Process::spawn(const SpawnOptions& options) {
  const std::string program = find_program(options.program);
  std::vector<std::string> arguments{options.argv0.empty() ? options.program : options.argv0};
  arguments.insert(arguments.end(), options.arguments.begin(), options.arguments.end());
  std::vector<std::string> environment = merged_environment(options.environment);
  const std::vector<char*> argv = pointers_to(arguments);
  const std::vector<char*> envp = pointers_to(environment);

  DIVISI_TRY(StdioEnds input, open_stdio(options.standard_input, true));
  DIVISI_TRY(StdioEnds output, open_stdio(options.standard_output, false));
  DIVISI_TRY(StdioEnds error, open_stdio(options.standard_error, false));

  ChildPlan plan{};
  plan.program = program.c_str();
  plan.argv = argv.data();
  plan.envp = envp.data();
  plan.folder = options.folder.empty() ? nullptr : options.folder.c_str();
  plan.stdio = {options.input_from >= 0 ? options.input_from : input.child.get(),
                options.output_to >= 0 ? options.output_to : output.child.get(),
                options.error_to >= 0 ? options.error_to : error.child.get()};
  plan.inherited = &options.inherited;
  plan.new_process_group = options.new_process_group;
  plan.die_with_parent = options.die_with_parent;
  plan.parent = ::getpid();
  DIVISI_TRY(PipePair report, make_pipe());
  plan.error_report = report.write.get();

  // No handler may run in the child while it shares our memory.
  sigset_t all;
  ::sigfillset(&all);
  sigset_t own;
  ::pthread_sigmask(SIG_SETMASK, &all, &own);
  plan.mask = own;
  if (options.clear_signal_mask) ::sigemptyset(&plan.mask);
  const pid_t pid = vfork_and_become(plan);
  const int fork_error = errno;
  ::pthread_sigmask(SIG_SETMASK, &own, nullptr);

  if (pid < 0) {
    return failure(Code::kUnavailable, "starting {}: {}", options.program, errno_text(fork_error));
  }
  Process child;
  child.pid_ = pid;
  child.reaped_ = false;
  child.own_group_ = options.new_process_group;
  report.write.reset();
  int code = 0;
  DIVISI_TRY(const std::string failed, read_all(report.read.get()));
  if (failed.size() == sizeof(code)) {
    std::memcpy(&code, failed.data(), sizeof(code));
    child.reap(WEXITED);
    return failure(code == ENOENT ? Code::kNotFound : Code::kUnavailable, "starting {}: {}",
                   options.program, errno_text(code));
  }
  child.pidfd_.reset(open_pidfd(pid));
  if (!child.pidfd_) {
    child.reaped_ = errno == ESRCH;  // ended, and reaped by a handler of the surrounding program
    const Status status = errno_status(fmt::format("watching process {}", pid));
    child.end();
    return failure(status);
  }
  child.input_ = std::move(input.parent);
  child.output_ = std::move(output.parent);
  child.error_ = std::move(error.parent);
  return child;
}

Process& Process::operator=(Process&& other) noexcept {
  if (this == &other) return *this;
  end();
  pid_ = other.pid_;
  reaped_ = std::exchange(other.reaped_, true);
  own_group_ = other.own_group_;
  pidfd_ = std::move(other.pidfd_);
  input_ = std::move(other.input_);
  output_ = std::move(other.output_);
  error_ = std::move(other.error_);
  return *this;
}

Process::Process(Process&& other) noexcept {
  *this = std::move(other);
}

Process::~Process() {
  end();
}

void Process::end() noexcept {
  if (reaped_) return;
  if (own_group_) kill_group(SIGKILL);
  ::kill(pid_, SIGKILL);  // ours and not reaped: the number cannot have been given to another
  reap(WEXITED);
}

Status Process::kill(int signal) {
  if (reaped_) return {Code::kNotFound, "the process has ended"};
  if (::syscall(SYS_pidfd_send_signal, pidfd_.get(), signal, nullptr, 0) == 0) return {};
  if (errno == ESRCH) return {Code::kNotFound, "the process has ended"};
  return errno_status(fmt::format("sending signal {} to process {}", signal, pid_));
}

void Process::kill_group(int signal) noexcept {
  if (!reaped_ && own_group_) ::kill(-pid_, signal);
}

std::optional<ExitStatus> Process::reap(int flags) {
  siginfo_t info{};
  int outcome = 0;
  do {
    outcome = ::waitid(P_PID, static_cast<id_t>(pid_), &info, flags);
  } while (outcome != 0 && errno == EINTR);
  ExitStatus status;
  if (outcome != 0) {
    status.unknown = true;
  } else if (info.si_pid == 0) {
    return std::nullopt;  // WNOHANG, and it still runs
  } else if (info.si_code == CLD_EXITED) {
    status.code = info.si_status;
  } else {
    status.signal = info.si_status;
  }
  reaped_ = true;
  return status;
}

Result<ExitStatus> Process::wait() {
  if (reaped_) return failure(Code::kNotFound, "the process was waited for already");
  if (const auto status = reap(WEXITED)) return *status;
  return failure(Code::kInternal, "a process that was waited for did not end");
}

std::optional<ExitStatus> Process::try_wait() {
  if (reaped_) return std::nullopt;
  return reap(WEXITED | WNOHANG);
}

void open_standard_descriptors() noexcept {
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(fd, F_GETFD) >= 0 || errno != EBADF) continue;
    if (::open("/dev/null", O_RDWR) < 0) return;  // the lowest number that is free is this one
  }
}

std::string current_program() {
  std::string link = "/proc/self/exe";
  std::array<char, 4096> path{};
  const ssize_t size = ::readlink(link.c_str(), path.data(), path.size());
  if (size <= 0) return link;
  const std::string target(path.data(), static_cast<std::size_t>(size));
  // Replaced or removed while running: the link still opens the file we came from.
  return ::access(target.c_str(), X_OK) == 0 ? target : link;
}

std::string signal_name(int signal) {
  const char* const abbreviation = ::sigabbrev_np(signal);
  if (abbreviation == nullptr) return fmt::format("signal {}", signal);
  return fmt::format("SIG{} ({})", abbreviation, ::sigdescr_np(signal));
}

}  // namespace divisi::io
