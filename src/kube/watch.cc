#include "kube/watch.h"

#include <array>
#include <optional>
#include <utility>

namespace divisi::kube {
namespace {

std::optional<WatchEvent::Type> type_of(std::string_view name) {
  using Type = WatchEvent::Type;
  constexpr std::array<std::pair<std::string_view, Type>, 5> kTypes{{{"ADDED", Type::kAdded},
                                                                     {"MODIFIED", Type::kModified},
                                                                     {"DELETED", Type::kDeleted},
                                                                     {"BOOKMARK", Type::kBookmark},
                                                                     {"ERROR", Type::kError}}};
  for (const auto& [text, type] : kTypes) {
    if (text == name) return type;
  }
  return std::nullopt;
}

Result<WatchEvent> decode(std::string_view line, std::size_t max_frame) {
  auto frame = json::parse(line, {.max_bytes = max_frame});
  if (!frame) return failure(frame.error().with_context("an event of the watch is not JSON"));
  const std::string_view name = frame->string_at({"type"});
  const auto type = type_of(name);
  json::Value* object = frame->find("object");
  if (!type || object == nullptr || object->as_object() == nullptr) {
    return failure(Code::kInternal, "the watch sent an event of type \"{}\" that is none of ours",
                   name.substr(0, 40));
  }
  return WatchEvent{*type, std::move(*object)};
}

}  // namespace

Status WatchDecoder::feed(std::string_view piece, const std::function<bool(WatchEvent)>& on_event) {
  while (!piece.empty()) {
    const std::size_t end = piece.find('\n');
    const std::size_t size = end == std::string_view::npos ? piece.size() : end;
    if (rest_.size() + size > max_frame_) {
      return make_status(Code::kInternal, "the watch sent an event larger than {} bytes",
                         max_frame_);
    }
    if (end == std::string_view::npos) {
      rest_.append(piece);
      return {};
    }
    std::string_view line = piece.substr(0, end);
    std::string joined;
    if (!rest_.empty()) {
      joined = std::exchange(rest_, {});
      joined.append(line);
      line = joined;
    }
    piece.remove_prefix(end + 1);
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    auto event = decode(line, max_frame_);
    if (!event) return event.error();
    if (!on_event(*std::move(event))) return {};
  }
  return {};
}

}  // namespace divisi::kube
