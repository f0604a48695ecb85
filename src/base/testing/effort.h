// For tests that can try more: `./test` tries a sample, `./test --all` (DIVISI_ALL=1) everything.
#pragma once

#include <cstdlib>

namespace divisi::testing {

inline bool tries_everything() {
  return std::getenv("DIVISI_ALL") != nullptr;
}

}  // namespace divisi::testing
