// EventStream: server-sent events out of bytes that come in pieces of any size.
//
//   EventStream stream;
//   DIVISI_TRY_STATUS(stream.write(piece, [](std::string_view event, std::string_view data) {}));
//
// Lines of `event` and `data`; comments and other fields are passed over. Not thread-safe.
#pragma once

#include "base/status.h"

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

namespace divisi::runtime {

class EventStream {
 public:
  using OnEvent = std::function<void(std::string_view event, std::string_view data)>;

  explicit EventStream(std::size_t max_bytes = std::size_t{8} << 20) : max_bytes_(max_bytes) {}

  // Fails when one event, or one line, grows beyond the bound; then the stream is of no use.
  Status write(std::string_view piece, const OnEvent& on_event);

 private:
  void take_line(std::string_view line, const OnEvent& on_event);

  const std::size_t max_bytes_;
  std::string line_;  // without its end, which has not come yet
  bool after_return_ = false;
  std::string event_;
  std::string data_;
  bool has_data_ = false;
};

}  // namespace divisi::runtime
