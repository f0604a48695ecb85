// Label patterns: the shell's `*`, `?`, `[seq]` and `[!seq]`, case-sensitive.
#pragma once

#include <set>
#include <string>
#include <string_view>

namespace divisi {

// A `]` right after `[` or `[!` belongs to the set; `a-z` in it is a range; a `[` that is never
// closed stands for itself. Time grows with pattern length times text length at worst.
bool glob_match(std::string_view pattern, std::string_view text) noexcept;

bool any_label_matches(std::string_view pattern, const std::set<std::string>& labels) noexcept;

}  // namespace divisi
