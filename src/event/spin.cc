#include "event/spin.h"

#include <sched.h>

namespace divisi::event {

bool Spin::has_spare_core() noexcept {
  static const bool spare = [] {
    cpu_set_t set;
    CPU_ZERO(&set);
    return sched_getaffinity(0, sizeof set, &set) != 0 || CPU_COUNT(&set) > 1;
  }();
  return spare;
}

}  // namespace divisi::event
