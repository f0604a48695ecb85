// Edits of a DIJob object, as its owner makes them: another size, suspended or not. Pure.
//
//   DIVISI_TRY(json::Value job, with_size(object, "work", 3));    // to be written in its place
#pragma once

#include "base/status.h"
#include "json/value.h"

#include <string_view>

namespace divisi::run {

// `task` empty: the collector task, else the only one, or the workers of a job with one template.
// kInvalid when there is no such task (with the nearest name), or several and none is said. Whether
// a job of that size can run is the operator's to say.
Result<json::Value> with_size(json::Value job, std::string_view task, int replicas);
Result<json::Value> with_suspend(json::Value job, bool suspended);

}  // namespace divisi::run
