#include "pickle/text_forms.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <vector>

namespace divisi::pickle {

namespace {

// Longer integers are refused: turning them into digits takes the square of their length.
constexpr std::size_t kMostIntegerBytes = 512;
constexpr std::size_t kMostIntegerDigits = 1234;

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

// `digits` hexadecimal digits at `at`; fails when there are fewer.
Result<std::uint32_t> hex_number(std::string_view text, std::size_t at, std::size_t digits) {
  if (digits > text.size() || at > text.size() - digits) {
    return failure(Code::kInvalid, "a text ends within an escape");
  }
  std::uint32_t number = 0;
  for (std::size_t i = at; i < at + digits; ++i) {
    const int digit = hex_digit(text[i]);
    if (digit < 0) return failure(Code::kInvalid, "an escape in a text has a bad digit");
    number = number * 16 + static_cast<std::uint32_t>(digit);
  }
  return number;
}

// What \c stands for where that is one character; 0 otherwise.
char simple_escape(char c) {
  switch (c) {
    case 'n': return '\n';
    case 't': return '\t';
    case 'r': return '\r';
    case 'a': return '\a';
    case 'b': return '\b';
    case 'f': return '\f';
    case 'v': return '\v';
    case '\\':
    case '\'':
    case '"': return c;
    default: return '\0';
  }
}

Result<std::string> unescape(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\\') {
      out.push_back(text[i]);
      continue;
    }
    if (++i == text.size()) return failure(Code::kInvalid, "a text ends within an escape");
    if (text[i] == 'x') {
      DIVISI_TRY(const std::uint32_t byte, hex_number(text, i + 1, 2));
      out.push_back(static_cast<char>(byte));
      i += 2;
    } else if (const char plain = simple_escape(text[i]); plain != '\0') {
      out.push_back(plain);
    } else {
      return failure(Code::kInvalid, "a text has an escape that is not known");
    }
  }
  return out;
}

Node integer_value(std::int64_t integer) {
  Node node;
  node.kind = Kind::kInt;
  node.integer = integer;
  return node;
}

// Decimal digits of an unsigned little-endian number.
std::string to_digits(std::vector<std::uint8_t> bytes) {
  std::string digits;
  while (!bytes.empty()) {
    unsigned rest = 0;
    for (auto byte = bytes.rbegin(); byte != bytes.rend(); ++byte) {
      const unsigned part = rest * 256 + *byte;
      *byte = static_cast<std::uint8_t>(part / 10);
      rest = part % 10;
    }
    digits.push_back(static_cast<char>('0' + rest));
    while (!bytes.empty() && bytes.back() == 0) bytes.pop_back();
  }
  std::ranges::reverse(digits);
  return digits;
}

void negate(std::vector<std::uint8_t>& bytes) {
  unsigned carry = 1;
  for (std::uint8_t& byte : bytes) {
    const unsigned sum = (~unsigned{byte} & 0xffU) + carry;
    byte = static_cast<std::uint8_t>(sum);
    carry = sum >> 8U;
  }
}

// How many bytes the character has that starts with `lead`; 0: none does.
std::size_t utf8_length(unsigned char lead) {
  if (lead < 0x80) return 1;
  if (lead >= 0xc2 && lead <= 0xdf) return 2;
  if (lead >= 0xe0 && lead <= 0xef) return 3;
  if (lead >= 0xf0 && lead <= 0xf4) return 4;
  return 0;
}

}  // namespace

bool is_utf8(std::string_view text) {
  for (std::size_t i = 0; i < text.size();) {
    const auto lead = static_cast<unsigned char>(text[i]);
    const std::size_t length = utf8_length(lead);
    if (length == 0 || length > text.size() - i) return false;
    std::uint32_t code = length == 1 ? lead : lead & (0x7fU >> length);
    for (std::size_t k = 1; k < length; ++k) {
      const auto next = static_cast<unsigned char>(text[i + k]);
      if ((next & 0xc0U) != 0x80U) return false;
      code = (code << 6U) | (next & 0x3fU);
    }
    static constexpr std::uint32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
    if (code < kLeast[length] || code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff))
      return false;
    i += length;
  }
  return true;
}

void append_utf8(std::string& out, std::uint32_t code) {
  const auto put = [&out](std::uint32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (code < 0x80) return put(code);
  if (code < 0x800) {
    put(0xc0U | (code >> 6U));
  } else if (code < 0x10000) {
    put(0xe0U | (code >> 12U));
    put(0x80U | ((code >> 6U) & 0x3fU));
  } else {
    put(0xf0U | (code >> 18U));
    put(0x80U | ((code >> 12U) & 0x3fU));
    put(0x80U | ((code >> 6U) & 0x3fU));
  }
  put(0x80U | (code & 0x3fU));
}

Result<std::string> read_quoted(std::string_view line) {
  if (line.size() < 2 || line.front() != line.back() ||
      (line.front() != '\'' && line.front() != '"')) {
    return failure(Code::kInvalid, "a text is not in quotes");
  }
  return unescape(line.substr(1, line.size() - 2));
}

Result<std::string> read_raw_unicode(std::string_view line) {
  std::string out;
  for (std::size_t i = 0; i < line.size(); ++i) {
    const bool escape = line[i] == '\\' && i + 1 < line.size();
    if (!escape || (line[i + 1] != 'u' && line[i + 1] != 'U')) {
      append_utf8(out, static_cast<unsigned char>(line[i]));
      continue;
    }
    const std::size_t digits = line[i + 1] == 'u' ? 4 : 8;
    DIVISI_TRY(const std::uint32_t code, hex_number(line, i + 2, digits));
    if (code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff)) {
      return failure(Code::kInvalid, "a text has the code point {:#x}, which is no character",
                     code);
    }
    append_utf8(out, code);
    i += 1 + digits;
  }
  return out;
}

Result<Node> read_decimal(std::string_view line, bool booleans) {
  if (booleans && (line == "00" || line == "01")) {
    Node node;
    node.kind = Kind::kBool;
    node.boolean = line == "01";
    return node;
  }
  if (line.ends_with('L')) line.remove_suffix(1);
  std::int64_t integer = 0;
  const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), integer);
  if (error == std::errc() && end == line.data() + line.size()) return integer_value(integer);
  const std::string_view digits = line.substr(line.starts_with('-') ? 1 : 0);
  const bool is_number = !digits.empty() && digits.front() != '0' &&
                         std::ranges::all_of(digits, [](char c) { return c >= '0' && c <= '9'; });
  if (!is_number) return failure(Code::kInvalid, "an integer is not made of digits");
  if (digits.size() > kMostIntegerDigits) {
    return failure(Code::kInvalid, "an integer has {} digits, more than {}", digits.size(),
                   kMostIntegerDigits);
  }
  return make_text(Kind::kBigInt, std::string(line));
}

Result<Node> read_float(std::string_view line) {
  Node node;
  node.kind = Kind::kFloat;
  if (line.starts_with('+')) line.remove_prefix(1);
  const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), node.number);
  if (error != std::errc() || end != line.data() + line.size() || line.empty()) {
    return failure(Code::kInvalid, "a float cannot be read");
  }
  return node;
}

Result<Node> read_long(std::string_view text) {
  if (text.size() > kMostIntegerBytes) {
    return failure(Code::kInvalid, "an integer has {} bytes, more than {}", text.size(),
                   kMostIntegerBytes);
  }
  std::vector<std::uint8_t> bytes(text.begin(), text.end());
  const bool negative = !bytes.empty() && (bytes.back() & 0x80U) != 0;
  // Bytes beyond the eighth that only repeat the sign say nothing.
  while (bytes.size() > 8 && bytes.back() == (negative ? 0xff : 0) &&
         ((bytes[bytes.size() - 2] & 0x80U) != 0) == negative) {
    bytes.pop_back();
  }
  if (bytes.size() <= 8) {
    std::uint64_t bits = negative ? ~std::uint64_t{0} : 0;
    for (std::size_t i = bytes.size(); i-- > 0;) bits = (bits << 8U) | bytes[i];
    return integer_value(static_cast<std::int64_t>(bits));
  }
  if (negative) negate(bytes);
  while (!bytes.empty() && bytes.back() == 0) bytes.pop_back();
  return make_text(Kind::kBigInt, (negative ? "-" : "") + to_digits(std::move(bytes)));
}

}  // namespace divisi::pickle
