#include "dijob/check_pod.h"

#include "dijob/amounts.h"
#include "dijob/fields.h"
#include "dijob/names.h"
#include "dijob/pod_template.h"

#include <cstdint>
#include <set>

namespace divisi::dijob {
namespace {

using Names = std::set<std::string_view>;

// A client of the reference looks for exactly this text.
constexpr std::string_view kQuantityRule =
    "quantities must match the regular expression "
    "'^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";

template <class... Args>
Status bad(fmt::format_string<Args...> text, Args&&... args) {
  return make_status(Code::kInvalid, text, std::forward<Args>(args)...);
}

Status check_amounts(const json::Value& container, std::string_view map, const std::string& path) {
  const json::Value* amounts = container.find_path({"resources", map});
  if (amounts == nullptr || amounts->as_object() == nullptr) return {};
  for (const auto& [resource, value] : *amounts->as_object()) {
    const Result<json::Quantity> amount = read_amount(value);
    if (!amount) {
      const std::string* text = value.as_string();
      return bad("{}.resources.{}.{} is {}: {}", path, map, resource,
                 quoted(text == nullptr ? json::print(value) : *text), kQuantityRule);
    }
    if (amount->sign() < 0)
      return bad("{}.resources.{}.{} must not be negative", path, map, resource);
  }
  return {};
}

Status check_container(const json::Value& container, const Names& volumes,
                       const std::string& path) {
  for (const json::Value& mount : elements(container, "volumeMounts")) {
    const std::string_view name = mount.string_at({"name"});
    if (!volumes.contains(name)) {
      return bad("{}.volumeMounts names the volume {}, which the pod does not have", path,
                 quoted(name));
    }
  }
  DIVISI_TRY_STATUS(check_amounts(container, "requests", path));
  return check_amounts(container, "limits", path);
}

void add_names(const std::vector<json::Value>& named, Names& names) {
  for (const json::Value& value : named) names.insert(value.string_at({"name"}));
}

}  // namespace

Status check_volumes(const std::vector<json::Value>& volumes, const std::string& path) {
  Names names;
  for (const json::Value& volume : volumes) {
    const std::string_view name = volume.string_at({"name"});
    if (name.empty()) return bad("{} has a volume without a name", path);
    if (!names.insert(name).second)
      return bad("{} has more than one volume named {}", path, quoted(name));
  }
  return {};
}

Status check_pod_template(const Job& job, const Task& task, const std::string& path) {
  static const json::Value none{};
  const json::Value* found = task.pod_template.find("spec");
  const json::Value& spec = found == nullptr ? none : *found;
  if (elements(spec, "containers").empty()) return bad("{}.spec has no containers", path);

  // A volume of the same name in the template and in the job is the template's.
  DIVISI_TRY_STATUS(check_volumes(elements(spec, "volumes"), path + ".spec.volumes"));
  Names volumes{kSecretVolume};
  add_names(elements(spec, "volumes"), volumes);
  add_names(job.volumes, volumes);
  for (const std::string_view list : kContainerLists) {
    std::size_t index = 0;
    for (const json::Value& container : elements(spec, list)) {
      DIVISI_TRY_STATUS(
          check_container(container, volumes, fmt::format("{}.spec.{}[{}]", path, list, index)));
      ++index;
    }
  }
  return {};
}

}  // namespace divisi::dijob
