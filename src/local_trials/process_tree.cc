#include "local_trials/process_tree.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <sys/prctl.h>
#include <unistd.h>

namespace divisi::local_trials {
namespace {

std::vector<std::string> environment_of(pid_t pid) {
  std::vector<std::string> entries;
  std::ifstream file(fmt::format("/proc/{}/environ", pid), std::ios::binary);
  for (std::string one; std::getline(file, one, '\0');) entries.push_back(std::move(one));
  return entries;
}

// A number that is in use again counts as the same process: better one leftover more than a
// stranger's trial less.
bool is_leftover(const std::vector<std::string>& environment, std::string_view entry_prefix) {
  bool matches = false;
  pid_t starter = 0;
  for (const std::string_view entry : environment) {
    matches = matches || entry.starts_with(entry_prefix);
    if (!entry.starts_with(kTokenVariable)) continue;
    const std::string_view token = entry.substr(kTokenVariable.size() + 1);
    std::from_chars(token.data(), token.data() + token.size(), starter);
  }
  return matches && starter > 0 && ::kill(starter, 0) != 0 && errno == ESRCH;
}

}  // namespace

int end_leftovers(std::string_view entry_prefix) {
  int count = 0;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", ignored)) {
    const std::string name = entry.path().filename().string();
    pid_t pid = 0;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), pid);
    if (error != std::errc() || end != name.data() + name.size() || pid == ::getpid()) continue;
    if (!is_leftover(environment_of(pid), entry_prefix)) continue;
    if (::kill(pid, SIGKILL) == 0) ++count;
  }
  return count;
}

Status adopt_orphans() {
  if (::prctl(PR_SET_CHILD_SUBREAPER, 1) == 0) return {};
  return make_status(Code::kUnavailable, "asking the kernel for orphaned processes: {}",
                     errno_text(errno));
}

std::vector<pid_t> children_of(pid_t pid) {
  std::vector<pid_t> children;
  std::error_code ignored;  // it may end while we look
  const std::filesystem::directory_iterator threads(fmt::format("/proc/{}/task", pid), ignored);
  for (const auto& thread : threads) {
    std::ifstream list(thread.path() / "children");
    for (pid_t child = 0; list >> child;) children.push_back(child);
  }
  return children;
}

std::vector<pid_t> descendants_of(pid_t pid) {
  std::vector<pid_t> found = children_of(pid);
  for (std::size_t i = 0; i < found.size(); ++i) {
    for (const pid_t child : children_of(found[i])) found.push_back(child);
  }
  return found;
}

bool has_environment(pid_t pid, std::string_view entry) {
  const std::vector<std::string> environment = environment_of(pid);
  return std::ranges::find(environment, entry) != environment.end();
}

}  // namespace divisi::local_trials
