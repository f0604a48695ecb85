// barrier: all nodes go through the pipeline in step.
//
//   task.use(divisi::barrier());                     // every node, at the same place
//   task.use(divisi::barrier(std::chrono::seconds(5)));
//
// A middleware that waits in its forward part until every node that ever joined has come there, and
// in its backward part once more (Parallel::barrier). All nodes must run it equally often: where
// one is missing after `timeout`, the others throw a TimeoutError that names it. Without a job it
// does nothing.
#pragma once

#include "divisi/export.h"
#include "divisi/middleware.h"

#include <chrono>

namespace divisi {

DIVISI_API Middleware barrier(std::chrono::milliseconds timeout = std::chrono::seconds(60));

}  // namespace divisi
