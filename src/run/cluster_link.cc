#include "run/cluster_link.h"

#include "run/environment.h"

#include <fmt/format.h>

#include <array>
#include <filesystem>
#include <future>
#include <map>

namespace divisi::run {
namespace {

constexpr std::chrono::seconds kPing{5};

struct NeededRight {
  std::string_view verb;
  std::string_view group;
  std::string_view resource;
  std::string_view subresource;
};

std::vector<NeededRight> rights_of(BackendKind kind) {
  std::vector<NeededRight> rights;
  const bool operated = kind == BackendKind::kDijob;
  const std::string_view group = operated ? "diengine.opendilab.org" : "batch";
  const std::string_view resource = operated ? "dijobs" : "jobs";
  for (const std::string_view verb : {"create", "get", "list", "watch", "delete"}) {
    rights.push_back({verb, group, resource, ""});
  }
  if (!operated) rights.push_back({"patch", group, resource, ""});
  for (const std::string_view verb : {"list", "watch"}) rights.push_back({verb, "", "pods", ""});
  rights.push_back({"get", "", "pods", "log"});
  for (const std::string_view verb : {"create", "delete"}) {
    rights.push_back({verb, "", "configmaps", ""});
    if (operated) continue;
    rights.push_back({verb, "", "services", ""});
    rights.push_back({verb, "", "secrets", ""});
  }
  return rights;
}

json::Value access_review(const NeededRight& right, const std::string& space) {
  json::Value review;
  review["apiVersion"] = "authorization.k8s.io/v1";
  review["kind"] = "SelfSubjectAccessReview";
  json::Value& asked = review["spec"]["resourceAttributes"];
  asked["namespace"] = space;
  asked["group"] = right.group;
  asked["resource"] = right.resource;
  asked["subresource"] = right.subresource;
  asked["verb"] = right.verb;
  return review;
}

const kube::Resource& own_access_reviews() {
  static const kube::Resource resource{"authorization.k8s.io", "v1", "selfsubjectaccessreviews",
                                       "SelfSubjectAccessReview", false};
  return resource;
}

// Relative names of files are those of the folder that the job was started in.
std::string absolute_list(const std::string& files) {
  std::string made;
  for (const std::string& file : launch::split_list(files, ':')) {
    std::error_code error;
    made += (made.empty() ? "" : ":") + std::filesystem::absolute(file, error).string();
  }
  return made;
}

}  // namespace

const kube::Resource& dijobs() {
  static const kube::Resource resource{"diengine.opendilab.org", "v2alpha1", "dijobs", "DIJob"};
  return resource;
}

const kube::Resource& batch_jobs() {
  static const kube::Resource resource{"batch", "v1", "jobs", "Job"};
  return resource;
}

ClusterPlace place_of(const RunOptions& options) {
  ClusterPlace place;
  if (!options.kubeconfig.empty()) {
    std::error_code error;
    place.kubeconfig = std::filesystem::absolute(options.kubeconfig, error).string();
  }
  const launch::Environment environment = process_environment();
  if (const auto files = launch::lookup(environment, "KUBECONFIG")) {
    place.search_path = absolute_list(std::string(*files));
  }
  place.context = options.context;
  place.name_space = options.name_space;
  return place;
}

ClusterPlace place_of(const JobRecord& record) {
  return {.kubeconfig = std::string(record.data.string_at({"kubeconfig"})),
          .search_path = std::string(record.data.string_at({"searchPath"})),
          .context = std::string(record.data.string_at({"context"})),
          .name_space = std::string(record.data.string_at({"namespace"}))};
}

void keep_place(const ClusterPlace& place, JobRecord& record) {
  if (!place.kubeconfig.empty()) record.data["kubeconfig"] = place.kubeconfig;
  if (!place.search_path.empty()) record.data["searchPath"] = place.search_path;
  if (!place.context.empty()) record.data["context"] = place.context;
  record.data["namespace"] = place.name_space;
}

Result<ClusterLink*> ClusterLink::open(const ClusterPlace& place) {
  static std::map<std::string, std::unique_ptr<ClusterLink>> links;
  const std::string key = fmt::format("{}\n{}\n{}\n{}", place.kubeconfig, place.search_path,
                                      place.context, place.name_space);
  std::unique_ptr<ClusterLink>& link = links[key];
  if (link != nullptr) return link.get();
  kube::ConfigOptions options;
  options.kubeconfig = place.kubeconfig;
  options.context = place.context;
  options.default_namespace = place.name_space;
  options.environment = [files = place.search_path, others = kube::process_environment()](
                            const std::string& name) -> std::optional<std::string> {
    if (name == "KUBECONFIG" && !files.empty()) return files;
    return others(name);
  };
  DIVISI_TRY(auto session, kube::Session::open(options).map_error([](const Status& why) {
    return make_status(Code::kUnavailable, "{}; --kubeconfig names one, --backend local needs none",
                       why.message());
  }));
  link.reset(new ClusterLink(std::move(session)));
  return link.get();
}

std::string ClusterLink::name() const {
  const kube::Config& config = session_->config();
  return config.context.empty() ? config.server : config.context;
}

Status ClusterLink::explained(const Status& why) const {
  if (why.code() == Code::kForbidden || why.code() == Code::kUnauthorized) {
    return make_status(Code::kForbidden, "the cluster {} does not let you: {}", name(),
                       why.message());
  }
  if (why.code() == Code::kUnavailable || why.code() == Code::kTimeout) {
    return make_status(Code::kUnavailable, "the cluster {} does not answer: {}", name(),
                       why.message());
  }
  return why;
}

Result<json::Value> ClusterLink::call(const std::function<void(kube::Done)>& start) {
  if (!away_.ok()) return failure(away_);
  auto answer = session_->call(start);
  if (answer) return answer;
  Status why = explained(answer.error());
  if (why.code() == Code::kUnavailable) away_ = why;
  return failure(std::move(why));
}

Result<json::Value> ClusterLink::get(const kube::Resource& resource, const std::string& name) {
  return call([&](kube::Done done) {
    session_->client().get(resource, space_, name, {}, std::move(done));
  });
}

Result<std::vector<json::Value>> ClusterLink::list(const kube::Resource& resource,
                                                   const std::string& labels) {
  const kube::ListOptions options{.label_selector = labels};
  DIVISI_TRY(json::Value answer, call([&](kube::Done done) {
               session_->client().list(resource, space_, options, std::move(done));
             }));
  std::vector<json::Value> found;
  if (json::Value* const items = answer.find("items"); items && items->as_array()) {
    found = std::move(*items->as_array());
  }
  return found;
}

Result<json::Value> ClusterLink::create(const kube::Resource& resource, const json::Value& object) {
  return call([&](kube::Done done) {
    session_->client().create(resource, space_, object, {.field_manager = "divisi-run"},
                              std::move(done));
  });
}

Status ClusterLink::patch(const kube::Resource& resource, const std::string& name,
                          const json::Value& change, const std::string& subresource,
                          kube::PatchType type) {
  const auto answer = call([&](kube::Done done) {
    session_->client().patch(resource, space_, name, type, change,
                             {.subresource = subresource, .field_manager = "divisi-run"},
                             std::move(done));
  });
  return answer ? Status() : answer.error();
}

Status ClusterLink::remove(const kube::Resource& resource, const std::string& name,
                           const std::string& uid, std::optional<std::int64_t> grace_seconds) {
  kube::DeleteOptions options;
  options.propagation = "Background";
  options.uid = uid;
  options.grace_seconds = grace_seconds;
  const auto answer = call([&](kube::Done done) {
    session_->client().remove(resource, space_, name, options, std::move(done));
  });
  if (answer || answer.error().code() == Code::kNotFound ||
      answer.error().code() == Code::kConflict) {
    return {};
  }
  return answer.error();
}

Status ClusterLink::ping() {
  auto answered = std::make_shared<std::promise<Status>>();
  auto answer = answered->get_future();
  session_->reactor().post([this, answered] {
    session_->client().get_path("/version", [answered](const Result<json::Value>& value) {
      answered->set_value(value ? Status() : value.error());
    });
  });
  if (answer.wait_for(kPing) != std::future_status::ready) {
    return make_status(Code::kUnavailable, "the cluster {} does not answer within {} s", name(),
                       kPing.count());
  }
  const Status status = answer.get();
  // Whatever it says, it is there.
  const bool away = status.code() == Code::kUnavailable || status.code() == Code::kTimeout;
  if (!away) away_ = {};
  return away ? explained(status) : Status();
}

Status ClusterLink::check_rights(BackendKind kind) {
  const std::vector<NeededRight> rights = rights_of(kind);
  std::vector<std::future<Result<json::Value>>> answers;
  for (const NeededRight& right : rights) {
    auto answered = std::make_shared<std::promise<Result<json::Value>>>();
    answers.push_back(answered->get_future());
    session_->reactor().post([this, answered, review = access_review(right, space_)] {
      session_->client().create(
          own_access_reviews(), {}, review, {},
          [answered](Result<json::Value> value) { answered->set_value(std::move(value)); });
    });
  }
  std::string missing;
  for (std::size_t i = 0; i < rights.size(); ++i) {
    const auto answer = answers[i].get();
    if (!answer) {
      const Status why = explained(answer.error());
      // A server that does not answer this question will say no when it is asked to act.
      if (why.code() == Code::kUnavailable) return why;
      continue;
    }
    if (answer->bool_at({"status", "allowed"}).value_or(true)) continue;
    missing +=
        fmt::format("{}{} {}{}{}", missing.empty() ? "" : ", ", rights[i].verb, rights[i].resource,
                    rights[i].subresource.empty() ? "" : "/", rights[i].subresource);
  }
  if (missing.empty()) return {};
  return make_status(Code::kForbidden,
                     "the cluster {} does not let you run jobs in the namespace {}: you may not {}",
                     name(), space_, missing);
}

}  // namespace divisi::run
