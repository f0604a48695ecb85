// Times as Kubernetes writes them: RFC 3339, UTC.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>

namespace divisi::kube {

std::string rfc3339(std::chrono::system_clock::time_point when);     // "2026-11-15T19:07:46Z"
std::string micro_time(std::chrono::system_clock::time_point when);  // "...46.123456Z"

// Also with another offset and any number of decimals; nothing for what is no such time.
std::optional<std::chrono::system_clock::time_point> parse_time(std::string_view text);

}  // namespace divisi::kube
