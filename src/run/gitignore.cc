#include "run/gitignore.h"

#include "base/glob.h"

#include <algorithm>
#include <ranges>

namespace divisi::run {
namespace {

// The first part of a path, which is taken off.
std::string_view take_part(std::string_view& path) {
  const std::size_t slash = std::min(path.find('/'), path.size());
  const std::string_view part = path.substr(0, slash);
  path.remove_prefix(std::min(slash + 1, path.size()));
  return part;
}

// "\#", "\!" and "\ " are the characters themselves.
std::string without_escapes(std::string_view text) {
  std::string plain;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\' && i + 1 < text.size()) {
      ++i;
      // What a pattern would take for more than itself stays one character in a set.
      if (std::string_view("*?[").find(text[i]) != std::string_view::npos) {
        plain += {'[', text[i], ']'};
        continue;
      }
    }
    plain += text[i];
  }
  return plain;
}

std::string_view without_end(std::string_view line) {
  if (line.ends_with('\r')) line.remove_suffix(1);
  while (line.ends_with(' ') && !line.ends_with("\\ ")) line.remove_suffix(1);
  return line;
}

}  // namespace

bool path_match(std::string_view pattern, std::string_view path) {
  while (!pattern.empty()) {
    std::string_view rest = pattern;
    const std::string_view part = take_part(rest);
    if (part == "**") {
      if (rest.empty()) return !path.empty();
      for (std::string_view tail = path;; take_part(tail)) {
        if (path_match(rest, tail)) return true;
        if (tail.empty()) return false;
      }
    }
    if (path.empty() || !glob_match(part, take_part(path))) return false;
    pattern = rest;
  }
  return path.empty();
}

void Gitignore::add(std::string_view folder, std::string_view text) {
  for (const auto range : std::views::split(text, '\n')) {
    std::string_view line = without_end({range.begin(), range.end()});
    if (line.empty() || line.starts_with('#')) continue;
    Rule rule;
    rule.folder = folder.empty() ? "" : std::string(folder) + "/";
    if (line.starts_with('!')) {
      rule.negated = true;
      line.remove_prefix(1);
    }
    if (line.ends_with('/')) {
      rule.only_folders = true;
      line.remove_suffix(1);
    }
    rule.anchored = line.find('/') != std::string_view::npos;
    if (line.starts_with('/')) line.remove_prefix(1);
    rule.pattern = without_escapes(line);
    if (!rule.pattern.empty()) rules_.push_back(std::move(rule));
  }
}

bool Gitignore::fits(const Rule& rule, std::string_view path, bool is_folder) {
  if (rule.only_folders && !is_folder) return false;
  if (!path.starts_with(rule.folder)) return false;
  path.remove_prefix(rule.folder.size());
  if (rule.anchored) return path_match(rule.pattern, path);
  return glob_match(rule.pattern, path.substr(path.rfind('/') + 1));
}

bool Gitignore::ignores(std::string_view path, bool is_folder) const {
  for (const Rule& rule : std::views::reverse(rules_)) {
    if (fits(rule, path, is_folder)) return !rule.negated;
  }
  return false;
}

}  // namespace divisi::run
