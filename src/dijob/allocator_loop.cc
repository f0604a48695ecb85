#include "dijob/allocator_loop.h"

#include "base/log.h"
#include "dijob/draft.h"
#include "dijob/names.h"
#include "dijob/pod_template.h"

#include <algorithm>
#include <utility>

namespace divisi::dijob {
namespace {

constexpr std::string_view kCondition = "Allocated";

kube::InformerOptions options_of(const kube::Resource& resource, const std::string& space = {}) {
  kube::InformerOptions options;
  options.reflector.resource = resource;
  options.reflector.space = space;
  return options;
}

bool is_preemptible(const json::Value& job) {
  return job.bool_at({"spec", "preemptible"}).value_or(false);
}

// Of other jobs only that they are there.
void keep_preemptible(json::Value& job) {
  if (is_preemptible(job)) return;
  job.erase("spec");
  job.erase("status");
}

// "True", "False", or "" when nobody has said it yet.
std::string_view told_before(const json::Value& job) {
  const json::Value* status = job.find("status");
  if (status == nullptr) return {};
  for (const json::Value& condition : elements(*status, "conditions")) {
    if (condition.string_at({"type"}) == kCondition) return condition.string_at({"status"});
  }
  return {};
}

}  // namespace

Allocator::Allocator(kube::Client& client, AllocatorOptions options)
    : client_(client),
      options_(std::move(options)),
      jobs_(client, job_options()),
      nodes_(client, options_of(kube::resources::nodes())),
      pods_(client,
            [] {
              kube::InformerOptions pods = options_of(kube::resources::pods());
              pods.transform = keep_what_counts;
              return pods;
            }()),
      alive_(std::make_shared<bool>(true)) {
  jobs_.add_index("preemptible", [](const json::Value& job) {
    return is_preemptible(job) ? std::vector<std::string>{"yes"} : std::vector<std::string>{};
  });
  for (kube::Informer* informer : {&jobs_, &nodes_, &pods_}) watch(*informer);
}

Allocator::~Allocator() {
  *alive_ = false;
}

kube::InformerOptions Allocator::job_options() const {
  kube::InformerOptions jobs = options_of(dijobs(), options_.space);
  jobs.transform = keep_preemptible;
  return jobs;
}

void Allocator::watch(kube::Informer& informer) {
  informer.add_handler({.on_added = [this](const auto&) { changed(); },
                        .on_changed = [this](const auto&, const auto&) { changed(); },
                        .on_deleted = [this](const auto&, bool) { changed(); },
                        .on_synced = [this] { changed(); }});
}

void Allocator::start() {
  jobs_.start();
  period_ = client_.reactor().after(options_.period, [this] { round(true); });
}

void Allocator::stop() {
  stopped_ = true;
  soon_.reset();
  period_.reset();
  for (kube::Informer* informer : {&jobs_, &nodes_, &pods_}) informer->stop();
}

void Allocator::changed() {
  if (stopped_ || soon_ || jobs_.find_by("preemptible", "yes").empty()) return;
  soon_ = client_.reactor().after(options_.settle, [this] {
    soon_.reset();
    round(false);
  });
}

// Deciding on what a write has already changed would take it back.
bool Allocator::in_step() {
  std::erase_if(unseen_, [this](const auto& written) {
    const kube::ObjectPtr now = jobs_.find(written.first);
    return now == nullptr || now->resource_version() != written.second;
  });
  return jobs_.synced() && nodes_.synced() && pods_.synced() && unseen_.empty() && writing_ == 0;
}

void Allocator::round(bool periodic) {
  if (periodic) period_ = client_.reactor().after(options_.period, [this] { round(true); });
  const std::vector<kube::ObjectPtr> preemptible = jobs_.find_by("preemptible", "yes");
  if (!preemptible.empty() && !watching_all_) {
    watching_all_ = true;
    nodes_.start();
    pods_.start();
  }
  if (preemptible.empty() || !in_step())
    return;  // the cache, when it follows, brings another round
  ++rounds_;

  std::vector<json::Value> objects;
  std::vector<Demand> demands;
  std::vector<std::string> uids;
  for (const kube::ObjectPtr& job : preemptible) {
    json::Value object = job->value();
    std::optional<Demand> demand = read_demand(object, options_.defaults);
    if (!demand) continue;
    objects.push_back(std::move(object));
    demands.push_back(*std::move(demand));
    uids.push_back(job->uid());
  }
  std::vector<Node> nodes;
  for (const kube::ObjectPtr& node : nodes_.all()) nodes.push_back(read_node(node->value()));
  PodLedger ledger(demands, uids, nodes);
  for (const kube::ObjectPtr& pod : pods_.all()) ledger.add_pod(pod->value());

  const std::vector<Placement> placements = allocate(demands, std::move(nodes));
  for (std::size_t job = 0; job < objects.size(); ++job)
    write(objects[job], placements[job], periodic);
}

void Allocator::write(const json::Value& object, const Placement& placement, bool periodic) {
  Draft status(object, kSecondGeneration, options_.wall_clock());
  const bool same = status->allocation.value_or(std::vector<std::string>{}) == placement.nodes;
  const bool placed = placement.placed > 0;
  // Numbers of what is free change all the time: told with a decision, else once in a while.
  if (same && told_before(object) == (placed ? "True" : "False") && !periodic) return;
  if (!same) {
    status->allocation = placement.nodes;
    status->replicas = static_cast<int>(placement.placed);
  }
  status.set_condition(kCondition, placed, placed ? "Placed" : "Waiting", placement.message);
  if (!status.differs()) return;

  json::Value patch;
  patch["metadata"]["resourceVersion"] = object.string_at({"metadata", "resourceVersion"});
  patch["status"] = status.changes();
  const std::string space(object.string_at({"metadata", "namespace"}));
  const std::string name(object.string_at({"metadata", "name"}));
  const std::string key = kube::object_key(space, name);
  ++writing_;
  unseen_[key] = object.string_at({"metadata", "resourceVersion"});
  client_.patch(dijobs(), space, name, kube::PatchType::kMerge, patch, {.subresource = "status"},
                [this, key, alive = alive_](const Result<json::Value>& answer) {
                  if (*alive) written(key, answer);
                });
}

void Allocator::written(const std::string& key, const Result<json::Value>& answer) {
  --writing_;
  // Nothing to wait for when nothing was written. After a conflict the cache shows who was faster.
  if (!answer || answer->string_at({"metadata", "resourceVersion"}) == unseen_[key]) {
    unseen_.erase(key);
  }
  if (!answer && answer.error().code() != Code::kConflict &&
      answer.error().code() != Code::kNotFound) {
    log::warning("allocating nodes for {}: {}", key, answer.error().message());
  }
  changed();
}

}  // namespace divisi::dijob
