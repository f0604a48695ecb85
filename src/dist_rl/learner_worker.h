// LearnerWorker: the tasks of a learner. It trains with the data files that records name, and
// writes its weights under the policy path for collectors to find.
//
// A learner that starts a task goes on from the checkpoint of its job, whoever wrote it. Ranks of a
// distributed learner average their parameters after every learn task (ParameterGroup); rank 0
// alone writes files.
#pragma once

#include "dist/task_handler.h"
#include "dist_rl/parameter_group.h"
#include "dist_rl/train_config.h"

#include <memory>

namespace divisi::dist_rl {

// `group`: null for a learner that is alone.
std::shared_ptr<dist::TaskHandler> make_learner_worker(TrainConfig config,
                                                       std::unique_ptr<ParameterGroup> group);

}  // namespace divisi::dist_rl
