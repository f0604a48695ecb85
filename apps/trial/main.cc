// divisi-trial: runs a program and outlives every process that it starts.
//
//   divisi-trial PARENT GRACE_MS PROGRAM ARGUMENTS...
//
// Ends as the program does, with its exit code or by its signal, but not before all of its
// descendants are gone, also those that left its process group or session: they are killed once the
// program itself has ended. SIGTERM, and the end of the thread that started divisi-trial (in the
// process PARENT), ask the program's group to end with SIGTERM; what is left after GRACE_MS is
// killed.
//
// It has no part of libdivisi: one of it starts with every trial of a tuner.
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <dirent.h>
#include <initializer_list>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

namespace {

constexpr int kNotRun = 127;  // as a shell says it

long long now_ms() {
  timespec time{};
  ::clock_gettime(CLOCK_MONOTONIC, &time);
  return 1000LL * time.tv_sec + time.tv_nsec / 1'000'000;
}

[[noreturn]] void fail(const char* what, const char* why) {
  std::fprintf(stderr, "divisi-trial: %s: %s\n", what, why);
  ::_exit(kNotRun);
}

long number(const char* text, long most) {
  char* end = nullptr;
  errno = 0;
  const long value = std::strtol(text, &end, 10);
  if (errno != 0 || end == text || *end != '\0' || value < 0 || value > most) {
    fail(text, "usage: divisi-trial PARENT GRACE_MS PROGRAM ARGUMENTS...");
  }
  return value;
}

// The parent of a process by /proc/PID/stat; 0: it is gone.
long parent_of(const char* pid) {
  char path[64];
  std::snprintf(path, sizeof path, "/proc/%.20s/stat", pid);
  std::FILE* const file = std::fopen(path, "re");
  if (file == nullptr) return 0;
  char text[1024] = {};
  const std::size_t size = std::fread(text, 1, sizeof text - 1, file);
  std::fclose(file);
  // "pid (name) state parent": the name may contain anything, also brackets and newlines.
  const char* const after_name = size > 0 ? std::strrchr(text, ')') : nullptr;
  return after_name == nullptr || std::strlen(after_name) < 4
             ? 0
             : std::strtol(after_name + 4, nullptr, 10);
}

// Kills the children of this process. A child's own children become ours when it ends.
void kill_children() {
  DIR* const folder = ::opendir("/proc");
  if (folder == nullptr) return;
  const long self = ::getpid();
  while (const dirent* const entry = ::readdir(folder)) {
    const char* const name = entry->d_name;
    if (name[0] < '0' || name[0] > '9' || parent_of(name) != self) continue;
    ::kill(static_cast<pid_t>(std::strtol(name, nullptr, 10)), SIGKILL);
  }
  ::closedir(folder);
}

sigset_t awaited_signals() {
  sigset_t set;
  ::sigemptyset(&set);
  for (const int signal : {SIGCHLD, SIGTERM, SIGINT, SIGHUP, SIGQUIT}) ::sigaddset(&set, signal);
  return set;
}

class Guard {
 public:
  Guard(pid_t program, long grace_ms, const sigset_t& awaited)
      : program_(program), grace_ms_(grace_ms), awaited_(awaited) {}

  // Until nothing is left; the wait status of the program.
  int wait() {
    while (reap()) {
      if (ended_ || (deadline_ms_ > 0 && now_ms() >= deadline_ms_)) kill_children();
      if (const int signal = next_signal(); signal > 0 && signal != SIGCHLD) ask_to_end();
    }
    return status_;
  }

 private:
  // Takes note of all that have ended; whether there is a process left.
  bool reap() {
    while (true) {
      int status = 0;
      const pid_t pid = ::waitpid(-1, &status, WNOHANG);
      if (pid == 0) return true;
      if (pid < 0) return errno == EINTR;
      if (pid != program_) continue;
      ended_ = true;
      status_ = status;
    }
  }

  int next_signal() {
    // While killing: those that ended meanwhile may have left children to us.
    constexpr long kAgain = 20;
    timespec wait{};
    long milliseconds = -1;
    if (ended_) {
      milliseconds = kAgain;
    } else if (deadline_ms_ > 0) {
      const long long rest = deadline_ms_ - now_ms();
      milliseconds = rest > kAgain ? static_cast<long>(rest) : kAgain;
    }
    if (milliseconds < 0) return ::sigwaitinfo(&awaited_, nullptr);
    wait.tv_sec = milliseconds / 1000;
    wait.tv_nsec = milliseconds % 1000 * 1'000'000;
    return ::sigtimedwait(&awaited_, nullptr, &wait);
  }

  void ask_to_end() {
    if (deadline_ms_ > 0) return;
    deadline_ms_ = now_ms() + grace_ms_;
    if (!ended_) ::kill(-program_, SIGTERM);
  }

  const pid_t program_;
  const long grace_ms_;
  const sigset_t awaited_;
  bool ended_ = false;  // the program itself
  int status_ = 0;
  long long deadline_ms_ = 0;  // 0: nobody asked
};

[[noreturn]] void run(char** command, const sigset_t& mask) {
  // A group of its own, which is asked to end as a whole. Its parent sets it too: whoever is first.
  ::setpgid(0, 0);
  ::sigprocmask(SIG_SETMASK, &mask, nullptr);
  ::execvp(command[0], command);
  fail(command[0], std::strerror(errno));
}

// Ends as the program ended.
[[noreturn]] void end_like(int status) {
  if (WIFSIGNALED(status)) {
    const rlimit no_core{};
    ::setrlimit(RLIMIT_CORE, &no_core);  // the program's own is enough
    const int number = WTERMSIG(status);
    ::signal(number, SIG_DFL);
    sigset_t set;
    ::sigemptyset(&set);
    ::sigaddset(&set, number);
    ::raise(number);
    ::sigprocmask(SIG_UNBLOCK, &set, nullptr);
  }
  ::_exit(WIFEXITED(status) ? WEXITSTATUS(status) : kNotRun);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4)
    fail("too few arguments", "usage: divisi-trial PARENT GRACE_MS PROGRAM ARGUMENTS...");
  const long parent = number(argv[1], INT_MAX);
  const long grace_ms = number(argv[2], INT_MAX);
  const sigset_t awaited = awaited_signals();
  ::signal(SIGCHLD, SIG_DFL);  // whoever ignores it gets neither the signal nor the exit status
  sigset_t before;
  ::sigprocmask(SIG_BLOCK, &awaited, &before);
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (::getppid() != parent) return kNotRun;  // it ended before it could be watched
  const pid_t program = ::fork();
  if (program < 0) fail("fork", std::strerror(errno));
  if (program == 0) run(argv + 3, before);
  ::setpgid(program, program);
  end_like(Guard(program, grace_ms, awaited).wait());
}
