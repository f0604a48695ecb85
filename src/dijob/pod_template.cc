#include "dijob/pod_template.h"

#include <fmt/format.h>

namespace divisi::dijob {
namespace {

bool is_empty(const json::Value* value) {
  if (value == nullptr || value->is_null()) return true;
  const json::Object* members = value->as_object();
  return members != nullptr && members->empty();
}

// Everything that is no field of a template moves into its spec: whoever wrote `containers` one
// level too high wrote their volumes and node selector there as well.
void lift_spec(json::Value& pod_template) {
  json::Object kept;
  json::Object spec;
  for (auto& [key, value] : *pod_template.as_object()) {
    if (key == "spec") continue;
    const bool of_template = key == "metadata" || key == "apiVersion" || key == "kind";
    (of_template ? kept : spec).emplace_back(key, std::move(value));
  }
  kept.emplace_back("spec", std::move(spec));
  pod_template = std::move(kept);
}

void require_named(Fields owner, std::string_view list) {
  for (Fields& named : owner.objects(list)) (void)named.text("name");
}

void require_container(Fields& container) {
  (void)container.text("name");
  require_named(container, "env");
  require_named(container, "ports");
  for (Fields& mount : container.objects("volumeMounts")) {
    (void)mount.text("name");
    (void)mount.text("mountPath");
  }
  Fields resources = container.object("resources");
  (void)resources.object("requests");
  (void)resources.object("limits");
}

void require_shape(Fields pod_template) {
  Fields metadata = pod_template.object("metadata");
  metadata.require_text_map("labels");
  metadata.require_text_map("annotations");
  Fields spec = pod_template.object("spec");
  require_named(spec, "volumes");
  for (const std::string_view list : kContainerLists) {
    for (Fields& container : spec.objects(list)) require_container(container);
  }
}

}  // namespace

const json::Array& elements(const json::Value& object, std::string_view key) noexcept {
  static const json::Array none;
  const json::Value* value = object.find(key);
  const json::Array* array = value == nullptr ? nullptr : value->as_array();
  return array == nullptr ? none : *array;
}

json::Value read_pod_template(Fields& owner, std::vector<std::string>& warnings) {
  const json::Value* given = owner.find("template");
  (void)owner.object("template");  // says so when it is none
  if (given == nullptr || given->as_object() == nullptr) return json::Object{};

  json::Value result = *given;
  if (!is_empty(result.find("containers")) && is_empty(result.find("spec"))) {
    lift_spec(result);
    warnings.push_back(
        fmt::format("{0}.containers is understood as {0}.spec.containers, where it belongs",
                    owner.at("template")));
  }
  require_shape(owner.object("template", result));
  return result;
}

}  // namespace divisi::dijob
