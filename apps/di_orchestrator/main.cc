// di-orchestrator: the processes that run DIJobs on a cluster, in one binary.

#include "flags.h"
#include "io/process.h"
#include "program.h"

#include <cstdio>
#include <exception>
#include <string>
#include <variant>
#include <vector>

namespace {

void set_up_log(const divisi::apps::CommonFlags& flags) {
  divisi::log::set_level(flags.log_level);
  divisi::log::set_json(flags.log_json);
}

}  // namespace

int main(int argc, char** argv) {
  using namespace divisi::apps;
  divisi::io::open_standard_descriptors();
  try {
    const EndSignal end;
    const auto line = parse_command_line(argc > 0 ? argv[0] : "", {argv + (argc > 0), argv + argc},
                                         divisi::kube::process_environment());
    if (!line) return complain(line.error());
    if (const auto* help = std::get_if<HelpText>(&*line)) {
      std::fputs(help->text.c_str(), stdout);
      return 0;
    }
    if (const auto* server = std::get_if<ServerFlags>(&*line)) {
      set_up_log(server->common);
      return run_server(*server, end);
    }
    const auto& jobs = std::get<OperatorFlags>(*line);
    set_up_log(jobs.common);
    return run_operator(jobs, end);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "di-orchestrator: %s\n", error.what());
    return 1;
  }
}
