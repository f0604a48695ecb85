#include "manifest_supervisor.h"

#include "http/server.h"
#include "io/reactor.h"
#include "job_admission.h"
#include "kube/memory/verbs.h"
#include "local/cluster.h"
#include "pod_table.h"
#include "run/job_api.h"
#include "run/job_log.h"
#include "run/local_supervisor.h"
#include "run/manifest_backend.h"
#include "run/run_command.h"
#include "run/signal_pipe.h"
#include "run/supervisor_process.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <mutex>
#include <optional>
#include <poll.h>
#include <unistd.h>
#include <utility>

namespace divisi::apps {
namespace {

using run::JobRecord;
using run::JobState;
using Clock = std::chrono::steady_clock;

constexpr int kSignalBase = 128;

// What the loop and the threads of containers say, kept for the thread that writes the record.
class JobNews {
 public:
  explicit JobNews(run::JobLogWriter log) : log_(std::move(log)) {}

  Status open() {
    auto made = io::make_pipe();
    if (!made) return made.error();
    wake_ = *std::move(made);
    for (const int end : {wake_.read.get(), wake_.write.get()}) ::fcntl(end, F_SETFL, O_NONBLOCK);
    return {};
  }

  void line(std::string_view pod, std::string_view text) {
    write({.rank = pods.rank_of(pod), .worker = std::string(pod), .text = std::string(text)});
  }
  void note(std::string_view text) { write({.is_note = true, .text = std::string(text)}); }
  void phase(std::string_view phase, std::string_view message) {
    note(message.empty() ? std::string(phase) : fmt::format("{}: {}", phase, message));
    {
      const std::lock_guard lock(mutex_);
      phase_ = {std::string(phase), std::string(message)};
    }
    wake();
  }
  void removed() {
    const std::lock_guard lock(mutex_);
    removed_ = true;
    wake();
  }

  void wake() { static_cast<void>(::write(wake_.write.get(), "", 1)); }
  int fd() const { return wake_.read.get(); }
  void take_wakes() {
    std::array<char, 256> bytes{};
    while (::read(wake_.read.get(), bytes.data(), bytes.size()) > 0) {
    }
  }

  std::pair<std::string, std::string> phase() const {  // with its message
    const std::lock_guard lock(mutex_);
    return phase_;
  }
  bool is_removed() const {
    const std::lock_guard lock(mutex_);
    return removed_;
  }
  std::string problem() const {
    const std::lock_guard lock(mutex_);
    return log_.problem();
  }

  PodTable pods;

 private:
  void write(run::OutputLine line) {
    const std::lock_guard lock(mutex_);
    line.time = std::chrono::system_clock::now();
    log_.write({std::move(line)});
  }

  mutable std::mutex mutex_;
  run::JobLogWriter log_;
  io::PipePair wake_;
  std::pair<std::string, std::string> phase_;
  bool removed_ = false;
};

class ManifestSupervision final : public run::Supervision {
 public:
  ManifestSupervision(const run::JobRecords& records, JobRecord record, run::ManifestPlan plan,
                      local::Manifest manifest, run::JobLogWriter log, io::Descriptor tie)
      : records_(records),
        record_(std::move(record)),
        plan_(std::move(plan)),
        manifest_(std::move(manifest)),
        news_(std::move(log)),
        tie_(std::move(tie)) {}

  ~ManifestSupervision() override { end_cluster(); }
  ManifestSupervision(const ManifestSupervision&) = delete;
  ManifestSupervision& operator=(const ManifestSupervision&) = delete;

  Status start() override {
    record_.supervisor = run::process_of(::getpid());
    record_.state = JobState::kStarting;
    DIVISI_TRY_STATUS(records_.save(record_));
    DIVISI_TRY_STATUS(news_.open());
    std::error_code error;
    std::filesystem::create_directories(plan_.folder, error);
    if (error) {
      return make_status(Code::kUnavailable, "making {}: {}", plan_.folder, error.message());
    }
    auto socket = run::job_socket(records_.job_folder(record_.name));
    if (!socket) return socket.error();
    socket_ = *std::move(socket);
    reactor_ = io::make_reactor();
    Status status;
    reactor_->run_on_loop([&] { status = start_cluster(); });
    if (plan_.timeout) deadline_ = Clock::now() + *plan_.timeout;
    return status;
  }

  void run() override {
    while (!is_over()) turn();
    finish();
  }

 private:
  Status start_cluster() {
    auto cluster = local::Cluster::start(*reactor_, std::move(manifest_), cluster_options());
    if (!cluster) return cluster.error();
    cluster_ = *std::move(cluster);
    http::ServerOptions options;
    options.address = socket_.address();
    auto server = http::Server::listen(
        *reactor_, std::move(options),
        [this](const std::shared_ptr<http::ServerCall>& call) { answer(*call); });
    if (!server) return server.error().with_context("the API of the job");
    server_ = *std::move(server);
    return {};
  }

  local::ClusterOptions cluster_options() {
    local::ClusterOptions options;
    options.folder = plan_.folder;
    options.guard = plan_.guard;
    options.on_output = [this](std::string_view pod, std::string_view, std::string_view line) {
      news_.line(pod, line);
    };
    options.on_limit = [this](std::string_view line) { news_.note(line); };
    options.on_phase = [this](std::string_view phase, std::string_view message) {
      if (phase == "Succeeded" || phase == "Failed") news_.pods.keep();
      news_.phase(phase, message);
    };
    options.on_pod = [this](const json::Value& pod, bool removed) {
      news_.pods.see(pod, removed);
      news_.wake();
    };
    return options;
  }

  void answer(http::ServerCall& call) {
    if (const Status refused = check_job_write(call.request()); !refused.ok()) {
      return call.respond(kube::status_answer(422, "Invalid", refused.message()));
    }
    call.respond(cluster_->request(call.request()));
  }

  bool is_over() const {
    return killed_ || news_.is_removed() || (!ending_ && run::has_ended(state_now()));
  }

  JobState state_now() const {
    return run::parse_state(news_.phase().first).value_or(JobState::kStarting);
  }

  // Waits for whatever happens next, and deals with it.
  void turn() {
    std::array<pollfd, 3> watched{pollfd{signals_.fd(), POLLIN, 0}, pollfd{news_.fd(), POLLIN, 0},
                                  pollfd{tie_.get(), POLLIN, 0}};
    if (::poll(watched.data(), watched.size(), poll_timeout()) < 0 && errno != EINTR) {
      std::abort();  // a list of our own descriptors is always valid
    }
    news_.take_wakes();
    while (const auto signal = signals_.next()) {
      if (*signal == SIGPIPE) continue;
      end_all(JobState::kStopped, kSignalBase + SIGTERM,
              "it was ended by divisi delete or a signal", *signal == SIGQUIT);
    }
    if (run::tie_is_cut(tie_)) {
      tie_.reset();
      end_all(JobState::kStopped, kSignalBase + SIGKILL,
              "the divisi run that it was attached to was killed", false);
    }
    if (deadline_ && Clock::now() >= *deadline_) {
      deadline_.reset();
      end_all(JobState::kFailed, run::kExitTimeout, "--timeout has come", false);
    }
    save();
  }

  int poll_timeout() const {
    if (!deadline_) return -1;
    const auto rest =
        std::chrono::ceil<std::chrono::milliseconds>(*deadline_ - Clock::now()).count();
    return static_cast<int>(std::clamp<std::int64_t>(rest, 0, 1'000'000));
  }

  // Deletes the job, so that its pods have their grace; the first reason is the job's.
  void end_all(JobState state, int code, const std::string& reason, bool now) {
    killed_ = killed_ || now;
    if (std::exchange(ending_, true)) return;
    news_.pods.keep();
    outcome_ = state;
    record_.exit_code = code;
    record_.reason = reason;
    if (killed_) return;
    reactor_->post([this] {
      if (cluster_ != nullptr) cluster_->remove([this] { news_.removed(); });
    });
  }

  void finish() {
    if (!ending_) {
      outcome_ = state_now();
      reactor_->run_on_loop([this] { record_.exit_code = cluster_->exit_code(); });
      record_.reason = outcome_ == JobState::kFailed ? news_.phase().second : "";
    }
    end_cluster();
    record_.workers = news_.pods.workers();
    for (run::WorkerRecord& worker : record_.workers) {
      if (!run::has_ended(worker.state)) worker.state = JobState::kStopped;
    }
    record_.state = outcome_;
    if (const std::string problem = news_.problem(); !problem.empty()) {
      record_.reason += (record_.reason.empty() ? "" : "; ") + problem;
    }
    record_.ended = std::chrono::system_clock::now();
    write_record();
  }

  void end_cluster() {
    if (reactor_ == nullptr) return;
    reactor_->run_on_loop([this] {
      server_.reset();
      cluster_.reset();
    });
  }

  // How the job stands while it runs; the last word is finish()'s.
  void save() {
    if (is_over()) return;
    if (!ending_) {
      const auto [phase, message] = news_.phase();
      record_.state = state_now();
      record_.reason = record_.state == JobState::kRunning ? "" : message;
    }
    record_.workers = news_.pods.workers();
    write_record();
  }

  void write_record() {
    // Of a full disk nobody here can be told; the record that was is then all there is.
    static_cast<void>(records_.save(record_));
  }

  const run::SignalPipe signals_;  // before there are threads
  const run::JobRecords& records_;
  JobRecord record_;
  const run::ManifestPlan plan_;
  local::Manifest manifest_;
  JobNews news_;
  io::Descriptor tie_;
  run::JobSocket socket_;
  std::optional<Clock::time_point> deadline_;
  bool ending_ = false;
  bool killed_ = false;
  JobState outcome_ = JobState::kSucceeded;
  std::unique_ptr<io::Reactor> reactor_;
  std::unique_ptr<local::Cluster> cluster_;  // of the loop
  std::unique_ptr<http::Server> server_;     // likewise
};

Result<std::string> read_text(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) return failure(Code::kUnavailable, "opening {}: {}", path, errno_text(errno));
  return std::string(std::istreambuf_iterator<char>(in), {});
}

Result<std::unique_ptr<run::Supervision>> make_supervision(const run::JobRecords& records,
                                                           const std::string& name,
                                                           io::Descriptor tie) {
  DIVISI_TRY(JobRecord record, records.load(name));
  const std::string folder = records.job_folder(name);
  DIVISI_TRY(const std::string plan_text, read_text(folder + "/" + run::kPlanFile));
  DIVISI_TRY(const json::Value value, json::parse(plan_text));
  DIVISI_TRY(run::ManifestPlan plan, run::manifest_plan_from(value));
  DIVISI_TRY(const std::string text, read_text(folder + "/" + run::kManifestFile));
  DIVISI_TRY(local::Manifest manifest, local::read_manifest(text).map_error([&](const Status& why) {
    return why.with_context(plan.file);
  }));
  manifest.job["metadata"]["name"] = name;  // --name, or its own
  DIVISI_TRY(run::JobLogWriter log, run::JobLogWriter::open(folder + "/" + run::kOutputFile));
  return std::make_unique<ManifestSupervision>(records, std::move(record), std::move(plan),
                                               std::move(manifest), std::move(log), std::move(tie));
}

}  // namespace

int manifest_supervisor_main(const std::vector<std::string>& arguments) {
  return run::supervisor_main(run::kManifestSupervisorCommand, arguments, make_supervision);
}

}  // namespace divisi::apps
