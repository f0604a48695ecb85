#include "flags.h"

#include <charconv>
#include <cmath>
#include <string>
#include <utility>

namespace divisi::apps {
namespace {

constexpr std::pair<std::string_view, double> kUnits[] = {
    {"ns", 1e-9}, {"us", 1e-6}, {"µs", 1e-6}, {"ms", 1e-3}, {"s", 1}, {"m", 60}, {"h", 3600}};
constexpr double kLongest = 365.0 * 24 * 3600;

// The unit at the beginning of `text`; the longest one, so that "ms" is not "m".
std::pair<std::string_view, double> unit_of(std::string_view text) {
  std::pair<std::string_view, double> found{};
  for (const auto& unit : kUnits) {
    if (text.starts_with(unit.first) && unit.first.size() > found.first.size()) found = unit;
  }
  return found;
}

}  // namespace

Result<io::Duration> parse_duration(std::string_view text) {
  const auto refuse = [text] {
    return failure(Code::kInvalid, "'{}' is no duration: write it like 30s or 1m30s", text);
  };
  if (text == "0") return io::Duration(0);
  if (text.empty()) return refuse();
  double seconds = 0;
  for (std::string_view rest = text; !rest.empty();) {
    double number = 0;
    const auto [end, error] =
        std::from_chars(rest.data(), rest.data() + rest.size(), number, std::chars_format::fixed);
    if (error != std::errc() || !std::isfinite(number) || std::signbit(number)) return refuse();
    rest.remove_prefix(static_cast<std::size_t>(end - rest.data()));
    const auto [unit, factor] = unit_of(rest);
    if (unit.empty()) return refuse();
    rest.remove_prefix(unit.size());
    seconds += number * factor;
  }
  if (seconds > kLongest) return failure(Code::kInvalid, "'{}' is more than a year", text);
  return std::chrono::duration_cast<io::Duration>(std::chrono::duration<double>(seconds));
}

Result<Listen> parse_listen(std::string_view text) {
  if (text.empty() || text == "0") return Listen();
  const std::string whole =
      text.starts_with(':') ? "0.0.0.0" + std::string(text) : std::string(text);
  auto address = io::Address::parse(whole);
  if (!address || address->scheme != io::Address::Scheme::kTcp) {
    return failure(Code::kInvalid, "'{}' is no address to listen on: write it like :8080", text);
  }
  return Listen(*std::move(address));
}

}  // namespace divisi::apps
