#include "run/manifest_backend.h"

#include "json/yaml.h"
#include "run/dijob_edit.h"
#include "run/job_api.h"
#include "run/local_supervisor.h"
#include "run/supervised_backend.h"
#include "run/supervisor_process.h"

#include <fmt/format.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>

namespace divisi::run {
namespace {

namespace fs = std::filesystem;

constexpr const char* kStandardInput = "-";

Result<std::string> read_manifest_text(const std::string& file) {
  if (file == kStandardInput) return std::string(std::istreambuf_iterator<char>(std::cin), {});
  std::error_code ignored;
  if (fs::is_directory(file, ignored)) {
    return failure(Code::kInvalid, "cannot read {}: it is a folder", file);
  }
  std::ifstream in(file, std::ios::binary);
  if (!in) return failure(Code::kNotFound, "cannot read {}: {}", file, errno_text(errno));
  return std::string(std::istreambuf_iterator<char>(in), {});
}

// The DIJob among the objects; null when there is none, which the supervisor says.
const json::Value* find_dijob(const std::vector<json::Value>& objects) {
  for (const json::Value& object : objects) {
    if (object.string_at({"kind"}) == "DIJob") return &object;
    const json::Value* const items = object.find("items");
    if (items == nullptr || items->as_array() == nullptr) continue;
    if (const json::Value* inside = find_dijob(*items->as_array())) return inside;
  }
  return nullptr;
}

Result<std::string> name_of_job(const RunOptions& options, const json::Value* dijob) {
  if (!options.name.empty()) return options.name;
  if (dijob == nullptr) return make_up_name("manifest.main");
  std::string name(dijob->string_at({"metadata", "name"}));
  if (name.empty()) return make_up_name("manifest.main");
  if (const Status status = check_job_name(name); !status.ok()) {
    return failure(status.code(), "{}: metadata.name {}; choose another with --name",
                   options.manifest, status.message());
  }
  return name;
}

std::string space_of(const json::Value* dijob) {
  const std::string_view space =
      dijob == nullptr ? std::string_view() : dijob->string_at({"metadata", "namespace"});
  return space.empty() ? "default" : std::string(space);
}

class ManifestBackend : public SupervisedBackend {
 public:
  BackendKind kind() const noexcept override { return BackendKind::kLocal; }
  bool sends_package() const noexcept override { return false; }

  Result<RunJob> plan(const RunOptions& options, const std::string&) const override {
    RunJob job;
    DIVISI_TRY(job.manifest, read_manifest_text(options.manifest));
    const auto in_file = [&](const Status& status) {
      return status.with_context(options.manifest);
    };
    DIVISI_TRY(const auto objects, json::parse_yaml(job.manifest).map_error(in_file));
    DIVISI_TRY(job.name, name_of_job(options, find_dijob(objects)));
    job.options = options;
    job.entry = options.manifest == kStandardInput ? "standard input" : options.manifest;
    return job;
  }

  Result<std::vector<json::Value>> documents(const RunJob& job, const PackageCut*) const override {
    return json::parse_yaml(job.manifest);
  }
  Result<std::string> script(const RunJob& job, const PackageCut*) const override {
    return failure(Code::kInvalid,
                   "--dry-run -o sh: the operator decides what {} starts, a script cannot; -o yaml "
                   "prints its objects",
                   job.entry);
  }

  Status start(const RunJob& job, const PackageCut*, const JobRecords& records, JobRecord& record,
               int attached_fd, OutputSink&) override {
    const std::string folder = records.job_folder(record.name);
    const auto objects = json::parse_yaml(job.manifest);
    record.data["manifest"] = job.entry;
    record.data["namespace"] = space_of(objects ? find_dijob(*objects) : nullptr);
    DIVISI_TRY_STATUS(records.save(record));
    ManifestPlan plan;
    plan.file = job.entry;
    plan.folder =
        job.options.folder.empty() ? folder + "/run" : fs::absolute(job.options.folder).string();
    plan.timeout = job.options.timeout;
    auto guard = installed_program("divisi-trial");
    if (!guard) return guard.error();
    plan.guard = *std::move(guard);
    // A manifest may have Secrets.
    DIVISI_TRY_STATUS(write_private(folder + "/" + kManifestFile, job.manifest));
    DIVISI_TRY_STATUS(
        write_private(folder + "/" + kPlanFile, json::print(to_json(plan), 2) + "\n"));
    DIVISI_TRY_STATUS(
        start_supervisor(kManifestSupervisorCommand, records, record.name, {}, attached_fd));
    return refresh(records, record);
  }

  Status scale(const JobRecords& records, JobRecord& record, const std::string& task,
               int replicas) override {
    return edit(records, record,
                [&](json::Value job) { return with_size(std::move(job), task, replicas); });
  }

  Status suspend(const JobRecords& records, JobRecord& record, bool suspended) override {
    return edit(records, record,
                [&](json::Value job) { return with_suspend(std::move(job), suspended); });
  }

 private:
  static Status edit(const JobRecords& records, const JobRecord& record,
                     const JobApi::Edit& change) {
    auto api = JobApi::open(records.job_folder(record.name));
    if (!api) return api.error();
    return (*api)->edit_job(std::string(record.data.string_at({"namespace"})), record.name, change);
  }
};

}  // namespace

json::Value to_json(const ManifestPlan& plan) {
  json::Value value;
  value["file"] = plan.file;
  value["folder"] = plan.folder;
  value["guard"] = plan.guard;
  if (plan.timeout) value["timeoutMilliseconds"] = std::int64_t{plan.timeout->count()};
  return value;
}

Result<ManifestPlan> manifest_plan_from(const json::Value& value) {
  ManifestPlan plan;
  plan.file = value.string_at({"file"});
  plan.folder = value.string_at({"folder"});
  plan.guard = value.string_at({"guard"});
  if (plan.folder.empty()) return failure(Code::kInvalid, "it is no plan of a manifest");
  if (const auto timeout = value.int_at({"timeoutMilliseconds"})) {
    plan.timeout = std::chrono::milliseconds(*timeout);
  }
  return plan;
}

std::unique_ptr<Backend> make_manifest_backend() {
  return std::make_unique<ManifestBackend>();
}

}  // namespace divisi::run
