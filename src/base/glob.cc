#include "base/glob.h"

#include <algorithm>

namespace divisi {
namespace {

// One `[...]`: how many characters of the pattern it takes (0: it is not closed) and whether
// `c` is in it.
struct SetMatch {
  std::size_t length = 0;
  bool matches = false;
};

SetMatch match_set(std::string_view pattern, char c) noexcept {
  std::size_t at = 1;
  const bool negated = at < pattern.size() && pattern[at] == '!';
  if (negated) ++at;
  const std::size_t first = at;
  const std::size_t end = pattern.find(']', first + 1);
  if (end == std::string_view::npos) return {};
  const auto code = [](char symbol) { return static_cast<unsigned char>(symbol); };
  bool found = false;
  while (at < end) {
    const bool range = at + 2 < end && pattern[at + 1] == '-';
    const char low = pattern[at];
    const char high = range ? pattern[at + 2] : low;
    found = found || (code(low) <= code(c) && code(c) <= code(high));
    at += range ? 3 : 1;
  }
  return {end + 1, found != negated};
}

}  // namespace

bool glob_match(std::string_view pattern, std::string_view text) noexcept {
  std::size_t p = 0;
  std::size_t t = 0;
  // Where to go on if what follows the last `*` does not fit: it then takes one more character.
  std::size_t star = std::string_view::npos;
  std::size_t star_text = 0;
  while (t < text.size()) {
    std::size_t step = 0;  // characters of the pattern that match text[t]
    if (p < pattern.size()) {
      if (pattern[p] == '*') {
        star = p++;
        star_text = t;
        continue;
      }
      const SetMatch set = pattern[p] == '[' ? match_set(pattern.substr(p), text[t]) : SetMatch{};
      if (set.length > 0) {
        step = set.matches ? set.length : 0;
      } else if (pattern[p] == '?' || pattern[p] == text[t]) {
        step = 1;
      }
    }
    if (step > 0) {
      p += step;
      ++t;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      t = ++star_text;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

bool any_label_matches(std::string_view pattern, const std::set<std::string>& labels) noexcept {
  return std::ranges::any_of(labels,
                             [&](const std::string& label) { return glob_match(pattern, label); });
}

}  // namespace divisi
