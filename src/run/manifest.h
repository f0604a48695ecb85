// `divisi run job.yaml --backend dijob`: the DIJob of a file, with the ConfigMaps and Secrets that
// stand beside it.
#pragma once

#include "base/status.h"
#include "run/job.h"

#include <string_view>

namespace divisi::run {

// The job of options.manifest, whose name (and --name) it takes. kInvalid with one line for a file
// that has no DIJob, several, other objects, or a job of the first generation.
Result<RunJob> plan_manifest(const RunOptions& options);

// The same of its text; `file` names it in errors.
Result<RunJob> plan_manifest_text(const RunOptions& options, std::string_view text,
                                  const std::string& file);

}  // namespace divisi::run
