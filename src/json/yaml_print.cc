// Values as YAML text, in the style of kubectl: blocks, lists at the column of their key.
#include "json/yaml.h"
#include "json/yaml_scalar.h"

#include <algorithm>
#include <cmath>

namespace divisi::json {
namespace {

constexpr std::size_t kIndent = 2;
// A key this long stands on a line of its own, after a ?, as libyaml does it; readers refuse
// plain ones beyond 1024 characters.
constexpr std::size_t kLongKey = 128;

// One character of UTF-8 text at `i`, which is moved behind it.
char32_t next_character(std::string_view text, std::size_t& i) {
  const auto byte = [&](std::size_t at) { return static_cast<unsigned char>(text[at]); };
  const unsigned char first = byte(i++);
  if (first < 0xc0) return first;
  const int more = first < 0xe0 ? 1 : (first < 0xf0 ? 2 : 3);
  char32_t character = first & (0x3fU >> more);
  for (int n = 0; n < more && i < text.size(); ++n)
    character = character << 6 | (byte(i++) & 0x3fU);
  return character;
}

// What YAML readers refuse or change outside double quotes; line feeds are looked at elsewhere.
bool is_special(char32_t c) {
  return (c < 0x20 && c != '\n') || (c >= 0x7f && c < 0xa0) || c == 0x2028 || c == 0x2029 ||
         c == 0xfeff || c == 0xfffe || c == 0xffff;
}

bool has_special(std::string_view text) {
  for (std::size_t i = 0; i < text.size();) {
    if (is_special(next_character(text, i))) return true;
  }
  return false;
}

// Whether a line of text may stand without quotes, apart from what it would be resolved to.
bool has_plain_form(std::string_view text) {
  constexpr std::string_view kIndicators = "#,[]{}&*!|>'\"%@`";
  const char first = text.front();
  if (first == ' ' || text.back() == ' ' || text.back() == ':') return false;
  if (kIndicators.find(first) != std::string_view::npos) return false;
  const bool mark = first == '-' || first == '?' || first == ':';
  if (mark && (text.size() == 1 || text[1] == ' ')) return false;
  if (text.starts_with("---") || text.starts_with("...")) return false;
  return text.find(": ") == std::string_view::npos && text.find(" #") == std::string_view::npos;
}

// Text of several lines that a literal block keeps as it is.
bool has_literal_form(std::string_view text) {
  return text.find_first_not_of('\n') != std::string_view::npos && text.back() != ' ' &&
         text.find(" \n") == std::string_view::npos;
}

void print_double_quoted(std::string& out, std::string_view text) {
  out += '"';
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t start = i;
    const char32_t c = next_character(text, i);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += static_cast<char>(c);
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\t') {
      out += "\\t";
    } else if (c == '\r') {
      out += "\\r";
    } else if (is_special(c)) {
      const auto code = static_cast<std::uint32_t>(c);
      out += c < 0x100 ? fmt::format("\\x{:02X}", code) : fmt::format("\\u{:04X}", code);
    } else {
      out.append(text, start, i - start);
    }
  }
  out += '"';
}

void print_single_quoted(std::string& out, std::string_view text) {
  out += '\'';
  for (const char c : text) {
    out += c;
    if (c == '\'') out += c;
  }
  out += '\'';
}

// Text on one line, as a key or a value.
void print_flow_string(std::string& out, std::string_view text) {
  if (!reads_as_string(text) || has_special(text) || text.find('\n') != std::string_view::npos) {
    print_double_quoted(out, text);
  } else if (has_plain_form(text)) {
    out += text;
  } else {
    print_single_quoted(out, text);
  }
}

void print_double(std::string& out, double number) {
  if (!std::isfinite(number)) {
    out += "null";
    return;
  }
  const std::string digits = fmt::format("{}", number);
  out += digits;
  // Without it, it would be read as an integer.
  if (digits.find_first_of(".e") == std::string::npos) out += ".0";
}

class YamlPrinter {
 public:
  explicit YamlPrinter(std::string& out) : out_(out) {}

  void print_document(const Value& value) {
    const bool block = is_block(value);
    if (block) {
      print_block(value, 0);
    } else {
      print_inline(value, kIndent);
      out_ += '\n';
    }
  }

 private:
  static bool is_block(const Value& value) {
    const Array* array = value.as_array();
    const Object* object = value.as_object();
    return (array != nullptr && !array->empty()) || (object != nullptr && !object->empty());
  }

  // The lines of an array or object, whose first line is already indented.
  void print_block(const Value& value, std::size_t column) {
    bool first = true;
    const auto start_line = [&] {
      if (!std::exchange(first, false)) out_.append(column, ' ');
    };
    if (const Array* array = value.as_array()) {
      for (const Value& item : *array) {
        start_line();
        print_item(item, column);
      }
    } else {
      for (const Member& member : *value.as_object()) {
        start_line();
        print_member(member, column);
      }
    }
  }

  void print_item(const Value& item, std::size_t column) {
    out_ += "- ";
    if (is_block(item)) {
      print_block(item, column + kIndent);
    } else {
      print_inline(item, column + kIndent);
      out_ += '\n';
    }
  }

  void print_member(const Member& member, std::size_t column) {
    const auto& [key, value] = member;
    const std::size_t start = out_.size();
    print_flow_string(out_, key);
    if (out_.size() - start > kLongKey) {
      out_.insert(start, "? ");
      out_ += '\n';
      out_.append(column, ' ');
    }
    out_ += ':';
    if (is_block(value)) {
      const std::size_t inner = value.as_array() != nullptr ? column : column + kIndent;
      out_ += '\n';
      out_.append(inner, ' ');
      print_block(value, inner);
    } else {
      out_ += ' ';
      print_inline(value, column + kIndent);
      out_ += '\n';
    }
  }

  // What starts on the line of its key or dash; a literal block goes on at `column`.
  void print_inline(const Value& value, std::size_t column) {
    if (const std::string* text = value.as_string()) {
      const bool lines = text->find('\n') != std::string::npos;
      if (lines && !has_special(*text) && has_literal_form(*text)) {
        print_literal(*text, column);
      } else {
        print_flow_string(out_, *text);
      }
    } else if (const double* number = value.as_double()) {
      print_double(out_, *number);
    } else {
      out_ += print(value);  // null, true, 1, [] and {} are the same in JSON
    }
  }

  void print_literal(std::string_view text, std::size_t column) {
    out_ += '|';
    // Otherwise the reader would take spaces of the text for its indentation.
    if (text.front() == ' ' || text.front() == '\n') out_ += std::to_string(kIndent);
    if (text.back() != '\n') {
      out_ += '-';
    } else if (text.ends_with("\n\n")) {
      out_ += '+';
    }
    if (text.back() == '\n') text.remove_suffix(1);  // the caller ends the last line
    for (;;) {
      const std::size_t end = std::min(text.find('\n'), text.size());
      out_ += '\n';
      if (end > 0) out_.append(column, ' ');
      out_.append(text, 0, end);
      if (end == text.size()) break;
      text.remove_prefix(end + 1);
    }
  }

  std::string& out_;
};

}  // namespace

std::string print_yaml(const Value& value) {
  std::string out;
  YamlPrinter(out).print_document(value);
  return out;
}

}  // namespace divisi::json
