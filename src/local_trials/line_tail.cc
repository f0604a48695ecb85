#include "local_trials/line_tail.h"

#include <array>
#include <cerrno>
#include <fcntl.h>
#include <unistd.h>

namespace divisi::local_trials {

std::vector<std::string> LineTail::take() {
  std::vector<std::string> lines;
  if (path_.empty()) return lines;
  if (!file_) file_.reset(::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW));
  std::array<char, 1 << 14> chunk{};
  while (file_) {
    const ssize_t size = ::read(file_.get(), chunk.data(), chunk.size());
    if (size < 0 && errno == EINTR) continue;
    if (size <= 0) break;
    for (const char c : std::string_view(chunk.data(), static_cast<std::size_t>(size))) {
      if (c != '\n') {
        if (partial_.size() <= kMaxLine) partial_.push_back(c);
        continue;
      }
      if (!partial_.empty() && partial_.size() <= kMaxLine) lines.push_back(partial_);
      partial_.clear();
    }
  }
  return lines;
}

}  // namespace divisi::local_trials
