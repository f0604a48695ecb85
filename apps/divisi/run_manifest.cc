#include "run_manifest.h"

#include "io/reactor.h"
#include "local/cluster.h"

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <iterator>
#include <map>
#include <mutex>
#include <optional>
#include <poll.h>
#include <sys/signalfd.h>
#include <unistd.h>
#include <utility>

namespace divisi::apps {
namespace {

constexpr int kNotStarted = 125;
constexpr std::array kColours{36, 33, 32, 35, 34, 31};

// Prints lines of several threads, each behind the name of its pod.
class Printer {
 public:
  // `on_broken` is called once, from the thread that could not print.
  explicit Printer(std::function<void()> on_broken) : on_broken_(std::move(on_broken)) {}

  void line(std::string_view pod, std::string_view text) {
    const std::lock_guard lock(mutex_);
    const std::string name(pod);
    const std::size_t number = numbers_.try_emplace(name, numbers_.size()).first->second;
    const std::string shown = coloured_
                                  ? fmt::format("\033[{}m[{}]\033[0m {}\n",
                                                kColours[number % kColours.size()], name, text)
                                  : fmt::format("[{}] {}\n", name, text);
    const bool printed = std::fwrite(shown.data(), 1, shown.size(), stdout) == shown.size() &&
                         std::fflush(stdout) == 0;
    if (!printed && !std::exchange(broken_, true)) on_broken_();
  }
  void note(std::string_view text) {
    const std::string shown = fmt::format("divisi run: {}\n", text);
    const std::lock_guard lock(mutex_);
    std::fwrite(shown.data(), 1, shown.size(), stderr);
  }

 private:
  const std::function<void()> on_broken_;
  std::mutex mutex_;
  bool broken_ = false;
  std::map<std::string, std::size_t> numbers_;
  const bool coloured_ = ::isatty(STDOUT_FILENO) == 1 && std::getenv("NO_COLOR") == nullptr;
};

Result<std::string> read_text(const std::string& file) {
  if (file == "-") return std::string(std::istreambuf_iterator<char>(std::cin), {});
  std::error_code ignored;
  if (std::filesystem::is_directory(file, ignored)) {
    return failure(Code::kInvalid, "cannot read {}: it is a folder", file);
  }
  std::ifstream in(file, std::ios::binary);
  if (!in) return failure(Code::kNotFound, "cannot read {}: {}", file, std::strerror(errno));
  return std::string(std::istreambuf_iterator<char>(in), {});
}

// A folder of its own, removed at the end.
class RunFolder {
 public:
  explicit RunFolder(const std::string& given) : path_(given), made_(given.empty()) {
    if (made_) {
      path_ = (std::filesystem::temp_directory_path() / "divisi-run-XXXXXX").string();
      if (::mkdtemp(path_.data()) == nullptr) path_.clear();
    } else {
      std::error_code ignored;  // opening files in it tells
      std::filesystem::create_directories(path_, ignored);
    }
  }
  ~RunFolder() {
    std::error_code ignored;
    if (made_ && !path_.empty()) std::filesystem::remove_all(path_, ignored);
  }
  RunFolder(const RunFolder&) = delete;
  RunFolder& operator=(const RunFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  const bool made_;
};

bool has_ended(std::string_view phase) {
  return phase == "Succeeded" || phase == "Failed";
}

// The signals that end a job, as a descriptor. Blocked before any thread is made, so that all
// threads inherit it; SIGPIPE too, because a reader that has gone is an error of the printing.
int signal_descriptor() {
  sigset_t set;
  ::sigemptyset(&set);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) ::sigaddset(&set, signal);
  sigset_t blocked = set;
  ::sigaddset(&blocked, SIGPIPE);
  ::pthread_sigmask(SIG_BLOCK, &blocked, nullptr);
  return ::signalfd(-1, &set, SFD_CLOEXEC);
}

class ManifestJob {
 public:
  explicit ManifestJob(const std::string& folder)
      : signals_(signal_descriptor()), folder_(folder), reactor_(io::make_reactor()) {
    if (::pipe2(wake_, O_CLOEXEC) != 0) wake_[0] = wake_[1] = -1;
  }
  ~ManifestJob() {
    reactor_->run_on_loop([this] { cluster_.reset(); });
    ::close(signals_);
    ::close(wake_[0]);
    ::close(wake_[1]);
  }
  ManifestJob(const ManifestJob&) = delete;
  ManifestJob& operator=(const ManifestJob&) = delete;

  Status start(local::Manifest manifest) {
    Status status;
    reactor_->run_on_loop([&] {
      auto made = local::Cluster::start(*reactor_, std::move(manifest), options());
      if (made) {
        cluster_ = *std::move(made);
      } else {
        status = made.error();
      }
    });
    return status;
  }

  // Until the job has ended or was stopped.
  int wait() {
    while (!ended_) {
      std::array<pollfd, 2> watched{pollfd{signals_, POLLIN, 0}, pollfd{wake_[0], POLLIN, 0}};
      if (::poll(watched.data(), watched.size(), -1) < 0 && errno != EINTR) break;
      if (watched[0].revents != 0) stop();
    }
    if (stopped_by_ != 0) return 128 + stopped_by_;
    int code = 1;
    reactor_->run_on_loop([&] { code = cluster_->exit_code(); });
    return code;
  }

 private:
  local::ClusterOptions options() {
    local::ClusterOptions made;
    made.folder = folder_;
    made.on_output = [this](std::string_view pod, std::string_view, std::string_view line) {
      printer_.line(pod, line);
    };
    made.on_limit = [this](std::string_view line) { printer_.note(line); };
    made.on_phase = [this](std::string_view phase, std::string_view message) {
      printer_.note(message.empty() ? std::string(phase) : fmt::format("{}: {}", phase, message));
      if (has_ended(phase)) wake();
    };
    return made;
  }

  void stop() {
    signalfd_siginfo info{};
    if (::read(signals_, &info, sizeof info) != sizeof info) return;
    const bool again = stopped_by_.exchange(static_cast<int>(info.ssi_signo)) != 0;
    if (again) {
      printer_.note("killing the job");
      return wake();
    }
    printer_.note("ending the job; once more to kill it");
    remove();
  }

  // Nobody reads the output any more, or the disk is full: the job ends as by SIGPIPE.
  void stop_printing() {
    if (stopped_by_.exchange(SIGPIPE) == 0) remove();
  }

  void remove() {
    reactor_->post([this] {
      if (cluster_ != nullptr) cluster_->remove([this] { wake(); });
    });
  }

  void wake() {
    ended_ = true;
    static_cast<void>(::write(wake_[1], "", 1));
  }

  const int signals_;
  const std::string folder_;
  int wake_[2]{};
  std::atomic<bool> ended_ = false;
  std::atomic<int> stopped_by_ = 0;  // a signal
  Printer printer_{[this] { stop_printing(); }};
  std::unique_ptr<io::Reactor> reactor_;
  std::unique_ptr<local::Cluster> cluster_;
};

int complain(std::string_view text, int code) {
  fmt::print(stderr, "divisi run: {}\n", text);
  return code;
}

}  // namespace

int run_manifest(const ManifestRun& run) {
  const auto text = read_text(run.file);
  if (!text) return complain(text.error().message(), 2);
  auto manifest = local::read_manifest(*text);
  if (!manifest) return complain(fmt::format("{}: {}", run.file, manifest.error().message()), 2);
  const RunFolder folder(run.folder);
  if (folder.path().empty()) return complain("cannot make a temporary folder", kNotStarted);
  ManifestJob job(folder.path());
  if (const Status started = job.start(*std::move(manifest)); !started.ok()) {
    return complain(started.message(), started.code() == Code::kInvalid ? 2 : kNotStarted);
  }
  return job.wait();
}

std::optional<int> run_manifest_command(const std::vector<std::string>& arguments) {
  const auto names_manifest = [](const std::string& word) {
    return word == "-" || word.ends_with(".yaml") || word.ends_with(".yml");
  };
  // Behind -- is a program with arguments of its own; behind a flag is its value.
  if (std::ranges::find(arguments, "--") != arguments.end()) return std::nullopt;
  bool found = false;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    found =
        found || (names_manifest(arguments[i]) && (i == 0 || !arguments[i - 1].starts_with('-')));
  }
  if (!found) return std::nullopt;
  ManifestRun run;
  std::string backend = "local";
  CLI::App app(
      "Run a DIJob manifest on this machine: each pod is a process group in a sandbox, the "
      "operator of the "
      "cluster decides.\n\nExamples:\n  divisi run job.yaml --backend local\n  divisi run job.yaml "
      "--folder out    "
      "# keeps the logs in out/logs",
      "divisi run");
  app.add_option("manifest", run.file,
                 "YAML with one DIJob, and its ConfigMaps and Secrets; - is standard input")
      ->required();
  app.add_option("--backend", backend, "where: local")->check(CLI::IsMember({"local"}));
  app.add_option("--folder", run.folder, "for logs and volumes; default: a temporary one");
  try {
    app.parse(std::vector<std::string>(arguments.rbegin(), arguments.rend()));
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);
    return complain(fmt::format("{}; divisi run {} --help tells more", error.what(), "job.yaml"),
                    2);
  }
  return run_manifest(run);
}

}  // namespace divisi::apps
