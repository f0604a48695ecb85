// Packages by content, in a folder of the machine that runs the workers: every file once, under the
// SHA-256 of what it holds.
//
//   const PackageTree tree = make_tree(cut);                        // where the package is
//   PackageStore store(folder);
//   store.missing(tree.root)   -> digests that have to be brought   // where the workers are
//   store.add(digest, size) ... write ... finish
//   store.build(tree.root, target)                                  // verified, file by file
//
// A package is a tree of three levels: its root lists pages, a page lists some thirty files. So one
// changed file costs its own content, one page and the root, however many files there are.
//
// FOLDER/blobs/ab/cdef...   FOLDER/runs/NAME: the files of one running worker.
// FOLDER/jobs/NAME: those of a Slurm job, whose time slurm_worker.h renews. clean() removes what
// was not used for kKeptFor, and runs that nobody holds any longer.
#pragma once

#include "base/status.h"
#include "io/crypto.h"
#include "io/process.h"
#include "run/package.h"

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace divisi::run {

// Something that can be sent: a text, or a file.
struct PackageObject {
  std::string text{};
  std::string source{};  // a file of this machine; then `text` is empty
  std::uint64_t size = 0;
};

struct PackageTree {
  std::string root{};                                           // its digest
  std::map<std::string, PackageObject, std::less<>> objects{};  // all of it, by digest
};
PackageTree make_tree(const PackageCut& cut);

std::string digest_of_text(std::string_view text);
bool is_digest(std::string_view text);  // 64 hexadecimal digits

class PackageStore {
 public:
  explicit PackageStore(std::string folder) : folder_(std::move(folder)) {}

  const std::string& folder() const noexcept { return folder_; }

  // What is missing of the tree as far as it is known here: the root, else pages, else files.
  // Empty: nothing is. What is there counts as used.
  Result<std::vector<std::string>> missing(const std::string& root) const;

  // An object that comes in pieces. Other processes see it once it is whole.
  class Incoming {
   public:
    Status write(std::string_view piece);
    Status finish();  // kInvalid when it is not what its digest says
    ~Incoming();
    Incoming(Incoming&&) noexcept = default;
    Incoming& operator=(Incoming&&) = delete;

   private:
    friend class PackageStore;
    Incoming() : hash_(std::make_unique<io::Sha256>()) {}
    std::string digest_;
    std::string path_;   // where it is written; empty: it is in its place
    std::string final_;  // its place
    io::Descriptor file_;
    std::unique_ptr<io::Sha256> hash_;
  };
  Result<Incoming> add(const std::string& digest) const;
  // All that is missing, from this machine's own files. Returns the bytes that were copied.
  Result<std::uint64_t> add_all(const PackageTree& tree) const;

  // The files of the package below `target`, which is made. Every byte is hashed on the way: an
  // object that is damaged is removed from the store, and the build fails.
  Status build(const std::string& root, const std::string& target) const;

  // A folder for one running worker, held by the descriptor: while that is open it is not removed.
  struct Run {
    std::string folder{};
    io::Descriptor lock{};
  };
  Result<Run> make_run(const std::string& name) const;

  // At most once a day.
  void clean() const;
  static constexpr std::chrono::hours kKeptFor{24 * 14};

 private:
  std::string blob(std::string_view digest) const;
  Result<std::string> read_text(const std::string& digest) const;
  Status copy_verified(const std::string& digest, const std::string& target, bool executable) const;

  std::string folder_;
};

// ${XDG_CACHE_HOME:-~/.cache}/divisi/packages, or `wanted`, which may begin with "~/".
Result<std::string> package_folder(const std::string& wanted);

}  // namespace divisi::run
