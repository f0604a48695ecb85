// divisi kube exec: a command in a container, with our standard streams.
#pragma once

#include "base/status.h"
#include "kube/session.h"
#include "kube/streams.h"

#include <string>

namespace divisi::apps {

// Blocks until the command has ended: its exit code.
Result<int> exec_in_pod(kube::Session& session, const std::string& pod,
                        const kube::ExecOptions& options);

}  // namespace divisi::apps
