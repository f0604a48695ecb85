// --add, --delete and --restart: the workers of a running job, by a request to di-server.
#pragma once

#include "base/status.h"
#include "ding/options.h"
#include "http/message.h"

#include <string>

namespace divisi::ding {

// The request of the options: POST or DELETE /v1alpha1/replicas, POST /v1alpha1/replicas/failed.
// Fails when it is not known which job is meant.
Result<http::Request> replicas_request(const Options& options);

// Sends it to --server or KUBERNETES_SERVER_URL; the answer of di-server when it is a success, the
// reason otherwise.
Result<std::string> change_replicas(const Options& options);

}  // namespace divisi::ding
