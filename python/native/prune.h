// Pruners, importance and event files for python/divisi/tune.
#pragma once

#include <nanobind/nanobind.h>

namespace divisi::python {

// Adds the classes TunePruner, TunePbt and ScalarReader, and the functions tune_importance and
// tune_regret.
void add_prune(nanobind::module_& m);

}  // namespace divisi::python
