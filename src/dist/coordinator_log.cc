#include "dist/coordinator_log.h"

#include "base/log.h"

#include <cstdio>

namespace divisi::dist {

CoordinatorLog::CoordinatorLog(std::function<void(std::string_view)> print, std::string id)
    : print_(std::move(print)), id_(std::move(id)) {}

void CoordinatorLog::write(std::string line) const {
  line = log::printable(std::move(line));
  if (print_) return print_(line);
  line += '\n';
  std::fwrite(line.data(), 1, line.size(), stdout);
  std::fflush(stdout);
}

}  // namespace divisi::dist
