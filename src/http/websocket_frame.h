// Frames of RFC 6455: bytes to messages and back, without a connection.
#pragma once

#include "base/status.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace divisi::http {

enum class Opcode : std::uint8_t {
  kContinuation = 0,
  kText = 1,
  kBinary = 2,
  kClose = 8,
  kPing = 9,
  kPong = 10,
};

// Why a WebSocket ends, as its close frame says it.
enum class CloseCode : std::uint16_t {
  kNormal = 1000,
  kProtocolError = 1002,
  kNoCode = 1005,  // never sent: the frame had none
  kBadText = 1007,
  kTooLarge = 1009,
};

// One frame. With `mask` (a client's) the payload is masked.
std::string encode_frame(Opcode opcode, std::string_view payload,
                         const std::optional<std::array<char, 4>>& mask);

// The payload of a close frame.
std::string encode_close(CloseCode code, std::string_view reason);

bool is_utf8(std::string_view text);

// FrameReader: what the other side sends, as whole messages and control frames.
//
//   while (auto message = reader.next(bytes)) ...
//
// Any cut of the same bytes gives the same messages.
class FrameReader {
 public:
  // A client's frames must be masked, a server's must not.
  FrameReader(bool expect_masked, std::size_t max_message_bytes)
      : expect_masked_(expect_masked), max_message_bytes_(max_message_bytes) {}

  struct Message {
    Opcode opcode = Opcode::kText;  // never kContinuation
    std::string payload{};
    CloseCode code = CloseCode::kNoCode;  // of kClose; the payload is its reason
  };

  // The next one; the bytes that are done with go from the front of `bytes`. None: what is left
  // must be given again with more behind it, or failed().
  std::optional<Message> next(std::string_view& bytes);

  // What the other side did wrong, and the code to tell it with.
  struct Failure {
    CloseCode code;
    const char* text;
  };
  const std::optional<Failure>& failed() const { return failed_; }

 private:
  struct Head {
    Opcode opcode;
    bool final;
    std::uint64_t length;
    std::size_t size;  // of the head itself
    std::array<char, 4> mask;
  };

  std::optional<Head> read_head(std::string_view bytes);
  bool check(const Head& head);
  std::optional<Message> finish(const Head& head, std::string payload);
  std::optional<Message> finish_close(std::string_view payload);
  std::nullopt_t fail(CloseCode code, const char* text);

  const bool expect_masked_;
  const std::size_t max_message_bytes_;
  std::optional<Message> partial_;  // a message whose last frame is to come
  std::optional<Failure> failed_;
};

}  // namespace divisi::http
