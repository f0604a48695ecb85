#include "dijob/misspelt.h"

#include "dijob/fields.h"
#include "dijob/pod_template.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <optional>
#include <span>
#include <string_view>

namespace divisi::dijob {
namespace {

constexpr std::string_view kOfSpec[] = {"activeDeadlineSeconds",
                                        "backoffLimit",
                                        "cleanPodPolicy",
                                        "collector",
                                        "coordinator",
                                        "engineFields",
                                        "exitCodeRules",
                                        "group",
                                        "learner",
                                        "maxReplicas",
                                        "minReplicas",
                                        "preemptible",
                                        "priority",
                                        "priorityClassName",
                                        "replicas",
                                        "suspend",
                                        "tasks",
                                        "template",
                                        "ttlSecondsAfterFinished",
                                        "volumes"};
constexpr std::string_view kOfTask[] = {
    "backoffLimit", "completesJob",  "exitCodeRules", "minAvailable", "name",
    "replicas",     "restartPolicy", "startAfter",    "template",     "type"};
constexpr std::size_t kLongestField = 40;  // what is longer is nobody's slip

// Letters that must be inserted, removed or changed; capitals are small letters.
std::size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  const auto lower = [](char c) { return std::tolower(static_cast<unsigned char>(c)); };
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t changed = diagonal + (lower(a[i - 1]) == lower(b[j - 1]) ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({changed, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row[b.size()];
}

std::optional<std::string_view> meant(std::string_view field,
                                      std::span<const std::string_view> known) {
  if (field.size() > kLongestField || std::ranges::find(known, field) != known.end()) {
    return std::nullopt;
  }
  for (const std::string_view each : known) {
    // Of a short word one letter is much.
    const std::size_t most = each.size() < 6 ? 1 : 2;
    if (distance(field, each) <= most) return each;
  }
  return std::nullopt;
}

void look_through(const json::Value& object, const std::string& path,
                  std::span<const std::string_view> known, std::vector<std::string>& found) {
  if (object.as_object() == nullptr) return;
  for (const auto& [field, value] : *object.as_object()) {
    if (const auto word = meant(field, known)) {
      found.push_back(
          fmt::format("{}.{} is not known and has no effect: is {} meant?", path, field, *word));
    }
  }
}

}  // namespace

std::vector<std::string> misspelt_fields(const json::Value& object) {
  std::vector<std::string> found;
  const json::Value* const spec = object.find("spec");
  if (spec == nullptr) return found;
  look_through(*spec, "spec", kOfSpec, found);
  const json::Array& tasks = elements(*spec, "tasks");
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    look_through(tasks[i], fmt::format("spec.tasks[{}]", i), kOfTask, found);
  }
  return found;
}

}  // namespace divisi::dijob
