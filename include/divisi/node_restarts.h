// node_restarts(): whether this process takes the place of one that died.
//
//   if (divisi::node_restarts() > 0) load_the_last_checkpoint();
#pragma once

#include "divisi/export.h"

namespace divisi {

// How often the launcher has started this node again (worker_lost=restart); 0 outside of a job.
DIVISI_API int node_restarts();

}  // namespace divisi
