// A Value as JSON text, appended to one string.
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

void print_string(std::string& out, std::string_view text) {
  out += '"';
  std::size_t plain = 0;  // where the run that needs no escape starts
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const char escape = kEscapes[byte];
    if (escape == 0) continue;
    out.append(text, plain, i - plain);
    plain = i + 1;
    out += '\\';
    out += escape;
    if (escape == 'u') fmt::format_to(std::back_inserter(out), "{:04x}", byte);
  }
  out.append(text, plain);
  out += '"';
}

void print_double(std::string& out, double number) {
  if (!std::isfinite(number)) {
    out += "null";  // JSON has no word for it
    return;
  }
  fmt::format_to(std::back_inserter(out), "{}", number);
}

class Printer {
 public:
  Printer(std::string& out, int indent) : out_(out), indent_(indent) {}

  void print(const Value& value, int level) {
    if (const std::string* text = value.as_string()) {
      print_string(out_, *text);
    } else if (const Object* object = value.as_object()) {
      print_all(*object, '{', '}', level, [&](const Member& member) {
        print_string(out_, member.first);
        out_ += indent_ > 0 ? ": " : ":";
        print(member.second, level + 1);
      });
    } else if (const Array* array = value.as_array()) {
      print_all(*array, '[', ']', level, [&](const Value& item) { print(item, level + 1); });
    } else if (const std::int64_t* integer = value.as_int()) {
      const fmt::format_int digits(*integer);
      out_.append(digits.data(), digits.size());
    } else if (const double* number = value.as_double()) {
      print_double(out_, *number);
    } else if (const bool* flag = value.as_bool()) {
      out_ += *flag ? "true" : "false";
    } else {
      out_ += "null";
    }
  }

 private:
  template <class Items, class Print>
  void print_all(const Items& items, char open, char close, int level, Print print_item) {
    out_ += open;
    bool first = true;
    for (const auto& item : items) {
      if (!first) out_ += ',';
      first = false;
      new_line(level + 1);
      print_item(item);
    }
    if (!items.empty()) new_line(level);
    out_ += close;
  }

  void new_line(int level) {
    if (indent_ == 0) return;
    out_ += '\n';
    out_.append(static_cast<std::size_t>(level) * static_cast<std::size_t>(indent_), ' ');
  }

  std::string& out_;
  int indent_;
};

}  // namespace

std::string print(const Value& value, int indent) {
  std::string out;
  Printer(out, indent).print(value, 0);
  return out;
}

}  // namespace divisi::json
