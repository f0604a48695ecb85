#include "base/status.h"
#include "divisi/packer.h"

#include <msgpuck.h>

#include <algorithm>
#include <array>
#include <cstring>

namespace divisi {

namespace {

[[noreturn]] void malformed(std::string_view why) {
  throw PayloadError(fmt::format("malformed payload: {}", why));
}

std::uint32_t get_u32(const char* at) {
  std::uint32_t value = 0;
  std::memcpy(&value, at, sizeof value);
  return value;
}

// How many bytes of the head follow the first: the value of a number, the length of the rest. Ours
// instead of msgpuck's mp_check_*, which assert on some truncated input, and instead of mp_check,
// which large counts can lead past the end.
constexpr std::array<std::uint8_t, 256> kHeadBytes = [] {
  std::array<std::uint8_t, 256> bytes{};
  for (const int one : {0xc4, 0xcc, 0xd0, 0xd9}) bytes[static_cast<std::size_t>(one)] = 1;
  for (const int two : {0xc5, 0xcd, 0xd1, 0xda, 0xdc, 0xde})
    bytes[static_cast<std::size_t>(two)] = 2;
  for (const int four : {0xc6, 0xca, 0xce, 0xd2, 0xdb, 0xdd, 0xdf}) {
    bytes[static_cast<std::size_t>(four)] = 4;
  }
  for (const int eight : {0xcb, 0xcf, 0xd3}) bytes[static_cast<std::size_t>(eight)] = 8;
  return bytes;
}();

// At least one byte must be left.
void require_head(const char* at, const char* end) {
  if (end - at <= kHeadBytes[static_cast<unsigned char>(*at)]) [[unlikely]] {
    malformed("it ends in the middle of a value");
  }
}

constexpr unsigned char kReserved = 0xc1;

}  // namespace

std::span<const char> Unpacker::take(std::size_t size) {
  if (size > static_cast<std::size_t>(end_ - at_)) [[unlikely]] {
    malformed("a length reaches past its end");
  }
  const char* begin = at_;
  at_ += size;
  return {begin, size};
}

Unpacker::Kind Unpacker::kind() const {
  if (at_ == end_) [[unlikely]]
    malformed("it ends where a value should follow");
  switch (mp_typeof(*at_)) {
    case MP_NIL: return Kind::kNil;
    case MP_BOOL: return Kind::kBool;
    case MP_UINT:
    case MP_INT: return Kind::kInteger;
    case MP_FLOAT:
    case MP_DOUBLE: return Kind::kReal;
    case MP_STR: return Kind::kText;
    case MP_BIN: return Kind::kBytes;
    case MP_ARRAY: return Kind::kArray;
    case MP_MAP: return Kind::kMap;
    case MP_EXT: break;
  }
  if (static_cast<unsigned char>(*at_) == kReserved) return Kind::kUnknown;
  Unpacker ahead(*this);
  switch (ahead.extension().type) {
    case kBufferExtension: return Kind::kBuffer;
    case kTensorExtension: return Kind::kTensor;
    case kTupleExtension: return Kind::kArray;
    default: return Kind::kUnknown;
  }
}

void Unpacker::nil() {
  if (at_ == end_ || mp_typeof(*at_) != MP_NIL) [[unlikely]]
    mismatch("nil");
  ++at_;
}

bool Unpacker::boolean() {
  if (at_ == end_ || mp_typeof(*at_) != MP_BOOL) [[unlikely]]
    mismatch("bool");
  return mp_decode_bool(&at_);
}

Number Unpacker::number(std::string_view expected) {
  if (at_ == end_) [[unlikely]]
    mismatch(expected);
  switch (mp_typeof(*at_)) {
    case MP_UINT: require_head(at_, end_); return Number::of(mp_decode_uint(&at_));
    case MP_INT: require_head(at_, end_); return Number::of(mp_decode_int(&at_));
    case MP_FLOAT: require_head(at_, end_); return Number::of(double{mp_decode_float(&at_)});
    case MP_DOUBLE: require_head(at_, end_); return Number::of(mp_decode_double(&at_));
    default: mismatch(expected);
  }
}

std::string_view Unpacker::text() {
  if (at_ == end_ || mp_typeof(*at_) != MP_STR) [[unlikely]]
    mismatch("string");
  require_head(at_, end_);
  const std::span<const char> text = take(mp_decode_strl(&at_));
  return {text.data(), text.size()};
}

std::span<const std::byte> Unpacker::bytes() {
  switch (kind()) {
    case Kind::kBytes: {
      require_head(at_, end_);
      return std::as_bytes(take(mp_decode_binl(&at_)));
    }
    case Kind::kBuffer: return extra_buffer(extension().data.data()).bytes();
    default: mismatch("bytes");
  }
}

Buffer Unpacker::buffer() {
  if (kind() == Kind::kBuffer) return extra_buffer(extension().data.data());
  const std::span<const std::byte> inside = bytes();
  return share({reinterpret_cast<const char*>(inside.data()), inside.size()}, 1);
}

// Part of the body as a Buffer: without a copy if the body has an owner and the part is aligned.
Buffer Unpacker::share(std::span<const char> part, std::size_t alignment) const {
  const bool aligned = reinterpret_cast<std::uintptr_t>(part.data()) % alignment == 0;
  if (owner_ != nullptr && !owner_->empty() && aligned && !part.empty()) {
    const auto offset = reinterpret_cast<const std::byte*>(part.data()) - owner_->data();
    return owner_->slice(static_cast<std::size_t>(offset), part.size());
  }
  return Buffer::copy_of(std::as_bytes(part));
}

const Buffer& Unpacker::extra_buffer(const char* index_bytes) const {
  const std::uint32_t index = get_u32(index_bytes);
  if (index >= buffers_.size()) [[unlikely]] {
    malformed(fmt::format("it refers to extra buffer {} of {}", index, buffers_.size()));
  }
  return buffers_[index];
}

Unpacker::Extension Unpacker::extension() {
  const auto head = static_cast<unsigned char>(*at_);
  ++at_;
  std::size_t size = 0;
  const auto big_endian = [&](std::size_t width) {
    for (const char digit : take(width)) size = size << 8 | static_cast<unsigned char>(digit);
  };
  switch (head) {
    case 0xc7: big_endian(1); break;
    case 0xc8: big_endian(2); break;
    case 0xc9: big_endian(4); break;
    case 0xd4:
    case 0xd5:
    case 0xd6:
    case 0xd7:
    case 0xd8: size = std::size_t{1} << (head - 0xd4); break;
    default: malformed("it has a byte that MessagePack does not use");
  }
  const auto type = static_cast<std::int8_t>(take(1).front());
  const std::span<const char> data = take(size);
  if (type == kBufferExtension && data.size() != sizeof(std::uint32_t)) {
    malformed("a reference to an extra buffer has 4 bytes");
  }
  return {type, data};
}

Tensor Unpacker::tensor() {
  if (kind() != Kind::kTensor) mismatch("tensor");
  const std::span<const char> data = extension().data;
  constexpr std::size_t kHead = 4;
  if (data.size() < kHead) malformed("a tensor has at least 4 bytes");
  const std::size_t rank = static_cast<unsigned char>(data[1]);
  const char placement = data[2];
  if (rank > Tensor::kMaxRank || placement < 0 || placement > 1) {
    malformed("a tensor has an unknown layout");
  }
  const std::size_t elements_at = kHead + 8 * rank;
  if (data.size() < elements_at) malformed("a tensor ends inside its shape");
  const std::span<const char> rest = data.subspan(elements_at);
  if (placement == 1 && rest.size() != sizeof(std::uint32_t)) {
    malformed("a reference to an extra buffer has 4 bytes");
  }
  Tensor tensor;
  tensor.dtype = static_cast<DType>(data[0]);
  tensor.flavour = static_cast<std::uint8_t>(data[3]);
  tensor.shape.resize(rank);
  if (rank > 0) std::memcpy(tensor.shape.data(), data.data() + kHead, 8 * rank);
  const std::size_t alignment = std::max<std::size_t>(element_size(tensor.dtype), 1);
  if (placement == 1) {
    const Buffer& beside = extra_buffer(rest.data());
    // Senders align what they can; a replaceable event may stand anywhere in the stream.
    const bool aligned = reinterpret_cast<std::uintptr_t>(beside.data()) % alignment == 0;
    tensor.data = aligned ? beside : Buffer::copy_of(beside.bytes());
  } else {
    tensor.data = share(rest, alignment);
  }
  if (!tensor.is_consistent()) {
    malformed("a tensor's shape and dtype do not match its size");
  }
  return tensor;
}

std::size_t Unpacker::array() {
  return container(false);
}

std::size_t Unpacker::map() {
  return container(true);
}

bool Unpacker::next_is_extension() const noexcept {
  return at_ != end_ && mp_typeof(*at_) == MP_EXT && static_cast<unsigned char>(*at_) != kReserved;
}

bool Unpacker::is_tuple() const {
  if (!next_is_extension()) return false;
  return Unpacker(*this).extension().type == kTupleExtension;
}

std::size_t Unpacker::container(bool is_map) {
  const std::string_view expected = is_map ? "map" : "list";
  if (!is_map && is_tuple()) [[unlikely]] {
    // What is inside is read as if it stood here by itself; its own heads bound it.
    const std::span<const char> inside = extension().data;
    at_ = inside.data();
  }
  if (at_ == end_ || mp_typeof(*at_) != (is_map ? MP_MAP : MP_ARRAY)) mismatch(expected);
  require_head(at_, end_);
  const std::size_t count = is_map ? mp_decode_map(&at_) : mp_decode_array(&at_);
  // Every value has at least one byte.
  const auto left = static_cast<std::size_t>(end_ - at_);
  if (count > (is_map ? left / 2 : left)) malformed("it has fewer values than it announces");
  if (++depth_ > kMaxDepth) malformed(fmt::format("it is nested deeper than {}", kMaxDepth));
  return count;
}

void Unpacker::skip() {
  // Not recursive, so not bounded in depth. The sum cannot overflow: each count is at most the
  // number of bytes left, and each container takes one byte.
  for (std::size_t values = 1; values > 0; --values) {
    switch (kind()) {
      case Kind::kNil: nil(); break;
      case Kind::kBool: boolean(); break;
      case Kind::kInteger:
      case Kind::kReal: number("number"); break;
      case Kind::kText: text(); break;
      case Kind::kBytes: bytes(); break;
      case Kind::kArray:
        values += container(false);
        leave();
        break;
      case Kind::kMap:
        values += 2 * container(true);
        leave();
        break;
      case Kind::kBuffer:
      case Kind::kTensor:
      case Kind::kUnknown: extension(); break;
    }
    if (values - 1 > static_cast<std::size_t>(end_ - at_)) {
      malformed("it has fewer values than it announces");
    }
  }
}

std::string Unpacker::describe() const {
  Unpacker ahead(*this);
  ahead.depth_ = 0;
  switch (kind()) {
    case Kind::kNil: return "nil";
    case Kind::kBool: return ahead.boolean() ? "bool true" : "bool false";
    case Kind::kInteger: {
      const Number number = ahead.number("integer");
      return number.kind == Number::Kind::kSigned ? fmt::format("integer {}", number.as_signed)
                                                  : fmt::format("integer {}", number.as_unsigned);
    }
    case Kind::kReal: return fmt::format("float {}", ahead.number("float").as_real);
    case Kind::kText: return "string";
    case Kind::kBytes: return fmt::format("{} bytes", ahead.bytes().size());
    case Kind::kArray: return fmt::format("list of {}", ahead.array());
    case Kind::kMap: return fmt::format("map of {}", ahead.map());
    case Kind::kBuffer: return fmt::format("{} bytes", ahead.bytes().size());
    case Kind::kTensor: return "tensor";
    case Kind::kUnknown: break;
  }
  return "an unknown extension";
}

void Unpacker::mismatch(std::string_view expected) const {
  throw PayloadError(fmt::format("expected {}, received {}", expected, describe()));
}

}  // namespace divisi
