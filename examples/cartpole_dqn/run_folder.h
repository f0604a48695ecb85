// The folder of a run: one run each, whatever happened to its processes meanwhile.
//
//   runs/cartpole_dqn_seed0/
//     config.json           every key, the command lines, the version
//     ckpt/latest.ckpt      the learner, about every second; eval and final beside it
//     replay.ckpt           the replay
//     log.jsonl             one line an evaluation and a second
//     events.out.tfevents…  the same for TensorBoard
//     return.svg            the curve
//     result.json           the end; while it is missing the run is not over
//     workers.log           what the processes printed
#pragma once

#include <string>

namespace cartpole {

struct RunFolder {
  std::string path;

  std::string config() const { return path + "/config.json"; }
  std::string checkpoints() const { return path + "/ckpt"; }
  std::string latest() const { return path + "/ckpt/latest.ckpt"; }
  std::string replay() const { return path + "/replay.ckpt"; }
  std::string log() const { return path + "/log.jsonl"; }
  std::string curve() const { return path + "/return.svg"; }
  std::string result() const { return path + "/result.json"; }
  std::string output() const { return path + "/workers.log"; }
};

// `runs`/`name`, or with a number behind it when that exists. Makes the folder.
RunFolder new_run_folder(const std::string& runs, const std::string& name);

// The given one, made if need be. Throws UsageError for one whose run is over, unless `resume`.
RunFolder open_run_folder(const std::string& path, bool resume);

// Files that a killed process had not finished. Only while no process of the run lives.
void remove_leftovers(const RunFolder& folder);

}  // namespace cartpole
