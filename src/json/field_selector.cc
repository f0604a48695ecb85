#include "json/selector.h"

#include <algorithm>

namespace divisi::json {
namespace {

constexpr std::size_t kMaxText = std::size_t{64} << 10;  // as for label selectors

// The first of `signs` in the text that no \ stands before.
std::size_t find_unescaped(std::string_view text, std::string_view signs) {
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\') {
      ++i;
    } else if (signs.find(text[i]) != std::string_view::npos) {
      return i;
    }
  }
  return text.size();
}

Result<std::string> unescape(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool escaped = text[i] == '\\';
    if (escaped) ++i;
    const bool special = i < text.size() && (text[i] == '\\' || text[i] == '=' || text[i] == ',');
    if (escaped != special) {
      return failure(Code::kInvalid,
                     R"(the value "{}": \ stands before each \, = and , and nowhere else)", text);
    }
    out += text[i];
  }
  return out;
}

std::string escape(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\' || c == '=' || c == ',') out += '\\';
    out += c;
  }
  return out;
}

Result<FieldSelector::Requirement> parse_term(std::string_view term) {
  const std::size_t sign = find_unescaped(term, "=");
  if (sign == term.size()) {
    return failure(Code::kInvalid, "\"{}\" has no = or !=", term);
  }
  FieldSelector::Requirement requirement;
  requirement.equal = sign == 0 || term[sign - 1] != '!';
  requirement.path = term.substr(0, requirement.equal ? sign : sign - 1);
  if (requirement.path.empty() || requirement.path.find('\\') != std::string::npos) {
    return failure(Code::kInvalid, "\"{}\" does not start with the path of a field", term);
  }
  std::string_view value = term.substr(sign + 1);
  if (requirement.equal && value.starts_with('=')) value.remove_prefix(1);
  DIVISI_TRY(requirement.value, unescape(value));
  return requirement;
}

std::string field_text(const Value& object, std::string_view path) {
  const Value* value = &object;
  while (value != nullptr && !path.empty()) {
    const std::size_t dot = std::min(path.find('.'), path.size());
    value = value->find(path.substr(0, dot));
    path.remove_prefix(std::min(dot + 1, path.size()));
  }
  if (value == nullptr || value->is_null()) return {};
  return value->as_string() != nullptr ? *value->as_string() : print(*value);
}

}  // namespace

Result<FieldSelector> FieldSelector::parse(std::string_view text) {
  if (text.size() > kMaxText) {
    return failure(Code::kInvalid, "a field selector of {} bytes; at most {} are read", text.size(),
                   kMaxText);
  }
  FieldSelector selector;
  for (std::string_view rest = text; !rest.empty();) {
    const std::size_t comma = find_unescaped(rest, ",");
    const std::string_view term = rest.substr(0, comma);
    rest.remove_prefix(std::min(comma + 1, rest.size()));
    if (term.empty()) continue;  // Kubernetes forgives a stray comma
    auto requirement = parse_term(term);
    if (!requirement) {
      return failure(requirement.error().with_context(fmt::format("field selector \"{}\"", text)));
    }
    selector.requirements_.push_back(*std::move(requirement));
  }
  return selector;
}

bool FieldSelector::matches(const Value& object) const {
  return std::ranges::all_of(requirements_, [&](const Requirement& requirement) {
    return (field_text(object, requirement.path) == requirement.value) == requirement.equal;
  });
}

std::string FieldSelector::to_string() const {
  std::string out;
  for (const auto& [path, value, equal] : requirements_) {
    if (!out.empty()) out += ',';
    out += path + (equal ? "=" : "!=") + escape(value);
  }
  return out;
}

}  // namespace divisi::json
