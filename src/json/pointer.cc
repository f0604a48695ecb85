#include "json/pointer.h"

#include <algorithm>
#include <charconv>
#include <span>

namespace divisi::json {
namespace {

Result<std::string> unescape_token(std::string_view token, std::string_view whole) {
  std::string out;
  out.reserve(token.size());
  for (std::size_t i = 0; i < token.size(); ++i) {
    if (token[i] != '~') {
      out += token[i];
      continue;
    }
    const char escaped = i + 1 < token.size() ? token[++i] : '\0';
    if (escaped != '0' && escaped != '1') {
      return failure(Code::kInvalid, "\"{}\" is no JSON pointer: after ~ comes 0 or 1", whole);
    }
    out += escaped == '0' ? '~' : '/';
  }
  return out;
}

// Both const and not: `V` is Value or const Value.
template <class V>
V* find_in(V& document, const std::vector<std::string>& tokens) noexcept {
  V* value = &document;
  for (const std::string& token : tokens) {
    if (auto* array = value->as_array()) {
      const auto index = array_index(token);
      value = index && *index < array->size() ? &(*array)[*index] : nullptr;
    } else {
      value = value->find(token);
    }
    if (value == nullptr) return nullptr;
  }
  return value;
}

}  // namespace

Result<Pointer> Pointer::parse(std::string_view text) {
  if (!text.empty() && text.front() != '/') {
    return failure(Code::kInvalid, "\"{}\" is no JSON pointer: it starts with / or is empty", text);
  }
  std::vector<std::string> tokens;
  for (std::string_view rest = text; !rest.empty();) {
    rest.remove_prefix(1);
    const std::size_t end = std::min(rest.find('/'), rest.size());
    DIVISI_TRY(std::string token, unescape_token(rest.substr(0, end), text));
    tokens.push_back(std::move(token));
    rest.remove_prefix(end);
  }
  return Pointer(std::move(tokens));
}

std::string Pointer::to_string() const {
  std::string out;
  for (const std::string& token : tokens_) {
    out += '/';
    out += escape_token(token);
  }
  return out;
}

Pointer Pointer::parent() const {
  DIVISI_CHECK(!tokens_.empty(), "the whole document has no parent");
  return Pointer({tokens_.begin(), tokens_.end() - 1});
}

bool Pointer::contains(const Pointer& other) const noexcept {
  return tokens_.size() <= other.tokens_.size() &&
         std::ranges::equal(tokens_, std::span(other.tokens_).first(tokens_.size()));
}

const Value* Pointer::find(const Value& document) const noexcept {
  return find_in(document, tokens_);
}

Value* Pointer::find(Value& document) const noexcept {
  return find_in(document, tokens_);
}

std::string escape_token(std::string_view token) {
  std::string out;
  out.reserve(token.size());
  for (const char c : token) {
    if (c == '~') {
      out += "~0";
    } else if (c == '/') {
      out += "~1";
    } else {
      out += c;
    }
  }
  return out;
}

std::optional<std::size_t> array_index(std::string_view token) noexcept {
  if (token.empty() || (token.size() > 1 && token.front() == '0')) return std::nullopt;
  std::size_t index = 0;
  const char* end = token.data() + token.size();
  const auto parsed = std::from_chars(token.data(), token.data() + token.size(), index);
  if (parsed.ec != std::errc() || parsed.ptr != end) return std::nullopt;
  return index;
}

}  // namespace divisi::json
