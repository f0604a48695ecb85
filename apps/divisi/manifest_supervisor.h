// The process that looks after a DIJob of this machine (run/manifest_backend.h): the cluster of
// src/local, the job's record and log, and its API on a Unix socket.
#pragma once

#include <string>
#include <vector>

namespace divisi::apps {

int manifest_supervisor_main(const std::vector<std::string>& arguments);

}  // namespace divisi::apps
