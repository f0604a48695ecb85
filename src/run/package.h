// What travels: the files of a package, each with its size and the SHA-256 of its content.
//
//   DIVISI_TRY(PackageCut cut, cut_package({.path = "my_project", .main = "train.main"}));
//   cut.digest          // of all of it: names, modes and contents
//   cut.files           // what a host that lacks some of them is sent
//
// A folder is cut without what its .gitignore files leave out, without .git and __pycache__. A zip
// is one file. The entry is looked for before anything is sent or started; shared objects are
// checked for the architecture and the ABI of the runtime.
#pragma once

#include "base/status.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace divisi::run {

struct PackageFile {
  std::string path{};    // in the package as the workers see it; '/' between folders
  std::string source{};  // on this machine
  std::uint64_t size = 0;
  bool executable = false;
  std::string digest{};  // SHA-256 in hexadecimal
};

struct PackageCut {
  std::string path{};       // of the package on this machine, absolute
  bool is_archive = false;  // a zip, which stands alone in `files`
  std::string entry{};      // "module.function", as --main has to be on the other side
  bool is_python = false;
  std::vector<PackageFile> files{};  // sorted by path
  std::uint64_t bytes = 0;
  std::string digest{};
};

struct CutOptions {
  std::string path = ".";
  std::optional<std::string> main = std::nullopt;
  std::uint64_t max_bytes = std::uint64_t{512} << 20;
  std::size_t max_files = 100'000;
  // As `uname -m` says it; empty: this machine's. Shared objects of another one are refused.
  std::string architecture{};
  // Files that did not change since (size, times of change) keep their digest: a file of lines,
  // made when absent; empty: every file is read.
  std::string digest_cache{};
};

// kInvalid: no such package or entry, an object of another machine or ABI. kForbidden: more than
// max_bytes; the message names the biggest files. No file is read before both are known.
Result<PackageCut> cut_package(const CutOptions& options);

// The entry and nothing else: for workers on this machine, which read the package where it is.
struct EntryCheck {
  std::string path{};   // of the package, absolute
  std::string entry{};  // "module.function"
  bool is_python = false;
};
Result<EntryCheck> check_entry(const std::string& path, const std::optional<std::string>& main);

// A zip with all files, at `file`. The same cut gives the same bytes.
Status write_zip(const PackageCut& cut, const std::string& file);

// A shared object of this path: kInvalid when it is not for `architecture` or of another ABI of
// the runtime. Other files are no failure.
Status check_shared_object(const std::string& path, const std::string& architecture);

}  // namespace divisi::run
