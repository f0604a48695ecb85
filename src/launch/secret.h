// The shared secret of a job, from a file. It is never printed, logged or put into an environment.
#pragma once

#include "runtime/secret_file.h"

#include <string>

namespace divisi::launch {

using runtime::Secret;

// The content without blanks around it: 1 to 4096 bytes.
Result<Secret> read_secret_file(const std::string& path);

}  // namespace divisi::launch
