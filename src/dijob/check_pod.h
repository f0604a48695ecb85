// The part of check() that looks into pod templates.
#pragma once

#include "base/status.h"
#include "dijob/job.h"

#include <string>
#include <vector>

namespace divisi::dijob {

// Containers there are, mounts have their volumes, amounts can be read.
Status check_pod_template(const Job& job, const Task& task, const std::string& path);

// Each with a name, none with that of another.
Status check_volumes(const std::vector<json::Value>& volumes, const std::string& path);

}  // namespace divisi::dijob
