// divisi dist: the processes of a first-generation DIJob, as `ding -m dist` starts them.

#include "commands.h"
#include "ding/ding.h"

#include <CLI/CLI.hpp>

namespace divisi::apps {

void add_dist_command(CLI::App& app, int& code) {
  CLI::App& dist = *app.add_subcommand(
      "dist", "Coordinator, collectors and learners of a first-generation DIJob");
  // It has flags of several letters behind one dash, which are read there.
  dist.prefix_command();
  dist.set_help_flag();
  dist.callback([&dist, &code] { code = ding::ding_main("divisi dist", dist.remaining()); });
}

}  // namespace divisi::apps
