// BodyFraming: where a body begins and ends inside its connection.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace divisi::http {

class BodyFraming {
 public:
  // Nothing; `bytes`; chunks with at most `max_trailer` bytes behind them; all until the end.
  static BodyFraming none() { return {}; }
  static BodyFraming sized(std::uint64_t bytes);
  static BodyFraming chunked(std::size_t max_trailer);
  static BodyFraming until_end();

  // Appends the decoded part of `bytes` to `body`; how many of them belong to this message.
  // Afterwards error() may be set.
  std::size_t feed(std::string_view bytes, std::string& body);

  bool done() const { return state_ == State::kDone; }
  bool to_the_end() const { return state_ == State::kUntilEnd; }
  bool inside_chunks() const { return state_ >= State::kSizeLine; }
  const char* error() const { return error_; }  // null: none
  std::uint64_t left() const { return left_; }  // of a sized body, of the chunk

 private:
  enum class State {
    kDone,
    kSized,
    kUntilEnd,
    // Chunks, from here on.
    kSizeLine,
    kExtension,
    kSizeLineEnd,
    kData,
    kDataEnd,
    kDataLineEnd,
    kTrailerLine,
    kTrailerText,
    kTrailerTextEnd,
    kTrailerEnd,
  };

  std::size_t take_data(std::string_view bytes, std::string& body);
  void step(char c);
  void size_line(char c);
  void fail(const char* why) { error_ = why; }

  State state_ = State::kDone;
  std::uint64_t left_ = 0;
  std::size_t digits_ = 0;  // of the size line that is being read
  std::size_t extra_ = 0;   // bytes of extensions and trailers, all together
  std::size_t max_extra_ = 0;
  const char* error_ = nullptr;
};

}  // namespace divisi::http
