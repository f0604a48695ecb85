// Jobs of a Kubernetes cluster: a DIJob of the operator (dijob), or a headless Service with Indexed
// Jobs (job). docs/cli.md says what is made and who owns it.
#pragma once

#include "run/backend.h"

#include <memory>

namespace divisi::run {

// `kind`: kDijob or kJob.
std::unique_ptr<Backend> make_cluster_backend(BackendKind kind, const RunOptions& options);

}  // namespace divisi::run
