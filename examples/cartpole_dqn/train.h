// What each process of a run does: the pipeline, and which parts of it this one runs.
#pragma once

#include <string>
#include <vector>

namespace cartpole {

// The main of a node, or of a run in one process. `args` are those of options.h.
void train(const std::vector<std::string>& args);

}  // namespace cartpole
