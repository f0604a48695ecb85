// Values as JSON text, for studies: what JSON has no form for is tagged, as
// python/divisi/tune/_storage.py does it.
#pragma once

#include "divisi/value.h"

#include <string>
#include <string_view>

namespace divisi::tune {

// A tensor becomes what describe() says of it.
std::string value_to_json(const Value& value);
// Nil for a text that is empty or no JSON; a tag that is not known stays a map.
Value value_from_json(std::string_view text);

}  // namespace divisi::tune
