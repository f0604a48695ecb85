// CollectorWorker: the tasks of a collector. It plays with the newest policy of its task and
// writes what happened as files of transitions; as an evaluator it plays without exploration.
//
// One task at a time, which lives from collector_start_task to collector_close_task. A
// collector_data_task answers with one record: a file (data_id), or progress. The environments live
// as long as the master: a new task goes on with the episodes of the last one.
#pragma once

#include "dist/task_handler.h"
#include "dist_rl/train_config.h"

#include <memory>

namespace divisi::dist_rl {

std::shared_ptr<dist::TaskHandler> make_collector_worker(TrainConfig config);

}  // namespace divisi::dist_rl
