#include "dijob/generation.h"

#include "dijob/first/job.h"
#include "dijob/job_status.h"
#include "dijob/names.h"

#include <fmt/format.h>

namespace divisi::dijob {

Generation generation_of(const json::Value& object) {
  const std::string_view form = form_of(object);
  const bool is_first =
      form.empty() ? first::is_first_generation(object) : form == forms::kCoordinator;
  return is_first ? Generation::kFirst : Generation::kSecond;
}

std::string created_text(Generation generation, std::string_view kind, std::string_view name) {
  return generation == Generation::kFirst
             ? fmt::format("Create {}: {}", kind, name)
             : fmt::format("{} {} was successfully created", kind, name);
}

std::string deleted_text(Generation generation, std::string_view kind, std::string_view name) {
  return generation == Generation::kFirst
             ? fmt::format("Delete {}: {}", kind, name)
             : fmt::format("{} {} was successfully deleted", kind, name);
}

std::string failed_to_create_text(Generation generation, std::string_view kind,
                                  std::string_view name, std::string_view why) {
  return fmt::format("{} to create {}: {} error: {}",
                     generation == Generation::kFirst ? "Failed" : "failed", kind, name, why);
}

std::string failed_to_delete_text(Generation generation, std::string_view kind,
                                  std::string_view name, std::string_view why) {
  return fmt::format("{} to delete {}: {} error: {}",
                     generation == Generation::kFirst ? "Failed" : "failed", kind, name, why);
}

std::string_view owned_selector(Generation generation) {
  static const std::string second = fmt::format("{}={}", labels::kOperator, labels::kOperatorValue);
  return generation == Generation::kFirst ? first::kSelector : std::string_view(second);
}

bool has_owned_labels(Generation generation, const json::Value& object) {
  const auto label = [&](std::string_view key) {
    return object.string_at({"metadata", "labels", key});
  };
  if (generation == Generation::kSecond) return label(labels::kOperator) == labels::kOperatorValue;
  return label(first::labels::kGroup) == first::labels::kGroupValue &&
         label(first::labels::kController) == first::labels::kControllerValue;
}

std::string_view job_label_key(Generation generation) {
  return generation == Generation::kFirst ? first::labels::kJob : labels::kJob;
}

std::string_view owner_api_version(Generation generation) {
  static const std::string second = dijobs().api_version();
  return generation == Generation::kFirst ? first::kApiVersion : std::string_view(second);
}

}  // namespace divisi::dijob
