#include "run/package_zip.h"

#include "run/rendering.h"

#include <fmt/format.h>
#include <zip.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <iterator>
#include <memory>

namespace divisi::run {
namespace {

Result<std::string> read_whole(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(in), {}};
  if (in.bad() || !in.is_open()) {
    return failure(Code::kUnavailable, "reading {}: {}", path, errno_text(errno));
  }
  return text;
}

struct CloseArchive {
  void operator()(zip_t* archive) const { zip_discard(archive); }
};

Status add_file(zip_t* archive, const PackageFile& file) {
  const auto failed = [&] {
    return make_status(Code::kInternal, "packing {}: {}", file.path, zip_strerror(archive));
  };
  zip_source_t* const source = zip_source_file(archive, file.source.c_str(), 0, -1);
  if (source == nullptr) return failed();
  const zip_int64_t index = zip_file_add(archive, file.path.c_str(), source, ZIP_FL_ENC_UTF_8);
  if (index < 0) {
    zip_source_free(source);
    return failed();
  }
  const auto at = static_cast<zip_uint64_t>(index);
  constexpr zip_uint32_t kRegular = 0100000;
  const zip_uint32_t mode = kRegular | (file.executable ? 0755U : 0644U);
  constexpr int kUnixModeShift = 16;
  zip_file_set_external_attributes(archive, at, 0, ZIP_OPSYS_UNIX, mode << kUnixModeShift);
  // One time for all files: the bytes depend on the contents alone. The first day of the format.
  zip_file_set_dostime(archive, at, 0, (1U << 5U) | 1U, 0);
  return {};
}

}  // namespace

Result<std::string> zip_bytes(const PackageCut& cut) {
  if (cut.is_archive) return read_whole(cut.path);
  zip_error_t error;
  zip_error_init(&error);
  zip_source_t* const memory = zip_source_buffer_create(nullptr, 0, 0, &error);
  if (memory == nullptr) return failure(Code::kInternal, "packing: {}", zip_error_strerror(&error));
  zip_source_keep(memory);
  const std::unique_ptr<zip_source_t, void (*)(zip_source_t*)> kept(memory, zip_source_free);
  std::unique_ptr<zip_t, CloseArchive> archive(zip_open_from_source(memory, ZIP_TRUNCATE, &error));
  if (archive == nullptr) {
    zip_source_free(memory);
    return failure(Code::kInternal, "packing: {}", zip_error_strerror(&error));
  }
  for (const PackageFile& file : cut.files) {
    if (const Status status = add_file(archive.get(), file); !status.ok()) return failure(status);
  }
  if (zip_close(archive.get()) != 0) {
    return failure(Code::kUnavailable, "packing {}: {}", cut.path, zip_strerror(archive.get()));
  }
  (void)archive.release();
  zip_stat_t about;
  zip_stat_init(&about);
  std::string bytes;
  if (zip_source_stat(memory, &about) != 0 || zip_source_open(memory) != 0) {
    return failure(Code::kInternal, "packing {}: the archive is empty", cut.path);
  }
  bytes.resize(about.size);
  const zip_int64_t read = zip_source_read(memory, bytes.data(), bytes.size());
  zip_source_close(memory);
  if (read != static_cast<zip_int64_t>(bytes.size())) {
    return failure(Code::kInternal, "packing {}: {} of {} bytes", cut.path, read, bytes.size());
  }
  return bytes;
}

Result<std::string> zip_for_config_map(const PackageCut* cut) {
  if (cut == nullptr) return std::string();
  DIVISI_TRY(std::string bytes, zip_bytes(*cut));
  if (bytes.size() > kMaxConfigMapBytes) {
    const auto biggest = std::ranges::max_element(cut->files, {}, &PackageFile::size);
    return failure(
        Code::kForbidden,
        "the package {} has {} KiB packed, a ConfigMap holds {}; its biggest file is {} "
        "({} KiB): leave it out in .gitignore, or put it into the image or on a --volume",
        cut->path, bytes.size() >> 10U, kMaxConfigMapBytes >> 10U, biggest->path,
        biggest->size >> 10U);
  }
  return bytes;
}

Status write_zip(const PackageCut& cut, const std::string& file) {
  const auto bytes = zip_bytes(cut);
  if (!bytes) return bytes.error();
  std::ofstream out(file, std::ios::binary | std::ios::trunc);
  out.write(bytes->data(), static_cast<std::streamsize>(bytes->size()));
  out.close();
  if (!out) return make_status(Code::kUnavailable, "writing {}: {}", file, errno_text(errno));
  return {};
}

}  // namespace divisi::run
