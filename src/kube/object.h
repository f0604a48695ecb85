// Object: one object of the API as a cache keeps it.
#pragma once

#include "json/value.h"

#include <memory>
#include <string>
#include <string_view>

namespace divisi::kube {

// Immutable, shared by the cache and whoever looks at it. It keeps the JSON text, which takes a
// fraction of the memory of a tree of values, and makes the values when they are asked for: some
// microseconds for a pod.
class Object {
 public:
  explicit Object(const json::Value& value);

  const std::string& key() const noexcept { return key_; }  // "space/name"
  const std::string& uid() const noexcept { return uid_; }
  const std::string& resource_version() const noexcept { return resource_version_; }
  const std::string& text() const noexcept { return text_; }
  json::Value value() const;

 private:
  std::string key_;
  std::string uid_;
  std::string resource_version_;
  std::string text_;
};

using ObjectPtr = std::shared_ptr<const Object>;

}  // namespace divisi::kube
