#include "http/body_framing.h"

#include <algorithm>

namespace divisi::http {

namespace {

// 15 digits are a petabyte; more could only be meant to overflow somebody's counter.
constexpr std::size_t kMaxSizeDigits = 15;

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

}  // namespace

BodyFraming BodyFraming::sized(std::uint64_t bytes) {
  BodyFraming framing;
  framing.state_ = bytes == 0 ? State::kDone : State::kSized;
  framing.left_ = bytes;
  return framing;
}

BodyFraming BodyFraming::chunked(std::size_t max_trailer) {
  BodyFraming framing;
  framing.state_ = State::kSizeLine;
  framing.max_extra_ = max_trailer;
  return framing;
}

BodyFraming BodyFraming::until_end() {
  BodyFraming framing;
  framing.state_ = State::kUntilEnd;
  return framing;
}

std::size_t BodyFraming::feed(std::string_view bytes, std::string& body) {
  std::size_t used = 0;
  while (used < bytes.size() && state_ != State::kDone && error_ == nullptr) {
    switch (state_) {
      case State::kUntilEnd: body.append(bytes.substr(used)); return bytes.size();
      case State::kSized:
        used += take_data(bytes.substr(used), body);
        if (left_ == 0) state_ = State::kDone;
        break;
      case State::kData:
        used += take_data(bytes.substr(used), body);
        if (left_ == 0) state_ = State::kDataEnd;
        break;
      default: step(bytes[used++]);
    }
  }
  return used;
}

std::size_t BodyFraming::take_data(std::string_view bytes, std::string& body) {
  const auto taken = static_cast<std::size_t>(std::min<std::uint64_t>(left_, bytes.size()));
  body.append(bytes.substr(0, taken));
  left_ -= taken;
  return taken;
}

void BodyFraming::size_line(char c) {
  if (const int digit = hex_digit(c); digit >= 0) {
    if (++digits_ > kMaxSizeDigits) return fail("the size of a chunk is out of range");
    left_ = left_ * 16 + static_cast<std::uint64_t>(digit);
    return;
  }
  if (digits_ == 0) return fail("a chunk without its size");
  if (c == '\r') {
    state_ = State::kSizeLineEnd;
  } else if (c == ';' || c == ' ' || c == '\t') {
    state_ = State::kExtension;
  } else {
    fail("the size of a chunk is not hexadecimal");
  }
}

// One byte of what stands between the data.
void BodyFraming::step(char c) {
  const bool extra = state_ == State::kExtension || state_ == State::kTrailerText;
  if (extra && ++extra_ > max_extra_) return fail("chunk extensions and trailers without end");
  const auto expect = [&](char wanted, State next) {
    if (c != wanted) return fail("a chunk does not end where its size says");
    state_ = next;
  };
  switch (state_) {
    case State::kSizeLine: return size_line(c);
    case State::kExtension:
      if (c == '\n') return fail("a line of a chunk ends without CR");
      if (c == '\r') state_ = State::kSizeLineEnd;
      return;
    case State::kSizeLineEnd:
      expect('\n', left_ == 0 ? State::kTrailerLine : State::kData);
      digits_ = 0;
      return;
    case State::kDataEnd: return expect('\r', State::kDataLineEnd);
    case State::kDataLineEnd: return expect('\n', State::kSizeLine);
    case State::kTrailerLine:
      state_ = c == '\r' ? State::kTrailerEnd : State::kTrailerText;
      if (c == '\n') fail("a line of a trailer ends without CR");
      return;
    case State::kTrailerText:
      if (c == '\n') return fail("a line of a trailer ends without CR");
      if (c == '\r') state_ = State::kTrailerTextEnd;
      return;
    case State::kTrailerTextEnd: return expect('\n', State::kTrailerLine);
    case State::kTrailerEnd: return expect('\n', State::kDone);
    case State::kDone:
    case State::kSized:
    case State::kUntilEnd:
    case State::kData: return;  // feed() has them
  }
}

}  // namespace divisi::http
