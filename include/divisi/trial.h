// For programs that a tuner runs as trials: what they have reached so far, and what came out.
//
//   divisi::tune::report(env_step, {{"reward", reward}});            // whenever there is news
//   divisi::tune::set_result({{"reward", reward}, {"loss", loss}});  // at the end
//
// Outside of a trial nothing happens: a program runs alone as it does in a search.
// docs/tuner-trials.md.
#pragma once

#include "divisi/export.h"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace divisi::tune {

// Numbers by name.
using Figures = std::vector<std::pair<std::string, double>>;

// Appends a line to the file that the environment variable HPO_METRICS_FILE names; pruners look at
// it. Steps begin at 0 and rise. A figure that is not finite is worse than every number. Throws
// UsageError: a negative step; Error: the file cannot be written.
DIVISI_API void report(std::int64_t step, const Figures& figures);
// A single figure, called "value".
DIVISI_API void report(std::int64_t step, double value);

// Puts the figures into the file that HPO_RESULT_FILE names, as a JSON object; it is there whole or
// not at all, and replaces an earlier one. Throws Error: the file cannot be written.
DIVISI_API void set_result(const Figures& figures);

}  // namespace divisi::tune
