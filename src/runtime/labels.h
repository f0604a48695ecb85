// Label patterns are base/glob.h; this keeps their names at hand in the runtime.
#pragma once

#include "base/glob.h"

namespace divisi::runtime {
using divisi::any_label_matches;
using divisi::glob_match;
}  // namespace divisi::runtime
