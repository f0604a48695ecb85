#include "json/value.h"

#include <boost/json.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <optional>
#include <set>

namespace divisi::json {
namespace {

// "line 3, column 14" of a byte offset.
std::string position(std::string_view text, std::size_t offset) {
  const std::string_view before = text.substr(0, std::min(offset, text.size()));
  const auto line = std::count(before.begin(), before.end(), '\n') + 1;
  const std::size_t newline = before.rfind('\n');
  const std::size_t column = before.size() - (newline == std::string_view::npos ? 0 : newline + 1);
  return fmt::format("line {}, column {}", line, column + 1);
}

class Builder {
 public:
  // Depth was bounded by the parser, so plain recursion is safe.
  Result<Value> convert(const boost::json::value& in) {
    switch (in.kind()) {
      case boost::json::kind::null: return Value();
      case boost::json::kind::bool_: return Value(in.get_bool());
      case boost::json::kind::int64: return Value(std::int64_t{in.get_int64()});
      case boost::json::kind::uint64: return Value(static_cast<double>(in.get_uint64()));
      case boost::json::kind::double_: return Value(in.get_double());
      case boost::json::kind::string: {
        const boost::json::string& text = in.get_string();
        return Value(std::string(text.data(), text.size()));
      }
      case boost::json::kind::array: return convert_array(in.get_array());
      case boost::json::kind::object: return convert_object(in.get_object());
    }
    return Value();
  }

 private:
  Result<Value> convert_array(const boost::json::array& in) {
    Array out;
    out.reserve(in.size());
    for (const boost::json::value& item : in) {
      DIVISI_TRY(Value value, convert(item));
      out.push_back(std::move(value));
    }
    return Value(std::move(out));
  }

  Result<Value> convert_object(const boost::json::object& in) {
    Object out;
    out.reserve(in.size());
    for (const auto& member : in) {
      const std::string key(member.key().data(), member.key().size());
      DIVISI_TRY(Value value, convert(member.value()));
      out.emplace_back(key, std::move(value));
    }
    return Value(std::move(out));
  }
};

// Boost.JSON keeps the last of two equal keys without a word; this walk over text that is
// already known to be valid finds them.
std::optional<std::size_t> find_duplicate_key(std::string_view text) {
  struct Level {
    bool object;
    std::set<std::string, std::less<>> keys;
  };
  std::vector<Level> levels;
  bool expects_key = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '{' || c == '[') {
      levels.push_back({c == '{', {}});
      expects_key = c == '{';
    } else if (c == '}' || c == ']') {
      levels.pop_back();
      expects_key = false;
    } else if (c == ',') {
      expects_key = !levels.empty() && levels.back().object;
    } else if (c == '"') {
      const std::size_t start = i;
      for (++i; text[i] != '"'; ++i) {
        if (text[i] == '\\') ++i;
      }
      if (!expects_key) continue;
      expects_key = false;
      const boost::json::value key =
          boost::json::parse(boost::json::string_view(text.data() + start, i - start + 1));
      const boost::json::string& name = key.get_string();
      if (!levels.back().keys.emplace(name.data(), name.size()).second) return start;
    }
  }
  return std::nullopt;
}

void print_string(std::string& out, std::string_view text) {
  out += boost::json::serialize(boost::json::string_view(text.data(), text.size()));
}

void print_number(std::string& out, double number) {
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
    if (const bool* flag = value.as_bool()) {
      out_ += *flag ? "true" : "false";
    } else if (const std::int64_t* integer = value.as_int()) {
      fmt::format_to(std::back_inserter(out_), "{}", *integer);
    } else if (const double* number = value.as_double()) {
      print_number(out_, *number);
    } else if (const std::string* text = value.as_string()) {
      print_string(out_, *text);
    } else if (const Array* array = value.as_array()) {
      print_all(*array, '[', ']', level, [&](const Value& item) { print(item, level + 1); });
    } else if (const Object* object = value.as_object()) {
      print_all(*object, '{', '}', level, [&](const Member& member) {
        print_string(out_, member.first);
        out_ += indent_ > 0 ? ": " : ":";
        print(member.second, level + 1);
      });
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

const Value* Value::find(std::string_view key) const noexcept {
  const Object* object = as_object();
  if (object == nullptr) return nullptr;
  for (const Member& member : *object) {
    if (member.first == key) return &member.second;
  }
  return nullptr;
}

std::string_view Value::kind() const noexcept {
  if (is_null()) return "null";
  if (as_bool() != nullptr) return "bool";
  if (as_int() != nullptr || as_double() != nullptr) return "number";
  if (as_string() != nullptr) return "string";
  return as_array() != nullptr ? "array" : "object";
}

Result<Value> parse(std::string_view text, const ParseLimits& limits) try {
  if (text.size() > limits.max_bytes) {
    return failure(Code::kInvalid, "JSON text of {} bytes is longer than the limit of {}",
                   text.size(), limits.max_bytes);
  }
  boost::json::parse_options options;
  options.max_depth = limits.max_depth;
  boost::json::stream_parser parser({}, options);
  boost::json::error_code error;
  const std::size_t used = parser.write_some(text.data(), text.size(), error);
  if (!error && used == text.size()) parser.finish(error);
  if (error) {
    return failure(Code::kInvalid, "not valid JSON at {}: {}", position(text, used),
                   error.message());
  }
  if (used != text.size()) {
    return failure(Code::kInvalid, "not valid JSON at {}: text after the end of the document",
                   position(text, used));
  }
  const boost::json::value document = parser.release();
  if (const auto duplicate = find_duplicate_key(text)) {
    return failure(Code::kInvalid, "not valid JSON at {}: this key appears twice in its object",
                   position(text, *duplicate));
  }
  return Builder().convert(document);
} catch (const std::exception& error) {
  return failure(Code::kInternal, "parsing JSON: {}", error.what());
}

std::string print(const Value& value, int indent) {
  std::string out;
  Printer(out, indent).print(value, 0);
  return out;
}

}  // namespace divisi::json
