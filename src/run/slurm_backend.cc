#include "run/slurm_backend.h"

#include "io/crypto.h"
#include "io/process.h"
#include "run/local_supervisor.h"
#include "run/package_store.h"
#include "run/rendering.h"
#include "run/slurm_worker.h"
#include "run/supervised_backend.h"

#include <fmt/format.h>

#include <cerrno>
#include <csignal>
#include <filesystem>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

namespace divisi::run {
namespace {

namespace fs = std::filesystem;

// A folder of one job on the shared file system.
Result<std::string> make_shared_folder(const std::string& store, const std::string& name) {
  std::error_code error;
  const std::string parent = store + "/jobs";
  fs::create_directories(parent, error);
  if (error) return failure(Code::kUnavailable, "making {}: {}", parent, error.message());
  ::chmod(store.c_str(), 0700);
  std::string folder = fmt::format("{}/{}-{:x}", parent, name, io::random_u64());
  if (::mkdir(folder.c_str(), 0700) != 0) {
    return failure(Code::kUnavailable, "making {}: {}", folder, errno_text(errno));
  }
  return folder;
}

class SlurmBackend : public SupervisedBackend {
 public:
  BackendKind kind() const noexcept override { return BackendKind::kSlurm; }

  Result<RunJob> plan(const RunOptions& options, const std::string& entry) const override {
    return plan_slurm(options, entry);
  }
  Result<std::vector<json::Value>> documents(const RunJob& job, const PackageCut*) const override {
    return std::vector<json::Value>{job_document(job)};
  }
  Result<std::string> script(const RunJob& job, const PackageCut*) const override {
    return slurm_script(job);
  }

  Status start(const RunJob& job, const PackageCut* package, const JobRecords& records,
               JobRecord& record, int attached_fd, OutputSink&) override {
    auto store_folder = package_folder(job.options.remote_folder);
    if (!store_folder) return store_folder.error();
    auto shared = make_shared_folder(*store_folder, job.name);
    if (!shared) return shared.error();
    record.data["folder"] = *shared;
    Status status = records.save(record);  // whoever finds the job without us removes it
    if (status.ok())
      status = start_in(job, package, records, record, attached_fd, *store_folder, *shared);
    std::error_code ignored;
    if (!status.ok()) fs::remove_all(*shared, ignored);
    return status;
  }

  Status refresh(const JobRecords& records, JobRecord& record) override {
    DIVISI_TRY_STATUS(SupervisedBackend::refresh(records, record));
    if (has_ended(record.state) || (record.supervisor && is_alive(*record.supervisor))) return {};
    return look_after_again(records, record);
  }

  Status remove(const JobRecords&, const JobRecord& record) override {
    const std::string folder(record.data.string_at({"folder"}));
    std::error_code ignored;
    if (!folder.empty()) fs::remove_all(folder, ignored);
    return {};
  }

 private:
  static Status start_in(const RunJob& job, const PackageCut* package, const JobRecords& records,
                         JobRecord& record, int attached_fd, const std::string& store_folder,
                         const std::string& shared) {
    const std::string folder = records.job_folder(record.name);
    RunJob there = job;
    if (package != nullptr) {
      const PackageStore store(store_folder);
      store.clean();
      const PackageTree tree = make_tree(*package);
      const auto added = store.add_all(tree);
      if (!added) return added.error();
      there.package = shared + "/package";
      DIVISI_TRY_STATUS(store.build(tree.root, there.package));
      if (package->is_archive) there.package += "/" + package->files.front().path;
    }
    const SlurmFiles files{.output = slurm_output(shared, false),
                           .error = slurm_output(shared, true),
                           .secret = shared + "/secret"};
    SlurmPlan plan;
    plan.script = folder + "/script.sh";
    plan.folder = shared;
    plan.tasks = job.options.workers;
    plan.detached = attached_fd < 0;
    auto supervisor = supervisor_plan(job, folder);
    if (!supervisor) return supervisor.error();
    supervisor->scratch = shared;
    DIVISI_TRY_STATUS(write_private(files.secret, random_secret() + "\n"));
    DIVISI_TRY_STATUS(write_private(plan.script, slurm_script(there, files)));
    DIVISI_TRY_STATUS(
        write_private(folder + "/" + kSlurmPlanFile, json::print(to_json(plan), 2) + "\n"));
    DIVISI_TRY_STATUS(
        write_private(folder + "/" + kPlanFile, json::print(to_json(*supervisor), 2) + "\n"));
    DIVISI_TRY_STATUS(records.save(record));
    DIVISI_TRY_STATUS(start_local_supervisor(records, record, {}, attached_fd));
    return wait_until_submitted(records, record);
  }

  // The supervisor has one process for all tasks.
  static Result<LocalPlan> supervisor_plan(const RunJob& job, const std::string& folder) {
    // Slurm kills what was asked to end after its own KillWait.
    constexpr std::chrono::minutes kKillWait{5};
    LocalPlan plan;
    DIVISI_TRY(plan.guard, installed_program("divisi-trial"));
    plan.ditask = io::current_program();
    plan.folder = fs::current_path().string();
    plan.grace = job.options.grace + kKillWait;
    plan.timeout = job.options.timeout;
    plan.end_now_signal = SIGQUIT;
    plan.one_process = true;
    RunWorker all;
    all.arguments = {kSlurmWorkerCommand, folder + "/" + kSlurmPlanFile};
    plan.workers.push_back(std::move(all));
    return plan;
  }

  // Slurm has it, or has said why not.
  static Status wait_until_submitted(const JobRecords& records, JobRecord& record) {
    const std::string id_file = records.job_folder(record.name) + "/" + kSlurmIdFile;
    constexpr int kLookAgain = 20;  // milliseconds
    while (::access(id_file.c_str(), F_OK) != 0) {
      auto now = records.load(record.name);
      if (!now) return now.error();
      record = *std::move(now);
      const bool alive = record.supervisor && is_alive(*record.supervisor);
      if ((has_ended(record.state) || !alive) && ::access(id_file.c_str(), F_OK) != 0) {
        return make_status(Code::kUnavailable, "{}",
                           record.reason.empty() ? "the supervisor was killed" : record.reason);
      }
      ::poll(nullptr, 0, kLookAgain);
    }
    return {};
  }

  // The process that looked after it was killed; the job itself may go on. One command at a time
  // starts another: its output is read again from the start.
  static Status look_after_again(const JobRecords& records, JobRecord& record) {
    const std::string folder = records.job_folder(record.name);
    // Without a plan nobody has begun to submit it.
    const auto lock = lock_slurm_job(folder);
    auto now = records.load(record.name);
    if (!now) return now.error();
    record = *std::move(now);
    if (has_ended(record.state) || (record.supervisor && is_alive(*record.supervisor))) return {};
    if (::access((folder + "/" + kSlurmIdFile).c_str(), F_OK) != 0) {
      record.state = JobState::kFailed;
      record.reason = "it was killed before Slurm had the job";
      constexpr int kKilled = 137;
      record.exit_code = kKilled;
      std::error_code ignored;
      if (const std::string shared(record.data.string_at({"folder"})); !shared.empty()) {
        fs::remove_all(shared, ignored);
      }
      return records.save(record);
    }
    ::unlink((folder + "/" + kOutputFile).c_str());
    return start_local_supervisor(records, record, {}, -1);
  }
};

}  // namespace

std::unique_ptr<Backend> make_slurm_backend() {
  return std::make_unique<SlurmBackend>();
}

}  // namespace divisi::run
