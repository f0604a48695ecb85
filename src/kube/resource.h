// Resource: which collection of a Kubernetes API is meant, and its paths.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace divisi::kube {

struct Resource {
  std::string group{};  // "" is the core group
  std::string version{};
  std::string plural{};  // "pods"
  std::string kind{};    // "Pod"
  bool namespaced = true;
  std::vector<std::string> short_names{};

  std::string api_version() const;  // "v1", "batch/v1"

  // "/api/v1/namespaces/a/pods/b/log"; an empty space means all of them, an empty name the
  // collection. Every part is percent-encoded.
  std::string path(std::string_view space, std::string_view name = {},
                   std::string_view subresource = {}) const;

  friend bool operator==(const Resource&, const Resource&) = default;
};

// "space/name", or "name" of what has no name space: how objects are keyed in caches and queues.
std::string object_key(std::string_view space, std::string_view name);
struct ObjectName {
  std::string space{};
  std::string name{};
};
ObjectName split_key(std::string_view key);

// The kinds that this library itself and every controller need. Others come from discovery.
namespace resources {
const Resource& pods();
const Resource& services();
const Resource& config_maps();
const Resource& secrets();
const Resource& namespaces();
const Resource& nodes();
const Resource& events();
const Resource& leases();
}  // namespace resources

}  // namespace divisi::kube
