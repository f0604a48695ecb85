// JSON text into a Value, straight from the events of Boost.JSON's parser.
#include "json/value.h"

#include <boost/json/basic_parser_impl.hpp>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <iterator>
#include <limits>
#include <set>

namespace divisi::json {
namespace {

using boost::json::error_code;

// "line 3, column 14" of a byte offset.
std::string position(std::string_view text, std::size_t offset) {
  const std::string_view before = text.substr(0, std::min(offset, text.size()));
  const auto line = std::ranges::count(before, '\n') + 1;
  const std::size_t newline = before.rfind('\n');
  const std::size_t column = before.size() - (newline == std::string_view::npos ? 0 : newline + 1);
  return fmt::format("line {}, column {}", line, column + 1);
}

bool has_equal_keys(const std::string* keys, std::size_t count) {
  // Up to here comparing all pairs, mostly by their lengths, is cheaper than sorting.
  constexpr std::size_t kFewKeys = 16;
  if (count <= kFewKeys) {
    for (std::size_t i = 1; i < count; ++i) {
      if (std::find(keys, keys + i, keys[i]) != keys + i) return true;
    }
    return false;
  }
  std::vector<std::string_view> sorted(keys, keys + count);
  std::ranges::sort(sorted);
  return std::ranges::adjacent_find(sorted) != sorted.end();
}

// Builds values bottom up: finished ones wait on a stack until their array or object ends, when
// its size is known and its memory can be taken in one piece.
class Builder {
 public:
  // Names that Boost.JSON looks up.
  // NOLINTBEGIN(readability-identifier-naming)
  static constexpr std::size_t max_object_size = std::numeric_limits<std::size_t>::max();
  static constexpr std::size_t max_array_size = max_object_size;
  static constexpr std::size_t max_key_size = max_object_size;
  static constexpr std::size_t max_string_size = max_object_size;
  // NOLINTEND(readability-identifier-naming)

  bool found_duplicate() const noexcept { return found_duplicate_; }
  Value take() { return std::move(values_.back()); }

  static bool on_document_begin(error_code&) { return true; }
  static bool on_document_end(error_code&) { return true; }
  static bool on_object_begin(error_code&) { return true; }
  static bool on_array_begin(error_code&) { return true; }

  bool on_object_end(std::size_t count, error_code& error) {
    std::string* keys = keys_.data() + (keys_.size() - count);
    if (has_equal_keys(keys, count)) {
      found_duplicate_ = true;
      error = boost::json::error::syntax;
      return false;
    }
    Object object;
    object.reserve(count);
    Value* values = values_.data() + (values_.size() - count);
    for (std::size_t i = 0; i < count; ++i) {
      object.emplace_back(std::move(keys[i]), std::move(values[i]));
    }
    keys_.resize(keys_.size() - count);
    values_.resize(values_.size() - count);
    values_.emplace_back(std::move(object));
    return true;
  }

  bool on_array_end(std::size_t count, error_code&) {
    const auto first = values_.end() - static_cast<std::ptrdiff_t>(count);
    Array array(std::make_move_iterator(first), std::make_move_iterator(values_.end()));
    values_.erase(first, values_.end());
    values_.emplace_back(std::move(array));
    return true;
  }

  bool on_key_part(boost::json::string_view text, std::size_t, error_code&) { return keep(text); }
  bool on_key(boost::json::string_view text, std::size_t, error_code&) {
    keys_.push_back(whole(text));
    return true;
  }

  bool on_string_part(boost::json::string_view text, std::size_t, error_code&) {
    return keep(text);
  }
  bool on_string(boost::json::string_view text, std::size_t, error_code&) {
    values_.emplace_back(whole(text));
    return true;
  }

  bool on_number_part(boost::json::string_view text, error_code&) { return keep(text); }
  bool on_int64(std::int64_t number, boost::json::string_view, error_code&) {
    parts_.clear();
    return add(Value(number));
  }
  bool on_uint64(std::uint64_t number, boost::json::string_view, error_code&) {
    parts_.clear();
    return add(Value(static_cast<double>(number)));
  }
  bool on_double(double estimate, boost::json::string_view text, error_code& error) {
    // This version of Boost.JSON may miss the nearest double by a bit.
    const std::string digits = whole(text);
    double exact = estimate;
    const auto parsed = std::from_chars(digits.data(), digits.data() + digits.size(), exact);
    const bool too_small = parsed.ec == std::errc::result_out_of_range && std::abs(estimate) < 1;
    if (too_small) exact = 0;
    if (!std::isfinite(exact) || (parsed.ec != std::errc() && !too_small)) {
      error = boost::json::error::exponent_overflow;
      return false;
    }
    return add(Value(exact));
  }

  bool on_bool(bool flag, error_code&) { return add(Value(flag)); }
  bool on_null(error_code&) { return add(Value()); }

  static bool on_comment_part(boost::json::string_view, error_code&) { return true; }
  static bool on_comment(boost::json::string_view, error_code&) { return true; }

 private:
  bool add(Value value) {
    values_.push_back(std::move(value));
    return true;
  }

  // A text that holds escapes, or was cut, arrives in parts, the last of them by another call.
  bool keep(boost::json::string_view part) {
    parts_.append(part.data(), part.size());
    return true;
  }

  std::string whole(boost::json::string_view last) {
    if (parts_.empty()) return {last.data(), last.size()};
    keep(last);
    return std::exchange(parts_, {});
  }

  std::vector<Value> values_;
  std::vector<std::string> keys_;
  std::string parts_;
  bool found_duplicate_ = false;
};

// Where the first key that its object already has stands: a walk over text that is known to be
// valid up to the end of that object, and to have such a key. Only ever run to explain a failure.
std::size_t find_duplicate_key(std::string_view text) {
  struct Level {
    bool object;
    std::set<std::string> keys;
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
      const auto key = parse(text.substr(start, i - start + 1), {.max_bytes = text.size()});
      if (key && !levels.back().keys.insert(*key->as_string()).second) return start;
    }
  }
  return text.size();
}

}  // namespace

Result<Value> parse(std::string_view text, const ParseLimits& limits) try {
  if (text.size() > limits.max_bytes) {
    return failure(Code::kInvalid, "JSON text of {} bytes is longer than the limit of {}",
                   text.size(), limits.max_bytes);
  }
  boost::json::parse_options options;
  options.max_depth = limits.max_depth;
  boost::json::basic_parser<Builder> parser(options);
  error_code error;
  const std::size_t used = parser.write_some(false, text.data(), text.size(), error);
  if (parser.handler().found_duplicate()) {
    return failure(Code::kInvalid, "not valid JSON at {}: this key appears twice in its object",
                   position(text, find_duplicate_key(text)));
  }
  if (error) {
    return failure(Code::kInvalid, "not valid JSON at {}: {}", position(text, used),
                   error.message());
  }
  if (used != text.size()) {
    return failure(Code::kInvalid, "not valid JSON at {}: text after the end of the document",
                   position(text, used));
  }
  return parser.handler().take();
} catch (const std::exception& error) {
  return failure(Code::kInternal, "parsing JSON: {}", error.what());
}

struct Parser::State {
  explicit State(const ParseLimits& the_limits) : limits(the_limits), parser(options(the_limits)) {}

  static boost::json::parse_options options(const ParseLimits& limits) {
    boost::json::parse_options chosen;
    chosen.max_depth = limits.max_depth;
    return chosen;
  }

  Status write(bool more, std::string_view piece) try {
    if (!failed.ok()) return failed;
    if (piece.size() > limits.max_bytes - taken) {
      return failed = make_status(Code::kInvalid, "JSON text is longer than the limit of {} bytes",
                                  limits.max_bytes);
    }
    error_code error;
    const std::size_t used = parser.write_some(more, piece.data(), piece.size(), error);
    taken += used;
    if (parser.handler().found_duplicate()) {
      failed = make_status(Code::kInvalid,
                           "not valid JSON at byte {}: the object that ends here has a key twice",
                           taken + 1);
    } else if (error) {
      failed =
          make_status(Code::kInvalid, "not valid JSON at byte {}: {}", taken + 1, error.message());
    } else if (used != piece.size()) {
      failed =
          make_status(Code::kInvalid,
                      "not valid JSON at byte {}: text after the end of the document", taken + 1);
    }
    return failed;
  } catch (const std::exception& error) {
    return failed = make_status(Code::kInternal, "parsing JSON: {}", error.what());
  }

  const ParseLimits limits;
  boost::json::basic_parser<Builder> parser;
  std::size_t taken = 0;
  Status failed;
};

Parser::Parser(const ParseLimits& limits) : state_(std::make_unique<State>(limits)) {}
Parser::Parser(Parser&&) noexcept = default;
Parser& Parser::operator=(Parser&&) noexcept = default;
Parser::~Parser() = default;

Status Parser::write(std::string_view piece) {
  return state_->write(true, piece);
}

Result<Value> Parser::finish() {
  if (Status status = state_->write(false, {}); !status.ok()) return failure(std::move(status));
  return state_->parser.handler().take();
}

}  // namespace divisi::json
