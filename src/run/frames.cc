#include "run/frames.h"

#include <cerrno>
#include <unistd.h>

namespace divisi::run {
namespace {

constexpr std::size_t kHead = 5;  // the letter, and the length with its highest byte first
constexpr std::size_t kMaxNoise = std::size_t{256} << 10;

}  // namespace

std::string frame(char type, std::string_view payload) {
  std::string bytes(1, type);
  for (int shift = 24; shift >= 0; shift -= 8) {
    bytes += static_cast<char>(payload.size() >> shift & 0xff);
  }
  bytes += payload;
  return bytes;
}

Result<std::optional<Frame>> FrameReader::next() {
  if (greeting_) {
    const std::size_t at = buffer_.find(kGreeting);
    if (at == std::string::npos) {
      if (buffer_.size() > kMaxNoise) return failure(Code::kInvalid, "it does not greet");
      return std::optional<Frame>();
    }
    buffer_.erase(0, at + kGreeting.size());
    greeting_ = false;
  }
  const std::string_view left = std::string_view(buffer_).substr(used_);
  std::size_t size = 0;
  for (std::size_t i = 1; i < kHead && i < left.size(); ++i) {
    size = size << 8 | static_cast<unsigned char>(left[i]);
  }
  if (left.size() >= kHead && size > kMaxFrame) {
    return failure(Code::kInvalid, "a frame of {} bytes", size);
  }
  if (left.size() < kHead || left.size() < kHead + size) {
    buffer_.erase(0, used_);
    used_ = 0;
    return std::optional<Frame>();
  }
  Frame found{left[0], std::string(left.substr(kHead, size))};
  used_ += kHead + size;
  return std::optional<Frame>(std::move(found));
}

Status write_bytes(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return make_status(Code::kUnavailable, "{}", errno_text(errno));
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
  return {};
}

}  // namespace divisi::run
