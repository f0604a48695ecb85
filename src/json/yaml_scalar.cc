#include "json/yaml_scalar.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <optional>

namespace divisi::json {
namespace {

using namespace std::string_view_literals;

template <std::size_t kSize>
bool one_of(std::string_view text, const std::array<std::string_view, kSize>& words) {
  return std::ranges::find(words, text) != words.end();
}

constexpr std::array kNull = {""sv, "~"sv, "null"sv, "Null"sv, "NULL"sv};
constexpr std::array kTrue = {"y"sv,    "Y"sv,    "yes"sv, "Yes"sv, "YES"sv, "true"sv,
                              "True"sv, "TRUE"sv, "on"sv,  "On"sv,  "ON"sv};
constexpr std::array kFalse = {"n"sv,     "N"sv,     "no"sv,  "No"sv,  "NO"sv, "false"sv,
                               "False"sv, "FALSE"sv, "off"sv, "Off"sv, "OFF"sv};
constexpr std::array kNotFinite = {".nan"sv,  ".NaN"sv,  ".NAN"sv,  ".inf"sv,
                                   ".Inf"sv,  ".INF"sv,  "+.inf"sv, "+.Inf"sv,
                                   "+.INF"sv, "-.inf"sv, "-.Inf"sv, "-.INF"sv};

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

std::string_view drop_sign(std::string_view text) {
  return text.starts_with('-') || text.starts_with('+') ? text.substr(1) : text;
}

// The base that a prefix names (0x, 0o, 0b, and 0 for octal); takes the prefix off.
int take_base(std::string_view& digits) {
  if (digits.size() < 2 || digits.front() != '0') return 10;
  const char mark = digits[1];
  const bool marked =
      mark == 'x' || mark == 'X' || mark == 'o' || mark == 'O' || mark == 'b' || mark == 'B';
  digits.remove_prefix(marked ? 2 : 1);
  if (mark == 'x' || mark == 'X') return 16;
  return mark == 'b' || mark == 'B' ? 2 : 8;
}

// An integer of 64 bits; one that only fits without its sign bit becomes a double, as in JSON.
std::optional<Value> parse_integer(std::string_view text) {
  const bool negative = text.starts_with('-');
  std::string_view digits = drop_sign(text);
  const int base = take_base(digits);
  std::uint64_t magnitude = 0;
  const char* end = digits.data() + digits.size();
  const auto parsed =
      std::from_chars(digits.data(), digits.data() + digits.size(), magnitude, base);
  if (digits.empty() || parsed.ec != std::errc() || parsed.ptr != end) return std::nullopt;
  constexpr std::uint64_t kSignBit = std::uint64_t{1} << 63;
  if (magnitude < kSignBit || (negative && magnitude == kSignBit)) {
    return Value(static_cast<std::int64_t>(negative ? 0 - magnitude : magnitude));
  }
  if (negative) return std::nullopt;
  return Value(static_cast<double>(magnitude));
}

std::size_t count_digits(std::string_view text) {
  return static_cast<std::size_t>(std::ranges::find_if_not(text, is_digit) - text.begin());
}

// Digits, a point, digits, an exponent: from_chars alone would also take "inf" and "nan".
bool has_float_form(std::string_view text) {
  text = drop_sign(text);
  const std::size_t whole = count_digits(text);
  text.remove_prefix(whole);
  std::size_t fraction = 0;
  if (text.starts_with('.')) {
    fraction = count_digits(text.substr(1));
    text.remove_prefix(fraction + 1);
  }
  if (whole + fraction == 0) return false;
  if (text.empty()) return true;
  if (text.front() != 'e' && text.front() != 'E') return false;
  text = drop_sign(text.substr(1));
  return !text.empty() && count_digits(text) == text.size();
}

std::optional<double> parse_float(std::string_view text) {
  if (!has_float_form(text)) return std::nullopt;
  if (text.starts_with('+')) text.remove_prefix(1);  // from_chars does not know it
  double number = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), number);
  // Beyond the range of a double the text stays text, as in Go.
  if (parsed.ec != std::errc() || !std::isfinite(number)) return std::nullopt;
  return number;
}

std::optional<Value> parse_number(std::string_view text) {
  const char first = text.front();
  if (first == '.') {
    const auto number = parse_float(text);
    return number ? std::optional(Value(*number)) : std::nullopt;
  }
  if (!is_digit(first) && first != '-' && first != '+') return std::nullopt;
  std::string plain(text);
  std::erase(plain, '_');
  if (auto integer = parse_integer(plain)) return integer;
  const auto number = parse_float(plain);
  return number ? std::optional(Value(*number)) : std::nullopt;
}

Status not_in_json(std::string_view text) {
  return make_status(Code::kInvalid, "JSON has no number for {}", text);
}

// Null, a boolean or a number; nothing when the text is just text.
std::optional<Value> resolve_word(std::string_view text) {
  if (one_of(text, kNull)) return Value();
  if (one_of(text, kTrue)) return Value(true);
  if (one_of(text, kFalse)) return Value(false);
  return parse_number(text);
}

int base64_digit(char c) {
  if (c >= 'A' && c <= 'Z') return c - 'A';
  if (c >= 'a' && c <= 'z') return c - 'a' + 26;
  if (is_digit(c)) return c - '0' + 52;
  if (c == '+') return 62;
  return c == '/' ? 63 : -1;
}

std::optional<std::string> decode_base64(std::string_view text) {
  std::string out;
  std::uint32_t bits = 0;
  std::size_t digits = 0;
  std::size_t padding = 0;
  for (const char c : text) {
    if (c == ' ' || c == '\n') continue;
    if (c == '=') {
      ++padding;
      continue;
    }
    const int digit = base64_digit(c);
    if (digit < 0 || padding > 0) return std::nullopt;
    bits = bits << 6 | static_cast<std::uint32_t>(digit);
    if (++digits % 4 != 1) out += static_cast<char>(bits >> (6 - 2 * ((digits - 1) % 4)) & 0xff);
  }
  const bool complete = (digits + padding) % 4 == 0 && padding <= 2 && digits % 4 != 1;
  return complete ? std::optional(std::move(out)) : std::nullopt;
}

}  // namespace

Result<Value> resolve_plain(std::string_view text) {
  if (one_of(text, kNotFinite)) return failure(not_in_json(text));
  if (auto value = resolve_word(text)) return *std::move(value);
  return Value(text);
}

Result<Value> resolve_tagged(std::string_view tag, std::string_view text) {
  constexpr std::string_view kStandard = "tag:yaml.org,2002:";
  if (!tag.starts_with(kStandard)) return Value(text);
  tag.remove_prefix(kStandard.size());
  if (tag == "binary") {
    auto bytes = decode_base64(text);
    if (!bytes) return failure(Code::kInvalid, "!!binary is no base64");
    // Text is what a string of JSON can hold.
    if (!parse(print(Value(*bytes)), {.max_bytes = 8 * bytes->size() + 2})) {
      return failure(Code::kInvalid, "!!binary is no UTF-8 text, which JSON needs");
    }
    return Value(*std::move(bytes));
  }
  if (tag != "int" && tag != "float" && tag != "bool" && tag != "null") return Value(text);
  if (one_of(text, kNotFinite)) return failure(not_in_json(text));
  Value value = resolve_word(text).value_or(Value(text));
  if (tag == "float" && value.as_int() != nullptr) {
    return Value(static_cast<double>(*value.as_int()));
  }
  const bool fits = (tag == "int" && value.as_int() != nullptr) ||
                    (tag == "float" && value.as_double() != nullptr) ||
                    (tag == "bool" && value.as_bool() != nullptr) ||
                    (tag == "null" && value.is_null());
  if (!fits) return failure(Code::kInvalid, "\"{}\" is not what its tag !!{} says", text, tag);
  return value;
}

bool reads_as_string(std::string_view plain) {
  return !is_merge_key(plain) && !one_of(plain, kNotFinite) && !resolve_word(plain);
}

Result<std::string> key_text(const Value& scalar) {
  if (const std::string* text = scalar.as_string()) return *text;
  if (const double* number = scalar.as_double()) {
    // The shortest form, with an exponent where Go's %g would have one.
    std::array<char, 32> buffer{};
    const int exponent =
        *number == 0 ? 0 : static_cast<int>(std::floor(std::log10(std::abs(*number))));
    const auto format =
        exponent < -4 || exponent >= 6 ? std::chars_format::scientific : std::chars_format::fixed;
    const auto printed = std::to_chars(buffer.begin(), buffer.end(), *number, format);
    return std::string(buffer.begin(), printed.ptr);
  }
  if (scalar.is_null()) return failure(Code::kInvalid, "null is no key");
  return print(scalar);
}

}  // namespace divisi::json
