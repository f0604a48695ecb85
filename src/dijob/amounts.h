// Amounts: how much of each resource, by its name; "cpu", "memory", "nvidia.com/gpu" are alike.
#pragma once

#include "base/status.h"
#include "json/quantity.h"
#include "json/value.h"

#include <functional>
#include <map>
#include <string>

namespace divisi::dijob {

using Amounts = std::map<std::string, json::Quantity, std::less<>>;

// A quantity is a text or a bare number: "500m", 2, 0.5.
Result<json::Quantity> read_amount(const json::Value& value);

// The readable members of an object of quantities. Absent, null or of another kind: none.
Amounts read_amounts(const json::Value* map);

}  // namespace divisi::dijob
