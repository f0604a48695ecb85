// What the weight broadcast costs a learner, measured where it happens: this file is linked into
// bench_dqn, which is the example cartpole_dqn from its own sources, and stands between it and
// divisi::periodical_model_exchanger (the linker's --wrap). The middleware that comes out does the
// same and notes how long its two parts took.
//
// If DIVISI_BENCH_EXCHANGER names a file, a learner writes one JSON line into it about once a
// second and when its task ends.
#include "divisi/exchange.h"

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <memory>
#include <utility>

namespace divisi::bench {

// The names of periodical_model_exchanger that --wrap makes: the library's, and the one called.
#define EXCHANGER \
  "_ZN6divisi26periodical_model_exchangerENS_5ModelENS_17PeriodicalOptionsERNS_4TaskE"
Middleware real_exchanger(Model model, PeriodicalOptions options,
                          Task& owner) asm("__real_" EXCHANGER);
Middleware timed_exchanger(Model model, PeriodicalOptions options,
                           Task& owner) asm("__wrap_" EXCHANGER);

namespace {

using Clock = std::chrono::steady_clock;

double seconds_between(Clock::time_point begin, Clock::time_point end) {
  return std::chrono::duration<double>(end - begin).count();
}

double cpu_seconds(clockid_t clock) {
  timespec now{};
  ::clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

// Used by the thread of the pipeline alone.
class Times {
 public:
  ~Times() { write(); }

  // Runs one part of the exchanger.
  template <class Part>
  bool measure(const Part& part) {
    const auto begin = Clock::now();
    const double cpu = cpu_seconds(CLOCK_THREAD_CPUTIME_ID);
    const bool result = part();
    inside_cpu_ += cpu_seconds(CLOCK_THREAD_CPUTIME_ID) - cpu;
    const auto now = Clock::now();
    inside_ += seconds_between(begin, now);
    if (seconds_between(written_, now) > 1) write();
    return result;
  }
  // Runs Model::state, which is part of the second one.
  template <class State>
  auto measure_state(const State& state) {
    ++models_;
    const double cpu = cpu_seconds(CLOCK_THREAD_CPUTIME_ID);
    auto copy = state();
    state_cpu_ += cpu_seconds(CLOCK_THREAD_CPUTIME_ID) - cpu;
    return copy;
  }

  void write() {
    written_ = Clock::now();
    const char* const path = std::getenv("DIVISI_BENCH_EXCHANGER");
    if (path == nullptr) return;
    std::FILE* const file = std::fopen(path, "w");
    if (file == nullptr) return;
    const double process = cpu_seconds(CLOCK_PROCESS_CPUTIME_ID);
    const double thread = cpu_seconds(CLOCK_THREAD_CPUTIME_ID);
    std::fprintf(file,
                 "{\"exchanger_s\": %.6f, \"exchanger_cpu_s\": %.6f, \"state_cpu_s\": %.6f, "
                 "\"wall_s\": %.6f, \"models\": %lld, "
                 "\"pipeline_cpu_s\": %.6f, \"other_threads_cpu_s\": %.6f}\n",
                 inside_, inside_cpu_, state_cpu_, seconds_between(start_, written_),
                 static_cast<long long>(models_), thread, process - thread);
    std::fclose(file);
  }

 private:
  const Clock::time_point start_ = Clock::now();
  Clock::time_point written_ = start_;
  double inside_ = 0;
  double inside_cpu_ = 0;
  double state_cpu_ = 0;
  std::int64_t models_ = 0;
};

}  // namespace

Middleware timed_exchanger(Model model, PeriodicalOptions options, Task& owner) {
  if (options.mode != ModelExchangeMode::kSend) {
    return real_exchanger(std::move(model), std::move(options), owner);
  }
  const auto times = std::make_shared<Times>();
  model.state = [state = std::move(model.state), times] { return times->measure_state(state); };
  return named(
      "timed_exchanger",
      [times, inner = real_exchanger(std::move(model), std::move(options), owner)](Context& ctx) {
        MiddlewareCall call(inner, ctx);
        if (!times->measure([&] { return call.forward(); })) return;
        suspend();
        times->measure([&] {
          call.backward();
          return true;
        });
      });
}

}  // namespace divisi::bench
