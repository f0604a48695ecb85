#include "divisi/packer.h"

#include "base/status.h"

#include <msgpuck.h>

#include <algorithm>
#include <cstring>
#include <limits>

namespace divisi {

namespace {

constexpr std::size_t kFirstCapacity = 512;
// A thread keeps this much between two packs; what is larger is rare and given back.
constexpr std::size_t kKeptCapacity = 1024 * 1024;
constexpr std::size_t kLongestHead = 9;

std::uint32_t checked_length(std::size_t size, const char* what) {
  if (size > std::numeric_limits<std::uint32_t>::max()) {
    throw UsageError(fmt::format("{} of {} cannot be sent: MessagePack ends at 4 GiB", what, size));
  }
  return static_cast<std::uint32_t>(size);
}

char* put_u32(char* at, std::uint32_t value) {
  std::memcpy(at, &value, sizeof value);
  return at + sizeof value;
}

// The head of an extension value.
char* put_extension(char* at, std::int8_t type, std::uint32_t size) {
  const auto kind = static_cast<char>(type);
  switch (size) {
    case 4: *at++ = '\xd6'; break;
    case 8: *at++ = '\xd7'; break;
    case 16: *at++ = '\xd8'; break;
    default:
      if (size <= 0xff) {
        *at++ = '\xc7';
        *at++ = static_cast<char>(size);
      } else if (size <= 0xffff) {
        *at++ = '\xc8';
        at = mp_store_u16(at, static_cast<std::uint16_t>(size));
      } else {
        *at++ = '\xc9';
        at = mp_store_u32(at, size);
      }
  }
  *at++ = kind;
  return at;
}

}  // namespace

char* Packer::reserve(std::size_t size) {
  if (capacity_ - size_ < size) [[unlikely]] {
    const std::size_t capacity = std::max({kFirstCapacity, 2 * capacity_, size_ + size});
    std::unique_ptr<char[]> data(new char[capacity]);
    if (size_ > 0) std::memcpy(data.get(), data_.get(), size_);
    data_ = std::move(data);
    capacity_ = capacity;
  }
  return data_.get() + size_;
}

void Packer::clear() noexcept {
  size_ = 0;
  buffers_.clear();
  if (capacity_ > kKeptCapacity) {
    data_.reset();
    capacity_ = 0;
  }
}

void Packer::nil() {
  written(mp_encode_nil(reserve(kLongestHead)));
}

void Packer::boolean(bool value) {
  written(mp_encode_bool(reserve(kLongestHead), value));
}

void Packer::integer(std::int64_t value) {
  char* at = reserve(kLongestHead);
  // msgpuck's mp_encode_int is for negative numbers only.
  written(value < 0 ? mp_encode_int(at, value)
                    : mp_encode_uint(at, static_cast<std::uint64_t>(value)));
}

void Packer::unsigned_integer(std::uint64_t value) {
  written(mp_encode_uint(reserve(kLongestHead), value));
}

void Packer::real(double value) {
  written(mp_encode_double(reserve(kLongestHead), value));
}

void Packer::real32(float value) {
  written(mp_encode_float(reserve(kLongestHead), value));
}

void Packer::text(std::string_view value) {
  const std::uint32_t length = checked_length(value.size(), "a string");
  char* at = mp_encode_strl(reserve(kLongestHead + value.size()), length);
  if (length > 0) std::memcpy(at, value.data(), length);
  written(at + length);
}

void Packer::bytes(std::span<const std::byte> value) {
  const std::uint32_t length = checked_length(value.size(), "bytes");
  char* at = mp_encode_binl(reserve(kLongestHead + value.size()), length);
  if (length > 0) std::memcpy(at, value.data(), length);
  written(at + length);
}

std::uint32_t Packer::add_buffer(const Buffer& value) {
  buffers_.push_back(value);
  return checked_length(buffers_.size() - 1, "a list of buffers");
}

void Packer::buffer(const Buffer& value) {
  if (value.size() < kOutOfBand) return bytes(value.bytes());
  const std::uint32_t index = add_buffer(value);
  written(put_u32(put_extension(reserve(kLongestHead), kBufferExtension, sizeof index), index));
}

void Packer::tensor(const Tensor& value) {
  if (!value.is_consistent()) {
    throw UsageError(fmt::format(
        "a tensor of {} bytes cannot be sent: its shape and dtype ({}) ask for another size",
        value.data.size(), dtype_name(value.dtype)));
  }
  const bool beside = value.data.size() >= kOutOfBand;
  const std::size_t size =
      4 + 8 * value.shape.size() + (beside ? sizeof(std::uint32_t) : value.data.size());
  char* at = put_extension(reserve(kLongestHead + size), kTensorExtension,
                           static_cast<std::uint32_t>(size));
  *at++ = static_cast<char>(value.dtype);
  *at++ = static_cast<char>(value.shape.size());
  *at++ = beside ? 1 : 0;
  *at++ = static_cast<char>(value.flavour);
  for (const std::int64_t dimension : value.shape) {
    std::memcpy(at, &dimension, sizeof dimension);
    at += sizeof dimension;
  }
  if (beside) {
    at = put_u32(at, add_buffer(value.data));
  } else if (!value.data.empty()) {
    std::memcpy(at, value.data.data(), value.data.size());
    at += value.data.size();
  }
  written(at);
}

void Packer::array(std::size_t count) {
  written(mp_encode_array(reserve(kLongestHead), checked_length(count, "a list")));
}

std::size_t Packer::open_tuple(std::size_t count) {
  char* at = reserve(kLongestHead);
  *at++ = '\xc9';
  const auto opened = static_cast<std::size_t>(at - data_.get());
  at = put_u32(at, 0);  // known when it is closed
  *at++ = static_cast<char>(kTupleExtension);
  written(at);
  array(count);
  return opened;
}

void Packer::close_tuple(std::size_t opened) {
  constexpr std::size_t kHead = sizeof(std::uint32_t) + 1;
  mp_store_u32(data_.get() + opened, checked_length(size_ - opened - kHead, "a tuple"));
}

void Packer::map(std::size_t count) {
  written(mp_encode_map(reserve(kLongestHead), checked_length(count, "a map")));
}

}  // namespace divisi
