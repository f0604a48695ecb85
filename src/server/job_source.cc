#include "server/job_source.h"

#include "dijob/names.h"
#include "dijob/sizes.h"
#include "server/envelope.h"

#include <algorithm>
#include <utility>

namespace divisi::server {
namespace {

constexpr const char* kByJob = "job";

std::string operator_label() {
  return fmt::format("{}={}", dijob::labels::kOperator, dijob::labels::kOperatorValue);
}

void keep_only(json::Value& object, std::initializer_list<std::string_view> keys) {
  if (json::Object* members = object.as_object()) {
    std::erase_if(*members, [&](const json::Member& member) {
      return std::ranges::find(keys, member.first) == keys.end();
    });
  }
}

// What of a pod tells where its engine listens. Commands, environments and volumes are most of it,
// and a cluster has many.
void slim_pod(json::Value& pod) {
  json::Value* spec = pod.find("spec");
  if (spec == nullptr) return;
  keep_only(*spec, {"containers", "nodeName", "hostname", "subdomain"});
  json::Value* containers = spec->find("containers");
  json::Array* list = containers == nullptr ? nullptr : containers->as_array();
  if (list == nullptr) return;
  for (json::Value& container : *list) keep_only(container, {"name", "ports"});
}

kube::InformerOptions jobs_options(const std::string& space) {
  kube::InformerOptions options;
  options.reflector.resource = dijob::dijobs();
  options.reflector.space = space;
  options.transform = dijob::mark_applied;
  return options;
}

kube::InformerOptions pods_options(const std::string& space) {
  kube::InformerOptions options;
  options.reflector.resource = kube::resources::pods();
  options.reflector.space = space;
  options.reflector.label_selector = operator_label();
  options.transform = slim_pod;
  return options;
}

Status no_such_job(const JobId& id) {
  return make_status(Code::kNotFound, "DIJob: {} not exists", id.key());
}

std::vector<dijob::Pod> pods_of(const json::Array& objects, const dijob::Job& job) {
  std::vector<dijob::Pod> pods;
  for (const json::Value& object : objects) {
    if (dijob::belongs_to(object, job)) pods.push_back(dijob::read_pod(object, job));
  }
  return pods;
}

}  // namespace

JobSource::JobSource(kube::Client& client, const std::string& space)
    : client_(client), jobs_(client, jobs_options(space)), pods_(client, pods_options(space)) {
  pods_.add_index(kByJob, pod_job_keys);
}

void JobSource::start() {
  jobs_.start();
  pods_.start();
}

std::vector<std::string> JobSource::pod_job_keys(const json::Value& pod) {
  const std::string_view job = pod.find_path({"metadata", "labels"}) == nullptr
                                   ? std::string_view()
                                   : pod.string_at({"metadata", "labels", dijob::labels::kJob});
  if (job.empty()) return {};
  return {kube::object_key(pod.string_at({"metadata", "namespace"}), job)};
}

void JobSource::find_job(const JobId& id, std::function<void(Result<JobView>)> done) {
  if (jobs_.synced()) {
    if (auto cached = cached_job(id.key())) return done(JobView{*std::move(cached), false});
  }
  read_job_live(id, std::move(done));
}

void JobSource::read_job_live(const JobId& id, std::function<void(Result<JobView>)> done) {
  client_.get(
      dijob::dijobs(), id.space, id.name, {},
      [id, done = std::move(done), alive = std::weak_ptr(alive_)](Result<json::Value> object) {
        if (alive.expired()) return;
        if (object) return done(JobView{*std::move(object), true});
        if (object.error().code() == Code::kNotFound) return done(failure(no_such_job(id)));
        done(failure(of_cluster(object.error())));
      });
}

void JobSource::find_pods(const JobView& view, const dijob::Job& job,
                          std::function<void(Result<std::vector<dijob::Pod>>)> done) {
  if (!view.live && pods_.synced()) return done(cached_pods(job));
  kube::ListOptions options;
  options.label_selector = fmt::format("{}={},{}", dijob::labels::kJob, job.name, operator_label());
  client_.list(kube::resources::pods(), job.space, options,
               [job, done = std::move(done),
                alive = std::weak_ptr(alive_)](const Result<json::Value>& list) {
                 if (alive.expired()) return;
                 if (!list) return done(failure(of_cluster(list.error())));
                 const json::Value* items = list->find("items");
                 const json::Array* objects = items == nullptr ? nullptr : items->as_array();
                 done(objects == nullptr ? std::vector<dijob::Pod>() : pods_of(*objects, job));
               });
}

std::optional<json::Value> JobSource::cached_job(const std::string& key) const {
  const kube::ObjectPtr found = jobs_.find(key);
  if (found == nullptr) return std::nullopt;
  return found->value();
}

std::vector<dijob::Pod> JobSource::cached_pods(const dijob::Job& job) const {
  json::Array objects;
  for (const auto& pod : pods_.find_by(kByJob, kube::object_key(job.space, job.name))) {
    objects.push_back(pod->value());
  }
  return pods_of(objects, job);
}

}  // namespace divisi::server
