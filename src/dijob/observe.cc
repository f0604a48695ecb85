#include "dijob/observe.h"

#include "dijob/names.h"
#include "kube/resource.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace divisi::dijob {
namespace {

bool is_ours(std::string_view key) {
  return key.starts_with("diengine/") || key.starts_with("divisi/");
}

void keep_ours(json::Value* map) {
  if (map == nullptr || map->as_object() == nullptr) return;
  std::erase_if(*map->as_object(), [](const json::Member& each) { return !is_ours(each.first); });
}

// The members of that name, as far as there are any.
json::Value pick(const json::Value& from, std::initializer_list<std::string_view> names) {
  json::Value kept(json::Object{});
  for (const std::string_view name : names) {
    if (const json::Value* const member = from.find(name)) kept[name] = *member;
  }
  return kept;
}

json::Value pick_each(const json::Value& list, std::initializer_list<std::string_view> names) {
  json::Array kept;
  if (list.as_array() != nullptr) {
    for (const json::Value& each : *list.as_array()) kept.push_back(pick(each, names));
  }
  return kept;
}

}  // namespace

std::string owner_key(Generation generation, const json::Value& object) {
  return kube::object_key(object.string_at({"metadata", "namespace"}),
                          object.string_at({"metadata", "labels", job_label_key(generation)}));
}

// A label needs no escapes, and of annotations only ours are left (strip_owned, strip_pod).
std::string owner_key(Generation generation, const kube::Object& object) {
  static const std::string first_label =
      fmt::format(R"("{}":")", job_label_key(Generation::kFirst));
  static const std::string second_label =
      fmt::format(R"("{}":")", job_label_key(Generation::kSecond));
  const std::string& label = generation == Generation::kFirst ? first_label : second_label;
  const std::string& text = object.text();
  const std::size_t labels = text.find(R"("labels":{)");
  const std::size_t found = labels == std::string::npos ? labels : text.find(label, labels);
  if (found == std::string::npos) return owner_key(generation, object.value());
  const std::size_t start = found + label.size();
  return kube::object_key(kube::split_key(object.key()).space,
                          std::string_view(text).substr(start, text.find('"', start) - start));
}

bool is_being_deleted(const kube::Object& object) {
  return object.text().find(R"("deletionTimestamp":)") != std::string::npos;
}

void strip_owned(json::Value& object) {
  if (json::Value* const metadata = object.find("metadata")) {
    keep_ours(metadata->find("labels"));
    keep_ours(metadata->find("annotations"));
  }
  if (json::Value* const spec = object.find("spec")) {
    json::Value kept = pick(*spec, {"nodeName", "selector"});  // the latter of services
    if (const json::Value* const containers = spec->find("containers")) {
      kept["containers"] = pick_each(*containers, {"name", "ports"});
    }
    *spec = std::move(kept);
  }
  if (json::Value* const status = object.find("status")) {
    json::Value kept = pick(*status, {"phase", "reason", "podIP", "startTime"});
    if (status->find("conditions") != nullptr) kept["conditions"] = slim_conditions(*status);
    if (const json::Value* const containers = status->find("containerStatuses")) {
      kept["containerStatuses"] = pick_each(*containers, {"name", "ready", "state"});
    }
    *status = std::move(kept);
  }
}

SavedSpec read_saved_spec(const json::Value& revision) {
  SavedSpec saved;
  saved.name = revision.string_at({"metadata", "name"});
  saved.generation = revision.int_at({"revision"}).value_or(0);
  if (const json::Value* const spec = revision.find_path({"data", "spec"})) saved.spec = *spec;
  return saved;
}

Observed observe(const json::Value& object, const std::vector<kube::ObjectPtr>& pods,
                 const std::vector<kube::ObjectPtr>& services,
                 const std::vector<kube::ObjectPtr>& revisions) {
  Observed seen;
  seen.object = object;
  if (auto read = read_job(object)) {
    seen.job = *std::move(read);
  } else {
    seen.unreadable = read.error();
    seen.job.space = object.string_at({"metadata", "namespace"});
    seen.job.name = object.string_at({"metadata", "name"});
    seen.job.uid = object.string_at({"metadata", "uid"});
    seen.job.deleting = !object.string_at({"metadata", "deletionTimestamp"}).empty();
  }
  // Its pods are of the form that the job began with, whatever an edit says.
  Job job = seen.job;
  const std::string_view form = form_of(object);
  if (!form.empty()) job.form = form == forms::kTemplate ? Form::kTemplate : Form::kTasks;
  const auto orphan = [&](const json::Value& each, bool service) {
    if (!is_orphan_of(each, job)) return;
    if (!each.string_at({"metadata", "deletionTimestamp"}).empty()) return;
    const json::Value* const owners = each.find_path({"metadata", "ownerReferences"});
    seen.orphans.push_back({service, std::string(each.string_at({"metadata", "name"})),
                            std::string(each.string_at({"metadata", "uid"})),
                            owners == nullptr ? json::Value() : *owners});
  };
  for (const kube::ObjectPtr& each : pods) {
    const json::Value pod = each->value();
    if (belongs_to(pod, job)) {
      seen.pods.push_back(read_pod(pod, job));
    } else {
      orphan(pod, false);
    }
  }
  for (const kube::ObjectPtr& each : services) {
    const json::Value service = each->value();
    if (!belongs_to(service, job)) {
      orphan(service, true);
    } else if (!is_being_deleted(*each)) {
      seen.services.emplace_back(service.string_at({"metadata", "name"}));
      const json::Value* const selector = service.find_path({"spec", "selector"});
      seen.selectors[seen.services.back()] = selector == nullptr ? json::Value() : *selector;
    }
  }
  for (const kube::ObjectPtr& each : revisions) {
    const json::Value revision = each->value();
    if (belongs_to(revision, job)) seen.saved.push_back(read_saved_spec(revision));
  }
  std::ranges::sort(seen.saved, {}, &SavedSpec::generation);
  return seen;
}

// "<job>-<task>-<index>" is read in two ways only if the name of one job begins with that of the
// other and a dash.
std::vector<std::string> possible_collisions(const Job& job) {
  std::vector<std::string> keys;
  const auto cut = [&](const std::string& before, const std::string& text, bool whole) {
    for (std::size_t dash = text.find('-'); dash != std::string::npos;
         dash = text.find('-', dash + 1)) {
      keys.push_back(kube::object_key(job.space, (whole ? "" : before) + text.substr(0, dash)));
    }
  };
  cut("", job.name, true);
  for (const Task& task : job.tasks) cut(job.name + "-", task.name, false);
  return keys;
}

bool collide(const Job& a, const Job& b) {
  const Job& shorter = a.name.size() < b.name.size() ? a : b;
  const Job& longer = a.name.size() < b.name.size() ? b : a;
  if (!longer.name.starts_with(shorter.name + "-")) return false;
  const std::string rest = longer.name.substr(shorter.name.size() + 1) + "-";
  return std::ranges::any_of(shorter.tasks, [&](const Task& task) {
    if (!task.name.starts_with(rest)) return false;
    const std::string_view middle = std::string_view(task.name).substr(rest.size());
    if (longer.form == Form::kTasks) return longer.find_task(middle) != nullptr;
    return !middle.empty() && middle.find_first_not_of("0123456789") == std::string_view::npos;
  });
}

std::string older_collision(const Job& job, const kube::Informer& jobs) {
  for (const std::string& key : possible_collisions(job)) {
    const kube::ObjectPtr found = jobs.find(key);
    if (!found || found->uid() == job.uid) continue;
    const json::Value other = found->value();
    const std::string_view phase = phase_of(other);
    if (phase == "Succeeded" || phase == "Failed") continue;
    const auto read = read_job(other);
    if (!read || !collide(job, *read)) continue;
    if (std::pair(read->created, read->uid) < std::pair(job.created, job.uid)) return read->name;
  }
  return {};
}

}  // namespace divisi::dijob
