// wait_until: waits for what another thread of the test does and gives no sign of.
//
//   wait_until("the listener is there", [&] { return loop.listened("e"); });
//
// Says at the deadline what was waited for, and throws: the test cannot go on.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <stdexcept>
#include <string>
#include <thread>

namespace divisi::testing {

// A deadline, never an expectation: far beyond what anything here takes.
inline constexpr std::chrono::seconds kSoon{30};

template <class F>
void wait_until(const std::string& what, F&& is_so) {
  const auto deadline = std::chrono::steady_clock::now() + kSoon;
  while (!is_so()) {
    if (std::chrono::steady_clock::now() > deadline) {
      // At once: who catches the exception may first wait for threads that wait as well.
      ADD_FAILURE() << "waited in vain until " << what;
      throw std::runtime_error("waited in vain until " + what);
    }
    std::this_thread::yield();
  }
}

}  // namespace divisi::testing
