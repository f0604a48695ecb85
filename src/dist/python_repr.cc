#include "dist/python_repr.h"

#include <fmt/format.h>

#include <cmath>
#include <variant>

namespace divisi::dist {
namespace {

void append_quoted(std::string& text, std::string_view raw) {
  const bool use_double =
      raw.find('\'') != std::string_view::npos && raw.find('"') == std::string_view::npos;
  const char quote = use_double ? '"' : '\'';
  text += quote;
  for (const char c : raw) {
    if (c == quote || c == '\\') {
      text += '\\';
      text += c;
    } else if (c == '\n') {
      text += "\\n";
    } else if (c == '\r') {
      text += "\\r";
    } else if (c == '\t') {
      text += "\\t";
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      text += fmt::format("\\x{:02x}", static_cast<unsigned>(static_cast<unsigned char>(c)));
    } else {
      text += c;
    }
  }
  text += quote;
}

void append(std::string& text, const json::Value& value) {
  if (value.is_null()) {
    text += "None";
  } else if (const bool* flag = value.as_bool()) {
    text += *flag ? "True" : "False";
  } else if (const auto* number = value.as_int()) {
    text += fmt::format("{}", *number);
  } else if (const auto* real = value.as_double()) {
    text += python_repr(*real);
  } else if (const auto* string = value.as_string()) {
    append_quoted(text, *string);
  } else if (const auto* array = value.as_array()) {
    text += '[';
    std::string_view comma;
    for (const json::Value& each : *array) {
      text += comma;
      append(text, each);
      comma = ", ";
    }
    text += ']';
  } else if (const auto* object = value.as_object()) {
    text += '{';
    std::string_view comma;
    for (const auto& [key, member] : *object) {
      text += comma;
      append_quoted(text, key);
      text += ": ";
      append(text, member);
      comma = ", ";
    }
    text += '}';
  }
}

}  // namespace

std::string python_repr(const json::Value& value) {
  std::string text;
  append(text, value);
  return text;
}

std::string python_repr(std::string_view text) {
  std::string quoted;
  append_quoted(quoted, text);
  return quoted;
}

std::string python_repr(const std::vector<std::string>& list) {
  std::string text = "[";
  std::string_view comma;
  for (const std::string& each : list) {
    text += comma;
    append_quoted(text, each);
    comma = ", ";
  }
  return text + "]";
}

std::string python_repr(double number) {
  if (!std::isfinite(number)) return std::isnan(number) ? "nan" : number > 0 ? "inf" : "-inf";
  std::string text = fmt::format("{}", number);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

}  // namespace divisi::dist
