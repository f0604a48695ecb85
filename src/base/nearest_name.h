// Which of the right names somebody probably meant.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace divisi {

// The candidate with the fewest edits to `name`; empty when all are too far away to be meant.
std::string nearest_name(std::string_view name, std::span<const std::string> candidates);

// ", did you mean 'x'?" or nothing: the end of an error line.
std::string did_you_mean(std::string_view name, std::span<const std::string> candidates);

}  // namespace divisi
