// Arithmetic on Values as Python does it.
#pragma once

#include "base/status.h"
#include "divisi/value.h"

#include <optional>
#include <string_view>

namespace divisi::tune {

// Integers stay integers where Python keeps them; beyond 64 bits they become floating. Fails for
// operands that have no such operator, and for a division by zero.
Result<Value> apply_binary(std::string_view symbol, const Value& a, const Value& b);
Result<Value> apply_unary(std::string_view symbol, const Value& a);
// abs, len, sum, ...
Result<Value> apply_method(std::string_view name, const Value& a);
bool is_method(std::string_view name);

bool is_true(const Value& value);
// A number as double; nothing for other values.
std::optional<double> as_number(const Value& value);

}  // namespace divisi::tune
