#include "dijob/replica_resources.h"

#include "dijob/pod.h"
#include "dijob/pod_template.h"

#include <utility>

namespace divisi::dijob {
namespace {

constexpr std::string_view kVariable = "DI_JOB_DEFAULT_RESOURCES";

Status add_amounts(const json::Value& resources, std::string_view map, Amounts& to) {
  const json::Value* amounts = resources.find(map);
  if (amounts == nullptr || amounts->is_null()) return {};
  if (amounts->as_object() == nullptr) {
    return make_status(Code::kInvalid, "{}: resources.{} must be an object", kVariable, map);
  }
  for (const auto& [name, value] : *amounts->as_object()) {
    const Result<json::Quantity> amount = read_amount(value);
    if (!amount || amount->sign() < 0) {
      return make_status(Code::kInvalid, "{}: resources.{}.{} is no amount", kVariable, map, name);
    }
    to.emplace(name, *amount);  // a request that is there already wins over the limit
  }
  return {};
}

}  // namespace

Result<Amounts> read_default_resources(std::string_view text) {
  if (text.find_first_not_of(" \t\r\n") == std::string_view::npos) {
    const json::Quantity memory(std::int64_t{2} << 30, json::Quantity::Format::kBinarySi);
    return Amounts{{"cpu", json::Quantity(1)}, {"memory", memory}};
  }
  const Result<json::Value> value = json::parse(text);
  if (!value) return failure(value.error().with_context(kVariable));
  const json::Value* resources = value->find("resources");
  if (resources == nullptr || resources->as_object() == nullptr) {
    return failure(Code::kInvalid, "{} has no object named resources", kVariable);
  }
  Amounts amounts;
  for (const std::string_view map : {"requests", "limits"}) {
    if (const Status bad = add_amounts(*resources, map, amounts); !bad.ok()) return failure(bad);
  }
  return amounts;
}

Amounts replica_resources(const Task& task, const Amounts& defaults) {
  const json::Value* given = task.pod_template.find("spec");
  if (given == nullptr) return defaults;
  json::Value spec = *given;
  const json::Value* main = main_container(spec, task);
  if (main == nullptr) return defaults;
  Amounts needs = container_requests(*main);
  needs.merge(Amounts(defaults));

  // The same pod, whose main container says all that.
  const std::string name(main->string_at({"name"}));
  json::Object requests;
  for (const auto& [resource, amount] : needs) requests.emplace_back(resource, amount.to_string());
  for (json::Value& container : *spec.find("containers")->as_array()) {
    if (container.string_at({"name"}) != name) continue;
    container["resources"] = json::Object{{"requests", std::move(requests)}};
    break;
  }
  return pod_requests(spec);
}

}  // namespace divisi::dijob
