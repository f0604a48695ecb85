// CoordinatorDesk: what the queues and the running tasks of a coordinator share.
#pragma once

#include "dist/commander.h"
#include "dist/coordinator.h"
#include "dist/coordinator_log.h"
#include "dist/master.h"
#include "dist/workers.h"
#include "io/reactor.h"

#include <string>
#include <string_view>

namespace divisi::dist {

class CoordinatorDesk {
 public:
  virtual ~CoordinatorDesk() = default;

  virtual io::Reactor& reactor() = 0;
  virtual Master& master() = 0;
  virtual Workers& workers() = 0;
  virtual Commander& commander() = 0;
  virtual const CoordinatorLog& log() const = 0;
  virtual const CoordinatorOptions& options() const = 0;

  virtual bool has_buffer(std::string_view buffer_id) const = 0;
  // A worker took the task: it runs from now on.
  virtual void on_assigned(Role role, json::Value task, const std::string& url) = 0;
  // A running task is over and its object may go: after the current callback.
  virtual void on_run_over(const std::string& task_id) = 0;
  // Asks the commander whether training is over. After each call of one of its members.
  virtual void look() = 0;
};

}  // namespace divisi::dist
