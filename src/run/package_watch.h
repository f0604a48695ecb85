// PackageWatch: tells when files of a package were saved.
#pragma once

#include "io/process.h"
#include "run/package.h"

#include <memory>
#include <set>
#include <string>
#include <utility>

namespace divisi::run {

class PackageWatch {
 public:
  // The folders of its files, and the package's own.
  static Result<std::unique_ptr<PackageWatch>> make(const PackageCut& cut);

  int fd() const noexcept { return notify_.get(); }  // readable: something may have changed
  // Takes what has come, and what comes until nothing has for a tenth of a second: editors and
  // checkouts write several files. Files that are written all the time are not waited for.
  void settle();
  // Folders that a new cut has.
  Status add(const PackageCut& cut);

 private:
  explicit PackageWatch(io::Descriptor notify) : notify_(std::move(notify)) {}
  Status watch(const std::string& folder);

  io::Descriptor notify_;
  std::set<std::string> folders_;
};

}  // namespace divisi::run
