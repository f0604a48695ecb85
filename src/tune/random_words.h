// Numbers out of 32 random bits at a time, drawn as Python's module `random` draws them.
#pragma once

#include "divisi/sampler.h"

#include <cstdint>

namespace divisi::tune {

// The generator of one suggestion. It depends on the seed and on the trial's number only, so that a
// search can go on in another process without making the earlier suggestions again.
RandomWords trial_words(std::uint64_t seed, std::uint64_t id);
// In [0, 1), 53 bits; takes two words.
double draw_unit(const RandomWords& words);
// 0 .. n - 1, each with the same probability; n >= 1. Draws as many high bits as n has and rejects
// what is not below it.
std::int64_t draw_below(const RandomWords& words, std::int64_t n);

}  // namespace divisi::tune
