#include "runtime/event_parser.h"

#include "runtime/event_file.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <optional>

namespace divisi::runtime {
namespace {

constexpr std::size_t kHeader = 12;  // the length and its sum
constexpr std::size_t kFooter = 4;   // the sum of the data
// Larger records hold images or models: they are passed over and not kept in memory.
constexpr std::uint64_t kLargest = std::uint64_t{16} << 20;

template <class T>
T fixed(std::string_view bytes) {
  T value{};
  std::memcpy(&value, bytes.data(), sizeof(T));
  return value;
}

// The fields of a protocol buffer, one after the other; ends at the first that makes no sense.
class Fields {
 public:
  explicit Fields(std::string_view message) : rest_(message) {}

  bool next() {
    const std::optional<std::uint64_t> key = varint();
    if (!key) return false;
    number = *key >> 3;
    switch (*key & 7) {
      case 0: {
        const std::optional<std::uint64_t> read = varint();
        integer = read.value_or(0);
        bytes = {};
        return read.has_value();
      }
      case 1: return take(8);
      case 2: {
        const std::optional<std::uint64_t> size = varint();
        return size && take(*size);
      }
      case 5: return take(4);
      default: return false;
    }
  }

  bool is(std::uint64_t field, std::size_t size) const {
    return number == field && bytes.size() == size;
  }

  std::uint64_t number = 0;   // of the field
  std::uint64_t integer = 0;  // its value, if it is one
  std::string_view bytes;     // its value otherwise

 private:
  std::optional<std::uint64_t> varint() {
    std::uint64_t value = 0;
    for (unsigned shift = 0; shift < 64 && !rest_.empty(); shift += 7) {
      const auto byte = static_cast<unsigned char>(rest_.front());
      rest_.remove_prefix(1);
      value |= std::uint64_t{byte & 0x7fU} << shift;
      if (byte < 0x80) return value;
    }
    return std::nullopt;
  }

  bool take(std::uint64_t size) {
    if (size > rest_.size()) return false;
    bytes = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return true;
  }

  std::string_view rest_;
};

enum class DataType : std::uint64_t { kFloat = 1, kDouble = 2, kInt32 = 3, kInt64 = 9 };

// The one number that `content` is, if it is one.
std::optional<double> number_of(DataType type, std::string_view content) {
  if (type == DataType::kFloat && content.size() == 4) return fixed<float>(content);
  if (type == DataType::kDouble && content.size() == 8) return fixed<double>(content);
  if (type == DataType::kInt32 && content.size() == 4) return fixed<std::int32_t>(content);
  if (type == DataType::kInt64 && content.size() == 8) {
    return static_cast<double>(fixed<std::int64_t>(content));
  }
  return std::nullopt;
}

// A TensorProto of one number: 1 dtype, 4 content, 5 floats, 6 doubles, 7 and 10 integers.
std::optional<double> tensor_number(std::string_view tensor) {
  DataType type{};
  std::optional<double> found;
  for (Fields fields(tensor); fields.next();) {
    if (fields.number == 1) type = static_cast<DataType>(fields.integer);
    if (fields.number == 4) found = number_of(type, fields.bytes);
    if (fields.is(5, 4)) found = fixed<float>(fields.bytes);
    if (fields.is(6, 8)) found = fixed<double>(fields.bytes);
    const bool integers = fields.number == 7 || fields.number == 10;
    if (integers && fields.bytes.empty()) {
      found = static_cast<double>(static_cast<std::int64_t>(fields.integer));
    }
  }
  return found;
}

// SummaryMetadata: 1 plugin data: 1 its name.
bool is_scalar_plugin(std::string_view metadata) {
  for (Fields fields(metadata); fields.next();) {
    if (fields.number != 1) continue;
    for (Fields plugin(fields.bytes); plugin.next();) {
      if (plugin.number == 1 && plugin.bytes == "scalars") return true;
    }
  }
  return false;
}

}  // namespace

Status EventParser::feed(std::string_view bytes, std::vector<Scalar>& out) {
  const auto skipped = static_cast<std::size_t>(std::min<std::uint64_t>(skip_, bytes.size()));
  skip_ -= skipped;
  offset_ += skipped;
  pending_ += bytes.substr(skipped);
  while (true) {
    Result<bool> taken = take_record(out);
    if (!taken) return std::move(taken).error();
    if (!*taken) break;
  }
  pending_.erase(0, used_);
  used_ = 0;
  return {};
}

Result<bool> EventParser::take_record(std::vector<Scalar>& out) {
  const std::string_view rest = std::string_view(pending_).substr(used_);
  if (rest.size() < kHeader) return false;
  if (masked_crc(rest.substr(0, 8)) != fixed<std::uint32_t>(rest.substr(8))) {
    return failure(Code::kInvalid,
                   "no record of an event file at byte {}: its length has a wrong checksum",
                   offset_);
  }
  const auto length = fixed<std::uint64_t>(rest);
  if (length > kLargest) {
    // The sum of a length is no proof that it is one: a skip must not wrap around.
    const std::uint64_t most = std::numeric_limits<std::uint64_t>::max() - kHeader - kFooter;
    const std::uint64_t whole = std::min(length, most) + kHeader + kFooter;
    const auto here = static_cast<std::size_t>(std::min<std::uint64_t>(whole, rest.size()));
    skip_ = whole - here;
    used_ += here;
    offset_ += here;
    return skip_ == 0;
  }
  const auto size = static_cast<std::size_t>(length);
  if (rest.size() < kHeader + size + kFooter) return false;
  const std::string_view event = rest.substr(kHeader, size);
  if (masked_crc(event) != fixed<std::uint32_t>(rest.substr(kHeader + size))) {
    return failure(Code::kInvalid, "the record of an event file at byte {} has a wrong checksum",
                   offset_);
  }
  parse_event(event, out);
  used_ += kHeader + size + kFooter;
  offset_ += kHeader + size + kFooter;
  return true;
}

void EventParser::parse_event(std::string_view event, std::vector<Scalar>& out) {
  Scalar scalar;
  std::string_view summary;
  for (Fields fields(event); fields.next();) {
    if (fields.is(1, 8)) scalar.time = fixed<double>(fields.bytes);
    if (fields.number == 2) scalar.step = static_cast<std::int64_t>(fields.integer);
    if (fields.number == 5) summary = fields.bytes;
  }
  for (Fields fields(summary); fields.next();) {
    if (fields.number == 1 && parse_value(fields.bytes, scalar)) out.push_back(scalar);
  }
}

bool EventParser::parse_value(std::string_view value, Scalar& scalar) {
  std::string_view tag;
  std::string_view tensor;
  std::optional<double> number;
  bool told = false;
  for (Fields fields(value); fields.next();) {
    if (fields.number == 1) tag = fields.bytes;
    if (fields.is(2, 4)) number = fixed<float>(fields.bytes);
    if (fields.number == 8) tensor = fields.bytes;
    if (fields.number == 9) told = is_scalar_plugin(fields.bytes);
  }
  scalar.tag = std::string(tag);
  if (!number && !tensor.empty()) {
    if (told) scalars_.insert(scalar.tag);
    if (scalars_.contains(scalar.tag)) number = tensor_number(tensor);
  }
  if (number) scalar.value = *number;
  return number.has_value();
}

}  // namespace divisi::runtime
