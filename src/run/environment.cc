#include "run/environment.h"

#include "base/log.h"
#include "run/run_command.h"

#include <cstdio>
#include <unistd.h>

extern "C" char** environ;

namespace divisi::run {

launch::Environment process_environment() {
  launch::Environment environment;
  for (char** variable = environ; variable != nullptr && *variable != nullptr; ++variable) {
    const std::string_view text = *variable;
    const std::size_t equals = text.find('=');
    if (equals == std::string_view::npos) continue;
    environment.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return environment;
}

int complain(std::string_view program, const Status& status) {
  std::string line = status.message();
  for (char& c : line) {
    if (c == '\n' || c == '\r') c = ' ';
  }
  std::fprintf(stderr, "%.*s: %s\n", static_cast<int>(program.size()), program.data(),
               log::printable(std::move(line)).c_str());
  const bool usage = status.code() == Code::kInvalid || status.code() == Code::kNotFound ||
                     status.code() == Code::kAlreadyExists || status.code() == Code::kForbidden;
  return usage ? kExitUsage : kExitBackend;
}

}  // namespace divisi::run
