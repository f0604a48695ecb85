#include "runtime/output_relay.h"

#include "base/log.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <fcntl.h>
#include <poll.h>
#include <unistd.h>
#include <utility>

namespace divisi::runtime {

namespace {

// A line longer than this is passed on in pieces rather than kept.
constexpr std::size_t kLongestLine = 64 << 10;
constexpr std::size_t kReadSize = 64 << 10;  // a pipe's capacity
constexpr int kLastReads = 64;

// Up to the last newline, so that a line of another writer never lands inside one of ours.
std::size_t whole_lines(std::string_view bytes) {
  const std::size_t newline = bytes.rfind('\n');
  return newline == std::string_view::npos ? bytes.size() : newline + 1;
}

bool can_write_now(int fd) {
  pollfd poll_fd{fd, POLLOUT, 0};
  return ::poll(&poll_fd, 1, 0) == 1;
}

}  // namespace

void OutputSink::write_some() {
  std::size_t done = 0;
  // A pipe that polls writable has room for PIPE_BUF bytes, so writes of that size do not block.
  while (done < pending_.size() && can_write_now(fd_)) {
    const std::size_t size = whole_lines(std::string_view(pending_).substr(done, PIPE_BUF));
    const ssize_t written = ::write(fd_, pending_.data() + done, size);
    if (written > 0) {
      done += static_cast<std::size_t>(written);
    } else if (errno == EAGAIN || errno == EINTR) {
      break;
    } else {
      error_ = written < 0 ? errno : EIO;
      done = pending_.size();
    }
  }
  pending_.erase(0, done);
}

Result<std::unique_ptr<LogFile>> LogFile::open(std::string path) {
  io::Descriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  if (!file) {
    return failure(Code::kInvalid, "opening the log file {}: {}", path, errno_text(errno));
  }
  return std::unique_ptr<LogFile>(new LogFile(std::move(path), std::move(file)));
}

void LogFile::write(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(file_.get(), bytes.data(), bytes.size());
    if (written > 0) {
      bytes.remove_prefix(static_cast<std::size_t>(written));
    } else if (written == 0 || errno != EINTR) {
      if (!std::exchange(complained_, true)) {
        log::error("writing {}: {}; some of it is lost", path_, errno_text(errno));
      }
      return;
    }
  }
}

LineRelay::LineRelay(Options options, io::Descriptor source)
    : options_(std::move(options)), source_(std::move(source)) {
  ::fcntl(source_.get(), F_SETFL, O_NONBLOCK);
}

bool LineRelay::read_some() {
  if (!source_) return false;
  std::array<char, kReadSize> chunk{};
  const ssize_t size = ::read(source_.get(), chunk.data(), chunk.size());
  if (size > 0) {
    take({chunk.data(), static_cast<std::size_t>(size)});
    return true;
  }
  return size < 0 && (errno == EAGAIN || errno == EINTR);
}

void LineRelay::finish() {
  if (!source_) return;
  std::array<char, kReadSize> chunk{};
  // More than a pipe holds, but not for ever: a daemon that the worker has left may go on writing.
  for (int i = 0; i < kLastReads; ++i) {
    const ssize_t size = ::read(source_.get(), chunk.data(), chunk.size());
    if (size <= 0) break;
    take({chunk.data(), static_cast<std::size_t>(size)});
  }
  if (!partial_.empty()) put_line(partial_);
  partial_.clear();
  source_.reset();
}

void LineRelay::take(std::string_view bytes) {
  if (options_.log != nullptr) options_.log->write(bytes);
  while (!bytes.empty()) {
    const std::size_t newline = bytes.find('\n');
    if (newline == std::string_view::npos) {
      partial_ += bytes;
      break;
    }
    if (partial_.empty()) {
      put_line(bytes.substr(0, newline));
    } else {
      partial_ += bytes.substr(0, newline);
      put_line(partial_);
      partial_.clear();
    }
    bytes.remove_prefix(newline + 1);
  }
  if (partial_.size() > kLongestLine) {
    put_line(partial_);
    partial_.clear();
  }
}

void LineRelay::put_line(std::string_view line) {
  options_.sink->append(fmt::format("{}{}\n", options_.prefix, line));
  if (options_.keep_last == 0) return;
  last_.emplace_back(line);
  if (last_.size() > options_.keep_last) last_.pop_front();
}

std::string LineRelay::tail() const {
  return fmt::format("{}", fmt::join(last_, "\n"));
}

std::string node_prefix(int node_id, bool coloured) {
  if (!coloured) return fmt::format("[node {}] ", node_id);
  constexpr std::array kColours = {36, 33, 32, 35, 34, 96, 93, 92};
  const int colour = kColours[static_cast<std::size_t>(node_id) % kColours.size()];
  return fmt::format("\x1b[{}m[node {}]\x1b[0m ", colour, node_id);
}

bool wants_colour(int fd) {
  const char* const refused = std::getenv("NO_COLOR");
  return ::isatty(fd) == 1 && (refused == nullptr || *refused == '\0');
}

}  // namespace divisi::runtime
