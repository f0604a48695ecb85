// The task of the process, apart from task.cc so that a test may link Task without a router.
#include "divisi/task.h"
#include "runtime/router.h"
#include "runtime/task_core.h"

namespace divisi {

Task::Task() : Task(runtime::router()) {}
Task::Task(StartOptions options) : Task(runtime::router(), std::move(options)) {}

// Never destroyed: threads that outlive main may still emit.
Task& task = *new Task;

runtime::TaskCore& runtime::TaskCore::of_process() {
  return *task.core_;
}

}  // namespace divisi
