#include "divisi/step_timer.h"

#include "base/log.h"
#include "divisi/error.h"
#include "runtime/router.h"

#include <fmt/format.h>

#include <chrono>
#include <mutex>
#include <numeric>
#include <utility>

namespace divisi {
namespace {

using Clock = std::chrono::steady_clock;

double milliseconds_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

int node_for_log() {
  const runtime::Router& router = runtime::router();
  return router.is_active() ? router.node_id() : 0;
}

std::size_t ring_size(int print_per, int smooth_window) {
  if (print_per < 1 || smooth_window < 1) {
    throw UsageError(
        fmt::format("a timer prints per 1 or more steps over a window of 1 or more, "
                    "not {} and {}",
                    print_per, smooth_window));
  }
  return static_cast<std::size_t>(print_per) * static_cast<std::size_t>(smooth_window);
}

// Adds a sample to the ring and returns the mean of what is in it.
double add_sample(std::deque<double>& ring, std::size_t size, double sample) {
  ring.push_back(sample);
  if (ring.size() > size) ring.pop_front();
  return std::accumulate(ring.begin(), ring.end(), 0.0) / static_cast<double>(ring.size());
}

}  // namespace

struct StepTimer::State {
  int print_per_step = 1;
  std::size_t ring = 1;
  std::mutex mutex;
  std::map<std::string, std::deque<double>> records;  // guarded by mutex

  void add(const std::string& name, std::int64_t step, double cost) {
    double mean = 0;
    {
      const std::lock_guard lock(mutex);
      mean = add_sample(records[name], ring, cost);
    }
    if (step % print_per_step != 0) return;
    log::info("[Step Timer][Node:{:>2}] {}: Cost: {:.2f}ms, Mean: {:.2f}ms", node_for_log(), name,
              cost, mean);
  }
};

StepTimer::StepTimer(int print_per_step, int smooth_window) : state_(std::make_shared<State>()) {
  state_->ring = ring_size(print_per_step, smooth_window);
  state_->print_per_step = print_per_step;
}

Middleware StepTimer::operator()(Middleware fn) const {
  std::string name = fn.name();
  return named(std::move(name), [state = state_, fn = std::move(fn)](Context& ctx) {
    MiddlewareCall call(fn, ctx);
    Clock::time_point start = Clock::now();
    const bool suspended = call.forward();
    double cost = milliseconds_since(start);
    if (suspended) {
      suspend();
      start = Clock::now();
      call.backward();
      cost += milliseconds_since(start);
    }
    state->add(fn.name(), ctx.total_step, cost);
  });
}

std::map<std::string, std::deque<double>> StepTimer::records() const {
  const std::lock_guard lock(state_->mutex);
  return state_->records;
}

Middleware epoch_timer(int print_per, int smooth_window) {
  const std::size_t size = ring_size(print_per, smooth_window);
  auto ring = std::make_shared<std::deque<double>>();
  return named("epoch_timer", [print_per, size, ring](Context& ctx) {
    const Clock::time_point start = Clock::now();
    suspend();
    const double cost = milliseconds_since(start);
    const double mean = add_sample(*ring, size, cost);
    if (ctx.total_step % print_per != 0) return;
    log::info("[Epoch Timer][Node:{:>2}]: Cost: {:.2f}ms, Mean: {:.2f}ms", node_for_log(), cost,
              mean);
  });
}

}  // namespace divisi
