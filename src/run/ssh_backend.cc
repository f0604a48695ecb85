#include "run/ssh_backend.h"

#include "io/process.h"
#include "run/local_supervisor.h"
#include "run/package_store.h"
#include "run/rendering.h"
#include "run/signal_pipe.h"
#include "run/ssh_link.h"
#include "run/ssh_worker.h"
#include "run/supervised_backend.h"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <future>
#include <set>

namespace divisi::run {
namespace {

// What one host is asked in a thread of its own: a link belongs to its thread.
Result<SshLink::Sent> prepare_host(const SshTarget& target, const PackageTree* tree,
                                   const std::string& folder) {
  // A host that goes away is an error of write, no signal.
  sigset_t broken_pipe;
  sigemptyset(&broken_pipe);
  sigaddset(&broken_pipe, SIGPIPE);
  ::pthread_sigmask(SIG_BLOCK, &broken_pipe, nullptr);
  DIVISI_TRY(SshLink link, SshLink::open(target));
  if (tree == nullptr) return SshLink::Sent{};
  return link.send_package(*tree, folder);
}

std::string sent_text(const SshLink::Sent& sent, std::size_t hosts) {
  constexpr double kKibi = 1024;
  return fmt::format("{} file{} ({:.1f} KiB) sent to {} host{}", sent.files,
                     sent.files == 1 ? "" : "s", static_cast<double>(sent.bytes) / kKibi, hosts,
                     hosts == 1 ? "" : "s");
}

class SshBackend : public SupervisedBackend {
 public:
  BackendKind kind() const noexcept override { return BackendKind::kSsh; }

  Result<RunJob> plan(const RunOptions& options, const std::string& entry) const override {
    return plan_ssh(options, entry);
  }
  Result<std::vector<json::Value>> documents(const RunJob& job, const PackageCut*) const override {
    return std::vector<json::Value>{job_document(job)};
  }
  Result<std::string> script(const RunJob& job, const PackageCut*) const override {
    return ssh_script(job);
  }

  Status start(const RunJob& job, const PackageCut* package, const JobRecords& records,
               JobRecord& record, int attached_fd, OutputSink& sink) override {
    std::optional<PackageTree> tree;
    if (package != nullptr) tree = make_tree(*package);
    DIVISI_TRY_STATUS(prepare_hosts(job, tree ? &*tree : nullptr, sink));
    const std::string folder = records.job_folder(record.name);
    SshPlan remote;
    remote.job = job.name;
    remote.secret_file = folder + "/secret";
    remote.hosts = job.options.hosts;
    remote.ditask = job.options.remote_ditask;
    remote.folder = job.options.remote_folder;
    if (tree) remote.root = tree->root;
    if (package != nullptr && package->is_archive) remote.archive = package->files.front().path;
    remote.grace = job.options.grace;
    remote.workers = job.workers;
    auto plan = supervisor_plan(job, folder);
    if (!plan) return plan.error();
    DIVISI_TRY_STATUS(write_private(remote.secret_file, random_secret() + "\n"));
    DIVISI_TRY_STATUS(
        write_private(folder + "/" + kSshPlanFile, json::print(to_json(remote), 2) + "\n"));
    DIVISI_TRY_STATUS(
        write_private(folder + "/" + kPlanFile, json::print(to_json(*plan), 2) + "\n"));
    DIVISI_TRY_STATUS(records.save(record));
    return start_local_supervisor(records, record, {}, attached_fd);
  }

 private:
  // All of them can run the job, or the first that cannot says why. Many at once.
  static Status prepare_hosts(const RunJob& job, const PackageTree* tree, OutputSink& sink) {
    constexpr std::size_t kAtOnce = 32;
    const std::set<std::string> distinct(job.options.hosts.begin(), job.options.hosts.end());
    const std::vector<std::string> hosts(distinct.begin(), distinct.end());
    SshLink::Sent all;
    for (std::size_t first = 0; first < hosts.size(); first += kAtOnce) {
      std::vector<std::future<Result<SshLink::Sent>>> asked;
      for (std::size_t i = first; i < std::min(hosts.size(), first + kAtOnce); ++i) {
        SshTarget target{.host = hosts[i],
                         .ditask = job.options.remote_ditask,
                         .of_this_thread = true,
                         .given_up = SignalPipe::came};
        asked.push_back(std::async(std::launch::async, prepare_host, std::move(target), tree,
                                   job.options.remote_folder));
      }
      std::optional<Status> failed;
      for (auto& one : asked) {
        const auto sent = one.get();
        if (!sent && !failed) failed = sent.error();
        if (!sent) continue;
        all.files += sent->files;
        all.bytes += sent->bytes;
      }
      if (failed) return *failed;
    }
    if (all.bytes > 0) sink.note(sent_text(all, hosts.size()));
    return {};
  }

  // The supervisor starts an ssh-worker where a local job has its ditask.
  static Result<LocalPlan> supervisor_plan(const RunJob& job, const std::string& folder) {
    // The host ends a worker after its grace; this side waits a little longer for that.
    constexpr std::chrono::seconds kWayBack{10};
    LocalPlan plan;
    DIVISI_TRY(plan.guard, installed_program("divisi-trial"));
    plan.ditask = io::current_program();
    plan.folder = std::filesystem::current_path().string();
    plan.grace = job.options.grace + kWayBack;
    plan.timeout = job.options.timeout;
    plan.end_now_signal = SIGQUIT;
    for (const RunWorker& worker : job.workers) {
      RunWorker here;
      here.rank = worker.rank;
      here.host = worker.host;
      here.arguments = {kSshWorkerCommand, folder + "/" + kSshPlanFile,
                        std::to_string(worker.rank)};
      plan.workers.push_back(std::move(here));
    }
    return plan;
  }
};

}  // namespace

std::unique_ptr<Backend> make_ssh_backend() {
  return std::make_unique<SshBackend>();
}

}  // namespace divisi::run
