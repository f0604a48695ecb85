#include "kube/memory/verbs.h"

#include "json/patch.h"
#include "json/selector.h"
#include "json/strategic.h"
#include "kube/resource.h"
#include "kube/time.h"

#include <algorithm>
#include <charconv>
#include <utility>
#include <vector>

namespace divisi::kube {
namespace {

// As the real server does with the lists of a merge patch: null members of their objects go.
void drop_nulls_in_lists(json::Value& value, bool in_list) {
  if (json::Array* const list = value.as_array()) {
    for (json::Value& element : *list) drop_nulls_in_lists(element, true);
  }
  json::Object* const members = value.as_object();
  if (members == nullptr) return;
  if (in_list) std::erase_if(*members, [](const auto& each) { return each.second.is_null(); });
  for (auto& each : *members) drop_nulls_in_lists(each.second, in_list);
}

constexpr std::string_view kPods = "/api/v1/pods";
constexpr std::int64_t kDefaultGrace = 30;  // seconds, of a pod that says nothing

std::uint64_t version_number(std::string_view text) {
  std::uint64_t value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

void take_member(json::Value& object, std::string_view key, const json::Value& from) {
  if (const json::Value* value = from.find(key)) {
    object[key] = *value;
  } else {
    object.erase(key);
  }
}

bool same_member(const json::Value& a, const json::Value& b, std::string_view key) {
  const json::Value* in_a = a.find(key);
  const json::Value* in_b = b.find(key);
  if (in_a == nullptr || in_b == nullptr) return in_a == in_b;
  return json::equivalent(*in_a, *in_b);
}

// Seconds until the kubelet must be done with it; 0: it has nothing to do.
std::int64_t grace_of(const json::Value& pod, std::optional<std::int64_t> asked) {
  const std::string_view phase = pod.string_at({"status", "phase"});
  if (pod.string_at({"spec", "nodeName"}).empty()) return 0;
  if (phase == "Succeeded" || phase == "Failed") return 0;
  if (asked) return std::max<std::int64_t>(*asked, 0);
  return pod.int_at({"spec", "terminationGracePeriodSeconds"}).value_or(kDefaultGrace);
}

}  // namespace

bool selected(const std::string& selector, const json::Value& object) {
  if (selector.empty()) return true;
  const auto parsed = json::LabelSelector::parse(selector);
  const json::Value* labels = object.find_path({"metadata", "labels"});
  return parsed && parsed->matches(labels == nullptr ? json::Value() : *labels);
}

http::Response json_answer(int status, const json::Value& value) {
  return {status, {{"Content-Type", "application/json"}}, json::print(value)};
}

http::Response status_answer(int code, const std::string& reason, const std::string& message) {
  json::Value status;
  status["kind"] = "Status";
  status["apiVersion"] = "v1";
  status["status"] = "Failure";
  status["message"] = message;
  status["reason"] = reason;
  status["code"] = code;
  return json_answer(code, status);
}

http::Response MemoryVerbs::answer(const http::Request& request, const ApiPath& path) {
  const bool reads = request.method == "GET";
  if (reads && path.name.empty()) return list(path);
  Result<json::Value> body = json::Value();
  if (!reads) body = json::parse(request.body);
  if (!body) return status_answer(400, "BadRequest", body.error().message());
  if (request.method == "POST") return create(path, *std::move(body));
  const json::Value* found = store_.find(path.collection, path.key());
  if (found == nullptr) return status_answer(404, "NotFound", path.key() + " not found");
  if (reads) return json_answer(200, *found);
  if (request.method == "DELETE") return delete_one(path, *body, *found);
  return change(request, path, *body, *found);
}

http::Response MemoryVerbs::list(const ApiPath& path) {
  json::Array items;
  const std::string after = path.get("continue");
  const std::uint64_t limit = path.number("limit");
  // A token is "version:key"; the pages of one list are of one moment only as long as nothing is
  // compacted, which is as much as the readers may rely on.
  const std::size_t colon = after.find(':');
  if (!after.empty() && version_number(after.substr(0, colon)) < store_.compacted()) {
    return status_answer(410, "Expired", "the continue token is too old");
  }
  std::string last;
  bool more = false;
  for (const auto& [key, object] : store_.all(path.collection)) {
    if (!after.empty() && key <= after.substr(colon + 1)) continue;
    if (!path.space.empty() && split_key(key).space != path.space) continue;
    if (!selected(path.get("labelSelector"), object)) continue;
    if (limit > 0 && items.size() == limit) {
      more = true;
      break;
    }
    items.push_back(object);
    last = key;
  }
  const std::string version =
      after.empty() ? std::to_string(store_.version()) : after.substr(0, colon);
  json::Value answer;
  answer["kind"] = "List";
  answer["metadata"]["resourceVersion"] = version;
  if (more) answer["metadata"]["continue"] = version + ":" + last;
  answer["items"] = std::move(items);
  return json_answer(200, answer);
}

// Nothing when the object is patched. As the real server: custom resources take no strategic patch.
std::optional<http::Response> MemoryVerbs::patch(json::Value& object, std::string_view type,
                                                 const json::Value& body) {
  const std::string version(object.string_at({"apiVersion"}));
  const std::string kind(object.string_at({"kind"}));
  Status applied;
  if (type == "application/json-patch+json") {
    applied = json::apply_json_patch(object, body);
  } else if (type == "application/strategic-merge-patch+json" &&
             json::has_strategic_schema({version, kind})) {
    applied = json::apply_strategic_patch(object, {version, kind}, body);
  } else if (type == "application/merge-patch+json" || type == "application/apply-patch+yaml" ||
             type.empty()) {  // a test that asks without a client
    json::Value changes = body;
    if (type == "application/merge-patch+json") drop_nulls_in_lists(changes, false);
    json::apply_merge_patch(object, changes);
  } else {
    return status_answer(415, "UnsupportedMediaType",
                         "the body of the request was in an unknown format");
  }
  if (applied.ok()) return std::nullopt;
  return status_answer(422, "Invalid", applied.message());
}

http::Response MemoryVerbs::create(const ApiPath& path, json::Value object) {
  if (object.string_at({"metadata", "namespace"}).empty() && !path.space.empty()) {
    object["metadata"]["namespace"] = path.space;
  }
  const std::string key = object_key(path.space, object.string_at({"metadata", "name"}));
  if (store_.find(path.collection, key) != nullptr) {
    return status_answer(409, "AlreadyExists", key + " already exists");
  }
  if (with_status.contains(path.collection)) {
    object.erase("status");
    object["metadata"]["generation"] = 1;
  }
  if (path.collection == kPods) object["status"]["phase"] = "Pending";
  return json_answer(201,
                     store_.create(path.collection, key, std::move(object), rfc3339(clock_())));
}

http::Response MemoryVerbs::change(const http::Request& request, const ApiPath& path,
                                   const json::Value& body, const json::Value& before) {
  json::Value object = before;
  if (request.method != "PATCH") {
    object = body;
  } else if (auto refused = patch(object, request.headers.get("Content-Type"), body)) {
    return *std::move(refused);
  }
  const std::string_view version = object.string_at({"metadata", "resourceVersion"});
  if (!version.empty() && version != before.string_at({"metadata", "resourceVersion"})) {
    return status_answer(409, "Conflict", "the object has been modified");
  }
  if (with_status.contains(path.collection)) {
    if (path.subresource == "status") {
      json::Value kept = before;
      take_member(kept, "status", object);
      object = std::move(kept);
    } else {
      take_member(object, "status", before);
      const std::int64_t generation = before.int_at({"metadata", "generation"}).value_or(1);
      object["metadata"]["generation"] = generation + (same_member(object, before, "spec") ? 0 : 1);
    }
  }
  // What no writer may change.
  for (const char* fixed : {"resourceVersion", "uid", "creationTimestamp", "deletionTimestamp"}) {
    take_member(object["metadata"], fixed, *before.find("metadata"));
  }
  if (json::equivalent(object, before)) return json_answer(200, before);
  return json_answer(200, store_.update(path.collection, path.key(), std::move(object)));
}

http::Response MemoryVerbs::delete_one(const ApiPath& path, const json::Value& options,
                                       const json::Value& before) {
  for (const char* field : {"uid", "resourceVersion"}) {
    const std::string_view wanted = options.string_at({"preconditions", field});
    if (wanted.empty() || wanted == before.string_at({"metadata", field})) continue;
    return status_answer(409, "Conflict",
                         std::string("the ") + field + " in the precondition does not match");
  }
  return json_answer(200,
                     remove(path.collection, path.key(), options.int_at({"gracePeriodSeconds"})));
}

json::Value MemoryVerbs::remove(const std::string& collection, const std::string& key,
                                std::optional<std::int64_t> grace) {
  const json::Value& before = *store_.find(collection, key);
  const std::int64_t seconds = collection == kPods ? grace_of(before, grace) : 0;
  if (seconds == 0) return store_.remove(collection, key);
  const std::string until = rfc3339(clock_() + std::chrono::seconds(seconds));
  const std::string_view present = before.string_at({"metadata", "deletionTimestamp"});
  // Texts of one form in one time zone: as text they compare as the times do. A second delete can
  // only bring the end nearer.
  if (!present.empty() && present <= until) return before;
  json::Value object = before;
  object["metadata"]["deletionTimestamp"] = until;
  object["metadata"]["deletionGracePeriodSeconds"] = seconds;
  return store_.update(collection, key, std::move(object));
}

bool MemoryVerbs::orphaned(const json::Value& object) const {
  const json::Value* owners = object.find_path({"metadata", "ownerReferences"});
  const json::Array* list = owners == nullptr ? nullptr : owners->as_array();
  if (list == nullptr || list->empty()) return false;
  if (object.find_path({"metadata", "deletionTimestamp"}) != nullptr) return false;
  return std::ranges::none_of(
      *list, [&](const json::Value& owner) { return store_.has_uid(owner.string_at({"uid"})); });
}

bool MemoryVerbs::has_orphans() const {
  return std::ranges::any_of(store_.collections(), [&](const auto& collection) {
    return std::ranges::any_of(collection.second,
                               [&](const auto& entry) { return orphaned(entry.second); });
  });
}

void MemoryVerbs::collect_garbage() {
  std::vector<std::pair<std::string, std::string>> found;
  for (const auto& [collection, objects] : store_.collections()) {
    for (const auto& [key, object] : objects) {
      if (orphaned(object)) found.emplace_back(collection, key);
    }
  }
  for (const auto& [collection, key] : found) remove(collection, key);
}

}  // namespace divisi::kube
