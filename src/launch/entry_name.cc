#include "launch/entry_name.h"

#include "launch/text.h"

#include <algorithm>

namespace divisi::launch {
namespace {

bool is_module_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '-' || c == '+' || static_cast<unsigned char>(c) >= 0x80;
}

bool is_function_character(char c) {
  return is_module_character(c) || c == ':' || c == '$';
}

bool all_of(std::string_view text, bool (*matches)(char)) {
  return !text.empty() && std::ranges::all_of(text, matches);
}

// "libfoo.so:symbol", "build/libfoo.so.1:symbol"; "module.scope::function" is not of this form.
std::size_t symbol_separator(std::string_view text) {
  const std::size_t colon = text.rfind(':');
  if (colon == std::string_view::npos || colon == 0 || text[colon - 1] == ':') {
    return std::string_view::npos;
  }
  const std::string_view file = text.substr(0, colon);
  const bool shared_object = file.ends_with(".so") || file.find(".so.") != std::string_view::npos;
  return shared_object ? colon : std::string_view::npos;
}

Status bad_name(std::string_view text, std::string_view why) {
  return make_status(Code::kInvalid, "--main: '{}' {}; write module.function or libfoo.so:symbol",
                     shown(text), why);
}

// "a.b" -> "a/b" with the last part given as file name: "a/libb.so".
std::string module_file(std::string_view module, std::string_view prefix) {
  std::string path(module);
  std::ranges::replace(path, '.', '/');
  const std::size_t slash = path.rfind('/');
  path.insert(slash == std::string::npos ? 0 : slash + 1, prefix);
  return path + ".so";
}

// "libfoo.so.1" of "dir/libfoo.so.1" -> "foo": the folder that a library of that name may have.
std::string root_of_file(std::string_view file) {
  file.remove_prefix(std::min(file.find_last_of('/') + 1, file.size()));
  file = file.substr(0, file.find(".so"));
  if (file.starts_with("lib")) file.remove_prefix(3);
  return std::string(file);
}

}  // namespace

Result<EntryName> parse_entry_name(std::string_view text) {
  text = trimmed(text);
  EntryName entry;
  if (const std::size_t colon = symbol_separator(text); colon != std::string_view::npos) {
    entry = {std::string(text.substr(0, colon)), std::string(text.substr(colon + 1)), true};
    if (!all_of(entry.function, is_function_character)) {
      return failure(bad_name(text, "has no symbol after the colon"));
    }
    return entry;
  }
  const std::size_t dot = text.rfind('.');
  if (dot == std::string_view::npos) return failure(bad_name(text, "has no dot"));
  entry = {std::string(text.substr(0, dot)), std::string(text.substr(dot + 1)), false};
  if (!all_of(entry.function, is_function_character)) {
    return failure(bad_name(text, "has no function after its last dot"));
  }
  for (std::string_view rest = entry.module;;) {
    const std::size_t end = std::min(rest.find('.'), rest.size());
    if (!all_of(rest.substr(0, end), is_module_character)) {
      return failure(bad_name(text, "is not a module name"));
    }
    if (end == rest.size()) return entry;
    rest.remove_prefix(end + 1);
  }
}

Result<EntryName> default_entry_name(std::string_view package_base_name) {
  std::string_view module = package_base_name;
  if (module.ends_with(".zip")) module.remove_suffix(4);
  if (!all_of(module, is_module_character)) {
    return failure(Code::kInvalid,
                   "the package name '{}' is not a module name; say which function to run with "
                   "--main module.function",
                   shown(module));
  }
  return EntryName{std::string(module), "main", false};
}

std::vector<std::string> candidate_files(const EntryName& entry, const std::string& package,
                                         const std::string& parent) {
  if (entry.is_symbol && entry.module.starts_with('/')) return {entry.module};
  const std::string root =
      entry.is_symbol ? root_of_file(entry.module) : entry.module.substr(0, entry.module.find('.'));
  std::vector<std::string> files;
  for (const std::string& directory : {package, parent, fmt::format("{}/{}", package, root)}) {
    if (entry.is_symbol) {
      files.push_back(directory + "/" + entry.module);
    } else {
      files.push_back(directory + "/" + module_file(entry.module, ""));
      files.push_back(directory + "/" + module_file(entry.module, "lib"));
    }
  }
  return files;
}

}  // namespace divisi::launch
