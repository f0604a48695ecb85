// libyaml's events as values that own themselves. Inside src/json only.
#pragma once

#include "base/status.h"

#include <algorithm>
#include <cstddef>
#include <string_view>
#include <utility>
#include <yaml.h>

namespace divisi::json {

inline tl::unexpected<Status> bad_yaml(const yaml_mark_t& mark, std::string_view what) {
  return failure(Code::kInvalid, "not valid YAML at line {}, column {}: {}", mark.line + 1,
                 mark.column + 1, what);
}

// One event of libyaml; owns what belongs to it.
class YamlEvent {
 public:
  explicit YamlEvent(yaml_event_t event) : event_(event) {}
  YamlEvent(YamlEvent&& other) noexcept : event_(std::exchange(other.event_, {})) {}
  YamlEvent& operator=(YamlEvent&&) = delete;
  ~YamlEvent() { yaml_event_delete(&event_); }

  yaml_event_type_t type() const { return event_.type; }
  const yaml_mark_t& where() const { return event_.start_mark; }

  // A tagged union, as C has them. NOLINTBEGIN(cppcoreguidelines-pro-type-union-access)

  // Of a scalar.
  std::string_view text() const {
    const auto& scalar = event_.data.scalar;
    return {reinterpret_cast<const char*>(scalar.value), scalar.length};
  }
  bool is_plain() const {
    return event_.data.scalar.plain_implicit != 0 && tag().empty() &&
           event_.data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
  }
  std::string_view tag() const { return view(event_.data.scalar.tag); }

  // Of any node; empty when it has none.
  std::string_view anchor() const {
    switch (event_.type) {
      case YAML_ALIAS_EVENT: return view(event_.data.alias.anchor);
      case YAML_SCALAR_EVENT: return view(event_.data.scalar.anchor);
      case YAML_SEQUENCE_START_EVENT: return view(event_.data.sequence_start.anchor);
      case YAML_MAPPING_START_EVENT: return view(event_.data.mapping_start.anchor);
      default: return {};
    }
  }
  // NOLINTEND(cppcoreguidelines-pro-type-union-access)

 private:
  static std::string_view view(const yaml_char_t* text) {
    return text == nullptr ? std::string_view() : reinterpret_cast<const char*>(text);
  }

  yaml_event_t event_;
};

// The events of a text, one after another; what is wrong with it, with line and column.
class YamlEvents {
 public:
  explicit YamlEvents(std::string_view text)
      : text_(text), usable_(yaml_parser_initialize(&raw_) != 0) {
    if (!usable_) return;
    yaml_parser_set_encoding(&raw_, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&raw_, reinterpret_cast<const unsigned char*>(text.data()),
                                 text.size());
  }
  YamlEvents(const YamlEvents&) = delete;
  YamlEvents& operator=(const YamlEvents&) = delete;
  ~YamlEvents() {
    if (usable_) yaml_parser_delete(&raw_);
  }

  Result<YamlEvent> next() {
    if (!usable_) return failure(Code::kInternal, "no memory to parse YAML");
    yaml_event_t event{};
    if (yaml_parser_parse(&raw_, &event) != 0) return YamlEvent(event);
    const char* problem = raw_.problem == nullptr ? "no memory" : raw_.problem;
    // Bytes that are no text are found before there are lines.
    if (raw_.error == YAML_READER_ERROR) return bad_yaml(mark_of(raw_.problem_offset), problem);
    return bad_yaml(raw_.problem_mark, problem);
  }

 private:
  yaml_mark_t mark_of(std::size_t offset) const {
    const std::string_view before = text_.substr(0, std::min(offset, text_.size()));
    const std::size_t newline = before.rfind('\n');
    return {offset, static_cast<std::size_t>(std::ranges::count(before, '\n')),
            before.size() - (newline == std::string_view::npos ? 0 : newline + 1)};
  }

  std::string_view text_;
  yaml_parser_t raw_{};
  bool usable_;
};

}  // namespace divisi::json
