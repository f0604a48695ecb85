#include "run/local_backend.h"

#include "run/environment.h"
#include "run/local_supervisor.h"
#include "run/port_choice.h"
#include "run/rendering.h"
#include "run/supervised_backend.h"

#include <fmt/format.h>

#include <filesystem>
#include <optional>

namespace divisi::run {
namespace {

namespace fs = std::filesystem;

// The devices that worker 0, 1... get: those that this process may see itself, if it is told. An
// empty variable says that there is none.
std::optional<std::vector<std::string>> visible_devices() {
  const launch::Environment environment = process_environment();
  const auto said = environment.find("CUDA_VISIBLE_DEVICES");
  if (said == environment.end()) return std::nullopt;
  return launch::split_list(said->second);
}

std::size_t devices_of_machine() {
  std::error_code error;
  std::size_t count = 0;
  for (fs::directory_iterator entry("/proc/driver/nvidia/gpus", error), end; !error && entry != end;
       entry.increment(error)) {
    ++count;
  }
  return count;
}

class LocalBackend : public SupervisedBackend {
 public:
  BackendKind kind() const noexcept override { return BackendKind::kLocal; }
  bool sends_package() const noexcept override { return false; }

  Result<RunJob> plan(const RunOptions& options, const std::string& entry) const override {
    return plan_local(options, entry, visible_devices());
  }

  Result<std::vector<json::Value>> documents(const RunJob& job, const PackageCut*) const override {
    return std::vector<json::Value>{job_document(job)};
  }
  Result<std::string> script(const RunJob& job, const PackageCut*) const override {
    return local_script(job);
  }

  Status start(const RunJob& wanted, const PackageCut*, const JobRecords& records,
               JobRecord& record, int attached_fd, OutputSink& sink) override {
    warn_of_devices(wanted, sink);
    auto ports = choose_ports(wanted, sink);
    if (!ports) return ports.error();
    RunJob job = wanted;
    if (ports->first != job.options.port) {
      job.options.port = ports->first;
      auto again = plan(job.options, job.entry);
      if (!again) return again.error();
      again->name = job.name;
      job = *std::move(again);
    }
    auto plan = local_plan(job, records.job_folder(record.name));
    if (!plan) return plan.error();
    DIVISI_TRY_STATUS(write_private(plan->secret_file, random_secret() + "\n"));
    DIVISI_TRY_STATUS(write_private(records.job_folder(record.name) + "/" + kPlanFile,
                                    json::print(to_json(*plan), 2) + "\n"));
    record.data["port"] = job.options.port;
    DIVISI_TRY_STATUS(records.save(record));
    return start_local_supervisor(records, record, ports->locks, attached_fd);
  }

 private:
  static void warn_of_devices(const RunJob& job, OutputSink& sink) {
    const auto visible = visible_devices();
    const std::size_t there = visible ? visible->size() : devices_of_machine();
    if (static_cast<std::size_t>(job.options.gpus) <= there) return;
    sink.note(fmt::format("{} of {} workers want a GPU, {} {}", job.options.gpus,
                          job.workers.size(),
                          visible ? "CUDA_VISIBLE_DEVICES has" : "this machine has", there));
  }

  static Result<TakenPorts> choose_ports(const RunJob& job, OutputSink& sink) {
    std::vector<std::string> hosts;
    for (const RunWorker& worker : job.workers) hosts.push_back(worker.host);
    const RunOptions& options = job.options;
    auto taken = take_ports(hosts, options.port, options.parallel_workers);
    if (taken) return taken;
    if (options.port_given) {
      return failure(taken.error().code(), "{}; say another --port, or none",
                     taken.error().message());
    }
    DIVISI_TRY(TakenPorts other, take_any_ports(hosts, options.parallel_workers));
    sink.note(fmt::format("{}; {} is taken instead", taken.error().message(), other.first));
    return other;
  }

  static Result<LocalPlan> local_plan(const RunJob& job, const std::string& folder) {
    LocalPlan plan;
    DIVISI_TRY(plan.guard, installed_program("divisi-trial"));
    DIVISI_TRY(plan.ditask, installed_program("ditask"));
    plan.folder = fs::current_path().string();
    plan.secret_file = folder + "/secret";
    plan.grace = job.options.grace;
    plan.timeout = job.options.timeout;
    plan.workers = job.workers;
    return plan;
  }
};

}  // namespace

std::unique_ptr<Backend> make_local_backend() {
  return std::make_unique<LocalBackend>();
}

}  // namespace divisi::run
