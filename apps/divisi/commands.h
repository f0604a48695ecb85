// The commands of divisi. Each adds itself to the program and, when it is chosen, runs and leaves
// the exit code of the program in `code`.
#pragma once

namespace CLI {  // NOLINT(readability-identifier-naming): the library's
class App;
}

namespace divisi::apps {

void add_kube_command(CLI::App& app, int& code);

}  // namespace divisi::apps
