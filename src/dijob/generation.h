// What differs between the two generations of DIJobs where their controllers share code.
#pragma once

#include "base/status.h"
#include "json/value.h"

#include <string>
#include <string_view>

namespace divisi::dijob {

// The first is v1alpha1: a coordinator, and workers that di-server makes. The second has tasks or a
// template.
enum class Generation { kFirst, kSecond };

// By the form it began with; of one without a status by its shape.
Generation generation_of(const json::Value& object);

// The texts of events about one pod or service; `kind` is "pod" or "service".
std::string created_text(Generation generation, std::string_view kind, std::string_view name);
std::string deleted_text(Generation generation, std::string_view kind, std::string_view name);
std::string failed_to_create_text(Generation generation, std::string_view kind,
                                  std::string_view name, std::string_view why);
std::string failed_to_delete_text(Generation generation, std::string_view kind,
                                  std::string_view name, std::string_view why);

// The labels by which the operator finds what belongs to jobs of that generation, as a selector.
std::string_view owned_selector(Generation generation);
// Whether an object has them.
bool has_owned_labels(Generation generation, const json::Value& object);
// The label whose value is the name of the job.
std::string_view job_label_key(Generation generation);
// Of owner references.
std::string_view owner_api_version(Generation generation);

}  // namespace divisi::dijob
