// The variables that tell a replica who it is and where the others are.
#pragma once

#include "dijob/pod.h"

#include <string>
#include <vector>

namespace divisi::dijob {

struct Variable {
  std::string name{};
  std::string value{};
};

// Those of both forms on either, so that an engine of either generation finds its own.
std::vector<Variable> pod_variables(const Job& job, const PodPlace& place,
                                    const ClusterNames& names);

}  // namespace divisi::dijob
