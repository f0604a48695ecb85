// Follow: starts the run in a process of its own and shows how it goes.
#pragma once

#include "options.h"
#include "run_folder.h"

namespace cartpole {

// `program` is started again with the arguments of the options and without a display of its own. On
// a terminal a screen is drawn again and again, elsewhere a line is printed now and then. SIGINT
// and SIGTERM end the run, and everything that belongs to it. Returns the exit code.
int follow(const std::string& program, const Options& options, const RunFolder& folder);

}  // namespace cartpole
