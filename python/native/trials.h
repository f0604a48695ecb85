// Trials as jobs of a Kubernetes cluster for python/divisi/tune.
#pragma once

#include <nanobind/nanobind.h>

namespace divisi::python {

// Adds the class TrialCluster.
void add_trials(nanobind::module_& m);

}  // namespace divisi::python
