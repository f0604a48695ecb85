// Jitter: random numbers that keep many from doing the same at the same moment. Not for secrets.
//
// Each thread has its own. A simulation seeds its thread's, and then repeats exactly.
#pragma once

#include <cstdint>

namespace divisi::io {

double jitter();  // evenly, 0 <= it < 1
void seed_jitter(std::uint64_t seed);

}  // namespace divisi::io
