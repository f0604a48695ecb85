#include "kube/resource.h"

#include "http/message.h"

namespace divisi::kube {

std::string Resource::api_version() const {
  return group.empty() ? version : group + "/" + version;
}

std::string Resource::path(std::string_view space, std::string_view name,
                           std::string_view subresource) const {
  std::string path = group.empty() ? "/api/" : "/apis/" + http::encode_component(group) + "/";
  path += http::encode_component(version);
  if (namespaced && !space.empty()) path += "/namespaces/" + http::encode_component(space);
  path += "/" + http::encode_component(plural);
  if (!name.empty()) path += "/" + http::encode_component(name);
  if (!subresource.empty()) path += "/" + http::encode_component(subresource);
  return path;
}

std::string object_key(std::string_view space, std::string_view name) {
  if (space.empty()) return std::string(name);
  std::string key;
  key.reserve(space.size() + 1 + name.size());
  key.append(space).append("/").append(name);
  return key;
}

ObjectName split_key(std::string_view key) {
  const std::size_t slash = key.find('/');
  if (slash == std::string_view::npos) return {{}, std::string(key)};
  return {std::string(key.substr(0, slash)), std::string(key.substr(slash + 1))};
}

namespace resources {
namespace {

Resource core(std::string plural, std::string kind, bool namespaced, std::string short_name) {
  return {{}, "v1", std::move(plural), std::move(kind), namespaced, {std::move(short_name)}};
}

}  // namespace

const Resource& pods() {
  static const Resource found = core("pods", "Pod", true, "po");
  return found;
}
const Resource& services() {
  static const Resource found = core("services", "Service", true, "svc");
  return found;
}
const Resource& config_maps() {
  static const Resource found = core("configmaps", "ConfigMap", true, "cm");
  return found;
}
const Resource& secrets() {
  static const Resource found{{}, "v1", "secrets", "Secret", true, {}};
  return found;
}
const Resource& namespaces() {
  static const Resource found = core("namespaces", "Namespace", false, "ns");
  return found;
}
const Resource& nodes() {
  static const Resource found = core("nodes", "Node", false, "no");
  return found;
}
const Resource& events() {
  static const Resource found = core("events", "Event", true, "ev");
  return found;
}
const Resource& leases() {
  static const Resource found{"coordination.k8s.io", "v1", "leases", "Lease", true, {}};
  return found;
}

}  // namespace resources
}  // namespace divisi::kube
