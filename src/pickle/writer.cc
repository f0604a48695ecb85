#include "pickle/writer.h"

#include <array>
#include <bit>
#include <cstdint>
#include <limits>

namespace divisi::pickle {

namespace {

constexpr std::size_t kMostDepth = 500;

// The instructions that are written; reader.cc has the others.
class PickleWriter {
 public:
  explicit PickleWriter(int protocol) : protocol_(protocol) {
    out_.push_back('\x80');
    out_.push_back(static_cast<char>(protocol));
  }

  // NOLINTNEXTLINE(misc-no-recursion): bounded by kMostDepth
  Status add(const json::Value& value, std::size_t depth) {
    if (depth > kMostDepth) {
      return make_status(Code::kInvalid, "a document deeper than {} cannot be pickled", kMostDepth);
    }
    if (value.is_null()) return put('N');
    if (const bool* boolean = value.as_bool()) return put(*boolean ? '\x88' : '\x89');
    if (const std::int64_t* integer = value.as_int()) return add_integer(*integer);
    if (const double* number = value.as_double()) return add_number(*number);
    if (const std::string* text = value.as_string()) return add_text(*text);
    if (const json::Array* array = value.as_array()) return add_array(*array, depth);
    return add_object(*value.as_object(), depth);
  }

  std::string finish() && {
    out_.push_back('.');
    return std::move(out_);
  }

 private:
  Status put(char instruction) {
    out_.push_back(instruction);
    return {};
  }

  void put_little_endian(std::uint64_t value, int bytes) {
    for (int i = 0; i < bytes; ++i) out_.push_back(static_cast<char>((value >> (8 * i)) & 0xffU));
  }

  Status add_integer(std::int64_t integer) {
    const auto bits = static_cast<std::uint64_t>(integer);
    if (integer >= std::numeric_limits<std::int32_t>::min() &&
        integer <= std::numeric_limits<std::int32_t>::max()) {
      out_.push_back('J');
      put_little_endian(bits, 4);
    } else {
      out_.append("\x8a\x08");
      put_little_endian(bits, 8);
    }
    return {};
  }

  Status add_number(double number) {
    out_.push_back('G');
    const auto bits = std::bit_cast<std::uint64_t>(number);
    for (int i = 7; i >= 0; --i) out_.push_back(static_cast<char>((bits >> (8 * i)) & 0xffU));
    return {};
  }

  Status add_text(const std::string& text) {
    if (text.size() > std::numeric_limits<std::uint32_t>::max()) {
      return make_status(Code::kInvalid, "a text of {} bytes cannot be pickled", text.size());
    }
    if (protocol_ >= 4 && text.size() < 256) {
      out_.push_back('\x8c');
      put_little_endian(text.size(), 1);
    } else {
      out_.push_back('X');
      put_little_endian(text.size(), 4);
    }
    out_.append(text);
    return {};
  }

  // NOLINTNEXTLINE(misc-no-recursion): bounded by kMostDepth
  Status add_array(const json::Array& array, std::size_t depth) {
    out_.append("](");
    for (const json::Value& item : array) DIVISI_TRY_STATUS(add(item, depth + 1));
    return put('e');
  }

  // NOLINTNEXTLINE(misc-no-recursion): bounded by kMostDepth
  Status add_object(const json::Object& object, std::size_t depth) {
    out_.append("}(");
    for (const auto& [key, member] : object) {
      DIVISI_TRY_STATUS(add_text(key));
      DIVISI_TRY_STATUS(add(member, depth + 1));
    }
    return put('u');
  }

  const int protocol_;
  std::string out_;
};

}  // namespace

Result<std::string> save(const json::Value& value, int protocol) {
  if (protocol < 2 || protocol > 4) {
    return failure(Code::kInvalid, "pickle protocol {}: expected 2, 3 or 4", protocol);
  }
  PickleWriter writer(protocol);
  if (Status status = writer.add(value, 1); !status.ok()) return failure(std::move(status));
  return std::move(writer).finish();
}

}  // namespace divisi::pickle
