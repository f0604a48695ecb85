#include "runtime/event_stream.h"

#include <utility>

namespace divisi::runtime {

Status EventStream::write(std::string_view piece, const OnEvent& on_event) {
  // A line ends with \r\n, \n or \r, and the two characters may come in two pieces.
  if (piece.empty()) return {};
  if (std::exchange(after_return_, false) && piece.starts_with('\n')) piece.remove_prefix(1);
  while (!piece.empty()) {
    const std::size_t end = piece.find_first_of("\r\n");
    const std::string_view part = piece.substr(0, end);
    if (line_.size() + data_.size() + part.size() > max_bytes_) {
      return make_status(Code::kInvalid, "an event of more than {} bytes", max_bytes_);
    }
    line_ += part;
    if (end == std::string_view::npos) break;
    const bool returned = piece[end] == '\r';
    piece.remove_prefix(end + 1);
    if (returned && piece.empty()) after_return_ = true;
    if (returned && piece.starts_with('\n')) piece.remove_prefix(1);
    take_line(line_, on_event);
    line_.clear();
  }
  return {};
}

void EventStream::take_line(std::string_view line, const OnEvent& on_event) {
  if (line.empty()) {
    if (has_data_) on_event(event_.empty() ? std::string_view("message") : event_, data_);
    event_.clear();
    data_.clear();
    has_data_ = false;
    return;
  }
  const std::size_t colon = line.find(':');
  const std::string_view field = line.substr(0, colon);
  std::string_view value;
  if (colon != std::string_view::npos) value = line.substr(colon + 1);
  if (value.starts_with(' ')) value.remove_prefix(1);
  if (field == "event") event_ = value;
  if (field != "data") return;
  if (std::exchange(has_data_, true)) data_ += '\n';
  data_ += value;
}

}  // namespace divisi::runtime
