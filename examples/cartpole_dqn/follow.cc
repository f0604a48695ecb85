#include "follow.h"

#include "divisi/error.h"
#include "progress.h"
#include "saved_config.h"

#include <fmt/format.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <fstream>
#include <optional>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

namespace cartpole {

using Clock = std::chrono::steady_clock;

namespace {

constexpr int kFrame = 100;  // milliseconds

// Ends with this process, whatever ends that.
pid_t start(const std::string& program, std::vector<std::string> args, const std::string& output) {
  const int file = ::open(output.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (file < 0) {
    throw divisi::UsageError(fmt::format("{} cannot be written: {}", output, std::strerror(errno)));
  }
  args.insert(args.begin(), program);
  std::vector<char*> argv;
  for (auto& arg : args) argv.push_back(arg.data());
  argv.push_back(nullptr);
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid == 0) {
    // A group of its own: a Ctrl-C reaches it once, through us.
    ::setpgid(0, 0);
    ::prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (::getppid() != parent) ::_exit(1);
    sigset_t none;
    ::sigemptyset(&none);
    ::sigprocmask(SIG_SETMASK, &none, nullptr);
    ::dup2(file, STDOUT_FILENO);
    ::dup2(file, STDERR_FILENO);
    ::execv("/proc/self/exe", argv.data());
    ::_exit(127);
  }
  ::close(file);
  if (pid < 0) throw divisi::Error(divisi::Code::kUnavailable, "fork: out of processes");
  return pid;
}

// Reads what was added to the log since the last time, in whole lines.
class Tail {
 public:
  explicit Tail(std::string path) : path_(std::move(path)) {}

  // True if there was something new.
  bool read_into(Progress& progress) {
    std::ifstream file(path_);
    if (!file.seekg(at_)) return false;
    bool some = false;
    for (std::string line; std::getline(file, line) && !file.eof();) {
      at_ += static_cast<std::streamoff>(line.size()) + 1;
      some = progress.take(line) || some;
    }
    return some;
  }

 private:
  const std::string path_;
  std::streamoff at_ = 0;
};

Screen screen_of_terminal() {
  winsize size{};
  Screen screen;
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 && size.ws_row > 0) {
    screen.columns = size.ws_col;
    screen.rows = size.ws_row;
  }
  const char* const refused = std::getenv("NO_COLOR");
  screen.colour = refused == nullptr || *refused == '\0';
  return screen;
}

class Display {
 public:
  Display(std::string title, double stop_value)
      : title_(std::move(title)), stop_value_(stop_value) {
    if (live_) fmt::print("\x1b[?25l");
  }
  ~Display() {
    if (live_) fmt::print("\x1b[?25h");
    std::fflush(stdout);
  }
  Display(const Display&) = delete;
  Display& operator=(const Display&) = delete;

  void show(const Progress& progress, bool news, bool last) {
    if (news) last_news_ = Clock::now();
    const double quiet = std::chrono::duration<double>(Clock::now() - last_news_).count();
    if (live_) {
      // Over the last picture, line by line, so that nothing flickers.
      std::string picture =
          draw(progress, title_, stop_value_, last ? 0 : quiet, screen_of_terminal());
      std::string out = lines_ > 0 ? fmt::format("\x1b[{}A", lines_) : "";
      lines_ = 0;
      for (const char c : picture) {
        if (c == '\n') {
          out += "\x1b[K";
          ++lines_;
        }
        out += c;
      }
      fmt::print("{}", out);
    } else if (news && progress.env_step > 0 &&
               (last || Clock::now() - last_line_ >= std::chrono::seconds(1))) {
      last_line_ = Clock::now();
      fmt::print("{}\n", plain_line(progress));
    }
    std::fflush(stdout);
  }

 private:
  const std::string title_;
  const double stop_value_;
  const bool live_ = ::isatty(STDOUT_FILENO) == 1;
  int lines_ = 0;
  Clock::time_point last_news_ = Clock::now();
  Clock::time_point last_line_{};
};

// What kept a run that failed from saying why.
std::string why_silent(const std::string& path) {
  const int file = ::open(path.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
  const bool writable = file >= 0 && ::write(file, "\n", 1) == 1;
  const int error = errno;
  if (file >= 0) ::close(file);
  return writable
             ? std::string("the run failed without a word")
             : fmt::format("the run failed: cannot write '{}': {}", path, std::strerror(error));
}

// Why the run failed: the last line that it printed, after `begin`, sums it up.
std::string reason(const std::string& path, std::streamoff begin) {
  std::ifstream file(path);
  file.seekg(begin);
  std::string last;
  for (std::string line; std::getline(file, line);) {
    if (!line.empty()) last = line;
  }
  if (last.empty()) last = why_silent(path);
  for (const std::string_view noise :
       {"cartpole_dqn: ", "divisi::UsageError: ", "divisi::Error: "}) {
    if (const auto at = last.find(noise); at != std::string::npos) last.erase(at, noise.size());
  }
  return last;
}

std::streamoff size_of(const std::string& path) {
  std::ifstream file(path, std::ios::ate);
  return file ? static_cast<std::streamoff>(file.tellg()) : 0;
}

void print_next(const std::string& program, const Options& options, std::size_t processes) {
  fmt::print("try next\n");
  const auto line = [&](std::string_view args, std::string_view what) {
    fmt::print("  {} {:<28} {}\n", program, args, what);
  };
  constexpr double kLong = 475;
  if (options.config.stop_value < kLong) line("--preset long", "until 475");
  if (processes > 1) line("--alone", "one process");
  line("--parallel-workers 4", "four, roles by number");
  line("--help", "several hosts, other keys");
}

void print_end(const std::string& program, const Progress& progress, const Options& options,
               const RunFolder& folder, int status) {
  if (!progress.evaluations.empty()) {
    std::ofstream(folder.curve()) << curve_svg(
        progress.evaluations, options.config.stop_value,
        fmt::format("{}, DQN, seed {}", options.config.env_name, options.config.seed));
  }
  if (progress.solved) {
    fmt::print(
        "\nsolved: mean return {:.1f} (goal {}) over {} episodes after {} env steps, {} updates, "
        "{:.1f} s\n",
        progress.evaluations.empty() ? 0 : progress.evaluations.back().mean,
        options.config.stop_value, options.config.n_evaluator_episode,
        with_commas(progress.env_step), with_commas(progress.train_iter), progress.seconds);
  } else if (status == 0) {
    fmt::print("\nnot solved: {} env steps are over (max_env_step)\n",
               with_commas(progress.env_step));
  } else {
    fmt::print("\nstopped after {} env steps, before a mean return of {}; go on with: {}\n",
               with_commas(progress.env_step), options.config.stop_value,
               command_line(program, {"--run-folder", folder.path}));
  }
  fmt::print(
      "  curve        {}\n  checkpoints  {}\n  logs         {} (TensorBoard reads the folder)\n",
      folder.curve(), folder.checkpoints(), folder.log());
  if (progress.solved) print_next(program, options, progress.nodes.size());
}

}  // namespace

int follow(const std::string& program, const Options& options, const RunFolder& folder) {
  sigset_t signals;
  ::sigemptyset(&signals);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGCHLD}) ::sigaddset(&signals, signal);
  ::sigprocmask(SIG_BLOCK, &signals, nullptr);
  const int signal_file = ::signalfd(-1, &signals, SFD_CLOEXEC);

  const std::streamoff output_before = size_of(folder.output());  // of earlier lives
  const pid_t run = start(program, to_arguments(options), folder.output());
  Progress progress;
  Tail tail(folder.log());
  std::optional<int> status;
  int ended_by = 0;
  {
    Display display(fmt::format("{} · DQN · seed {} · {}", options.config.env_name,
                                options.config.seed, folder.path),
                    options.config.stop_value);
    while (!status) {
      pollfd waiting{signal_file, POLLIN, 0};
      if (::poll(&waiting, 1, kFrame) > 0) {
        signalfd_siginfo signal{};
        if (::read(signal_file, &signal, sizeof(signal)) == sizeof(signal) &&
            signal.ssi_signo != SIGCHLD) {
          ended_by = static_cast<int>(signal.ssi_signo);
          ::kill(run, ended_by == SIGHUP ? SIGTERM : ended_by);
        }
      }
      int raw = 0;
      if (::waitpid(run, &raw, WNOHANG) == run) {
        status = WIFEXITED(raw) ? WEXITSTATUS(raw) : 128 + WTERMSIG(raw);
      }
      const bool news = tail.read_into(progress);
      display.show(progress, news, status.has_value());
    }
  }
  ::close(signal_file);
  if (*status != 0 && ended_by == 0) {
    fmt::print(stderr, "cartpole_dqn: {} (all output: {})\n",
               reason(folder.output(), output_before), folder.output());
    return *status;
  }
  print_end(program, progress, options, folder, *status);
  return *status;
}

}  // namespace cartpole
