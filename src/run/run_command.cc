#include "run/run_command.h"

#include "base/log.h"
#include "io/crypto.h"
#include "io/process.h"
#include "run/backend.h"
#include "run/environment.h"
#include "run/package.h"
#include "run/package_watch.h"
#include "run/settings.h"
#include "run/signal_pipe.h"

#include <fmt/format.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <limits>
#include <memory>
#include <optional>
#include <poll.h>
#include <sys/epoll.h>
#include <unistd.h>

namespace divisi::run {
namespace {

using Clock = std::chrono::steady_clock;

constexpr const char* kProgram = "divisi run";
constexpr int kSignalCode = 128;

int print_text(const std::string& text) {
  if (std::fputs(text.c_str(), stdout) >= 0 && std::fflush(stdout) == 0) return 0;
  return complain(kProgram,
                  make_status(Code::kUnavailable, "writing to stdout: {}", errno_text(errno)));
}

// All that was said, and the backend that follows from it.
struct Request {
  Settings settings{};
  RunOptions options{};
  std::string backend_reason{};
};

Result<Request> read_request(const CommandLine& line) {
  Request request;
  const auto package = line.given.find("package");
  const SettingsFiles files = find_settings_files(
      process_environment(), package == line.given.end() ? "." : package->second.values.back());
  DIVISI_TRY(request.settings, gather_settings(line, files));
  DIVISI_TRY(request.options, read_options(request.settings, line));
  if (!request.options.backend) {
    BackendChoice choice = choose_backend(request.options);
    request.options.backend = choice.kind;
    request.backend_reason = std::move(choice.reason);
    request.settings["backend"] = {{std::string(backend_name(choice.kind))},
                                   request.backend_reason};
  }
  return request;
}

// Where digests of a package's files are kept between runs.
std::string digest_cache_file(const std::string& package) {
  const launch::Environment environment = process_environment();
  std::string folder;
  if (const auto cache = launch::lookup(environment, "XDG_CACHE_HOME")) {
    folder = *cache;
  } else if (const auto home = launch::lookup(environment, "HOME")) {
    folder = std::string(*home) + "/.cache";
  } else {
    return {};
  }
  std::error_code error;
  io::Sha256 name;
  name.update(std::filesystem::absolute(package, error).string());
  return fmt::format("{}/divisi/digests/{}", folder, io::hexadecimal(name.finish()));
}

CutOptions cut_options(const RunOptions& options) {
  CutOptions cut;
  cut.path = options.package;
  cut.main = options.main;
  cut.max_bytes =
      options.yes ? std::numeric_limits<std::uint64_t>::max() : options.max_package_bytes;
  cut.digest_cache = digest_cache_file(options.package);
  return cut;
}

bool answers_yes(const std::string& question) {
  std::fprintf(stderr, "%s: %s [y/N] ", kProgram, question.c_str());
  const int answer = std::getchar();
  return answer == 'y' || answer == 'Y';
}

// What is too large is asked for where somebody can answer; yes is then the answer from now on.
Result<PackageCut> cut_or_ask(RunOptions& options) {
  auto cut = cut_package(cut_options(options));
  if (cut || cut.error().code() != Code::kForbidden || ::isatty(STDIN_FILENO) == 0) return cut;
  if (!answers_yes(cut.error().message() + "; send it all the same?")) return cut;
  options.yes = true;
  return cut_package(cut_options(options));
}

struct Prepared {
  std::unique_ptr<Backend> backend{};
  std::optional<PackageCut> package{};
  RunJob job{};

  const PackageCut* cut() const { return package ? &*package : nullptr; }
};

Result<Prepared> prepare(RunOptions& options) {
  if (!options.manifest.empty() && options.backend != BackendKind::kLocal &&
      options.backend != BackendKind::kDijob) {
    return failure(Code::kInvalid, "--backend {} does not run manifests; local and dijob do",
                   backend_name(*options.backend));
  }
  Prepared prepared;
  DIVISI_TRY(prepared.backend, make_backend(*options.backend, options));
  std::string entry;
  const bool has_package = options.command.empty() && options.manifest.empty();
  if (has_package && (prepared.backend->sends_package() || options.watch)) {
    DIVISI_TRY(prepared.package, cut_or_ask(options));
    entry = prepared.package->entry;
  } else if (has_package) {
    DIVISI_TRY(const EntryCheck check, check_entry(options.package, options.main));
    entry = check.entry;
  }
  DIVISI_TRY(prepared.job, prepared.backend->plan(options, entry));
  return prepared;
}

int dry_run(RunOptions options) {
  const auto prepared = prepare(options);
  if (!prepared) return complain(kProgram, prepared.error());
  const RenderFormat format = options.output.value_or(RenderFormat::kYaml);
  if (format == RenderFormat::kSh) {
    const auto text = prepared->backend->script(prepared->job, prepared->cut());
    return text ? print_text(*text) : complain(kProgram, text.error());
  }
  const auto documents = prepared->backend->documents(prepared->job, prepared->cut());
  if (!documents) return complain(kProgram, documents.error());
  return print_text(print_documents(*documents, format));
}

JobRecord new_record(const RunJob& job, const CommandLine& line, int restarts) {
  JobRecord record;
  record.name = job.name;
  record.backend = backend_name(job.backend);
  record.command_line = line.words;
  record.folder = std::filesystem::current_path().string();
  record.entry = job.options.command.empty() ? job.entry : shell_line(job.options.command);
  record.package = job.package;
  record.created = std::chrono::system_clock::now();
  record.detached = job.options.detach;
  record.restarts = restarts;
  for (const RunWorker& worker : job.workers) {
    WorkerRecord entry;
    entry.rank = worker.rank;
    entry.host = worker.host;
    entry.gpu = worker.gpu;
    record.workers.push_back(std::move(entry));
  }
  return record;
}

// Nothing is printed of the workers: --wait.
class NotesOnly : public OutputSink {
 public:
  explicit NotesOnly(OutputSink& notes) : notes_(notes) {}
  void line(const OutputLine&) override {}
  void note(std::string_view text) override { notes_.note(text); }

 private:
  OutputSink& notes_;
};

// A job from its start to its end, with whoever looks at it.
class Attended {
 public:
  Attended(const CommandLine& line, RunOptions options, int restarts, JobRecords records)
      : line_(line),
        options_(std::move(options)),
        restarts_(restarts),
        records_(std::move(records)),
        sink_(stdout, stderr,
              {.parallel_workers = options_.parallel_workers,
               .coloured = colours_wanted(stdout),
               .timestamps = false,
               .program = kProgram}) {}

  int run() {
    while (true) {
      again_ = false;
      if (const int code = start(); code != 0) return code;
      if (options_.detach) return print_text(record_.name + "\n");
      const int code = attend();
      if (options_.watch && caught_ == 0 && (again_ || wait_for_change(code))) {
        options_.name = record_.name;
        ++restarts_;
        continue;
      }
      return clean_up(caught_ == 0 ? code : kSignalCode + caught_);
    }
  }

 private:
  int start() {
    auto prepared = prepare(options_);
    if (!prepared) return complain(kProgram, prepared.error());
    prepared_ = *std::move(prepared);
    if (const Status status = watch_package(); !status.ok()) return complain(kProgram, status);
    auto claimed = records_.claim(new_record(prepared_.job, line_, restarts_));
    if (!claimed) return complain(kProgram, claimed.error());
    record_ = *std::move(claimed);
    if (const Status status = start_claimed(); !status.ok()) {
      (void)records_.undo_claim(record_.name);
      // Ctrl-C reaches what a backend waits for as well.
      if (const auto signal = signals_.next()) {
        sink_.note("ended before the job began");
        return kSignalCode + *signal;
      }
      return complain(kProgram, status);
    }
    if (const Status status = records_.keep_claim(record_.name); !status.ok()) {
      complain(kProgram, status);  // what an earlier job has left stays: no reason to end this one
    }
    sink_.note(fmt::format("job {}: {}, backend {}", record_.name, what_runs(), record_.backend));
    return 0;
  }

  std::string what_runs() const {
    if (!options_.manifest.empty()) return "the DIJob of " + record_.entry;
    return fmt::format("{} worker{} of {}", record_.workers.size(),
                       record_.workers.size() == 1 ? "" : "s", record_.entry);
  }

  Status start_claimed() {
    if (prepared_.package) record_.package_digest = prepared_.package->digest;
    io::PipePair tie;
    if (!options_.detach) {
      auto made = io::make_pipe();
      if (!made) return made.error();
      tie = *std::move(made);
    }
    DIVISI_TRY_STATUS(prepared_.backend->start(prepared_.job, prepared_.cut(), records_, record_,
                                               options_.detach ? -1 : tie.read.get(), sink_));
    tie_ = std::move(tie.write);
    return {};
  }

  // Until the job has ended, whoever ends it: the exit code.
  int attend() {
    NotesOnly notes(sink_);
    const bool silent = options_.wait && !options_.logs;
    FollowOptions follow;
    follow.notes = true;
    follow.wake_fd = wakes();
    follow.on_wake = [this] {
      woken();
      return true;
    };
    const Status status = prepared_.backend->follow(
        records_, record_, follow, silent ? static_cast<OutputSink&>(notes) : sink_);
    tie_.reset();
    if (!status.ok()) return complain(kProgram, status);
    if (caught_ != 0) return kSignalCode + caught_;
    const int code = exit_code_of(record_);
    if (code != 0 && !again_) {
      sink_.note(
          fmt::format("job {} {}: {}", record_.name,
                      record_.state == JobState::kStopped ? "was stopped" : "failed",
                      record_.reason.empty() ? fmt::format("exit code {}", code) : record_.reason));
    }
    return code;
  }

  // Readable when a signal or a saved file has come.
  int wakes() {
    if (!wakes_) {
      wakes_.reset(::epoll_create1(EPOLL_CLOEXEC));
      add_wake(signals_.fd());
      if (watch_) add_wake(watch_->fd());
    }
    return wakes_.get();
  }
  void add_wake(int descriptor) {
    epoll_event event{};
    event.events = EPOLLIN;
    ::epoll_ctl(wakes_.get(), EPOLL_CTL_ADD, descriptor, &event);
  }

  void woken() {
    while (const auto signal = signals_.next()) take_signal(*signal);
    if (watch_ && caught_ == 0 && package_changed()) {
      again_ = true;
      sink_.note("a file has changed: starting again");
      stop(false);
    }
  }

  // The first asks the workers to end, the second ends them. A second SIGINT at once is the same
  // Ctrl-C, which some programs around us hand on once more.
  void take_signal(int signal) {
    constexpr std::chrono::milliseconds kSameKey{500};
    const auto now = Clock::now();
    if (caught_ == 0) {
      caught_ = signal;
      caught_at_ = now;
      if (signal != SIGPIPE) {
        sink_.note(fmt::format("ending the job; {}once more to kill it",
                               signal == SIGINT ? "Ctrl-C " : ""));
      }
      return stop(signal == SIGQUIT);
    }
    if (signal == SIGPIPE || now - caught_at_ < kSameKey) return;
    stop(true);
  }

  void stop(bool now) {
    const Status status = prepared_.backend->stop(records_, record_, now);
    if (!status.ok()) complain(kProgram, status);
  }

  Status watch_package() {
    if (!options_.watch || !prepared_.package) return {};
    if (watch_) return watch_->add(*prepared_.package);
    auto made = PackageWatch::make(*prepared_.package);
    if (!made) return made.error();
    watch_ = *std::move(made);
    return {};
  }

  // Whether the code is another one than what runs. What cannot be cut (an entry that is being
  // edited) is said, and the next change is waited for.
  bool package_changed() {
    pollfd watched{watch_->fd(), POLLIN, 0};
    if (::poll(&watched, 1, 0) <= 0) return false;
    watch_->settle();
    const auto cut = cut_package(cut_options(options_));
    if (!cut) {
      complain(kProgram, cut.error());
      return false;
    }
    if (const Status status = watch_->add(*cut); !status.ok()) complain(kProgram, status);
    return cut->digest != prepared_.package->digest;
  }

  // After the end: until there is new code (true) or somebody ends us.
  bool wait_for_change(int code) {
    sink_.note(fmt::format("the job has ended with exit code {}; waiting for a change", code));
    while (true) {
      pollfd watched{wakes(), POLLIN, 0};
      ::poll(&watched, 1, -1);
      while (const auto signal = signals_.next()) {
        if (caught_ == 0) caught_ = *signal;
      }
      if (caught_ != 0) return false;
      if (package_changed()) return true;
    }
  }

  int clean_up(int code) {
    if (!options_.remove) return code;
    Status status = prepared_.backend->remove(records_, record_);
    if (status.ok()) status = records_.remove(record_.name);
    if (!status.ok()) complain(kProgram, status);
    return code;
  }

  const SignalPipe signals_;
  const CommandLine& line_;
  RunOptions options_;
  int restarts_;
  const JobRecords records_;
  PrintingSink sink_;
  Prepared prepared_;
  JobRecord record_;
  io::Descriptor tie_;  // while it is open the job is attached
  io::Descriptor wakes_;
  std::unique_ptr<PackageWatch> watch_;
  int caught_ = 0;  // the signal that ends us
  Clock::time_point caught_at_;
  bool again_ = false;
};

int run_request(const CommandLine& line, const Request& request, int restarts) {
  if (request.options.explain) return print_text(explain(request.settings));
  if (!request.backend_reason.empty()) {
    std::fprintf(stderr, "%s: backend %s, because %s\n", kProgram,
                 std::string(backend_name(*request.options.backend)).c_str(),
                 log::printable(request.backend_reason).c_str());
  }
  if (request.options.dry_run) return dry_run(request.options);
  auto folder = default_records_folder(process_environment());
  if (!folder) return complain(kProgram, folder.error());
  return Attended(line, request.options, restarts, JobRecords(*std::move(folder))).run();
}

}  // namespace

int run_line(const CommandLine& line, int restarts) {
  const auto request = read_request(line);
  if (!request) return complain(kProgram, request.error());
  return run_request(line, *request, restarts);
}

int run_main(std::vector<std::string> words) {
  try {
    const auto line = parse_run_line(std::move(words));
    if (!line) return complain(kProgram, line.error());
    if (line->print) return print_text(*line->print);
    return run_line(*line, 0);
  } catch (const std::exception& error) {
    return complain(kProgram, Status(Code::kInternal, error.what()));
  }
}

}  // namespace divisi::run
