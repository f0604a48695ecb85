#include "launch/package.h"

#include "launch/probe.h"
#include "launch/python_package.h"
#include "launch/text.h"
#include "runtime/entry.h"

#include <cstdlib>
#include <cxxabi.h>
#include <filesystem>
#include <memory>
#include <utility>
#include <vector>

namespace divisi::launch {
namespace {

namespace fs = std::filesystem;

// Absolute and without "." or "..", so that its last component is a name.
Result<fs::path> package_path(const std::string& text) {
  std::error_code error;
  fs::path path = fs::canonical(text.empty() ? "." : text, error);
  if (error) {
    return failure(Code::kInvalid, "--package: '{}': {}", shown(text), error.message());
  }
  return path;
}

std::string demangled(const std::string& symbol) {
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> name(
      abi::__cxa_demangle(symbol.c_str(), nullptr, nullptr, &status), std::free);
  return status == 0 ? name.get() : symbol;
}

// dlopen says "path: reason"; the path is said once, and the usual reasons in plain words.
Status explain_load(const std::string& library, const Status& status) {
  const std::string& text = status.message();
  const auto has = [&](std::string_view part) { return text.find(part) != std::string::npos; };
  if (has("invalid ELF header") || has("file too short") || has("wrong ELF class")) {
    return make_status(Code::kInvalid, "{} is not a shared object of this machine: {}", library,
                       text.substr(text.rfind(": ") + 2));
  }
  if (const std::size_t at = text.find("undefined symbol: "); at != std::string::npos) {
    return make_status(Code::kInvalid,
                       "{} needs the symbol {}, which nothing it is linked with provides", library,
                       demangled(text.substr(at + 18)));
  }
  return {Code::kInvalid, text};
}

Status load_and_find(const runtime::EntryRef& entry) {
  if (const Status status = runtime::load_library(entry.library); !status.ok()) {
    return explain_load(entry.library, status);
  }
  const auto found = runtime::resolve_entry(entry);
  return found ? Status() : found.error();
}

Status not_found(const EntryName& name, const std::vector<std::string>& candidates) {
  std::vector<std::string> places;
  for (const std::string& candidate : candidates) {
    std::string place = fs::path(candidate).parent_path().lexically_normal().string();
    if (places.empty() || places.back() != place) places.push_back(std::move(place));
  }
  const std::string stem = name.module.substr(name.module.rfind('.') + 1);
  const std::string files =
      name.is_symbol ? name.module : fmt::format("{0}.so, lib{0}.so or {0}.py", stem);
  return make_status(Code::kInvalid, "--main {}: no {} in {}", name.text(), files,
                     fmt::join(places, ", "));
}

}  // namespace

Result<EntryName> choose_entry_name(const PackageOptions& options) {
  DIVISI_TRY(const fs::path path, package_path(options.path));
  if (options.main) return parse_entry_name(*options.main);
  return default_entry_name(path.filename().string());
}

Result<Package> Package::open(const PackageOptions& options) {
  DIVISI_TRY(const fs::path path, package_path(options.path));
  Package package;
  DIVISI_TRY(package.name_, choose_entry_name(options));

  std::string root = path.string();
  if (!fs::is_directory(path)) {
    if (!looks_like_zip(root)) {
      return failure(Code::kInvalid, "--package: '{}' is neither a directory nor a zip archive",
                     shown(options.path));
    }
    DIVISI_TRY(package.unpacked_, TempDir::make("ditask_package"));
    if (const Status status = extract_archive(root, package.unpacked_.path(), options.limits);
        !status.ok()) {
      return failure(
          status.with_context(fmt::format("--package: cannot use '{}'", shown(options.path))));
    }
    root = package.unpacked_.path();
  }

  const auto candidates = candidate_files(package.name_, root, path.parent_path().string());
  for (const std::string& candidate : candidates) {
    std::error_code error;
    if (!fs::is_regular_file(candidate, error)) continue;
    package.entry_.library = fs::path(candidate).lexically_normal().string();
    package.entry_.name = package.name_.function;
    package.entry_.is_symbol = package.name_.is_symbol;
    return package;
  }
  const auto folders = search_folders(package.name_, root, path.parent_path().string());
  if (!has_python_module(package.name_, folders) && !is_installed_python_module(package.name_)) {
    return failure(not_found(package.name_, candidates));
  }
  package.entry_.module = package.name_.module;
  package.entry_.name = package.name_.function;
  package.entry_.search_path = folders;
  return package;
}

Status Package::probe(int stop_fd) const {
  if (is_python()) return {};
  Status status = run_in_child([this] { return load_and_find(entry_); }, stop_fd);
  if (status.ok() || status.code() == Code::kCancelled) return status;
  return make_status(Code::kInvalid, "--main {}: {}", name_.text(), status.message());
}

}  // namespace divisi::launch
