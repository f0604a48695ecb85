// Which backends there are, and which one is the default.
#include "json/yaml.h"
#include "kube/session.h"
#include "run/backend.h"
#include "run/cluster_backend.h"
#include "run/local_backend.h"
#include "run/manifest_backend.h"
#include "run/rendering.h"
#include "run/slurm_backend.h"
#include "run/ssh_backend.h"

#include <fmt/format.h>

#include <chrono>
#include <future>
#include <memory>

namespace divisi::run {
namespace {

constexpr const char* kDijobApi = "/apis/diengine.opendilab.org/v2alpha1";
// A cluster that is there answers in milliseconds; somebody waits for the job meanwhile.
constexpr std::chrono::seconds kAskCluster{3};

std::string cluster_name(const kube::Config& config) {
  return config.context.empty() ? config.server : config.context;
}

// kTimeout when the cluster does not answer soon.
Result<json::Value> ask(kube::Session& session, const std::string& path) {
  auto answered = std::make_shared<std::promise<Result<json::Value>>>();
  auto answer = answered->get_future();
  session.reactor().post([&client = session.client(), path, answered] {
    client.get_path(
        path, [answered](Result<json::Value> value) { answered->set_value(std::move(value)); });
  });
  if (answer.wait_for(kAskCluster) != std::future_status::ready) {
    return failure(Code::kTimeout, "no answer within {} s", kAskCluster.count());
  }
  return answer.get();
}

}  // namespace

Status Backend::scale(const JobRecords&, JobRecord& record, const std::string&, int) {
  return make_status(Code::kInvalid,
                     "{} keeps its {} workers: only a DIJob can be resized; divisi restart starts "
                     "it again",
                     record.name, record.workers.size());
}

Status Backend::suspend(const JobRecords&, JobRecord& record, bool) {
  return make_status(Code::kInvalid,
                     "{} is no DIJob, only that can be suspended; divisi delete ends it",
                     record.name);
}

Result<std::unique_ptr<Backend>> make_backend(BackendKind kind, const RunOptions& options) {
  switch (kind) {
    case BackendKind::kLocal:
      return options.manifest.empty() ? make_local_backend() : make_manifest_backend();
    case BackendKind::kSsh: return make_ssh_backend();
    case BackendKind::kSlurm: return make_slurm_backend();
    case BackendKind::kDijob:
    case BackendKind::kJob: return make_cluster_backend(kind, options);
  }
  return failure(Code::kInternal, "there is no backend {}", static_cast<int>(kind));
}

Status wait_until_ended(Backend& backend, const JobRecords& records, JobRecord& record) {
  struct Silence : OutputSink {
    void line(const OutputLine&) override {}
    void note(std::string_view) override {}
  } silence;
  return backend.follow(records, record, {}, silence);
}

BackendChoice choose_backend(const RunOptions& options) {
  const auto local = [](std::string reason) {
    return BackendChoice{BackendKind::kLocal, std::move(reason)};
  };
  if (!options.manifest.empty()) return local("");
  kube::ConfigOptions where;
  where.kubeconfig = options.kubeconfig;
  where.context = options.context;
  const auto session = kube::Session::open(where);
  if (!session) {
    const std::string& why = session.error().message();
    return local(why.substr(0, why.find(": ")));
  }
  const std::string name = cluster_name((*session)->config());
  const auto found = ask(**session, kDijobApi);
  if (found) {
    return {BackendKind::kDijob, fmt::format("the cluster {} has the type DIJob", name)};
  }
  if (found.error().code() == Code::kNotFound) {
    return local(fmt::format("the cluster {} has no type DIJob", name));
  }
  return local(fmt::format("the cluster {} does not answer: {}", name, found.error().message()));
}

std::string print_documents(const std::vector<json::Value>& documents, RenderFormat format) {
  std::string text;
  if (format == RenderFormat::kJson) {
    if (documents.size() == 1) return json::print(documents.front(), 2) + "\n";
    json::Value list;
    list["apiVersion"] = "v1";
    list["kind"] = "List";
    list["items"] = json::Array(documents.begin(), documents.end());
    return json::print(list, 2) + "\n";
  }
  for (const json::Value& document : documents) {
    if (!text.empty()) text += "---\n";
    text += json::print_yaml(document);
  }
  return text;
}

}  // namespace divisi::run
