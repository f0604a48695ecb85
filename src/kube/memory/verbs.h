// MemoryVerbs: what requests do to a MemoryStore: get, list, create, update, patch and delete, by
// the rules of the real server.
//
// Of resources that have the subresource `status`, a write of it changes nothing else and every
// other write leaves it alone. A write that carries an old resourceVersion is refused. A pod that
// runs somewhere is deleted by its kubelet: until then it carries deletionTimestamp.
#pragma once

#include "http/message.h"
#include "json/value.h"
#include "kube/memory/path.h"
#include "kube/memory/store.h"

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>

namespace divisi::kube {

class MemoryVerbs {
 public:
  using Clock = std::function<std::chrono::system_clock::time_point()>;
  MemoryVerbs(MemoryStore& store, Clock clock) : store_(store), clock_(std::move(clock)) {}

  http::Response answer(const http::Request& request, const ApiPath& path);

  // As a delete without preconditions does it; `grace` in place of the pod's own.
  json::Value remove(const std::string& collection, const std::string& key,
                     std::optional<std::int64_t> grace = {});
  // Whether one of the objects is owned by none that still exists.
  bool has_orphans() const;
  // Deletes those.
  void collect_garbage();

  std::set<std::string> with_status{"/api/v1/pods", "/api/v1/nodes",
                                    "/apis/diengine.opendilab.org/v2alpha1/dijobs"};

 private:
  http::Response list(const ApiPath& path);
  http::Response create(const ApiPath& path, json::Value object);
  static std::optional<http::Response> patch(json::Value& object, std::string_view type,
                                             const json::Value& body);
  http::Response change(const http::Request& request, const ApiPath& path, const json::Value& body,
                        const json::Value& before);
  http::Response delete_one(const ApiPath& path, const json::Value& options,
                            const json::Value& before);
  bool orphaned(const json::Value& object) const;

  MemoryStore& store_;
  const Clock clock_;
};

// Whether the labels of `object` match; everything does the empty selector.
bool selected(const std::string& selector, const json::Value& object);

http::Response json_answer(int status, const json::Value& value);
// "{"kind":"Status",...}" of that number.
http::Response status_answer(int code, const std::string& reason, const std::string& message);

}  // namespace divisi::kube
