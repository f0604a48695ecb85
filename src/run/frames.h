// What the two ends of an ssh connection say to each other: frames of a letter and some bytes.
//
// The side that starts (ssh_link.h)          the host (ssh_host.h)
//                                            V version, ABI and architecture, as JSON
// P root of a package, folder, as JSON       M digests that are missing, as a JSON list
// F digest of an object  D its bytes         ! a line that says why it failed; then it ends
// R a worker, as JSON                        o, e what it prints; x how it ended, as JSON
// T end it   Q end it at once   H still here
//
// In front of the first frame the host writes kGreeting: what a shell's start-up file prints before
// that is skipped.
#pragma once

#include "base/status.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace divisi::run {

inline constexpr std::string_view kGreeting = "\ndivisi-host 1\n";
inline constexpr std::size_t kMaxFrame = std::size_t{64} << 20;
inline constexpr std::size_t kFramePiece = std::size_t{128} << 10;  // of long contents

struct Frame {
  char type = 0;
  std::string payload{};
};

std::string frame(char type, std::string_view payload = {});

// Bytes as they come; whole frames.
class FrameReader {
 public:
  // `greeting`: nothing is a frame before it has come.
  explicit FrameReader(bool greeting) : greeting_(greeting) {}
  void add(std::string_view bytes) { buffer_ += bytes; }
  // Nothing: more bytes are needed. kInvalid: this is no stream of frames.
  Result<std::optional<Frame>> next();
  std::string_view rest() const noexcept { return buffer_; }  // what is no frame yet

 private:
  bool greeting_;
  std::size_t used_ = 0;
  std::string buffer_;
};

// All of it, to a descriptor that blocks. kUnavailable when nobody reads.
Status write_bytes(int fd, std::string_view bytes);

}  // namespace divisi::run
