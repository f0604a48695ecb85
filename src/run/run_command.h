// The program behind `divisi run`.
#pragma once

#include "run/options.h"

#include <string>
#include <vector>

namespace divisi::run {

// Exit codes of divisi run beside the job's own.
inline constexpr int kExitUsage = 2;
inline constexpr int kExitTimeout = 124;  // --timeout has come
inline constexpr int kExitBackend = 125;  // the backend could not start or follow the job

// `words` are those behind `divisi run`. Prints its one line for every mistake.
int run_main(std::vector<std::string> words);

// The same for a line that was taken apart; `restarts` is what its record counts.
int run_line(const CommandLine& line, int restarts);

}  // namespace divisi::run
