#include "kube/time.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <charconv>

namespace divisi::kube {
namespace {

// Reads exactly `digits` digits from the front; false when they are not there.
bool take_number(std::string_view& text, std::size_t digits, int& value) {
  if (text.size() < digits) return false;
  const std::string_view number = text.substr(0, digits);
  const char* const last = number.data() + number.size();
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), value);
  if (error != std::errc() || end != last || text.front() == '-') return false;
  text.remove_prefix(digits);
  return true;
}

bool take_char(std::string_view& text, char wanted) {
  if (text.empty() || text.front() != wanted) return false;
  text.remove_prefix(1);
  return true;
}

std::chrono::microseconds take_decimals(std::string_view& text) {
  std::chrono::microseconds value{0};
  std::chrono::microseconds unit{100'000};
  while (!text.empty() && text.front() >= '0' && text.front() <= '9') {
    value += unit * (text.front() - '0');
    unit /= 10;
    text.remove_prefix(1);
  }
  return value;
}

// What stands behind the seconds: "Z" or "+hh:mm".
std::optional<std::chrono::minutes> take_offset(std::string_view text) {
  if (text == "Z" || text == "z") return std::chrono::minutes(0);
  const bool minus = !text.empty() && text.front() == '-';
  int hours = 0;
  int minutes = 0;
  if (!(take_char(text, '+') || take_char(text, '-')) || !take_number(text, 2, hours) ||
      !take_char(text, ':') || !take_number(text, 2, minutes) || !text.empty() || hours > 23 ||
      minutes > 59) {
    return std::nullopt;
  }
  const auto offset = std::chrono::hours(hours) + std::chrono::minutes(minutes);
  return minus ? -offset : offset;
}

}  // namespace

std::string rfc3339(std::chrono::system_clock::time_point when) {
  return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::chrono::system_clock::to_time_t(
                                                  std::chrono::floor<std::chrono::seconds>(when))));
}

std::string micro_time(std::chrono::system_clock::time_point when) {
  const auto seconds = std::chrono::floor<std::chrono::seconds>(when);
  const auto micros = std::chrono::duration_cast<std::chrono::microseconds>(when - seconds);
  return fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:06}Z",
                     fmt::gmtime(std::chrono::system_clock::to_time_t(seconds)), micros.count());
}

std::optional<std::chrono::system_clock::time_point> parse_time(std::string_view text) {
  int year = 0;
  int month = 0;
  int day = 0;
  int hour = 0;
  int minute = 0;
  int second = 0;
  if (!take_number(text, 4, year) || !take_char(text, '-') || !take_number(text, 2, month) ||
      !take_char(text, '-') || !take_number(text, 2, day) ||
      !(take_char(text, 'T') || take_char(text, 't')) || !take_number(text, 2, hour) ||
      !take_char(text, ':') || !take_number(text, 2, minute) || !take_char(text, ':') ||
      !take_number(text, 2, second)) {
    return std::nullopt;
  }
  const std::chrono::year_month_day date{std::chrono::year(year),
                                         std::chrono::month(static_cast<unsigned>(month)),
                                         std::chrono::day(static_cast<unsigned>(day))};
  if (!date.ok() || hour > 23 || minute > 59 || second > 60) return std::nullopt;
  std::chrono::microseconds decimals{0};
  if (take_char(text, '.')) decimals = take_decimals(text);
  const auto offset = take_offset(text);
  if (!offset) return std::nullopt;
  // The clock counts nanoseconds: what it cannot hold is as far away as it can tell.
  using Clock = std::chrono::system_clock;
  if (year >= 2262) return Clock::time_point::max();
  if (year <= 1677) return Clock::time_point::min();
  return std::chrono::sys_days(date) + std::chrono::hours(hour) + std::chrono::minutes(minute) +
         std::chrono::seconds(second) + decimals - *offset;
}

}  // namespace divisi::kube
