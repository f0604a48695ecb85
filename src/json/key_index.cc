#include "json/key_index.h"

#include <algorithm>
#include <numeric>

namespace divisi::json {
namespace {

// Most objects are this small, and then the index costs nothing.
constexpr std::size_t kFewKeys = 16;

}  // namespace

KeyIndex::KeyIndex(const Object& object) : object_(object), size_(object.size()) {
  if (size_ <= kFewKeys) return;
  sorted_.resize(size_);
  std::iota(sorted_.begin(), sorted_.end(), std::size_t{0});
  std::ranges::sort(
      sorted_, [&](std::size_t a, std::size_t b) { return object_[a].first < object_[b].first; });
}

std::optional<std::size_t> KeyIndex::find(std::string_view key) const {
  if (sorted_.empty()) {
    for (std::size_t i = 0; i < size_; ++i) {
      if (object_[i].first == key) return i;
    }
    return std::nullopt;
  }
  const auto key_at = [&](std::size_t position) -> std::string_view {
    return object_[position].first;
  };
  const auto found = std::ranges::lower_bound(sorted_, key, {}, key_at);
  if (found == sorted_.end() || object_[*found].first != key) return std::nullopt;
  return *found;
}

}  // namespace divisi::json
