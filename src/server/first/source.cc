#include "server/first/source.h"

#include "dijob/names.h"
#include "dijob/pod_template.h"
#include "server/envelope.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>

namespace divisi::server::first {
namespace {

namespace labels = dijob::first::labels;

constexpr const char* kByJobName = "job";
// A change that the watch has not shown after this time is no longer waited for.
constexpr auto kBelieved = std::chrono::minutes(1);
// A coordinator notices that a worker is gone within seconds; di-server may be away meanwhile.
constexpr auto kRemembered = std::chrono::minutes(10);
constexpr std::size_t kMostGone = 4096;

kube::InformerOptions first_pods_options(const std::string& space) {
  kube::InformerOptions options;
  options.reflector.resource = kube::resources::pods();
  options.reflector.space = space;
  options.reflector.label_selector = dijob::first::kSelector;
  options.transform = dijob::first::strip_pod;
  return options;
}

std::vector<std::string> job_name_keys(const json::Value& pod) {
  const std::string_view job = pod.string_at({"metadata", "labels", labels::kJob});
  if (job.empty()) return {};
  return {kube::object_key(pod.string_at({"metadata", "namespace"}), job)};
}

std::string key_of_job(const json::Value& pod) {
  const auto keys = job_name_keys(pod);
  return keys.empty() ? std::string() : keys.front();
}

struct OwnerName {
  std::string name{};
  std::string uid{};
};

std::optional<OwnerName> find_dijob(const json::Value& pod) {
  const json::Value* metadata = pod.find("metadata");
  if (metadata == nullptr) return std::nullopt;
  for (const json::Value& each : dijob::elements(*metadata, "ownerReferences")) {
    if (each.string_at({"kind"}) != dijob::dijobs().kind) continue;
    return OwnerName{std::string(each.string_at({"name"})), std::string(each.string_at({"uid"}))};
  }
  return std::nullopt;
}

// What a pod or a name space can be called; anything else is not there.
bool is_name(std::string_view text) {
  constexpr std::size_t kMaxName = 253;
  return !text.empty() && text.size() <= kMaxName && std::ranges::all_of(text, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '.';
  });
}

std::string shown(std::string_view text) {
  constexpr std::size_t kShown = 253;
  return std::string(text.substr(0, kShown));
}

Status no_such_pod(std::string_view space, std::string_view pod) {
  return make_status(Code::kNotFound, "pod: {}/{} not exists in cache", shown(space), shown(pod));
}

Result<Owner> make_owner(json::Value pod, json::Value object, bool live) {
  auto job = dijob::first::read_job(object);
  if (!job) {
    return failure(Code::kInvalid, "DIJob {}/{} is no job of the first generation: {}",
                   object.string_at({"metadata", "namespace"}),
                   object.string_at({"metadata", "name"}), job.error().message());
  }
  return Owner{std::move(pod), std::move(object), *std::move(job), live};
}

void add_worker(const json::Value& object, const Job& job, std::vector<Worker>& workers) {
  auto pod = dijob::first::read_pod(object);
  if (!pod || pod->owner_uid != job.uid || pod->role == Role::kCoordinator) return;
  workers.push_back({*std::move(pod), object});
}

void sort_by_name(std::vector<Worker>& workers) {
  std::ranges::sort(workers, {},
                    [](const Worker& each) -> const std::string& { return each.pod.name; });
}

}  // namespace

Source::Source(kube::Client& client, JobSource& jobs, const std::string& space)
    : client_(client),
      jobs_(jobs),
      pods_(client, first_pods_options(space)),
      expectations_(client.reactor(), kBelieved) {
  pods_.add_index(kByJobName, job_name_keys);
  follow_pods();
}

void Source::follow_pods() {
  kube::Handler handler;
  const auto saw = [this](const kube::ObjectPtr& now) {
    const json::Value pod = now->value();
    const std::string key = key_of_job(pod);
    expectations_.created(key, pod.string_at({"metadata", "name"}));
    if (!pod.string_at({"metadata", "deletionTimestamp"}).empty()) {
      expectations_.deleted(key, now->uid());
    }
  };
  handler.on_added = saw;
  handler.on_changed = [saw](const kube::ObjectPtr&, const kube::ObjectPtr& now) { saw(now); };
  handler.on_deleted = [this](const kube::ObjectPtr& last, bool) {
    const json::Value pod = last->value();
    expectations_.created(key_of_job(pod), pod.string_at({"metadata", "name"}));
    expectations_.deleted(key_of_job(pod), last->uid());
    remember_gone(pod);
  };
  pods_.add_handler(std::move(handler));
}

void Source::remember_gone(const json::Value& object) {
  const io::TimePoint now = client_.reactor().now();
  while (!gone_order_.empty() &&
         (gone_order_.size() >= kMostGone || gone_order_.front().first + kRemembered < now)) {
    gone_.erase(gone_order_.front().second);
    gone_order_.pop_front();
  }
  auto pod = dijob::first::read_pod(object);
  if (!pod || replaced_.erase(pod->uid) > 0) return;
  if (pod->role == Role::kCoordinator) return;
  if (!object.string_at({"metadata", "annotations", kDismissed}).empty()) return;
  std::string key = kube::object_key(pod->owner_uid, pod->name);
  gone_order_.emplace_back(now, key);
  gone_.insert_or_assign(std::move(key), Worker{*std::move(pod), object});
}

const Worker* Source::find_gone(const std::string& job_uid, const std::string& pod) const {
  const auto found = gone_.find(kube::object_key(job_uid, pod));
  return found == gone_.end() ? nullptr : &found->second;
}

int Source::gone_gpus(const std::string& aggregator_uid) const {
  int gpus = 0;
  for (const auto& [key, worker] : gone_) {
    if (worker.pod.aggregator_uid == aggregator_uid) gpus += worker.pod.gpus;
  }
  return gpus;
}

void Source::forget_group(const std::string& aggregator_uid) {
  std::erase_if(gone_,
                [&](const auto& each) { return each.second.pod.aggregator_uid == aggregator_uid; });
}

void Source::replaced(const Pod& pod) {
  if (gone_.erase(kube::object_key(pod.owner_uid, pod.name)) > 0) return;
  if (pods_.find(kube::object_key(pod.space, pod.name)) != nullptr) replaced_.insert(pod.uid);
}

bool Source::find_cached(const std::string& space, const std::string& pod, Owner& owner) const {
  if (!pods_.synced()) return false;
  const kube::ObjectPtr found = pods_.find(kube::object_key(space, pod));
  if (found == nullptr) return false;
  json::Value object = found->value();
  const auto name = find_dijob(object);
  if (!name || !jobs_.jobs().synced()) return false;
  auto job = jobs_.cached_job(kube::object_key(space, name->name));
  if (!job || job->string_at({"metadata", "uid"}) != name->uid) return false;
  auto made = make_owner(std::move(object), *std::move(job), false);
  if (!made) return false;
  owner = *std::move(made);
  return true;
}

void Source::find_owner(const std::string& space, const std::string& pod,
                        std::function<void(Result<Owner>)> done) {
  Owner owner;
  if (find_cached(space, pod, owner)) return done(std::move(owner));
  read_owner(space, pod, std::move(done));
}

void Source::read_owner(const std::string& space, const std::string& pod,
                        std::function<void(Result<Owner>)> done) {
  if (!is_name(space) || !is_name(pod)) return done(failure(no_such_pod(space, pod)));
  read(kube::resources::pods(), space, pod,
       [this, space, pod, done = std::move(done)](Result<json::Value> object) {
         if (!object && object.error().code() == Code::kNotFound) {
           return done(failure(no_such_pod(space, pod)));
         }
         if (!object) return done(failure(std::move(object).error()));
         read_job_of(*std::move(object), done);
       });
}

void Source::read_job_of(json::Value pod, std::function<void(Result<Owner>)> done) {
  const std::string space(pod.string_at({"metadata", "namespace"}));
  const auto owner = find_dijob(pod);
  if (!owner) {
    return done(failure(Code::kNotFound, "module {} is not owned by any DIJob",
                        pod.string_at({"metadata", "name"})));
  }
  read(dijob::dijobs(), space, owner->name,
       [space, owner = *owner, pod = std::move(pod),
        done = std::move(done)](Result<json::Value> job) {
         if (!job && job.error().code() == Code::kNotFound) {
           return done(
               failure(Code::kNotFound, "DIJob: {}/{} not exists in cache", space, owner.name));
         }
         if (!job) return done(failure(std::move(job).error()));
         if (job->string_at({"metadata", "uid"}) != owner.uid) {
           return done(failure(Code::kNotFound, "coordinator {} is owned by stale DIJob",
                               pod.string_at({"metadata", "name"})));
         }
         done(make_owner(pod, *std::move(job), true));
       });
}

void Source::find_workers(const Owner& owner,
                          std::function<void(Result<std::vector<Worker>>)> done) {
  const Job& job = owner.job;
  const std::string key = kube::object_key(job.space, dijob::first::job_label(job.name));
  if (owner.live || !pods_.synced() || !expectations_.satisfied(key)) {
    return read_workers(job, std::move(done));
  }
  std::vector<Worker> workers;
  for (const auto& pod : pods_.find_by(kByJobName, key)) add_worker(pod->value(), job, workers);
  sort_by_name(workers);
  done(std::move(workers));
}

void Source::read_workers(const Job& job, std::function<void(Result<std::vector<Worker>>)> done) {
  const std::string selector = fmt::format("{},{}={}", dijob::first::kSelector, labels::kJob,
                                           dijob::first::job_label(job.name));
  list(kube::resources::pods(), job.space, selector,
       [job, done = std::move(done)](const Result<json::Value>& items) {
         if (!items) return done(failure(items.error()));
         std::vector<Worker> workers;
         for (const json::Value& object : dijob::elements(*items, "items")) {
           add_worker(object, job, workers);
         }
         sort_by_name(workers);
         done(std::move(workers));
       });
}

void Source::find_pods(const std::string& space,
                       std::function<void(Result<std::vector<Pod>>)> done) {
  const auto add = [space](const json::Value& object, std::vector<Pod>& pods) {
    auto pod = dijob::first::read_pod(object);
    if (pod && (space.empty() || pod->space == space)) pods.push_back(*std::move(pod));
  };
  if (pods_.synced()) {
    std::vector<Pod> pods;
    for (const auto& object : pods_.all()) add(object->value(), pods);
    return done(std::move(pods));
  }
  list(kube::resources::pods(), space, dijob::first::kSelector,
       [add, done = std::move(done)](const Result<json::Value>& items) {
         if (!items) return done(failure(items.error()));
         std::vector<Pod> pods;
         for (const json::Value& object : dijob::elements(*items, "items")) add(object, pods);
         done(std::move(pods));
       });
}

void Source::read(const kube::Resource& resource, const std::string& space, const std::string& name,
                  std::function<void(Result<json::Value>)> done) {
  client_.get(resource, space, name, {},
              [done = std::move(done), alive = std::weak_ptr(alive_)](Result<json::Value> object) {
                if (alive.expired()) return;
                if (!object) return done(failure(of_cluster(object.error())));
                done(std::move(object));
              });
}

void Source::list(const kube::Resource& resource, const std::string& space,
                  std::string_view selector, std::function<void(Result<json::Value>)> done) {
  kube::ListOptions options;
  options.label_selector = selector;
  client_.list(resource, space, options,
               [done = std::move(done), alive = std::weak_ptr(alive_)](Result<json::Value> items) {
                 if (alive.expired()) return;
                 if (!items) return done(failure(Code::kInternal, "{}", items.error().message()));
                 done(std::move(items));
               });
}

void Source::read_gpus(std::function<void(Result<std::vector<std::int64_t>>)> done) {
  list(
      kube::resources::nodes(), {}, {}, [done = std::move(done)](const Result<json::Value>& items) {
        if (!items) return done(failure(items.error()));
        std::vector<std::int64_t> gpus;
        for (const json::Value& node : dijob::elements(*items, "items")) {
          const dijob::Amounts has = dijob::read_amounts(node.find_path({"status", "allocatable"}));
          const auto found = has.find(dijob::first::kGpu);
          gpus.push_back(found == has.end() ? 0 : found->second.value());
        }
        done(std::move(gpus));
      });
}

}  // namespace divisi::server::first
