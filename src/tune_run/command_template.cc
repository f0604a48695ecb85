#include "tune_run/command_template.h"

#include "base/nearest_name.h"
#include "tune_run/value_json.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <functional>

namespace divisi::tune_run {
namespace {

struct InjectName {
  std::string_view name;
  Inject inject;
};
constexpr std::array<InjectName, 6> kInjectNames{{{"placeholders", Inject::kPlaceholders},
                                                  {"argv", Inject::kArgv},
                                                  {"env", Inject::kEnv},
                                                  {"json", Inject::kJson},
                                                  {"yaml", Inject::kYaml},
                                                  {"python", Inject::kPython}}};

bool is_name_character(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '.' || c == '-';
}

// The length of the name in braces at the start of the text, "{name}"; 0 if there is none.
std::size_t braced_name(std::string_view text) {
  if (text.size() < 3 || text[0] != '{') return 0;
  if (std::isalpha(static_cast<unsigned char>(text[1])) == 0 && text[1] != '_') return 0;
  std::size_t end = 1;
  while (end < text.size() && is_name_character(text[end])) ++end;
  return end < text.size() && text[end] == '}' ? end + 1 : 0;
}

// The text with every placeholder replaced.
std::string replace_names(std::string_view text,
                          const std::function<std::string(std::string_view)>& replacement) {
  std::string filled;
  while (!text.empty()) {
    const std::size_t escaped = text[0] == '{' ? braced_name(text.substr(1)) : 0;
    if (escaped > 0 && text.substr(1 + escaped).starts_with('}')) {
      filled += text.substr(1, escaped);
      text.remove_prefix(escaped + 2);
      continue;
    }
    const std::size_t length = braced_name(text);
    if (length > 0) {
      filled += replacement(text.substr(1, length - 2));
      text.remove_prefix(length);
      continue;
    }
    filled.push_back(text[0]);
    text.remove_prefix(1);
  }
  return filled;
}

// A value of a configuration that is no map, and the keys that lead to it.
struct Leaf {
  std::vector<std::string> path;
  Value value;

  std::string name() const { return fmt::format("{}", fmt::join(path, ".")); }
};

void collect_leaves(const Value& value, std::vector<std::string>& path, std::vector<Leaf>& to) {
  const auto* entries = value.get_if<Value::Map>();
  if (entries == nullptr || (entries->empty() && !path.empty())) {
    to.push_back({path, value});
    return;
  }
  for (const auto& [key, inner] : *entries) {
    path.push_back(plain_text(key));
    collect_leaves(inner, path, to);
    path.pop_back();
  }
}

std::vector<Leaf> leaves_of(const Value& config) {
  std::vector<Leaf> leaves;
  std::vector<std::string> path;
  collect_leaves(config, path, leaves);
  return leaves;
}

// One word of a shell line, and where the next one begins.
Result<std::string> read_word(std::string_view& text) {
  std::string word;
  char quote = 0;
  while (!text.empty()) {
    const char c = text.front();
    if (quote == 0 && std::isspace(static_cast<unsigned char>(c)) != 0) break;
    text.remove_prefix(1);
    if (c == quote) {
      quote = 0;
    } else if (quote == 0 && (c == '"' || c == '\'')) {
      quote = c;
    } else if (c == '\\' && quote != '\'' && !text.empty()) {
      word.push_back(text.front());
      text.remove_prefix(1);
    } else {
      word.push_back(c);
    }
  }
  if (quote != 0) return failure(Code::kInvalid, "a quote {} is not closed", quote);
  return word;
}

void skip_spaces(std::string_view& text) {
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.front())) != 0) {
    text.remove_prefix(1);
  }
}

}  // namespace

Result<Inject> parse_inject(std::string_view text) {
  std::vector<std::string> names;
  for (const InjectName& one : kInjectNames) {
    if (one.name == text) return one.inject;
    names.emplace_back(one.name);
  }
  return failure(Code::kInvalid, "inject: there is no way '{}'{} (there are {})", text,
                 did_you_mean(text, names), fmt::join(names, ", "));
}

std::string_view inject_name(Inject inject) {
  return std::ranges::find(kInjectNames, inject, &InjectName::inject)->name;
}

std::vector<std::string> placeholders_of(const std::vector<std::string>& command) {
  std::vector<std::string> names;
  for (const std::string& argument : command) {
    replace_names(argument, [&](std::string_view name) {
      if (std::ranges::find(names, name) == names.end()) names.emplace_back(name);
      return std::string();
    });
  }
  return names;
}

Status check_placeholders(const std::vector<std::string>& command,
                          const std::vector<std::string>& variables, const Value& config) {
  const std::vector<std::string> used = placeholders_of(command);
  std::vector<std::string> known = variables;
  for (const Leaf& leaf : leaves_of(config)) {
    const std::string name = leaf.name();
    if (std::ranges::find(known, name) == known.end()) known.push_back(name);
  }
  for (const std::string& name : used) {
    if (std::ranges::find(known, name) != known.end()) continue;
    if (!value_at(config, name).is_nil()) continue;
    return make_status(Code::kInvalid,
                       "command: nothing fills the placeholder {{{}}}{} (there are {}; write "
                       "{{{{{}}}}} for the braces themselves)",
                       name, did_you_mean(name, known), fmt::join(known, ", "), name);
  }
  for (const std::string& name : variables) {
    const bool has_place = std::ranges::any_of(used, [&](const std::string& place) {
      return place == name || name.starts_with(place + ".");
    });
    if (has_place) continue;
    return make_status(Code::kInvalid,
                       "command: no placeholder uses the variable '{}'; write {{{}}} where its "
                       "value belongs, or choose inject: env, json or yaml",
                       name, name);
  }
  return {};
}

std::vector<std::string> fill_placeholders(const std::vector<std::string>& command,
                                           const Value& config) {
  std::vector<std::string> filled;
  for (const std::string& argument : command) {
    filled.push_back(replace_names(
        argument, [&](std::string_view name) { return plain_text(value_at(config, name)); }));
  }
  return filled;
}

std::vector<std::string> as_arguments(const Value& config) {
  std::vector<std::string> arguments;
  for (const Leaf& leaf : leaves_of(config)) {
    arguments.push_back(fmt::format("--{}={}", leaf.name(), plain_text(leaf.value)));
  }
  return arguments;
}

std::map<std::string, std::string> as_environment(const Value& config) {
  std::map<std::string, std::string> environment;
  for (const Leaf& leaf : leaves_of(config)) {
    environment[environment_name(leaf.path)] = plain_text(leaf.value);
  }
  return environment;
}

std::string environment_name(const std::vector<std::string>& path) {
  std::string name = fmt::format("HPO_PARAM_{}", fmt::join(path, "__"));
  std::ranges::replace_if(
      name, [](char c) { return std::isalnum(static_cast<unsigned char>(c)) == 0 && c != '_'; },
      '_');
  return name;
}

Status check_environment(const Value& config) {
  std::map<std::string, std::string> taken;  // by variable, the path
  for (const Leaf& leaf : leaves_of(config)) {
    const std::string name = environment_name(leaf.path);
    const auto [found, is_new] = taken.emplace(name, leaf.name());
    if (is_new) continue;
    return make_status(Code::kInvalid,
                       "inject: env: '{}' and '{}' would both be {}: rename one, or choose another "
                       "way (argv, json, yaml)",
                       found->second, leaf.name(), name);
  }
  return {};
}

Result<std::vector<std::string>> split_words(std::string_view text) {
  std::vector<std::string> words;
  skip_spaces(text);
  while (!text.empty()) {
    DIVISI_TRY(std::string word, read_word(text));
    words.push_back(std::move(word));
    skip_spaces(text);
  }
  return words;
}

std::string shell_line(const std::vector<std::string>& words) {
  std::vector<std::string> quoted;
  for (const std::string& word : words) {
    const bool plain = !word.empty() && std::ranges::all_of(word, [](char c) {
      return is_name_character(c) || std::string_view("/=:,+%@").find(c) != std::string_view::npos;
    });
    if (plain) {
      quoted.push_back(word);
      continue;
    }
    std::string one = "'";
    for (const char c : word) one += c == '\'' ? std::string("'\\''") : std::string(1, c);
    quoted.push_back(one + "'");
  }
  return fmt::format("{}", fmt::join(quoted, " "));
}

}  // namespace divisi::tune_run
