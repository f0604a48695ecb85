// A package that ditask can enter: a directory or a zip archive with shared objects or Python
// modules in it. Where both have the name, the shared object is entered.
//
//   DIVISI_TRY(Package package, Package::open({.path = "greeting.zip", .main = "greeting.main"}));
//   DIVISI_TRY_STATUS(package.probe());       // loads it in a child process: safe whatever it is
//   package.entry()                           // what the workers load and enter
#pragma once

#include "base/status.h"
#include "launch/archive.h"
#include "launch/entry_name.h"
#include "launch/temp_dir.h"
#include "runtime/worker_config.h"

#include <optional>
#include <string>

namespace divisi::launch {

struct PackageOptions {
  std::string path = ".";
  std::optional<std::string> main = std::nullopt;  // nothing: <base name of the package>.main
  ArchiveLimits limits = {};
};

class Package {
 public:
  // Finds the shared object or module; an archive is unpacked into a private directory that lives
  // as long as the Package. Nothing is loaded. kInvalid with one clear line, naming the places
  // looked at.
  static Result<Package> open(const PackageOptions& options);

  // Loads the object and finds the function, in a child process, so that an object that crashes
  // or blocks the loader is a message here and not the end of the launcher. A Python module is
  // imported by its workers only: that may take seconds. kCancelled when `stop_fd` becomes
  // readable.
  Status probe(int stop_fd) const;

  const runtime::EntryRef& entry() const noexcept { return entry_; }
  const EntryName& name() const noexcept { return name_; }
  bool is_python() const noexcept { return !entry_.module.empty(); }
  bool is_archive() const noexcept { return !unpacked_.empty(); }

 private:
  Package() = default;

  TempDir unpacked_;
  EntryName name_;
  runtime::EntryRef entry_;
};

// The entry that `options` mean, without looking at any shared object. For --dry-run.
Result<EntryName> choose_entry_name(const PackageOptions& options);

}  // namespace divisi::launch
