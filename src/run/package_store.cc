#include "run/package_store.h"

#include "json/value.h"
#include "launch/archive.h"
#include "run/environment.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

namespace divisi::run {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kPiece = std::size_t{256} << 10;

Status store_failure(std::string_view doing, const std::string& path) {
  return make_status(Code::kUnavailable, "{} {}: {}", doing, path, errno_text(errno));
}

Status make_folders(const std::string& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (!error) return {};
  return make_status(Code::kUnavailable, "making {}: {}", path, error.message());
}

Status write_whole(int file, std::string_view bytes, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(file, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return store_failure("writing", path);
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
  return {};
}

// The end of a page is decided by the path alone, so that a change moves no other page.
bool ends_page(std::string_view path) {
  constexpr std::uint32_t kAbout = 32;  // files of a page
  std::uint32_t hash = 2166136261U;
  for (const char c : path) hash = (hash ^ static_cast<unsigned char>(c)) * 16777619U;
  return (hash >> 8) % kAbout == 0;
}

struct StoredFile {
  std::string path{};
  std::string digest{};
  bool executable = false;
};

json::Value page_entry(const PackageFile& file) {
  return json::Array{json::Value(file.path), json::Value(file.digest),
                     json::Value(file.executable ? "x" : "-")};
}

Status bad_object(const std::string& digest) {
  return make_status(Code::kInvalid, "the object {} of a package cannot be read", digest);
}

Result<std::vector<std::string>> pages_of(const std::string& text, const std::string& digest) {
  DIVISI_TRY(const json::Value value, json::parse(text));
  if (value.as_array() == nullptr) return failure(bad_object(digest));
  std::vector<std::string> pages;
  for (const json::Value& page : *value.as_array()) {
    if (page.as_string() == nullptr || !is_digest(*page.as_string())) {
      return failure(bad_object(digest));
    }
    pages.push_back(*page.as_string());
  }
  return pages;
}

Result<std::vector<StoredFile>> files_of(const std::string& text, const std::string& digest) {
  DIVISI_TRY(const json::Value value, json::parse(text));
  if (value.as_array() == nullptr) return failure(bad_object(digest));
  std::vector<StoredFile> files;
  for (const json::Value& item : *value.as_array()) {
    const json::Array* const parts = item.as_array();
    if (parts == nullptr || parts->size() != 3 ||
        !std::ranges::all_of(*parts,
                             [](const auto& part) { return part.as_string() != nullptr; }) ||
        !is_digest(*(*parts)[1].as_string())) {
      return failure(bad_object(digest));
    }
    DIVISI_TRY(std::string path, launch::safe_entry_path(*(*parts)[0].as_string()));
    files.push_back({std::move(path), *(*parts)[1].as_string(), *(*parts)[2].as_string() == "x"});
  }
  return files;
}

bool is_old(const struct stat& about, std::chrono::seconds age) {
  const auto now = std::chrono::system_clock::now();
  return std::chrono::system_clock::from_time_t(about.st_mtim.tv_sec) + age < now;
}

// Runs of workers that were killed: nobody holds their lock.
void remove_left_runs(const std::string& folder) {
  constexpr std::chrono::minutes kBeingMade{10};
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string path = entry->path().string();
    const io::Descriptor lock(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    struct stat about{};
    if (!lock || ::fstat(lock.get(), &about) != 0 || !is_old(about, kBeingMade)) continue;
    if (::flock(lock.get(), LOCK_EX | LOCK_NB) != 0) continue;
    std::error_code ignored;
    fs::remove_all(path, ignored);
  }
}

void remove_old_files(const std::string& folder, std::chrono::seconds age) {
  std::error_code error;
  for (fs::recursive_directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    struct stat about{};
    if (::lstat(entry->path().c_str(), &about) != 0 || !S_ISREG(about.st_mode)) continue;
    if (is_old(about, age)) ::unlink(entry->path().c_str());
  }
}

void remove_old_jobs(const std::string& folder, std::chrono::seconds age) {
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    struct stat about{};
    std::error_code ignored;
    if (::lstat(entry->path().c_str(), &about) == 0 && is_old(about, age)) {
      fs::remove_all(entry->path(), ignored);
    }
  }
}

}  // namespace

std::string digest_of_text(std::string_view text) {
  io::Sha256 hash;
  hash.update(text);
  return io::hexadecimal(hash.finish());
}

bool is_digest(std::string_view text) {
  constexpr std::size_t kDigits = 64;
  return text.size() == kDigits && std::ranges::all_of(text, [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

PackageTree make_tree(const PackageCut& cut) {
  PackageTree tree;
  json::Array pages;
  json::Array page;
  const auto add_text = [&](const json::Value& value) {
    std::string text = json::print(value);
    std::string digest = digest_of_text(text);
    const std::uint64_t size = text.size();
    tree.objects[digest] = {.text = std::move(text), .source = {}, .size = size};
    return digest;
  };
  const auto end_page = [&] {
    if (page.empty()) return;
    pages.emplace_back(add_text(json::Value(std::exchange(page, {}))));
  };
  for (const PackageFile& file : cut.files) {
    tree.objects[file.digest] = {.text = {}, .source = file.source, .size = file.size};
    page.push_back(page_entry(file));
    if (ends_page(file.path)) end_page();
  }
  end_page();
  tree.root = add_text(json::Value(std::move(pages)));
  return tree;
}

std::string PackageStore::blob(std::string_view digest) const {
  return fmt::format("{}/blobs/{}/{}", folder_, digest.substr(0, 2), digest.substr(2));
}

Result<std::string> PackageStore::read_text(const std::string& digest) const {
  std::ifstream in(blob(digest), std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(in), {}};
  if (digest_of_text(text) == digest) return text;
  ::unlink(blob(digest).c_str());
  return failure(Code::kUnavailable, "{} was damaged and is removed; start the job again",
                 blob(digest));
}

Result<std::vector<std::string>> PackageStore::missing(const std::string& root) const {
  if (!is_digest(root)) return failure(Code::kInvalid, "'{}' is no digest", root);
  // What is used gets a new time; what has none is not there.
  const auto lacks = [&](const std::string& digest) {
    return ::utimensat(AT_FDCWD, blob(digest).c_str(), nullptr, 0) != 0;
  };
  if (lacks(root)) return std::vector<std::string>{root};
  DIVISI_TRY(const std::string text, read_text(root));
  DIVISI_TRY(const std::vector<std::string> pages, pages_of(text, root));
  std::set<std::string> absent;
  for (const std::string& page : pages) {
    if (lacks(page)) absent.insert(page);
  }
  if (absent.empty()) {
    for (const std::string& page : pages) {
      DIVISI_TRY(const std::string list, read_text(page));
      DIVISI_TRY(const std::vector<StoredFile> files, files_of(list, page));
      for (const StoredFile& file : files) {
        if (lacks(file.digest)) absent.insert(file.digest);
      }
    }
  }
  return std::vector<std::string>(absent.begin(), absent.end());
}

Result<PackageStore::Incoming> PackageStore::add(const std::string& digest) const {
  if (!is_digest(digest)) return failure(Code::kInvalid, "'{}' is no digest", digest);
  Incoming incoming;
  incoming.digest_ = digest;
  incoming.final_ = blob(digest);
  const std::string parent = fs::path(incoming.final_).parent_path().string();
  if (const Status made = make_folders(parent); !made.ok()) return failure(made);
  ::chmod(folder_.c_str(), 0700);
  std::string path = fmt::format("{}.{}.{:x}", incoming.final_, ::getpid(), io::random_u64());
  incoming.file_.reset(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!incoming.file_) return failure(store_failure("writing", path));
  incoming.path_ = std::move(path);
  return incoming;
}

Status PackageStore::Incoming::write(std::string_view piece) {
  hash_->update(piece);
  return write_whole(file_.get(), piece, path_);
}

Status PackageStore::Incoming::finish() {
  if (io::hexadecimal(hash_->finish()) != digest_) {
    return make_status(Code::kInvalid, "a file of the package has changed while it was sent");
  }
  file_.reset();
  if (::rename(path_.c_str(), final_.c_str()) != 0) return store_failure("writing", final_);
  path_.clear();
  return {};
}

PackageStore::Incoming::~Incoming() {
  if (!path_.empty()) ::unlink(path_.c_str());
}

Result<std::uint64_t> PackageStore::add_all(const PackageTree& tree) const {
  std::uint64_t bytes = 0;
  while (true) {
    DIVISI_TRY(const std::vector<std::string> wanted, missing(tree.root));
    if (wanted.empty()) return bytes;
    for (const std::string& digest : wanted) {
      const auto object = tree.objects.find(digest);
      if (object == tree.objects.end()) return failure(bad_object(digest));
      DIVISI_TRY(Incoming incoming, add(digest));
      Status status;
      if (object->second.source.empty()) {
        status = incoming.write(object->second.text);
      } else {
        std::ifstream in(object->second.source, std::ios::binary);
        std::string piece(kPiece, '\0');
        while (status.ok() && (in.read(piece.data(), kPiece), in.gcount() > 0)) {
          status = incoming.write({piece.data(), static_cast<std::size_t>(in.gcount())});
        }
      }
      if (status.ok()) status = incoming.finish();
      if (!status.ok()) return failure(status);
      bytes += object->second.size;
    }
  }
}

Status PackageStore::copy_verified(const std::string& digest, const std::string& target,
                                   bool executable) const {
  const std::string source = blob(digest);
  const io::Descriptor in(::open(source.c_str(), O_RDONLY | O_CLOEXEC));
  if (!in) return store_failure("reading", source);
  const io::Descriptor out(
      ::open(target.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, executable ? 0755 : 0644));
  if (!out) return store_failure("writing", target);
  io::Sha256 hash;
  std::string piece(kPiece, '\0');
  while (true) {
    const ssize_t got = ::read(in.get(), piece.data(), piece.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return store_failure("reading", source);
    if (got == 0) break;
    const std::string_view bytes(piece.data(), static_cast<std::size_t>(got));
    hash.update(bytes);
    DIVISI_TRY_STATUS(write_whole(out.get(), bytes, target));
  }
  if (io::hexadecimal(hash.finish()) == digest) return {};
  ::unlink(source.c_str());
  return make_status(Code::kUnavailable, "{} was damaged and is removed; start the job again",
                     source);
}

Status PackageStore::build(const std::string& root, const std::string& target) const {
  DIVISI_TRY_STATUS(make_folders(target));
  auto text = read_text(root);
  if (!text) return text.error();
  const auto pages = pages_of(*text, root);
  if (!pages) return pages.error();
  std::string folder_made;
  for (const std::string& page : *pages) {
    auto list = read_text(page);
    if (!list) return list.error();
    const auto files = files_of(*list, page);
    if (!files) return files.error();
    for (const StoredFile& file : *files) {
      const std::string path = target + "/" + file.path;
      std::string parent = path.substr(0, path.rfind('/'));
      if (parent != folder_made) DIVISI_TRY_STATUS(make_folders(parent));
      folder_made = std::move(parent);
      DIVISI_TRY_STATUS(copy_verified(file.digest, path, file.executable));
    }
  }
  return {};
}

Result<PackageStore::Run> PackageStore::make_run(const std::string& name) const {
  Run run;
  if (const Status made = make_folders(folder_ + "/runs"); !made.ok()) return failure(made);
  ::chmod(folder_.c_str(), 0700);
  run.folder = fmt::format("{}/runs/{}-{:x}", folder_, name, io::random_u64());
  if (::mkdir(run.folder.c_str(), 0700) != 0) {
    return failure(store_failure("making", run.folder));
  }
  run.lock.reset(::open(run.folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!run.lock || ::flock(run.lock.get(), LOCK_SH) != 0) {
    return failure(store_failure("locking", run.folder));
  }
  return run;
}

void PackageStore::clean() const {
  constexpr std::chrono::hours kEvery{24};
  const std::string marker = folder_ + "/cleaned";
  struct stat about{};
  if (::stat(marker.c_str(), &about) == 0 && !is_old(about, kEvery)) return;
  const io::Descriptor file(::open(marker.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
  if (!file || ::futimens(file.get(), nullptr) != 0) return;
  remove_left_runs(folder_ + "/runs");
  remove_old_jobs(folder_ + "/jobs", 4 * kKeptFor);
  remove_old_files(folder_ + "/blobs", kKeptFor);
}

Result<std::string> package_folder(const std::string& wanted) {
  const launch::Environment environment = process_environment();
  const auto home = launch::lookup(environment, "HOME");
  if (wanted.starts_with("~/") && home) return std::string(*home) + wanted.substr(1);
  if (wanted.starts_with('/')) return wanted;
  if (!wanted.empty()) {
    return failure(Code::kInvalid, "--remote-folder {}: it is neither absolute nor below ~/",
                   wanted);
  }
  if (const auto cache = launch::lookup(environment, "XDG_CACHE_HOME")) {
    return std::string(*cache) + "/divisi/packages";
  }
  if (home) return std::string(*home) + "/.cache/divisi/packages";
  return failure(Code::kInvalid, "neither XDG_CACHE_HOME nor HOME says where packages are kept");
}

}  // namespace divisi::run
