// The shared secret of a job, from a file. It is never printed, logged or put into an environment.
#pragma once

#include "base/status.h"

#include <string>
#include <string_view>

namespace divisi::runtime {

struct Secret {
  std::string value;
  std::string warning;  // others than the owner can read the file; empty otherwise
};

// The content without blanks around it: 1 to 4096 bytes. Errors begin with `option`, which named
// the file.
Result<Secret> read_secret_file(const std::string& path, std::string_view option);

}  // namespace divisi::runtime
