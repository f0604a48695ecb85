#include "io/jitter.h"

#include "io/crypto.h"

namespace divisi::io {
namespace {

// SplitMix64: eight bytes of state. What libdivisi.so keeps a thread must be small, or a program
// that loads it late (Python does) has no room for it.
std::uint64_t& state() {
  thread_local std::uint64_t numbers = random_u64();
  return numbers;
}

}  // namespace

double jitter() {
  std::uint64_t mixed = (state() += 0x9e3779b97f4a7c15);
  mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9;
  mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111eb;
  mixed ^= mixed >> 31;
  return static_cast<double>(mixed >> 11) * 0x1p-53;
}

void seed_jitter(std::uint64_t seed) {
  state() = seed;
}

}  // namespace divisi::io
