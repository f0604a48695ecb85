// Counters in a StateDict: int64 scalars.
#pragma once

#include "rl/layers.h"

#include <cstdint>
#include <string>

namespace divisi::rl {

void write_counter(std::int64_t value, const std::string& name, StateDict& state);

// Throws UsageError when it is missing, no int64 scalar or negative.
std::int64_t read_counter(const StateDict& state, const std::string& name);

}  // namespace divisi::rl
