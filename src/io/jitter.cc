#include "io/jitter.h"

#include "io/crypto.h"

#include <random>

namespace divisi::io {
namespace {

std::mt19937_64& generator() {
  thread_local std::mt19937_64 numbers(random_u64());
  return numbers;
}

}  // namespace

double jitter() {
  return static_cast<double>(generator()() >> 11) * 0x1p-53;
}

void seed_jitter(std::uint64_t seed) {
  generator().seed(seed);
}

}  // namespace divisi::io
