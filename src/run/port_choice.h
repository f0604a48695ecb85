// Ports of a local job, taken for as long as it lives.
//
// Two jobs that start at the same moment would find the same port free. So a job first takes the
// number itself, as the name of an abstract Unix socket: that is unique in a network name space, as
// ports are, and free again when the last process that has it is gone.
#pragma once

#include "base/status.h"
#include "io/process.h"

#include <string>
#include <vector>

namespace divisi::run {

struct TakenPorts {
  int first = 0;
  std::vector<io::Descriptor> locks{};
};

// `count` ports from `first` on, on every one of `hosts`. kUnavailable when one is in use.
Result<TakenPorts> take_ports(const std::vector<std::string>& hosts, int first, int count);

// The same at some free number.
Result<TakenPorts> take_any_ports(const std::vector<std::string>& hosts, int count);

}  // namespace divisi::run
