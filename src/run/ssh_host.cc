#include "run/ssh_host.h"

#include "divisi/export.h"
#include "io/process.h"
#include "run/environment.h"
#include "run/frames.h"
#include "run/package_store.h"
#include "run/supervised_backend.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <exception>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <optional>
#include <poll.h>
#include <sys/utsname.h>
#include <unistd.h>

namespace divisi::run {
namespace {

using Clock = std::chrono::steady_clock;

// The other side says every 15 s that it is there.
constexpr std::chrono::seconds kSilence{60};
// Output that the connection has not taken yet: more is left in the worker's pipes.
constexpr std::size_t kMostUnsent = std::size_t{1} << 20;

std::vector<std::string> host_texts(const json::Value& value, std::string_view key) {
  std::vector<std::string> texts;
  const json::Value* const found = value.find(key);
  if (found == nullptr || found->as_array() == nullptr) return texts;
  for (const json::Value& item : *found->as_array()) {
    if (item.as_string() != nullptr) texts.push_back(*item.as_string());
  }
  return texts;
}

// A worker and its files, which go with it.
class HostWorker {
 public:
  static Result<HostWorker> start(const json::Value& plan, const std::string& ditask) {
    DIVISI_TRY(std::string folder, package_folder(std::string(plan.string_at({"folder"}))));
    const PackageStore store(std::move(folder));
    const std::string name(plan.string_at({"name"}));
    DIVISI_TRY(PackageStore::Run run, store.make_run(name));
    HostWorker worker(std::move(run));
    if (const Status status = worker.begin(store, plan, ditask); !status.ok()) {
      return failure(status);
    }
    return worker;
  }

  HostWorker(HostWorker&&) noexcept = default;
  HostWorker& operator=(HostWorker&&) = delete;
  ~HostWorker() {
    std::error_code ignored;
    if (run_.lock) std::filesystem::remove_all(run_.folder, ignored);
  }

  io::Process& process() { return *process_; }

  void ask_to_end() { (void)process_->kill(SIGTERM); }
  // The programs below the guard; it ends the rest of them itself.
  void end_now() {
    std::ifstream in(fmt::format("/proc/{0}/task/{0}/children", process_->pid()));
    for (pid_t child = 0; in >> child;) ::kill(child, SIGKILL);
    ask_to_end();
  }

 private:
  explicit HostWorker(PackageStore::Run run) : run_(std::move(run)) {}

  Status begin(const PackageStore& store, const json::Value& plan, const std::string& ditask) {
    const std::string secret_file = run_.folder + "/secret";
    DIVISI_TRY_STATUS(write_private(secret_file, fmt::format("{}\n", plan.string_at({"secret"}))));
    std::vector<std::string> words = host_texts(plan, "arguments");
    if (const std::string root(plan.string_at({"root"})); !root.empty()) {
      const std::string package = run_.folder + "/package";
      DIVISI_TRY_STATUS(store.build(root, package));
      const std::string archive(plan.string_at({"archive"}));
      const auto flag = std::ranges::find(words, "--package");
      if (flag != words.end() && flag + 1 != words.end()) {
        *(flag + 1) = archive.empty() ? package : package + "/" + archive;
      }
    }
    auto guard = installed_program("divisi-trial");
    if (!guard) return guard.error();
    io::SpawnOptions options;
    options.program = *std::move(guard);
    options.arguments = {std::to_string(::getpid()),
                         std::to_string(plan.int_at({"graceMilliseconds"}).value_or(0)), ditask};
    options.arguments.insert(options.arguments.end(), words.begin(), words.end());
    for (const char* const name : {"DI_NODES", "DI_RANK", "DI_JOB_ID", "DI_SERVER_URL"}) {
      options.environment[name] = std::nullopt;
    }
    if (const json::Value* set = plan.find("environment"); set && set->as_object()) {
      for (const auto& [name, text] : *set->as_object()) {
        if (text.as_string() != nullptr) options.environment[name] = *text.as_string();
      }
    }
    options.environment["DIVISI_SECRET_FILE"] = secret_file;
    options.standard_input = io::Stdio::kNull;
    options.standard_output = io::Stdio::kPipe;
    options.standard_error = io::Stdio::kPipe;
    auto process = io::Process::spawn(options);
    if (!process) return process.error().with_context("starting the worker");
    process_ = *std::move(process);
    for (const int fd : {process_->output().get(), process_->error().get()}) {
      ::fcntl(fd, F_SETFL, O_NONBLOCK);
    }
    return {};
  }

  PackageStore::Run run_;
  std::optional<io::Process> process_;
};

// One connection.
class HostSession {
 public:
  explicit HostSession(std::string ditask) : ditask_(std::move(ditask)), reader_(false) {
    ::fcntl(STDIN_FILENO, F_SETFL, O_NONBLOCK);
    ::fcntl(STDOUT_FILENO, F_SETFL, O_NONBLOCK);
    unsent_ = std::string(kGreeting) + frame('V', json::print(host_version()));
  }

  // Until the other side has gone and the worker has ended.
  int run() {
    while (!over()) turn();
    return 0;
  }

 private:
  bool over() const {
    if (worker_) return false;
    return !input_open_ || (finished_ && unsent_.empty());
  }

  void turn() {
    // input, output, the worker's output and error, its end
    std::array<pollfd, 5> watched{};
    for (pollfd& one : watched) one = {-1, POLLIN, 0};
    if (input_open_) watched[0].fd = STDIN_FILENO;
    if (!unsent_.empty()) watched[1] = {STDOUT_FILENO, POLLOUT, 0};
    if (worker_) {
      if (unsent_.size() < kMostUnsent) {
        watched[2].fd = worker_->process().output().get();
        watched[3].fd = worker_->process().error().get();
      }
      watched[4].fd = worker_->process().pidfd();
      if (unsent_.size() >= kMostUnsent) watched[4].fd = -1;
    }
    const int got = ::poll(watched.data(), watched.size(), poll_timeout());
    if (got < 0) return;
    if (watched[0].revents != 0) {
      read_input();
      heard_ = Clock::now();  // what we did meanwhile is not the other side's silence
    }
    if (input_open_ && Clock::now() - heard_ > kSilence) close_input();
    if (worker_) look_at_worker();
    write_output();
  }

  int poll_timeout() const {
    if (!input_open_) return worker_ ? 1000 : 0;
    const auto rest =
        std::chrono::ceil<std::chrono::milliseconds>(heard_ + kSilence - Clock::now());
    return static_cast<int>(std::max<std::int64_t>(rest.count(), 0));
  }

  void read_input() {
    std::array<char, 65536> piece{};
    const ssize_t got = ::read(STDIN_FILENO, piece.data(), piece.size());
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) return;
    if (got <= 0) return close_input();
    reader_.add({piece.data(), static_cast<std::size_t>(got)});
    while (input_open_) {
      auto next = reader_.next();
      if (!next) return fail(next.error());
      if (!*next) return;
      if (const Status status = handle(**next); !status.ok()) return fail(status);
    }
  }

  // Nobody is there any longer: the worker has its grace, and its output goes nowhere.
  void close_input() {
    input_open_ = false;
    unsent_.clear();
    if (worker_) worker_->ask_to_end();
  }

  void fail(const Status& why) {
    unsent_ += frame('!', why.message());
    finished_ = true;
    incoming_.reset();
  }

  Status handle(const Frame& said) {
    if (finished_) return {};
    switch (said.type) {
      case 'P': return tell_missing(said.payload);
      case 'F': return begin_object(said.payload);
      case 'D':
        if (incoming_) return incoming_->write(said.payload);
        return {Code::kInvalid, "bytes of no object"};
      case 'E': {
        if (!incoming_) return {Code::kInvalid, "the end of no object"};
        const Status status = incoming_->finish();
        incoming_.reset();
        return status;
      }
      case 'R': return start_worker(said.payload);
      case 'T':
        if (worker_) worker_->ask_to_end();
        return {};
      case 'Q':
        if (worker_) worker_->end_now();
        return {};
      default: return {};
    }
  }

  Status tell_missing(const std::string& text) {
    const auto wanted = json::parse(text);
    if (!wanted) return wanted.error();
    auto folder = package_folder(std::string(wanted->string_at({"folder"})));
    if (!folder) return folder.error();
    store_.emplace(*std::move(folder));
    store_->clean();
    const auto missing = store_->missing(std::string(wanted->string_at({"root"})));
    if (!missing) return missing.error();
    json::Array list;
    for (const std::string& digest : *missing) list.emplace_back(digest);
    unsent_ += frame('M', json::print(json::Value(std::move(list))));
    return {};
  }

  Status begin_object(const std::string& digest) {
    if (!store_) return {Code::kInvalid, "an object before its package"};
    auto incoming = store_->add(digest);
    if (!incoming) return incoming.error();
    incoming_.emplace(*std::move(incoming));
    return {};
  }

  Status start_worker(const std::string& text) {
    const auto plan = json::parse(text);
    if (!plan) return plan.error();
    if (worker_) return {Code::kInvalid, "a second worker"};
    auto worker = HostWorker::start(*plan, ditask_);
    if (!worker) return worker.error();
    worker_.emplace(*std::move(worker));
    return {};
  }

  // The worker's output is complete once its guard has ended: nothing of it lives any longer.
  void look_at_worker() {
    if (unsent_.size() >= kMostUnsent) return;
    const auto ended = worker_->process().try_wait();
    bool more = false;
    do {
      more = forward(worker_->process().output(), 'o');
      more = forward(worker_->process().error(), 'e') || more;
    } while (ended && more);
    if (!ended) return;
    json::Value end;
    end["code"] = ended->code;
    end["signal"] = ended->signal;
    if (input_open_) unsent_ += frame('x', json::print(end));
    worker_.reset();
    finished_ = true;
  }

  // Whether there was something.
  bool forward(io::Descriptor& from, char type) {
    if (!from) return false;
    std::array<char, 65536> piece{};
    const ssize_t got = ::read(from.get(), piece.data(), piece.size());
    if (got < 0 && errno == EINTR) return true;
    if (got < 0 && errno == EAGAIN) return false;
    if (got <= 0) {
      from.reset();
      return false;
    }
    if (input_open_) unsent_ += frame(type, {piece.data(), static_cast<std::size_t>(got)});
    return true;
  }

  void write_output() {
    while (!unsent_.empty()) {
      const ssize_t written = ::write(STDOUT_FILENO, unsent_.data(), unsent_.size());
      if (written < 0 && errno == EINTR) continue;
      if (written < 0 && errno == EAGAIN) return;
      if (written < 0) return close_input();
      unsent_.erase(0, static_cast<std::size_t>(written));
    }
  }

  const std::string ditask_;
  FrameReader reader_;
  std::string unsent_;
  std::optional<PackageStore> store_;
  std::optional<PackageStore::Incoming> incoming_;
  std::optional<HostWorker> worker_;
  Clock::time_point heard_ = Clock::now();
  bool input_open_ = true;
  bool finished_ = false;  // nothing follows what is unsent
};

}  // namespace

json::Value host_version() {
  utsname about{};
  ::uname(&about);
  json::Value value;
  value["version"] = DIVISI_VERSION;
  value["abi"] = DIVISI_ABI_VERSION;
  value["architecture"] = std::string(about.machine);
  return value;
}

int ssh_host_main(const std::vector<std::string>& arguments) {
  if (arguments.size() != 1) {
    std::fprintf(stderr, "divisi-host: divisi ssh-host is started by divisi run\n");
    return 2;
  }
  ::signal(SIGPIPE, SIG_IGN);
  // The connection says when it is over.
  for (const int signal : {SIGHUP, SIGINT}) ::signal(signal, SIG_IGN);
  try {
    return HostSession(arguments[0]).run();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "divisi-host: %s\n", error.what());
    return 1;
  }
}

}  // namespace divisi::run
