// WatchDecoder: the events of a watch, out of the bytes of its stream.
#pragma once

#include "base/status.h"
#include "json/value.h"

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

namespace divisi::kube {

struct WatchEvent {
  enum class Type { kAdded, kModified, kDeleted, kBookmark, kError };
  Type type = Type::kAdded;
  json::Value object{};
};

// One JSON object a line, cut anywhere. Not thread-safe.
class WatchDecoder {
 public:
  // Larger than any object the store takes (1.5 MiB), with room for its JSON form.
  static constexpr std::size_t kMaxFrame = std::size_t{16} << 20;

  explicit WatchDecoder(std::size_t max_frame = kMaxFrame) : max_frame_(max_frame) {}

  // Calls `on_event` for each complete event; when that returns false, the rest of the piece is
  // left alone. Fails for what is no event; the stream is then of no more use.
  Status feed(std::string_view piece, const std::function<bool(WatchEvent)>& on_event);

  // Whether the stream was cut inside an event.
  bool partial() const noexcept { return !rest_.empty(); }

 private:
  std::size_t max_frame_;
  std::string rest_;
};

}  // namespace divisi::kube
