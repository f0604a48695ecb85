// `divisi ssh-host DITASK`: what `divisi run --backend ssh` starts on a host (the frames are in
// frames.h). Keeps packages, starts a worker, sends its output and its end.
//
// The worker ends with the connection: when standard input ends, or nothing has come for a minute,
// it is asked to end, and killed after its grace. Nothing of it stays; it runs below divisi-trial,
// which ends it when this process is killed.
#pragma once

#include "json/value.h"

#include <string>
#include <vector>

namespace divisi::run {

inline constexpr const char* kSshHostCommand = "ssh-host";

// Both sides must have the same: "version", "abi", "architecture".
json::Value host_version();

int ssh_host_main(const std::vector<std::string>& arguments);

}  // namespace divisi::run
