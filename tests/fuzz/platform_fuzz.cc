// Platform variables, command-line lists and platform specs: any text gives a plan or one line.
//
// Input: lines. "NAME=value" is an environment variable, "--flag value" a flag of ditask, anything
// else is appended to the platform spec.
#include "launch/entry_name.h"
#include "launch/hostlist.h"
#include "launch/limits.h"
#include "launch/plan.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

namespace {

using divisi::launch::Environment;
using divisi::launch::LaunchRequest;

void set_flag(LaunchRequest& request, std::string_view line) {
  const std::size_t space = line.find(' ');
  if (space == std::string_view::npos) return;
  const std::string_view name = line.substr(2, space - 2);
  std::string value(line.substr(space + 1));
  if (name == "parallel-workers") request.parallel_workers = value;
  if (name == "protocol") request.protocol = value;
  if (name == "ports") request.ports = value;
  if (name == "address") request.address = value;
  if (name == "attach-to") request.attach_to = value;
  if (name == "labels") request.labels = value;
  if (name == "node-ids") request.node_ids = value;
  if (name == "topology") request.topology = value;
  if (name == "platform") request.platform = value;
}

void require(bool condition) {
  if (!condition) std::abort();
}

void check_plan(const divisi::launch::LaunchPlan& plan) {
  const auto workers = static_cast<std::size_t>(plan.workers);
  require(plan.workers >= 1 && plan.workers <= divisi::launch::kMaxWorkers);
  require(plan.ports.size() == workers && plan.node_ids.size() == workers);
  require(plan.job_peers.empty() || plan.job_peers.size() == workers);
  for (const int port : plan.ports) require(port >= 1 && port <= 65535);
  for (const int id : plan.node_ids) require(id >= 0);
  for (const std::string& address : plan.attach_to) {
    require(address.starts_with("tcp://") || address.starts_with("ipc://"));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string_view rest(reinterpret_cast<const char*>(data), size);
  Environment environment;
  LaunchRequest request;
  while (!rest.empty()) {
    const std::size_t end = std::min(rest.find('\n'), rest.size());
    const std::string_view line = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    const std::size_t equals = line.find('=');
    if (line.starts_with("--")) {
      set_flag(request, line);
    } else if (equals != std::string_view::npos &&
               (line.starts_with("DI_") || line.starts_with("SLURM"))) {
      environment.insert_or_assign(std::string(line.substr(0, equals)),
                                   std::string(line.substr(equals + 1)));
    } else {
      request.platform_spec = request.platform_spec.value_or("") + std::string(line) + "\n";
    }
  }
  const auto plan = divisi::launch::make_plan(request, environment);
  if (plan) {
    check_plan(*plan);
  } else {
    require(plan.error().code() == divisi::Code::kInvalid && !plan.error().message().empty());
  }
  const std::string_view whole(reinterpret_cast<const char*>(data), size);
  if (const auto hosts = divisi::launch::expand_host_list(whole)) {
    require(!hosts->empty() && hosts->size() <= divisi::launch::kMaxHosts);
  }
  (void)divisi::launch::expand_task_counts(whole);
  if (const auto entry = divisi::launch::parse_entry_name(whole)) {
    require(!divisi::launch::candidate_files(*entry, "/p", "/").empty());
  }
  return 0;
}
