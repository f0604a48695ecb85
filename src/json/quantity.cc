#include "json/quantity.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <optional>
#include <ranges>

namespace divisi::json {
namespace {

__extension__ using Nanos = __int128;

constexpr int kNanoDigits = 9;
constexpr Nanos kNanosPerUnit = 1'000'000'000;
constexpr int kMaxDigits = 38;  // what 128 bits can count

constexpr Nanos power_of_ten(int exponent) {
  Nanos power = 1;
  for (int i = 0; i < exponent; ++i) power *= 10;
  return power;
}
constexpr Nanos kMaxNanos = power_of_ten(kMaxDigits) - 1;
constexpr Nanos kMaxBinary = std::numeric_limits<std::int64_t>::max();  // units

// Longer texts than any that means something.
constexpr std::size_t kMaxText = 256;

struct Suffix {
  std::string_view text;
  int exponent;
};
constexpr std::array<Suffix, 10> kDecimalSuffixes = {{{"n", -9},
                                                      {"u", -6},
                                                      {"m", -3},
                                                      {"", 0},
                                                      {"k", 3},
                                                      {"M", 6},
                                                      {"G", 9},
                                                      {"T", 12},
                                                      {"P", 15},
                                                      {"E", 18}}};
constexpr std::array<Suffix, 6> kBinarySuffixes = {
    {{"Ki", 10}, {"Mi", 20}, {"Gi", 30}, {"Ti", 40}, {"Pi", 50}, {"Ei", 60}}};

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

std::string_view take_digits(std::string_view& rest) {
  const auto end = std::ranges::find_if_not(rest, is_digit);
  const auto length = static_cast<std::size_t>(end - rest.begin());
  const std::string_view digits = rest.substr(0, length);
  rest.remove_prefix(length);
  return digits;
}

// The digits before and after the point of a positive number.
struct Decimal {
  std::string whole;
  std::string fraction;
};

// Nothing when the number is too large.
std::optional<Nanos> to_integer(std::string_view digits) {
  digits.remove_prefix(std::min(digits.find_first_not_of('0'), digits.size()));
  if (digits.size() > kMaxDigits) return std::nullopt;
  Nanos number = 0;
  for (const char digit : digits) number = number * 10 + (digit - '0');
  return number;
}

bool any_nonzero(std::string_view digits) {
  return digits.find_first_not_of('0') != std::string_view::npos;
}

// The number times ten to the `exponent`, in billionths, rounded up.
std::optional<Nanos> decimal_nanos(Decimal number, int exponent) {
  const int shift = exponent + kNanoDigits;
  const auto places = static_cast<std::size_t>(std::abs(shift));
  if (shift >= 0) {
    number.fraction.resize(std::max(number.fraction.size(), places), '0');
    number.whole += number.fraction.substr(0, places);
    number.fraction.erase(0, places);
  } else {
    if (number.whole.size() < places) number.whole.insert(0, places - number.whole.size(), '0');
    number.fraction.insert(0, number.whole.substr(number.whole.size() - places));
    number.whole.resize(number.whole.size() - places);
  }
  const auto nanos = to_integer(number.whole);
  if (!nanos) return std::nullopt;
  return *nanos + (any_nonzero(number.fraction) ? 1 : 0);
}

// The number times two to the `exponent`, in billionths, rounded up and capped as Kubernetes does.
Nanos binary_nanos(const Decimal& number, int exponent) {
  const auto whole = to_integer(number.whole);
  if (!whole || *whole > (kMaxBinary >> exponent)) return kMaxBinary * kNanosPerUnit;
  // Schoolbook multiplication of the fraction: what is carried past its first digit is whole.
  const Nanos unit = kNanosPerUnit << exponent;
  Nanos carry = 0;
  bool inexact = false;
  for (const char digit : std::views::reverse(number.fraction)) {
    const Nanos product = unit * (digit - '0') + carry;
    inexact = inexact || product % 10 != 0;
    carry = product / 10;
  }
  return std::min(*whole * unit + carry + (inexact ? 1 : 0), kMaxBinary * kNanosPerUnit);
}

// "e3", "E-2": nothing for any other text.
std::optional<int> parse_exponent(std::string_view suffix) {
  if (suffix.size() < 2 || (suffix.front() != 'e' && suffix.front() != 'E')) return std::nullopt;
  suffix.remove_prefix(1);
  const bool negative = suffix.front() == '-';
  if (negative || suffix.front() == '+') suffix.remove_prefix(1);
  if (suffix.empty() || !std::ranges::all_of(suffix, is_digit)) return std::nullopt;
  // Any exponent this large means the same: too much, or the smallest amount.
  constexpr int kLargest = 1000;
  int exponent = 0;
  for (const char digit : suffix) exponent = std::min(exponent * 10 + (digit - '0'), kLargest);
  return negative ? -exponent : exponent;
}

template <std::size_t kSize>
std::optional<int> find_suffix(const std::array<Suffix, kSize>& table, std::string_view text) {
  const auto* found =
      std::ranges::find_if(table, [&](const Suffix& suffix) { return suffix.text == text; });
  return found == table.end() ? std::nullopt : std::optional(found->exponent);
}

std::string print_integer(Nanos number) {
  std::string out;
  const bool negative = number < 0;
  do {
    const int digit = static_cast<int>(number % 10);
    out += static_cast<char>('0' + (digit < 0 ? -digit : digit));
    number /= 10;
  } while (number != 0);
  if (negative) out += '-';
  std::ranges::reverse(out);
  return out;
}

std::string print_decimal(Nanos nanos, Quantity::Format format) {
  int exponent = -kNanoDigits;
  for (; nanos % 1000 == 0; nanos /= 1000) exponent += 3;
  const auto* suffix = std::ranges::find_if(
      kDecimalSuffixes, [&](const Suffix& known) { return known.exponent == exponent; });
  const bool named = format != Quantity::Format::kDecimalExponent || exponent == 0;
  if (named && suffix != kDecimalSuffixes.end()) {
    return print_integer(nanos) + std::string(suffix->text);
  }
  return fmt::format("{}e{}", print_integer(nanos), exponent);
}

std::string print_binary(Nanos units) {
  std::string_view suffix;
  for (const Suffix& larger : kBinarySuffixes) {
    if (units % 1024 != 0) break;
    units /= 1024;
    suffix = larger.text;
  }
  return print_integer(units) + std::string(suffix);
}

// nanos / unit, rounded away from zero, within 64 bits.
std::int64_t round_to(Nanos nanos, Nanos unit) {
  const Nanos rest = nanos % unit;
  const Nanos rounded = nanos / unit + (rest > 0 ? 1 : 0) - (rest < 0 ? 1 : 0);
  return static_cast<std::int64_t>(std::clamp<Nanos>(
      rounded, std::numeric_limits<std::int64_t>::min(), std::numeric_limits<std::int64_t>::max()));
}

}  // namespace

Quantity::Quantity(std::int64_t amount, Format format)
    : nanos_(Nanos{amount} * kNanosPerUnit), format_(format) {}

Quantity Quantity::from_milli(std::int64_t thousandths, Format format) {
  return {Nanos{thousandths} * (kNanosPerUnit / 1000), format, 0};
}

Result<Quantity> Quantity::parse(std::string_view text) {
  if (text.size() > kMaxText) {
    return failure(Code::kInvalid, "a quantity of {} characters; at most {} are read", text.size(),
                   kMaxText);
  }
  std::string_view rest = text;
  const bool negative = rest.starts_with('-');
  if (negative || rest.starts_with('+')) rest.remove_prefix(1);
  Decimal number;
  number.whole = take_digits(rest);
  if (rest.starts_with('.')) {
    rest.remove_prefix(1);
    number.fraction = take_digits(rest);
  }
  if (number.whole.empty() && number.fraction.empty()) {
    return failure(Code::kInvalid, "\"{}\" is no quantity: it has no number before its suffix",
                   text);
  }
  std::optional<Nanos> nanos;
  Format format = Format::kDecimalSi;
  if (const auto decimal = find_suffix(kDecimalSuffixes, rest)) {
    nanos = decimal_nanos(std::move(number), *decimal);
  } else if (const auto binary = find_suffix(kBinarySuffixes, rest)) {
    nanos = binary_nanos(number, *binary);
    // A part of one unit has no binary form that loses nothing.
    format = *nanos < kNanosPerUnit && *nanos > 0 ? Format::kDecimalSi : Format::kBinarySi;
  } else if (const auto exponent = parse_exponent(rest)) {
    nanos = decimal_nanos(std::move(number), *exponent);
    format = Format::kDecimalExponent;
  } else {
    return failure(Code::kInvalid,
                   "\"{}\" is no quantity: its suffix is none of n u m k M G T P E Ki Mi Gi Ti Pi "
                   "Ei or an exponent",
                   text);
  }
  if (!nanos || *nanos > kMaxNanos) {
    return failure(Code::kInvalid, "the quantity \"{}\" is 10^29 or more", text);
  }
  return Quantity(negative ? -*nanos : *nanos, format, 0);
}

std::string Quantity::to_string() const {
  if (nanos_ == 0) return "0";
  if (format_ == Format::kBinarySi) {
    const Nanos units = nanos_ / kNanosPerUnit;
    if (nanos_ % kNanosPerUnit == 0 && (units <= -1024 || units >= 1024)) {
      return print_binary(units);
    }
    return print_decimal(nanos_, Format::kDecimalSi);
  }
  return print_decimal(nanos_, format_);
}

std::int64_t Quantity::value() const noexcept {
  return round_to(nanos_, kNanosPerUnit);
}

std::int64_t Quantity::milli_value() const noexcept {
  return round_to(nanos_, kNanosPerUnit / 1000);
}

double Quantity::to_double() const noexcept {
  return static_cast<double>(nanos_) / static_cast<double>(kNanosPerUnit);
}

Quantity& Quantity::operator+=(const Quantity& other) noexcept {
  if (is_zero()) format_ = other.format_;
  // Twice the limit is more than 128 bits hold.
  Nanos sum = 0;
  const bool overflow = __builtin_add_overflow(nanos_, other.nanos_, &sum);
  if (overflow) sum = nanos_ > 0 ? kMaxNanos : -kMaxNanos;
  nanos_ = std::clamp(sum, -kMaxNanos, kMaxNanos);
  return *this;
}

Quantity& Quantity::operator-=(const Quantity& other) noexcept {
  return *this += -other;
}

Quantity Quantity::operator-() const noexcept {
  return {-nanos_, format_, 0};
}

}  // namespace divisi::json
