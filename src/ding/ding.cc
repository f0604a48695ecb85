#include "ding/ding.h"

#include "ding/options.h"
#include "ding/prepare_config.h"
#include "ding/replicas.h"
#include "ding/spawn_learner.h"
#include "ding/workers.h"
#include "io/process.h"

#include <cstdio>

namespace divisi::ding {

namespace {

int complain_about(std::string_view name, const Status& status) {
  std::fprintf(stderr, "%s: %s\n", std::string(name).c_str(), status.message().c_str());
  return status.code() == Code::kInvalid ? 2 : 1;
}

// A line of output is a success; an empty one prints nothing.
Result<std::string> once(const Options& options) {
  if (options.action != Action::kNone) return change_replicas(options);
  DIVISI_TRY(const std::string written, prepare_config(options));
  return "wrote " + written;
}

Result<int> run_module(const Options& options, bool dist_only) {
  if (options.module == Module::kSpawnLearner) {
    DIVISI_TRY(auto processes, learner_processes(options));
    if (dist_only) {  // the program is divisi, whose command this is
      for (auto& process : processes) process.arguments.insert(process.arguments.begin(), "dist");
    }
    if (!processes.empty()) return run_learners(io::current_program(), processes);
  }
  return run_worker(options);
}

}  // namespace

int ding_main(std::string_view name, const std::vector<std::string>& arguments) {
  const bool dist_only = name != "ding";
  auto options = parse_options(arguments, dist_only);
  if (!options) {
    return complain_about(name, make_status(Code::kInvalid, "{}; {} --help tells more",
                                            options.error().message(), name));
  }
  if (options->help) {
    std::fputs(help_text(dist_only ? std::string(name) : std::string(name) + " -m dist").c_str(),
               stdout);
    return 0;
  }
  if (options->version) {
    std::puts("ding of Divisi 0.1.0");
    return 0;
  }
  if (options->module == Module::kNone || options->module == Module::kConfig) {
    const auto line = once(*options);
    if (!line) return complain_about(name, line.error());
    std::puts(line->c_str());
    return 0;
  }
  const auto code = run_module(*options, dist_only);
  return code ? *code : complain_about(name, code.error());
}

}  // namespace divisi::ding
