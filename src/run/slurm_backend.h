// Jobs on Slurm: one step with all workers, submitted with sbatch.
//
// A supervisor of this machine (local_supervisor.h) starts a slurm-worker (slurm_worker.h), which
// submits the script that --dry-run prints, and follows the job. When the supervisor of a detached
// job is killed, the job goes on: the next command that asks for it starts another one.
#pragma once

#include "run/backend.h"

#include <memory>

namespace divisi::run {

std::unique_ptr<Backend> make_slurm_backend();

}  // namespace divisi::run
