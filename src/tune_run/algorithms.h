// The search algorithm of a study, by its name and options.
#pragma once

#include "base/status.h"
#include "divisi/sampler.h"

#include <string>
#include <vector>

namespace divisi::tune_run {

struct StudyPlan;

std::vector<std::string> algorithm_names();

// Fails for a name or an option that is not known, with the nearest one, and for what does not fit
// the space.
Result<tune::Sampler> make_sampler(const StudyPlan& plan);

}  // namespace divisi::tune_run
