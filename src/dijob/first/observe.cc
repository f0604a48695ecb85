#include "dijob/first/observe.h"

#include "dijob/names.h"
#include "dijob/observe.h"
#include "dijob/pod_template.h"

#include <algorithm>
#include <utility>

namespace divisi::dijob::first {
namespace {

enum class Belongs { kYes, kOrphan, kNo };

Belongs ownership(const json::Value& object, const Job& job) {
  const json::Value* const metadata = object.find("metadata");
  if (metadata == nullptr || metadata->string_at({"namespace"}) != job.space) return Belongs::kNo;
  for (const json::Value& owner : elements(*metadata, "ownerReferences")) {
    if (!owner.bool_at({"controller"}).value_or(false)) continue;
    return owner.string_at({"uid"}) == job.uid ? Belongs::kYes : Belongs::kNo;
  }
  const bool labelled = metadata->string_at({"labels", labels::kJob}) == job_label(job.name);
  const bool leaving = !metadata->string_at({"deletionTimestamp"}).empty();
  return labelled && !leaving ? Belongs::kOrphan : Belongs::kNo;
}

Orphan orphan_of(const json::Value& object, bool service) {
  const json::Value* const owners = object.find_path({"metadata", "ownerReferences"});
  return {service, std::string(object.string_at({"metadata", "name"})),
          std::string(object.string_at({"metadata", "uid"})),
          owners == nullptr ? json::Value() : *owners};
}

void read_identity(const json::Value& object, Job& job) {
  job.space = object.string_at({"metadata", "namespace"});
  job.name = object.string_at({"metadata", "name"});
  job.uid = object.string_at({"metadata", "uid"});
  job.generation = object.int_at({"metadata", "generation"}).value_or(0);
  job.deleting = !object.string_at({"metadata", "deletionTimestamp"}).empty();
}

constexpr std::string_view kPolicyMark = "divisiPolicyApplied";

// Server-side apply: to write the field would be a conflict for the next apply.
bool holds_policy(const json::Value& manager) {
  return manager.string_at({"operation"}) == "Apply" &&
         manager.string_at({"manager"}) != kFieldManager &&
         manager.find_path({"fieldsV1", "f:spec", "f:cleanPodPolicy"}) != nullptr;
}

bool is_policy_held(const json::Value& object) {
  const json::Value* const metadata = object.find("metadata");
  if (metadata == nullptr) return false;
  return metadata->bool_at({kPolicyMark}).value_or(false) ||
         std::ranges::any_of(elements(*metadata, "managedFields"), holds_policy);
}

}  // namespace

void mark_policy(json::Value& object) {
  if (is_policy_held(object)) object["metadata"][kPolicyMark] = true;
}

void strip_service(json::Value& object) {
  object.erase("status");
  if (json::Value* const metadata = object.find("metadata")) metadata->erase("annotations");
  if (json::Value* const spec = object.find("spec")) {
    json::Value kept_spec(json::Object{});
    if (const json::Value* const selector = spec->find("selector")) {
      kept_spec["selector"] = *selector;
    }
    *spec = std::move(kept_spec);
  }
}

Observed observe(const json::Value& object, const std::vector<kube::ObjectPtr>& pods,
                 const std::vector<kube::ObjectPtr>& services,
                 const std::vector<kube::ObjectPtr>& revisions) {
  Observed seen;
  seen.object = object;
  seen.policy_is_held = is_policy_held(object);
  if (auto read = read_job(object)) {
    seen.job = *std::move(read);
  } else {
    seen.unreadable = read.error();
    read_identity(object, seen.job);
  }
  for (const kube::ObjectPtr& each : pods) {
    json::Value value = each->value();
    auto pod = read_pod(value);
    if (!pod) continue;
    const Belongs belongs = ownership(value, seen.job);
    if (belongs == Belongs::kOrphan) seen.orphans.push_back(orphan_of(value, false));
    if (belongs == Belongs::kYes) {
      seen.pods.push_back({.pod = *std::move(pod), .object = std::move(value)});
    }
  }
  for (const kube::ObjectPtr& each : services) {
    const json::Value value = each->value();
    const Belongs belongs = ownership(value, seen.job);
    if (belongs == Belongs::kOrphan) seen.orphans.push_back(orphan_of(value, true));
    if (belongs != Belongs::kYes || is_being_deleted(*each)) continue;
    const json::Value* const selector = value.find_path({"spec", "selector"});
    seen.services.push_back({.name = std::string(value.string_at({"metadata", "name"})),
                             .uid = each->uid(),
                             .selector = selector == nullptr ? json::Value() : *selector});
  }
  for (const kube::ObjectPtr& each : revisions) {
    const json::Value revision = each->value();
    if (ownership(revision, seen.job) == Belongs::kYes) {
      seen.saved.push_back(read_saved_spec(revision));
    }
  }
  std::ranges::sort(seen.saved, {}, &SavedSpec::generation);
  return seen;
}

}  // namespace divisi::dijob::first
