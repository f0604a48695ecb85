#include "launch/python_package.h"

#include "io/process.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

namespace divisi::launch {
namespace {

namespace fs = std::filesystem;

std::string interpreter() {
  const char* const chosen = std::getenv("DIVISI_PYTHON");
  return chosen != nullptr && *chosen != '\0' ? chosen : "python3";
}

bool has_package(const fs::path& folder) {
  std::error_code error;
  return fs::exists(folder / "divisi" / "__init__.py", error);
}

// <build>/bin/ditask and <build>/python; or, in a wheel, divisi/_bin/ditask.
std::string package_beside_program() {
  const fs::path folder = fs::path(io::current_program()).parent_path();
  for (const fs::path& place :
       {folder.parent_path() / "python", folder.parent_path().parent_path()}) {
    if (has_package(place)) return place.string();
  }
  return {};
}

// A Python string literal.
std::string python_literal(std::string_view text) {
  std::string literal = "'";
  for (const char c : text) {
    if (c == '\\' || c == '\'') literal += '\\';
    if (c == '\n') {
      literal += "\\n";
    } else {
      literal += c;
    }
  }
  return literal + "'";
}

}  // namespace

std::vector<std::string> search_folders(const EntryName& entry, const std::string& package,
                                        const std::string& parent) {
  return {package, parent, package + "/" + entry.module.substr(0, entry.module.find('.'))};
}

bool has_python_module(const EntryName& entry, const std::vector<std::string>& folders) {
  if (entry.is_symbol) return false;
  std::string relative = entry.module;
  std::ranges::replace(relative, '.', '/');
  return std::ranges::any_of(folders, [&](const std::string& folder) {
    const fs::path path = fs::path(folder) / relative;
    std::error_code error;
    return fs::is_regular_file(path.string() + ".py", error) ||
           fs::is_regular_file(path / "__init__.py", error);
  });
}

std::vector<std::string> python_worker_command() {
  const std::string beside = package_beside_program();
  const std::string path =
      beside.empty() ? "" : fmt::format("sys.path.insert(0, {})\n", python_literal(beside));
  // Exit code 2 without a report is a usage error to the launcher.
  const std::string code = fmt::format(
      "import sys\n"
      "{}"
      "try:\n"
      "    from divisi._worker import main\n"
      "except ImportError as error:\n"
      "    print('this Python has no divisi package:', sys.executable, '-', error,\n"
      "          '- install it there, or set DIVISI_PYTHON', file=sys.stderr)\n"
      "    sys.exit(2)\n"
      "main()\n",
      path);
  return {interpreter(), "-c", code};
}

bool is_installed_python_module(const EntryName& entry) {
  if (entry.is_symbol) return false;
  // A folder without __init__.py is one for Python, too, but none that somebody meant: no origin.
  const std::string code = fmt::format(
      "import importlib.util, sys\n"
      "sys.exit(getattr(importlib.util.find_spec({}), 'origin', None) is None)",
      python_literal(entry.module.substr(0, entry.module.find('.'))));
  auto process = io::Process::spawn({.program = interpreter(),
                                     .arguments = {"-c", code},
                                     .standard_input = io::Stdio::kNull,
                                     .standard_output = io::Stdio::kNull,
                                     .standard_error = io::Stdio::kNull});
  if (!process) return false;
  const auto status = process->wait();
  return status && status->ok();
}

}  // namespace divisi::launch
