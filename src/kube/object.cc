#include "kube/object.h"

#include "base/status.h"
#include "kube/resource.h"

namespace divisi::kube {

Object::Object(const json::Value& value)
    : key_(object_key(value.string_at({"metadata", "namespace"}),
                      value.string_at({"metadata", "name"}))),
      uid_(value.string_at({"metadata", "uid"})),
      resource_version_(value.string_at({"metadata", "resourceVersion"})),
      text_(json::print(value)) {
  text_.shrink_to_fit();
}

json::Value Object::value() const {
  auto value = json::parse(text_, {.max_bytes = text_.size()});
  DIVISI_CHECK(value.has_value(), "what was printed can be parsed");
  return *std::move(value);
}

}  // namespace divisi::kube
