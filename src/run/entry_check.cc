// The entry of a package, looked for before anything is started.
#include "launch/package.h"
#include "launch/text.h"
#include "run/package.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <iterator>

namespace divisi::run {
namespace {

namespace fs = std::filesystem;

bool is_word_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

bool has_word(std::string_view text, std::string_view word) {
  for (std::size_t at = text.find(word); at != std::string_view::npos;
       at = text.find(word, at + 1)) {
    const std::size_t end = at + word.size();
    if ((at == 0 || !is_word_character(text[at - 1])) &&
        (end == text.size() || !is_word_character(text[end]))) {
      return true;
    }
  }
  return false;
}

std::string module_file(const std::string& folder, std::string module) {
  std::ranges::replace(module, '.', '/');
  const fs::path path = fs::path(folder) / module;
  std::error_code error;
  for (const fs::path& file : {fs::path(path.string() + ".py"), path / "__init__.py"}) {
    if (fs::is_regular_file(file, error)) return file.string();
  }
  return {};
}

// A module that never mentions the name cannot have the function, unless it makes names in ways
// that only running it would show. Workers would each say so; this says it once.
Status check_python_function(const launch::Package& package) {
  const std::string& function = package.name().function;
  for (const std::string& folder : package.entry().search_path) {
    const std::string file = module_file(folder, package.name().module);
    if (file.empty()) continue;
    std::ifstream in(file, std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(in), {}};
    constexpr std::array<std::string_view, 5> kMakesNames{"import *", "globals", "__getattr__",
                                                          "setattr", "exec"};
    const bool made = std::ranges::any_of(
        kMakesNames, [&](std::string_view part) { return text.find(part) != text.npos; });
    if (made || has_word(text, function)) return {};
    return make_status(Code::kInvalid, "--main {}: {} has no function {}", package.name().text(),
                       fs::path(file).lexically_normal().string(), launch::shown(function));
  }
  return {};
}

}  // namespace

Result<EntryCheck> check_entry(const std::string& path, const std::optional<std::string>& main) {
  DIVISI_TRY(const launch::Package package, launch::Package::open({.path = path, .main = main}));
  if (package.is_python()) {
    if (const Status status = check_python_function(package); !status.ok()) return failure(status);
  } else if (const Status status = check_shared_object(package.entry().library, ""); !status.ok()) {
    return failure(status);
  }
  EntryCheck check;
  check.path = fs::canonical(path.empty() ? "." : path).string();
  check.entry = package.name().text();
  check.is_python = package.is_python();
  return check;
}

}  // namespace divisi::run
