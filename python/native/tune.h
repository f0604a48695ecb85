// The tuner's engine for python/divisi/tune.
#pragma once

#include <nanobind/nanobind.h>

namespace divisi::python {

// Adds the classes TuneSpace and TuneSampler, and the function tune_table.
void add_tune(nanobind::module_& m);
// Adds the classes TuneStudy and TuneTrial, and the function tune_space_text.
void add_study(nanobind::module_& m);

}  // namespace divisi::python
