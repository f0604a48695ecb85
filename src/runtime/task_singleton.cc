// The task of the process, apart from task.cc so that a test may link Task without a router.
#include "divisi/task.h"
#include "runtime/router.h"
#include "runtime/task_core.h"

namespace divisi {

Task::Task() : Task(runtime::router()) {}
Task::Task(StartOptions options) : Task(runtime::router(), std::move(options)) {}

// Never destroyed: threads that outlive main may still emit. Held by a local of its own too: in a
// program that has a copy of this file beside libdivisi.so, both write to one `task`.
Task& task = []() -> Task& {
  static Task* const made = new Task;
  return *made;
}();

runtime::TaskCore& runtime::TaskCore::of_process() {
  return *task.core_;
}

}  // namespace divisi
