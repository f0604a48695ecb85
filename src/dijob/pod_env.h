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
class PodVariables {
 public:
  PodVariables(const Job& job, const PodPeers& peers);  // both stay
  std::vector<Variable> of(const PodPlace& place) const;

 private:
  void write_nodes();
  void write_dialled();
  std::string host(const Slot& slot) const;
  std::string attached_nodes(int rank) const;

  const Job& job_;
  const PodPeers& peers_;
  std::vector<Variable> nodes_{};    // DI_NODES and those of the tasks
  std::string dialled_{};            // the addresses of all ranks
  std::vector<std::size_t> ends_{};  // in `dialled_`, of each rank's
};

}  // namespace divisi::dijob
