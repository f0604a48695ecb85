#include "local_trials/output_log.h"

#include <array>
#include <cerrno>
#include <fcntl.h>
#include <unistd.h>

namespace divisi::local_trials {
namespace {

bool is_blank(std::string_view line) {
  return line.find_first_not_of(" \t\r") == std::string_view::npos;
}

}  // namespace

OutputLog::OutputLog(io::Descriptor pipe, io::Descriptor log)
    : pipe_(std::move(pipe)), log_(std::move(log)) {
  ::fcntl(pipe_.get(), F_SETFL, ::fcntl(pipe_.get(), F_GETFL) | O_NONBLOCK);
}

void OutputLog::drain() {
  std::array<char, 1 << 16> chunk{};
  while (pipe_) {
    const ssize_t size = ::read(pipe_.get(), chunk.data(), chunk.size());
    if (size < 0 && errno == EINTR) continue;
    if (size < 0 && errno == EAGAIN) return;
    if (size <= 0) return pipe_.reset();
    const std::string_view bytes(chunk.data(), static_cast<std::size_t>(size));
    write(bytes);
    keep(bytes);
    if (bytes.size() < chunk.size()) return;
  }
}

void OutputLog::write(std::string_view bytes) {
  while (!bytes.empty() && problem_.empty()) {
    const ssize_t size = ::write(log_.get(), bytes.data(), bytes.size());
    if (size < 0 && errno == EINTR) continue;
    if (size < 0) {
      problem_ = errno_text(errno);
      return;
    }
    bytes.remove_prefix(static_cast<std::size_t>(size));
  }
}

void OutputLog::keep(std::string_view bytes) {
  while (!bytes.empty()) {
    const std::size_t end = bytes.find('\n');
    const std::string_view piece = bytes.substr(0, end);
    if (line_.size() <= kMaxLine) line_.append(piece.substr(0, kMaxLine + 1));
    if (end == std::string_view::npos) return;
    end_line();
    bytes.remove_prefix(end + 1);
  }
}

void OutputLog::end_line() {
  if (!is_blank(line_)) last_ = line_.size() > kMaxLine ? std::string() : line_;
  line_.clear();
}

std::string OutputLog::last_line() const {
  if (is_blank(line_)) return last_;
  return line_.size() > kMaxLine ? std::string() : line_;
}

}  // namespace divisi::local_trials
