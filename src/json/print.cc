// A Value as JSON text, appended to one buffer.
#include "json/value.h"

#include <array>
#include <cmath>
#include <iterator>

namespace divisi::json {
namespace {

// For each byte: 0 when it stands for itself, 'u' when it needs \u00XX, else the letter after \.
constexpr std::array<char, 256> kEscapes = [] {
  std::array<char, 256> table{};
  for (std::size_t i = 0; i < 0x20; ++i) table[i] = 'u';
  table['\b'] = 'b';
  table['\f'] = 'f';
  table['\n'] = 'n';
  table['\r'] = 'r';
  table['\t'] = 't';
  table['"'] = '"';
  table['\\'] = '\\';
  return table;
}();

// Appends without a call for each byte, and without zeroing memory first, as a string would.
using Buffer = fmt::memory_buffer;

void append(Buffer& out, std::string_view text) {
  out.append(text.data(), text.data() + text.size());
}

void print_string(Buffer& out, std::string_view text) {
  out.push_back('"');
  const char* plain = text.data();  // where the run that needs no escape starts
  const char* const end = plain + text.size();
  for (const char* next = plain; next != end; ++next) {
    const auto byte = static_cast<unsigned char>(*next);
    const char escape = kEscapes[byte];
    if (escape == 0) continue;
    out.append(plain, next);
    plain = next + 1;
    out.push_back('\\');
    out.push_back(escape);
    if (escape == 'u') fmt::format_to(std::back_inserter(out), "{:04x}", byte);
  }
  out.append(plain, end);
  out.push_back('"');
}

void print_double(Buffer& out, double number) {
  if (!std::isfinite(number)) {
    append(out, "null");  // JSON has no word for it
    return;
  }
  fmt::format_to(std::back_inserter(out), "{}", number);
}

class Printer {
 public:
  Printer(Buffer& out, int indent) : out_(out), indent_(indent) {}

  void print(const Value& value, int level) {
    if (const std::string* text = value.as_string()) {
      print_string(out_, *text);
    } else if (const Object* object = value.as_object()) {
      print_all(*object, '{', '}', level, [&](const Member& member) {
        print_string(out_, member.first);
        append(out_, indent_ > 0 ? ": " : ":");
        print(member.second, level + 1);
      });
    } else if (const Array* array = value.as_array()) {
      print_all(*array, '[', ']', level, [&](const Value& item) { print(item, level + 1); });
    } else if (const std::int64_t* integer = value.as_int()) {
      const fmt::format_int digits(*integer);
      append(out_, {digits.data(), digits.size()});
    } else if (const double* number = value.as_double()) {
      print_double(out_, *number);
    } else if (const bool* flag = value.as_bool()) {
      append(out_, *flag ? "true" : "false");
    } else {
      append(out_, "null");
    }
  }

 private:
  template <class Items, class Print>
  void print_all(const Items& items, char open, char close, int level, Print print_item) {
    out_.push_back(open);
    bool first = true;
    for (const auto& item : items) {
      if (!first) out_.push_back(',');
      first = false;
      new_line(level + 1);
      print_item(item);
    }
    if (!items.empty()) new_line(level);
    out_.push_back(close);
  }

  void new_line(int level) {
    if (indent_ == 0) return;
    out_.push_back('\n');
    for (int i = 0; i < level * indent_; ++i) out_.push_back(' ');
  }

  Buffer& out_;
  int indent_;
};

}  // namespace

std::string print(const Value& value, int indent) {
  Buffer out;
  Printer(out, indent).print(value, 0);
  return {out.data(), out.size()};
}

}  // namespace divisi::json
