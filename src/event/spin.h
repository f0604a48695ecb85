// Spin: waiting a moment before going to sleep, where that pays.
//
// A sleeping thread takes microseconds to wake and costs its waker a system call; work that follows
// work often comes sooner than that. So a thread may poll for kLongest before it sleeps, as
// long as that succeeds: each failure takes credit, each success gives some, and without credit
// only now and then a try is made. Never on a machine, or a CPU set, of one core.
#pragma once

#include <chrono>

namespace divisi::event {

class Spin {
 public:
  // About half of what sleeping and waking costs.
  static constexpr std::chrono::microseconds kLongest{20};

  // True as soon as `ready()` is; false when it is time to sleep. One thread at a time.
  template <class Ready>
  bool until(Ready ready) {
    if (!may_try()) return false;
    const auto deadline = std::chrono::steady_clock::now() + kLongest;
    do {
      for (int i = 0; i < kPollsPerLook; ++i) {
        if (ready()) return settle(true);
        relax();
      }
    } while (std::chrono::steady_clock::now() < deadline);
    return settle(false);
  }

 private:
  static constexpr int kPollsPerLook = 16;
  static constexpr int kMostCredit = 8;
  static constexpr int kSleepsPerTry = 64;

  static bool has_spare_core() noexcept;
  static void relax() noexcept {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
  }

  bool may_try() noexcept {
    if (!has_spare_core()) return false;
    return credit_ > 0 || ++sleeps_ % kSleepsPerTry == 0;
  }
  bool settle(bool success) noexcept {
    if (success && credit_ < kMostCredit) ++credit_;
    if (!success && credit_ > 0) --credit_;
    return success;
  }

  int credit_ = 2;
  unsigned sleeps_ = 0;
};

}  // namespace divisi::event
