// The commands of divisi. Each adds itself to the program and, when it is chosen, runs and leaves
// the exit code of the program in `code`.
#pragma once

namespace CLI {  // NOLINT(readability-identifier-naming): the library's
class App;
}

#include <optional>
#include <string>
#include <vector>

namespace divisi::apps {

void add_kube_command(CLI::App& app, int& code);
void add_dist_command(CLI::App& app, int& code);
// Only for the list of commands: what follows `divisi tune` is read by tune_main(), because a
// command after -- is not for us to take apart.
void add_tune_command(CLI::App& app);
int tune_main(std::vector<std::string> arguments);

// Likewise for `divisi run` and the commands around it: run_commands() has the exit code, or
// nothing when `name` is none of them.
void add_run_commands(CLI::App& app);
std::optional<int> run_commands(const std::string& name, std::vector<std::string> arguments);

}  // namespace divisi::apps
