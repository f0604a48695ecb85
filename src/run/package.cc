#include "run/package.h"

#include "io/crypto.h"
#include "launch/archive.h"
#include "launch/package.h"
#include "launch/text.h"
#include "run/digest_cache.h"
#include "run/gitignore.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sys/stat.h>
#include <unistd.h>

namespace divisi::run {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kNamedFiles = 3;  // of the biggest ones

std::string size_text(std::uint64_t bytes) {
  constexpr double kStep = 1024;
  double amount = static_cast<double>(bytes);
  for (const std::string_view unit : {"bytes", "KiB", "MiB"}) {
    if (amount < kStep) return fmt::format("{:.{}f} {}", amount, unit == "bytes" ? 0 : 1, unit);
    amount /= kStep;
  }
  return fmt::format("{:.1f} GiB", amount);
}

// A folder, file by file, without what is ignored.
class Walk {
 public:
  Walk(const CutOptions& options, std::string root, std::string prefix)
      : options_(options), root_(std::move(root)), prefix_(std::move(prefix)) {}

  Status run() { return folder(""); }
  std::vector<PackageFile>& files() { return files_; }
  std::vector<struct stat>& about() { return about_; }

 private:
  std::string full(const std::string& path) const {
    return path.empty() ? root_ : root_ + "/" + path;
  }

  Status folder(const std::string& path) {
    std::error_code error;
    std::vector<std::string> names;
    for (fs::directory_iterator entry(full(path), error), end; !error && entry != end;
         entry.increment(error)) {
      names.push_back(entry->path().filename().string());
    }
    if (error) {
      return make_status(Code::kUnavailable, "reading {}: {}", full(path), error.message());
    }
    std::ranges::sort(names);
    if (std::ranges::binary_search(names, ".gitignore")) {
      std::ifstream in(full(path) + "/.gitignore", std::ios::binary);
      ignore_.add(path, std::string{std::istreambuf_iterator<char>(in), {}});
    }
    for (const std::string& name : names) {
      if (name == ".git" || name == "__pycache__") continue;
      DIVISI_TRY_STATUS(entry(path.empty() ? name : path + "/" + name));
    }
    return {};
  }

  Status entry(const std::string& path) {
    struct stat about{};
    const std::string source = full(path);
    if (::lstat(source.c_str(), &about) != 0) return {};  // gone meanwhile
    const bool link = S_ISLNK(about.st_mode);
    if (link && ::stat(source.c_str(), &about) != 0) return {};  // leads nowhere
    if (ignore_.ignores(path, S_ISDIR(about.st_mode) && !link)) return {};
    if (S_ISDIR(about.st_mode)) {
      if (!link) return folder(path);
      return make_status(Code::kInvalid,
                         "{} is a link to a folder, which does not travel; copy it, or leave it "
                         "out in .gitignore",
                         source);
    }
    if (!S_ISREG(about.st_mode)) return {};
    const auto safe = launch::safe_entry_path(path);
    if (!safe) return safe.error().with_context(source);
    if (files_.size() == options_.max_files) {
      return make_status(Code::kForbidden,
                         "the package {} has more than {} files; leave some out in .gitignore",
                         root_, options_.max_files);
    }
    files_.push_back({.path = prefix_ + path,
                      .source = source,
                      .size = static_cast<std::uint64_t>(about.st_size),
                      .executable = (about.st_mode & S_IXUSR) != 0,
                      .digest = {}});
    about_.push_back(about);
    return {};
  }

  const CutOptions& options_;
  const std::string root_;
  const std::string prefix_;
  Gitignore ignore_;
  std::vector<PackageFile> files_;
  std::vector<struct stat> about_;
};

Status check_size(const CutOptions& options, const std::vector<PackageFile>& files,
                  const std::string& path) {
  std::uint64_t bytes = 0;
  for (const PackageFile& file : files) bytes += file.size;
  if (bytes <= options.max_bytes) return {};
  std::vector<PackageFile> biggest = files;
  std::ranges::sort(biggest, std::greater<>(), &PackageFile::size);
  std::vector<std::string> named;
  for (std::size_t i = 0; i < std::min(kNamedFiles, biggest.size()); ++i) {
    named.push_back(fmt::format("{} ({})", biggest[i].path, size_text(biggest[i].size)));
  }
  return make_status(Code::kForbidden,
                     "the package {} has {}, more than {}; its biggest files: {}; leave some out "
                     "in .gitignore, or say --max-package",
                     path, size_text(bytes), size_text(options.max_bytes), fmt::join(named, ", "));
}

// Names, modes and contents; nothing else of a file counts.
std::string digest_of(const std::vector<PackageFile>& files) {
  io::Sha256 hash;
  for (const PackageFile& file : files) {
    hash.update(fmt::format("{} {} {}", file.digest, file.executable ? 'x' : '-', file.path));
    hash.update(std::string_view("\0", 1));
  }
  return io::hexadecimal(hash.finish());
}

// Where the entry's module is in the package as it travels: the package's own files, or, where the
// package is the module itself (found from its parent folder), below its name.
Result<std::string> travelling_prefix(const std::string& root, const launch::EntryName& entry) {
  const fs::path path(root);
  const std::string module_root = entry.module.substr(0, entry.module.find_first_of("./"));
  const std::string parent = path.parent_path().string();
  const auto in = [&](const std::string& folder) {
    std::error_code error;
    const fs::path place = fs::path(folder) / module_root;
    if (entry.is_symbol) return fs::exists(fs::path(folder) / entry.module, error);
    return fs::exists(place, error) || fs::exists(place.string() + ".py", error) ||
           fs::exists(place.string() + ".so", error) ||
           fs::exists(fs::path(folder) / ("lib" + module_root + ".so"), error);
  };
  if (in(root) || in(root + "/" + module_root) || !in(parent)) return std::string();
  if (path.filename() == module_root) return module_root + "/";
  return failure(Code::kInvalid,
                 "--main {}: the module is beside the package, not in it; say --package {}",
                 entry.text(), parent);
}

Result<PackageCut> cut_archive(const CutOptions& options, PackageCut cut) {
  struct stat about{};
  if (::stat(cut.path.c_str(), &about) != 0) {
    return failure(Code::kUnavailable, "{}: {}", cut.path, errno_text(errno));
  }
  cut.is_archive = true;
  cut.files.push_back({.path = fs::path(cut.path).filename().string(),
                       .source = cut.path,
                       .size = static_cast<std::uint64_t>(about.st_size),
                       .executable = false,
                       .digest = {}});
  if (const Status status = check_size(options, cut.files, cut.path); !status.ok()) {
    return failure(status);
  }
  DIVISI_TRY(cut.files.front().digest, digest_of_file(cut.path));
  cut.bytes = cut.files.front().size;
  cut.digest = cut.files.front().digest;
  return cut;
}

bool is_object_name(std::string_view path) {
  return path.ends_with(".so") || path.find(".so.") != std::string_view::npos;
}

}  // namespace

Result<PackageCut> cut_package(const CutOptions& options) {
  DIVISI_TRY(const EntryCheck entry, check_entry(options.path, options.main));
  PackageCut cut;
  cut.path = entry.path;
  cut.entry = entry.entry;
  cut.is_python = entry.is_python;
  if (!fs::is_directory(cut.path)) return cut_archive(options, std::move(cut));
  DIVISI_TRY(const launch::EntryName name, launch::parse_entry_name(cut.entry));
  DIVISI_TRY(const std::string prefix, travelling_prefix(cut.path, name));
  Walk walk(options, cut.path, prefix);
  Status status = walk.run();
  if (status.ok()) status = check_size(options, walk.files(), cut.path);
  if (!status.ok()) return failure(status);
  DigestCache cache(options.digest_cache);
  for (std::size_t i = 0; i < walk.files().size(); ++i) {
    PackageFile& file = walk.files()[i];
    if (is_object_name(file.path)) {
      if (const Status fits = check_shared_object(file.source, options.architecture); !fits.ok()) {
        return failure(fits);
      }
    }
    DIVISI_TRY(file.digest, cache.digest(file.source, walk.about()[i]));
    cut.bytes += file.size;
  }
  cache.save();
  cut.files = std::move(walk.files());
  std::ranges::sort(cut.files, {}, &PackageFile::path);
  cut.digest = digest_of(cut.files);
  return cut;
}

}  // namespace divisi::run
