// divisi: one program, one file a command.

#include "commands.h"
#include "io/process.h"

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <string>
#include <string_view>
#include <vector>

namespace {

std::string one_line(std::string text) {
  std::ranges::replace(text, '\n', ' ');
  return text.substr(0, text.find_last_not_of(' ') + 1);
}

}  // namespace

int main(int argc, char** argv) {
  divisi::io::open_standard_descriptors();
  CLI::App app("Divisi: distributed decision-AI training from a laptop to a cluster.", "divisi");
  app.require_subcommand(1);
  app.failure_message([](const CLI::App*, const CLI::Error& error) {
    return fmt::format("divisi: {}; divisi --help tells more\n", one_line(error.what()));
  });
  if (argc > 1 && std::string_view(argv[1]) == "tune") {
    return divisi::apps::tune_main(std::vector<std::string>(argv + 2, argv + argc));
  }
  if (argc > 1) {
    const std::vector<std::string> arguments(argv + 2, argv + argc);
    if (const auto code = divisi::apps::run_commands(argv[1], arguments)) return *code;
  }
  int code = 0;
  divisi::apps::add_kube_command(app, code);
  divisi::apps::add_dist_command(app, code);
  divisi::apps::add_tune_command(app);
  divisi::apps::add_run_commands(app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    // Help is no mistake; everything else that cannot be parsed is one of usage.
    return app.exit(error) == 0 ? 0 : 2;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "divisi: %s\n", error.what());
    return 1;
  }
  return code;
}
