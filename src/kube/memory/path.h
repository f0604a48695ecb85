// ApiPath: what the target of a request means.
#pragma once

#include <map>
#include <optional>
#include <string>

namespace divisi::kube {

// "/api/v1/namespaces/a/pods/b/status?x=y" is {"/api/v1/pods", "a", "b", "status", {x: y}}.
struct ApiPath {
  std::string collection{};  // without the name space
  std::string space{};
  std::string name{};
  std::string subresource{};
  std::map<std::string, std::string> query{};

  static std::optional<ApiPath> parse(const std::string& target);

  std::string key() const;                                   // "space/name"
  std::string get(const std::string& parameter) const;       // "" when it was not given
  std::uint64_t number(const std::string& parameter) const;  // 0 when it was not given
};

}  // namespace divisi::kube
