#include "launch/archive.h"

#include "launch/text.h"

#include <zip.h>

#include <array>
#include <cerrno>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <set>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

namespace divisi::launch {
namespace {

constexpr std::size_t kMaxPath = 1024;
constexpr std::size_t kMaxName = 255;  // one component, as every Linux file system has it
constexpr std::size_t kChunk = 64 << 10;

struct DiscardArchive {
  void operator()(zip_t* archive) const { zip_discard(archive); }
};
struct CloseFile {
  void operator()(zip_file_t* file) const { zip_fclose(file); }
};
using Archive = std::unique_ptr<zip_t, DiscardArchive>;
using ArchiveFile = std::unique_ptr<zip_file_t, CloseFile>;

Status not_a_zip(zip_error_t& error) {
  Status status =
      make_status(Code::kInvalid, "not a usable zip archive: {}", zip_error_strerror(&error));
  zip_error_fini(&error);
  return status;
}

Result<Archive> open_file(const std::string& path) {
  int code = 0;
  zip_t* archive = zip_open(path.c_str(), ZIP_RDONLY | ZIP_CHECKCONS, &code);
  if (archive != nullptr) return Archive(archive);
  zip_error_t error;
  zip_error_init_with_code(&error, code);
  return failure(not_a_zip(error));
}

Result<Archive> open_bytes(std::span<const std::byte> bytes) {
  // libzip takes nothing at all for an archive without entries.
  if (bytes.empty()) return failure(Code::kInvalid, "not a usable zip archive: it is empty");
  zip_error_t error;
  zip_error_init(&error);
  zip_source_t* source = zip_source_buffer_create(bytes.data(), bytes.size(), 0, &error);
  if (source == nullptr) return failure(not_a_zip(error));
  zip_t* archive = zip_open_from_source(source, ZIP_RDONLY | ZIP_CHECKCONS, &error);
  if (archive == nullptr) {
    zip_source_free(source);
    return failure(not_a_zip(error));
  }
  zip_error_fini(&error);
  return Archive(archive);
}

// The Unix mode of an entry; 0 when it was packed elsewhere and has none.
mode_t unix_mode(zip_t* archive, std::uint64_t index) {
  zip_uint8_t system = 0;
  zip_uint32_t attributes = 0;
  if (zip_file_get_external_attributes(archive, index, 0, &system, &attributes) != 0) return 0;
  return system == ZIP_OPSYS_UNIX ? static_cast<mode_t>(attributes >> 16U) : 0;
}

Result<ArchiveEntry> read_entry(zip_t* archive, std::uint64_t index) {
  zip_stat_t stat;
  zip_stat_init(&stat);
  if (zip_stat_index(archive, index, 0, &stat) != 0 || (stat.valid & ZIP_STAT_NAME) == 0 ||
      (stat.valid & ZIP_STAT_SIZE) == 0) {
    return failure(Code::kInvalid, "entry {} cannot be read: {}", index, zip_strerror(archive));
  }
  const std::string_view name = stat.name;
  DIVISI_TRY(std::string path, safe_entry_path(name));
  const mode_t mode = unix_mode(archive, index);
  const mode_t type = mode & S_IFMT;
  const bool is_directory = name.ends_with('/');
  if (S_ISLNK(mode)) return failure(Code::kInvalid, "'{}' is a symbolic link", shown(name));
  if (type != 0 && type != (is_directory ? S_IFDIR : S_IFREG)) {
    return failure(Code::kInvalid, "'{}' is neither a file nor a directory", shown(name));
  }
  if ((stat.valid & ZIP_STAT_ENCRYPTION_METHOD) != 0 && stat.encryption_method != ZIP_EM_NONE) {
    return failure(Code::kInvalid, "'{}' is encrypted", shown(name));
  }
  ArchiveEntry entry;
  entry.index = index;
  entry.path = std::move(path);
  entry.size = is_directory ? 0 : stat.size;
  entry.is_directory = is_directory;
  entry.is_executable = (mode & S_IXUSR) != 0;
  return entry;
}

// Every parent of a path must be free to be a directory: "a" and "a/b" cannot both be files.
Status check_paths(const std::vector<ArchiveEntry>& entries) {
  std::set<std::string, std::less<>> files;
  std::set<std::string, std::less<>> directories;
  for (const ArchiveEntry& entry : entries) {
    if (entry.is_directory) {
      directories.insert(entry.path);
    } else if (!files.insert(entry.path).second) {
      return make_status(Code::kInvalid, "'{}' is in it twice", shown(entry.path));
    }
    for (std::size_t slash = entry.path.rfind('/'); slash != std::string::npos && slash > 0;
         slash = entry.path.rfind('/', slash - 1)) {
      if (!directories.insert(entry.path.substr(0, slash)).second) break;
    }
  }
  for (const std::string& file : files) {
    if (directories.contains(file)) {
      return make_status(Code::kInvalid, "'{}' is a file and a directory", shown(file));
    }
  }
  return {};
}

Result<std::vector<ArchiveEntry>> list_entries(zip_t* archive, const ArchiveLimits& limits) {
  const zip_int64_t count = zip_get_num_entries(archive, 0);
  if (count < 0 || static_cast<std::uint64_t>(count) > limits.max_entries) {
    return failure(Code::kInvalid, "it has {} entries, more than {}", count, limits.max_entries);
  }
  std::vector<ArchiveEntry> entries;
  std::uint64_t total = 0;
  for (zip_int64_t i = 0; i < count; ++i) {
    DIVISI_TRY(ArchiveEntry entry, read_entry(archive, static_cast<std::uint64_t>(i)));
    if (entry.size > limits.max_bytes - total) {
      return failure(Code::kInvalid, "it unpacks to more than {} bytes", limits.max_bytes);
    }
    total += entry.size;
    entries.push_back(std::move(entry));
  }
  if (const Status status = check_paths(entries); !status.ok()) return failure(status);
  return entries;
}

using Sink = std::function<Status(std::span<const char>)>;

// The bytes of one entry; never more than it announced, whatever the stream inflates to.
Status read_bytes(zip_t* archive, const ArchiveEntry& entry, const Sink& sink) {
  const ArchiveFile file(zip_fopen_index(archive, entry.index, 0));
  if (file == nullptr) {
    return make_status(Code::kInvalid, "'{}' cannot be unpacked: {}", shown(entry.path),
                       zip_strerror(archive));
  }
  std::array<char, kChunk> chunk{};
  std::uint64_t total = 0;
  while (true) {
    const zip_int64_t got = zip_fread(file.get(), chunk.data(), chunk.size());
    if (got < 0) {
      return make_status(Code::kInvalid, "'{}' is damaged: {}", shown(entry.path),
                         zip_file_strerror(file.get()));
    }
    if (got == 0) break;
    total += static_cast<std::uint64_t>(got);
    if (total > entry.size) break;
    DIVISI_TRY_STATUS(sink({chunk.data(), static_cast<std::size_t>(got)}));
  }
  if (total != entry.size) {
    return make_status(Code::kInvalid, "'{}' is damaged: its size is not the announced {} bytes",
                       shown(entry.path), entry.size);
  }
  return {};
}

Status write_file(zip_t* archive, const ArchiveEntry& entry, const std::string& target) {
  const int mode = entry.is_executable ? 0700 : 0600;
  const int fd = ::open(target.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
  if (fd < 0) {
    return make_status(Code::kUnavailable, "cannot create {}: {}", target, errno_text(errno));
  }
  Status status = read_bytes(archive, entry, [&](std::span<const char> bytes) -> Status {
    while (!bytes.empty()) {
      const ssize_t written = ::write(fd, bytes.data(), bytes.size());
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) {
        return make_status(Code::kUnavailable, "cannot write {}: {}", target, errno_text(errno));
      }
      bytes = bytes.subspan(static_cast<std::size_t>(written));
    }
    return {};
  });
  if (::close(fd) != 0 && status.ok()) {
    status = make_status(Code::kUnavailable, "cannot write {}: {}", target, errno_text(errno));
  }
  return status;
}

}  // namespace

Result<std::string> safe_entry_path(std::string_view name) {
  const auto refuse = [&](std::string_view why) {
    return failure(Code::kInvalid, "the path '{}' {}", shown(name), why);
  };
  if (name.size() > kMaxPath) return refuse("is too long");
  if (name.starts_with('/')) return refuse("is absolute");
  std::string path;
  while (!name.empty()) {
    const std::size_t end = std::min(name.find('/'), name.size());
    const std::string_view part = name.substr(0, end);
    for (const char c : part) {
      if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f || c == '\\') {
        return refuse("has a character that no path of a package may have");
      }
    }
    if (part == "..") return refuse("leaves the directory");
    if (part.size() > kMaxName) return refuse("is too long");
    if (!part.empty() && part != ".") {
      if (!path.empty()) path += '/';
      path += part;
    }
    name.remove_prefix(std::min(end + 1, name.size()));
  }
  if (path.empty()) return refuse("names nothing");
  return path;
}

Result<std::vector<ArchiveEntry>> list_archive(const std::string& path,
                                               const ArchiveLimits& limits) {
  DIVISI_TRY(const Archive archive, open_file(path));
  return list_entries(archive.get(), limits);
}

Status extract_archive(const std::string& path, const std::string& directory,
                       const ArchiveLimits& limits) {
  const auto archive = open_file(path);
  if (!archive) return archive.error();
  const auto entries = list_entries(archive->get(), limits);
  if (!entries) return entries.error();
  for (const ArchiveEntry& entry : *entries) {
    const std::filesystem::path target = std::filesystem::path(directory) / entry.path;
    std::error_code error;
    std::filesystem::create_directories(entry.is_directory ? target : target.parent_path(), error);
    if (error) {
      return make_status(Code::kUnavailable, "cannot create the directory of {}: {}",
                         target.string(), error.message());
    }
    if (entry.is_directory) continue;
    DIVISI_TRY_STATUS(write_file(archive->get(), entry, target.string()));
  }
  return {};
}

Result<std::uint64_t> check_archive(std::span<const std::byte> bytes, const ArchiveLimits& limits) {
  DIVISI_TRY(const Archive archive, open_bytes(bytes));
  DIVISI_TRY(const auto entries, list_entries(archive.get(), limits));
  std::uint64_t total = 0;
  for (const ArchiveEntry& entry : entries) {
    if (entry.is_directory) continue;
    const Status status = read_bytes(archive.get(), entry, [&](std::span<const char> part) {
      total += part.size();
      return Status();
    });
    if (!status.ok()) return failure(status);
  }
  return total;
}

bool looks_like_zip(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::array<char, 4> magic{};
  file.read(magic.data(), magic.size());
  const std::string_view begin(magic.data(), magic.size());
  using namespace std::string_view_literals;
  return file && (begin == "PK\3\4"sv || begin == "PK\5\6"sv);
}

}  // namespace divisi::launch
