// TaskRunner: how a slave gets its tasks done, without blocking the loop. A collector or a learner
// runs them on a thread (make_thread_runner), an aggregator passes them on.
//
// Loop only. One run() at a time; its `done` runs exactly once, on the loop, unless the runner is
// destroyed first.
#pragma once

#include "dist/task_handler.h"
#include "io/reactor.h"

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace divisi::dist {

class TaskRunner {
 public:
  virtual ~TaskRunner() = default;

  virtual void run(json::Value data, std::function<void(TaskOutcome)> done) = 0;

  // The master is gone: a run() in progress is cut short (its `done` comes still), and nothing is
  // kept of the master's tasks. `done` runs after that; no run() until then.
  virtual void master_gone(std::function<void()> done) = 0;

  // POST /learners: `done` gets the URLs that cannot be used. Null `done` never; false: the route
  // is not served.
  virtual bool learners(const std::vector<std::string>& urls,
                        std::function<void(std::vector<std::string>)> done) {
    (void)urls, (void)done;
    return false;
  }
};

// Calls the handler on a thread of its own. The destructor stops the handler and joins the thread.
std::unique_ptr<TaskRunner> make_thread_runner(io::Reactor& reactor,
                                               std::shared_ptr<TaskHandler> handler);

}  // namespace divisi::dist
