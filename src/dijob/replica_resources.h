// How much one replica is reckoned to need when its place is looked for.
#pragma once

#include "dijob/amounts.h"
#include "dijob/job.h"

#include <string_view>

namespace divisi::dijob {

// The value of DI_JOB_DEFAULT_RESOURCES: {"resources": {"requests": {...}, "limits": {...}}}, of
// which requests count, then limits. Empty text: one cpu and 2Gi of memory. kInvalid for text that
// is none of that; the message names the variable.
Result<Amounts> read_default_resources(std::string_view text);

// The requests of a pod of this task, where the main container asks for the defaults of whatever
// it does not mention. Nothing is written into the pod.
Amounts replica_resources(const Task& task, const Amounts& defaults);

}  // namespace divisi::dijob
