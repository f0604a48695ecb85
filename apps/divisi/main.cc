// divisi: one program, one file a command.

#include "commands.h"

#include <CLI/CLI.hpp>

#include <cstdio>
#include <exception>

int main(int argc, char** argv) {
  CLI::App app("Divisi: distributed decision-AI training from a laptop to a cluster.", "divisi");
  app.require_subcommand(1);
  app.failure_message(CLI::FailureMessage::simple);
  int code = 0;
  divisi::apps::add_kube_command(app, code);
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
