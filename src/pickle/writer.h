// Writes documents as pickles that Python loads without importing anything.
#pragma once

#include "base/status.h"
#include "json/value.h"

#include <string>

namespace divisi::pickle {

// Objects become dicts, arrays lists. `protocol` is 2, 3 or 4 (kInvalid otherwise); a document
// deeper than 500 is refused (kInvalid), because Python's own reader is recursive.
Result<std::string> save(const json::Value& value, int protocol = 2);

}  // namespace divisi::pickle
