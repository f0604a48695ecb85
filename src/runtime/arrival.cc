#include "runtime/arrival.h"

namespace divisi::runtime {
namespace {

using Clock = std::chrono::steady_clock;

// Nobody emits it; peers that did would only make us look again.
constexpr std::string_view kNoEvent = "_exchange_wait";

}  // namespace

Arrival::Woken Arrival::wait(Task& owner, std::unique_lock<std::mutex>& lock,
                             std::chrono::nanoseconds timeout, const std::function<bool()>& ready) {
  const auto start = Clock::now();
  const bool forever = timeout >= Clock::time_point::max() - start;
  while (!ready()) {
    const auto left = forever ? kForever : timeout - (Clock::now() - start);
    if (left <= std::chrono::nanoseconds(0)) return Woken::kTimeout;
    const std::stop_source wake;
    wake_ = wake;
    lock.unlock();
    const bool event =
        owner
            .wait_for(kNoEvent, {.timeout = left, .wake_on_finish = true, .stop = wake.get_token()})
            .has_value();
    lock.lock();
    if (event || wake.stop_requested() || ready()) continue;
    if (!forever && Clock::now() - start >= timeout) return Woken::kTimeout;
    // Was it the error of a listener, that is thrown here, not what its absence breaks later.
    owner.emit(kNoEvent, only_local);
    return Woken::kEnded;
  }
  return Woken::kReady;
}

}  // namespace divisi::runtime
