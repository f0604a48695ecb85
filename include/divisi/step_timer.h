// How long middleware take.
//
//   divisi::StepTimer timer;
//   task.use_wrapper(timer);         // forward + backward time of every middleware
//   task.use(divisi::epoch_timer()); // of the whole iteration, as the first middleware
//
// Both log cost and mean in milliseconds with the node id (0 when the router is inactive).
#pragma once

#include "divisi/export.h"
#include "divisi/middleware.h"

#include <deque>
#include <map>
#include <memory>
#include <string>

namespace divisi {

// A wrapper for Task::use_wrapper. Copies share their records. May be used from any thread.
class DIVISI_API StepTimer {
 public:
  // Logs when total_step is a multiple of `print_per_step`; the mean is over the last
  // print_per_step * smooth_window samples. Both at least 1, else UsageError.
  explicit StepTimer(int print_per_step = 1, int smooth_window = 10);

  // `fn` with a clock round it, under the same name.
  Middleware operator()(Middleware fn) const;

  // Milliseconds by the name of the middleware, oldest first.
  std::map<std::string, std::deque<double>> records() const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

// A middleware that measures whole iterations; use it as the first one.
DIVISI_API Middleware epoch_timer(int print_per = 1, int smooth_window = 10);

}  // namespace divisi
