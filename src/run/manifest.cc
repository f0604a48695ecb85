#include "run/manifest.h"

#include "json/yaml.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <iterator>

namespace divisi::run {
namespace {

bool is_dijob(const json::Value& object) {
  return object.string_at({"kind"}) == "DIJob";
}

Status check_object(const json::Value& object) {
  const std::string_view kind = object.string_at({"kind"});
  if (object.string_at({"metadata", "name"}).empty()) {
    return make_status(Code::kInvalid, "an object ({}) has no metadata.name",
                       kind.empty() ? "without a kind" : kind);
  }
  if (is_dijob(object)) {
    if (object.find_path({"spec", "coordinator"}) == nullptr) return {};
    return make_status(Code::kInvalid,
                       "the DIJob is one of the first generation (spec.coordinator), which divisi "
                       "run does not follow: use kubectl apply");
  }
  if (kind == "ConfigMap" || kind == "Secret") return {};
  return make_status(Code::kInvalid,
                     "{} is neither a DIJob nor a ConfigMap or Secret of one: use kubectl apply",
                     kind.empty() ? "an object without a kind" : kind);
}

// As many as the tasks say; those of the template form are known when the pods are there.
std::vector<RunWorker> workers_of(const json::Value& dijob) {
  std::vector<RunWorker> workers;
  const json::Value* const tasks = dijob.find_path({"spec", "tasks"});
  if (tasks == nullptr || tasks->as_array() == nullptr) return workers;
  constexpr std::int64_t kMost = 100'000;
  for (const json::Value& task : *tasks->as_array()) {
    const auto count = std::clamp<std::int64_t>(task.int_at({"replicas"}).value_or(1), 0, kMost);
    for (std::int64_t i = 0; i < count; ++i) {
      RunWorker worker;
      worker.rank = static_cast<int>(workers.size());
      workers.push_back(std::move(worker));
    }
  }
  return workers;
}

}  // namespace

Result<RunJob> plan_manifest_text(const RunOptions& options, std::string_view text,
                                  const std::string& file) {
  DIVISI_TRY(std::vector<json::Value> objects,
             json::parse_yaml(text).map_error(
                 [&](const Status& status) { return status.with_context(file); }));
  std::erase_if(objects, [](const json::Value& object) { return object.is_null(); });
  for (const json::Value& object : objects) {
    if (const Status status = check_object(object); !status.ok()) {
      return failure(status.with_context(file));
    }
  }
  if (std::ranges::count_if(objects, is_dijob) != 1) {
    return failure(Code::kInvalid, "{}: one DIJob is needed, it has {}", file,
                   std::ranges::count_if(objects, is_dijob));
  }
  json::Value& dijob = *std::ranges::find_if(objects, is_dijob);
  if (!options.name.empty()) dijob["metadata"]["name"] = options.name;
  RunJob job;
  job.name = dijob.string_at({"metadata", "name"});
  if (const Status status = check_job_name(job.name); !status.ok()) {
    return failure(status.with_context(file));
  }
  job.backend = BackendKind::kDijob;
  job.options = options;
  if (job.options.name_space.empty()) {
    job.options.name_space = dijob.string_at({"metadata", "namespace"});
  }
  job.entry = file;
  job.workers = workers_of(dijob);
  job.objects = std::move(objects);
  return job;
}

Result<RunJob> plan_manifest(const RunOptions& options) {
  std::ifstream in(options.manifest, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  if (!in.is_open() || in.bad()) {
    return failure(Code::kNotFound, "cannot read {}: {}", options.manifest, errno_text(errno));
  }
  return plan_manifest_text(options, text, options.manifest);
}

}  // namespace divisi::run
