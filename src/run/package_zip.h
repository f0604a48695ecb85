// A cut package as the bytes of a zip archive.
#pragma once

#include "base/status.h"
#include "run/package.h"

#include <string>

namespace divisi::run {

// The same cut gives the same bytes. An archive is taken as it is.
Result<std::string> zip_bytes(const PackageCut& cut);

// What a ConfigMap can hold; null: nothing. kForbidden says how much too large it is.
Result<std::string> zip_for_config_map(const PackageCut* cut);

}  // namespace divisi::run
