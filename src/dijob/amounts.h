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

void add(Amounts& to, const Amounts& more);
void subtract(Amounts& from, const Amounts& less);  // may leave less than nothing
void raise(Amounts& to, const Amounts& least);      // the larger of both, each by itself
bool fits(const Amounts& needs, const Amounts& free) noexcept;  // what is absent is none

// The share of `total` that `needs` take of whatever they take most of.
double dominant_share(const Amounts& needs, const Amounts& total);

// "cpu 4, memory 8Gi": of those in `names`, which may all be 0 or absent.
std::string text_of(const Amounts& amounts, const Amounts& names);

// What a pod takes of its node: all its containers, or the hungriest init container where that is
// more, and its overhead. A limit stands for a request that is absent.
Amounts pod_requests(const json::Value& pod_spec);
Amounts container_requests(const json::Value& container);

}  // namespace divisi::dijob
