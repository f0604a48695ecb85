#include "http/websocket_frame.h"

#include <utility>

namespace divisi::http {

namespace {

constexpr std::size_t kMaxControl = 125;
constexpr std::size_t kMaxHead = 14;

std::uint64_t read_number(std::string_view bytes) {
  std::uint64_t value = 0;
  for (const char c : bytes) value = value << 8 | static_cast<unsigned char>(c);
  return value;
}

void append_number(std::string& text, std::uint64_t value, int bytes) {
  for (int i = bytes - 1; i >= 0; --i) text += static_cast<char>(value >> (8 * i) & 255);
}

void apply_mask(std::string& text, std::size_t from, const std::array<char, 4>& mask) {
  for (std::size_t i = from; i < text.size(); ++i) {
    text[i] = static_cast<char>(text[i] ^ mask[(i - from) % 4]);
  }
}

bool is_control(Opcode opcode) {
  return static_cast<int>(opcode) >= 8;
}

// The codes that may be on the wire (RFC 6455, 7.4; the registry).
bool may_be_sent(std::uint64_t code) {
  return (code >= 1000 && code <= 1014 && code != 1004 && code != 1005 && code != 1006) ||
         (code >= 3000 && code <= 4999);
}

}  // namespace

std::string encode_frame(Opcode opcode, std::string_view payload,
                         const std::optional<std::array<char, 4>>& mask) {
  std::string frame;
  frame.reserve(payload.size() + kMaxHead);
  frame += static_cast<char>(0x80 | static_cast<int>(opcode));
  const int masked = mask ? 0x80 : 0;
  if (payload.size() <= kMaxControl) {
    frame += static_cast<char>(masked | static_cast<int>(payload.size()));
  } else if (payload.size() <= 0xffff) {
    frame += static_cast<char>(masked | 126);
    append_number(frame, payload.size(), 2);
  } else {
    frame += static_cast<char>(masked | 127);
    append_number(frame, payload.size(), 8);
  }
  if (mask) frame.append(mask->data(), mask->size());
  const std::size_t start = frame.size();
  frame.append(payload);
  if (mask) apply_mask(frame, start, *mask);
  return frame;
}

std::string encode_close(CloseCode code, std::string_view reason) {
  std::string payload;
  if (code == CloseCode::kNoCode) return payload;
  append_number(payload, static_cast<std::uint16_t>(code), 2);
  payload.append(reason.substr(0, kMaxControl - 2));
  return payload;
}

// Shortest forms only, no surrogates, nothing beyond U+10FFFF (RFC 3629).
bool is_utf8(std::string_view text) {
  for (std::size_t i = 0; i < text.size();) {
    const auto lead = static_cast<unsigned char>(text[i]);
    if (lead < 0x80) {
      ++i;
      continue;
    }
    const std::size_t size = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
    if (lead < 0xc2 || lead > 0xf4 || i + size > text.size()) return false;
    std::uint32_t point = lead & (0xffu >> (size + 1));
    for (std::size_t k = 1; k < size; ++k) {
      const auto byte = static_cast<unsigned char>(text[i + k]);
      if ((byte & 0xc0) != 0x80) return false;
      point = point << 6 | (byte & 0x3fu);
    }
    constexpr std::uint32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
    if (point < kLeast[size] || point > 0x10ffff || (point >= 0xd800 && point <= 0xdfff)) {
      return false;
    }
    i += size;
  }
  return true;
}

std::nullopt_t FrameReader::fail(CloseCode code, const char* text) {
  failed_ = {code, text};
  return std::nullopt;
}

std::optional<FrameReader::Message> FrameReader::next(std::string_view& bytes) {
  while (!failed_) {
    const auto head = read_head(bytes);
    if (!head || !check(*head)) return std::nullopt;
    if (bytes.size() - head->size < head->length) return std::nullopt;
    std::string payload(bytes.substr(head->size, static_cast<std::size_t>(head->length)));
    bytes.remove_prefix(head->size + payload.size());
    if (expect_masked_) apply_mask(payload, 0, head->mask);
    if (auto message = finish(*head, std::move(payload))) return message;
  }
  return std::nullopt;
}

std::optional<FrameReader::Head> FrameReader::read_head(std::string_view bytes) {
  if (bytes.size() < 2) return std::nullopt;
  const auto first = static_cast<unsigned char>(bytes[0]);
  const auto second = static_cast<unsigned char>(bytes[1]);
  if ((first & 0x70) != 0) return fail(CloseCode::kProtocolError, "reserved bits are set");
  if (((second & 0x80) != 0) != expect_masked_) {
    return fail(CloseCode::kProtocolError, expect_masked_ ? "a frame of a client without a mask"
                                                          : "a frame of a server with a mask");
  }
  Head head{.opcode = static_cast<Opcode>(first & 15),
            .final = (first & 0x80) != 0,
            .length = second & 0x7fu,
            .size = 2,
            .mask = {}};
  const std::size_t extended = head.length == 126 ? 2 : head.length == 127 ? 8 : 0;
  const std::size_t size = 2 + extended + (expect_masked_ ? 4 : 0);
  if (bytes.size() < size) return std::nullopt;
  if (extended > 0) {
    head.length = read_number(bytes.substr(2, extended));
    if (head.length <= (extended == 2 ? kMaxControl : 0xffff)) {
      return fail(CloseCode::kProtocolError, "a length that is not in its shortest form");
    }
  }
  if (expect_masked_) bytes.copy(head.mask.data(), 4, 2 + extended);
  head.size = size;
  return head;
}

// Before the payload is waited for: nobody makes us collect what we would refuse.
bool FrameReader::check(const Head& head) {
  if (is_control(head.opcode)) {
    if (head.opcode > Opcode::kPong) {
      fail(CloseCode::kProtocolError, "an unknown kind of frame");
    } else if (!head.final || head.length > kMaxControl) {
      fail(CloseCode::kProtocolError, "a control frame that is long or in pieces");
    }
    return !failed_;
  }
  const bool continues = head.opcode == Opcode::kContinuation;
  if (head.opcode > Opcode::kBinary) {
    fail(CloseCode::kProtocolError, "an unknown kind of frame");
  } else if (continues != partial_.has_value()) {
    fail(CloseCode::kProtocolError,
         continues ? "the continuation of nothing" : "a new message inside another");
  } else if (head.length > max_message_bytes_ - (partial_ ? partial_->payload.size() : 0)) {
    fail(CloseCode::kTooLarge, "a message that is too large");
  }
  return !failed_;
}

std::optional<FrameReader::Message> FrameReader::finish(const Head& head, std::string payload) {
  if (head.opcode == Opcode::kClose) return finish_close(payload);
  if (is_control(head.opcode)) return Message{.opcode = head.opcode, .payload = std::move(payload)};
  if (partial_) {
    partial_->payload += payload;
  } else {
    partial_ = Message{.opcode = head.opcode, .payload = std::move(payload)};
  }
  if (!head.final) return std::nullopt;
  auto message = std::exchange(partial_, std::nullopt);
  if (message->opcode == Opcode::kText && !is_utf8(message->payload)) {
    return fail(CloseCode::kBadText, "text that is not UTF-8");
  }
  return message;
}

std::optional<FrameReader::Message> FrameReader::finish_close(std::string_view payload) {
  Message message{.opcode = Opcode::kClose};
  if (payload.empty()) return message;
  const auto code = read_number(payload.substr(0, 2));
  if (payload.size() < 2 || !may_be_sent(code)) {
    return fail(CloseCode::kProtocolError, "a close frame with a code that does not exist");
  }
  message.code = static_cast<CloseCode>(code);
  message.payload = payload.substr(2);
  if (!is_utf8(message.payload)) return fail(CloseCode::kBadText, "a reason that is not UTF-8");
  return message;
}

}  // namespace divisi::http
