#include "rl/saved_file.h"

#include "divisi/checkpoint.h"
#include "divisi/error.h"

#include <fmt/format.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>

namespace divisi::rl {

namespace {

constexpr std::string_view kMagic = "DIVISI01";
constexpr std::uint32_t kMostBuffers = 1 << 16;

// Eight tables, so that eight bytes are done at a time: a checkpoint is a megabyte, and a learner
// waits for it.
using CrcTables = std::array<std::array<std::uint32_t, 256>, 8>;
constexpr CrcTables kCrc = [] {
  CrcTables tables{};
  for (std::uint32_t i = 0; i < 256; ++i) {
    std::uint32_t value = i;
    for (int bit = 0; bit < 8; ++bit) {
      value = (value & 1U) != 0 ? 0xEDB88320U ^ (value >> 1U) : value >> 1U;
    }
    tables[0][i] = value;
  }
  for (std::size_t table = 1; table < tables.size(); ++table) {
    for (std::size_t i = 0; i < 256; ++i) {
      const std::uint32_t before = tables[table - 1][i];
      tables[table][i] = tables[0][before & 0xFFU] ^ (before >> 8U);
    }
  }
  return tables;
}();

std::uint32_t crc32(std::span<const std::byte> bytes) {
  std::uint32_t crc = 0xFFFF'FFFFU;
  while (bytes.size() >= 8) {
    std::uint64_t next = 0;
    std::memcpy(&next, bytes.data(), sizeof(next));
    next ^= crc;
    crc = 0;
    for (std::size_t i = 0; i < 8; ++i) crc ^= kCrc[7 - i][(next >> (8 * i)) & 0xFFU];
    bytes = bytes.subspan(8);
  }
  for (const std::byte byte : bytes) {
    crc = kCrc[0][(crc ^ static_cast<std::uint32_t>(byte)) & 0xFFU] ^ (crc >> 8U);
  }
  return ~crc;
}

class Writer {
 public:
  template <class T>
  void number(T value) {
    raw(std::as_bytes(std::span(&value, 1)));
  }
  void raw(std::span<const std::byte> bytes) {
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
  }
  void reserve(std::size_t size) { bytes_.reserve(size); }
  void text(std::string_view text) { raw(std::as_bytes(std::span(text))); }
  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
};

// Reads what load_payload has bounded; a length beyond the end is the file's fault.
class Reader {
 public:
  Reader(const std::string& path, Buffer bytes) : path_(path), bytes_(std::move(bytes)) {}

  template <class T>
  T number() {
    T value{};
    std::memcpy(&value, take(sizeof(T)).data(), sizeof(T));
    return value;
  }
  Buffer take(std::uint64_t size) {
    if (size > bytes_.size() - at_) damaged();
    Buffer part = bytes_.slice(at_, static_cast<std::size_t>(size));
    at_ += static_cast<std::size_t>(size);
    return part;
  }
  void expect_end() const {
    if (at_ != bytes_.size()) damaged();
  }
  [[noreturn]] void damaged() const {
    throw UsageError(fmt::format(
        "{}: truncated or damaged; delete it, or take an older checkpoint beside it", path_));
  }

 private:
  const std::string& path_;
  Buffer bytes_;
  std::size_t at_ = 0;
};

std::optional<Buffer> read_all(const std::string& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) {
    if (errno == ENOENT) return std::nullopt;
    throw UsageError(fmt::format("{}: cannot be read: {}", path, std::strerror(errno)));
  }
  // A folder opens as well, and claims to be endless.
  if (!std::filesystem::is_regular_file(path)) {
    throw UsageError(fmt::format("{}: is not a file", path));
  }
  const std::streamoff size = file.tellg();
  Buffer bytes(static_cast<std::size_t>(size));
  file.seekg(0);
  file.read(reinterpret_cast<char*>(bytes.mutable_data()), size);
  if (!file) throw UsageError(fmt::format("{}: cannot be read: {}", path, std::strerror(errno)));
  return bytes;
}

Writer file_of(std::string_view kind, const PayloadView& payload) {
  if (payload.codec != Codec::kNative || payload.has_kwargs) {
    throw UsageError("save_file: a single bytes value needs another beside it");
  }
  std::size_t size = payload.body.size();
  for (const Buffer& buffer : payload.buffers) size += buffer.size() + sizeof(std::uint64_t);
  constexpr std::size_t kHeads = 64;
  Writer writer;
  writer.reserve(size + kind.size() + kHeads);
  writer.text(kMagic);
  writer.number(static_cast<std::uint32_t>(kind.size()));
  writer.text(kind);
  writer.number(static_cast<std::uint64_t>(payload.body.size()));
  writer.number(static_cast<std::uint32_t>(payload.buffers.size()));
  for (const Buffer& buffer : payload.buffers)
    writer.number(static_cast<std::uint64_t>(buffer.size()));
  writer.raw(payload.body);
  for (const Buffer& buffer : payload.buffers) writer.raw(buffer.bytes());
  writer.number(crc32(writer.bytes()));
  return writer;
}

}  // namespace

void save_payload(const std::string& path, std::string_view kind, const PayloadView& payload) {
  write_file_atomically(path, file_of(kind, payload).bytes());
}

void write_payload(const std::string& path, std::string_view kind, const PayloadView& payload) {
  const Writer writer = file_of(kind, payload);
  std::ofstream file(path, std::ios::binary);
  const auto bytes = writer.bytes();
  file.write(reinterpret_cast<const char*>(bytes.data()),
             static_cast<std::streamsize>(bytes.size()));
  file.close();
  if (!file) {
    throw Error(Code::kUnavailable, fmt::format("writing {}: {}", path, std::strerror(errno)));
  }
}

std::optional<Payload> load_payload(const std::string& path, std::string_view kind) {
  const std::optional<Buffer> bytes = read_all(path);
  if (!bytes) return std::nullopt;
  constexpr std::size_t kCrcSize = sizeof(std::uint32_t);
  if (bytes->size() < kMagic.size() + kCrcSize || !bytes->text().starts_with(kMagic)) {
    throw UsageError(fmt::format("{}: not a checkpoint of divisi", path));
  }
  const std::size_t checked = bytes->size() - kCrcSize;
  std::uint32_t crc = 0;
  std::memcpy(&crc, bytes->data() + checked, kCrcSize);
  Reader reader(path, bytes->slice(0, checked));
  if (crc != crc32(bytes->bytes().first(checked))) reader.damaged();
  reader.take(kMagic.size());
  const Buffer found = reader.take(reader.number<std::uint32_t>());
  if (found.text() != kind) {
    throw UsageError(
        fmt::format("{}: a checkpoint of '{}', expected '{}'", path, found.text(), kind));
  }
  Payload payload;
  payload.codec = Codec::kNative;
  const auto body_size = reader.number<std::uint64_t>();
  const auto count = reader.number<std::uint32_t>();
  if (count > kMostBuffers) reader.damaged();
  std::vector<std::uint64_t> sizes(count);
  for (auto& size : sizes) size = reader.number<std::uint64_t>();
  payload.body = reader.take(body_size);
  for (const std::uint64_t size : sizes) {
    // Tensors are read in place, so each gets memory of its own that is aligned.
    payload.buffers.push_back(Buffer::copy_of(reader.take(size).bytes()));
  }
  reader.expect_end();
  return payload;
}

}  // namespace divisi::rl
