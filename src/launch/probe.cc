#include "launch/probe.h"

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <optional>
#include <poll.h>
#include <string>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

namespace divisi::launch {
namespace {

void throw_output_away() {
  const int null = ::open("/dev/null", O_WRONLY | O_CLOEXEC);
  if (null < 0) return;
  ::dup2(null, STDOUT_FILENO);
  ::dup2(null, STDERR_FILENO);
}

void write_all(int fd, const std::string& text) {
  std::size_t done = 0;
  while (done < text.size()) {
    const ssize_t written = ::write(fd, text.data() + done, text.size() - done);
    if (written < 0 && errno != EINTR) return;
    if (written > 0) done += static_cast<std::size_t>(written);
  }
}

// Nothing if `stop_fd` became readable before the end.
std::optional<std::string> read_all(int fd, int stop_fd) {
  std::string text;
  std::array<char, 4096> chunk{};
  while (true) {
    std::array<pollfd, 2> fds{{{fd, POLLIN, 0}, {stop_fd, POLLIN, 0}}};
    if (::poll(fds.data(), fds.size(), -1) < 0) continue;  // interrupted
    if (fds[1].revents != 0) return std::nullopt;
    const ssize_t got = ::read(fd, chunk.data(), chunk.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return text;
    text.append(chunk.data(), static_cast<std::size_t>(got));
  }
}

// One byte of code, then the message.
[[noreturn]] void child(int fd, const std::function<Status()>& work) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  throw_output_away();
  Status status;
  try {
    status = work();
  } catch (const std::exception& error) {
    status = make_status(Code::kInternal, "an exception left it: {}", error.what());
  } catch (...) {
    status = make_status(Code::kInternal, "an exception left it");
  }
  write_all(fd, std::string(1, static_cast<char>(status.code())) + status.message());
  std::_Exit(0);
}

}  // namespace

Status run_in_child(const std::function<Status()>& work, int stop_fd) {
  std::array<int, 2> pipe{};
  if (::pipe2(pipe.data(), O_CLOEXEC) != 0) {
    return make_status(Code::kUnavailable, "cannot make a pipe: {}", errno_text(errno));
  }
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::close(pipe[0]);
    child(pipe[1], work);
  }
  const int fork_error = errno;
  ::close(pipe[1]);
  if (pid < 0) {
    ::close(pipe[0]);
    return make_status(Code::kUnavailable, "cannot start a process: {}", errno_text(fork_error));
  }
  const std::optional<std::string> answer = read_all(pipe[0], stop_fd);
  ::close(pipe[0]);
  if (!answer) ::kill(pid, SIGKILL);
  int how = 0;
  while (::waitpid(pid, &how, 0) < 0 && errno == EINTR) {
  }
  if (!answer) return {Code::kCancelled, "interrupted"};
  if (WIFSIGNALED(how)) {
    return make_status(Code::kInternal,
                       "loading it crashed with signal {} ({}); the file is damaged "
                       "or one of its constructors fails",
                       WTERMSIG(how), ::strsignal(WTERMSIG(how)));
  }
  if (answer->empty()) {
    return make_status(Code::kInternal, "loading it ended the process with exit code {}",
                       WEXITSTATUS(how));
  }
  const auto code = static_cast<Code>(answer->front());
  return code == Code::kOk ? Status() : Status(code, answer->substr(1));
}

}  // namespace divisi::launch
