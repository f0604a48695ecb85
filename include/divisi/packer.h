// Packer and Unpacker: MessagePack, one value at a time. What most code needs is in payload.h;
// these two are for writing the Coder of a type of your own (coder.h).
//
// Neither is thread-safe. An Unpacker accepts any bytes: whatever it cannot read ends in a
// PayloadError, never in a read outside the body; nesting is bounded by kMaxDepth.
//
// Extension types carry what MessagePack lacks (all numbers little-endian):
//
//   ext 1, 4 bytes          a Buffer sent beside the body
//     0  u32  index into the message's extra buffers
//
//   ext 2, 4 + 8*rank + n   a Tensor
//     0  u8   dtype, see DType
//     1  u8   rank, at most 32
//     2  u8   0: the elements follow;  1: a u32 index into the extra buffers follows
//     3  u8   flavour, see Tensor
//     4  u64 * rank   the shape
//     .  the elements (row-major), or the index
//
//   ext 3                   a list that was a tuple in Python; everybody else reads a list
//     0  a MessagePack array
//
// A Buffer, or a tensor's elements, of kOutOfBand bytes or more go beside the body and are not
// copied; smaller ones are a MessagePack bin, or inline in ext 2.
#pragma once

#include "divisi/buffer.h"
#include "divisi/error.h"
#include "divisi/export.h"
#include "divisi/tensor.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace divisi {

// From here on a copy into the body costs more than the bookkeeping of an extra buffer.
inline constexpr std::size_t kOutOfBand = std::size_t{8} * 1024;

// The numbers of the extension types above:
inline constexpr std::int8_t kBufferExtension = 1;
inline constexpr std::int8_t kTensorExtension = 2;
inline constexpr std::int8_t kTupleExtension = 3;

// Deeper than data that people write, shallow enough for any thread's stack.
inline constexpr int kMaxDepth = 64;

// A payload that is not what the reader expects: malformed, or of another type. The text names
// the place, the expected and the received type.
class DIVISI_API PayloadError : public UsageError {
 public:
  // With the code kInvalid.
  explicit PayloadError(const std::string& message) : UsageError(message) {}
};

// A number as received, before it is squeezed into a C++ type. Only the field that `kind` names
// counts.
struct Number {
  // How it was written.
  enum class Kind : std::uint8_t {
    kSigned,    // a negative integer
    kUnsigned,  // any other integer
    kReal,      // a floating-point number
  };
  Kind kind = Kind::kUnsigned;    // which of the three counts
  std::int64_t as_signed = 0;     // always negative: what is not is kUnsigned
  std::uint64_t as_unsigned = 0;  // kUnsigned
  double as_real = 0;             // kReal

  // A number of the kind that fits the value.
  static constexpr Number of(std::int64_t value) {
    return value < 0 ? Number{Kind::kSigned, value, 0, 0}
                     : Number{Kind::kUnsigned, 0, static_cast<std::uint64_t>(value), 0};
  }
  static constexpr Number of(std::uint64_t value) { return {Kind::kUnsigned, 0, value, 0}; }
  static constexpr Number of(double value) { return {Kind::kReal, 0, 0, value}; }
};

class DIVISI_API Packer {
 public:
  Packer() noexcept = default;
  Packer(Packer&&) noexcept = default;
  Packer& operator=(Packer&&) noexcept = default;

  // Appends one value:
  void nil();
  void boolean(bool value);
  void integer(std::int64_t value);
  void unsigned_integer(std::uint64_t value);
  void real(double value);
  void real32(float value);
  void text(std::string_view value);
  void bytes(std::span<const std::byte> value);
  void buffer(const Buffer& value);
  void tensor(const Tensor& value);
  void array(std::size_t count);  // followed by `count` values
  void map(std::size_t count);    // followed by `count` times a key and a value
  // A list marked as a tuple: `count` values follow, then close_tuple with what this returned.
  std::size_t open_tuple(std::size_t count);
  void close_tuple(std::size_t opened);  // ends what open_tuple began

  // What was written, until the next change.
  std::span<const std::byte> body() const noexcept {
    return {reinterpret_cast<const std::byte*>(data_.get()), size_};
  }
  // What goes beside it, in the order of the indices.
  std::span<const Buffer> buffers() const noexcept { return buffers_; }
  // An extra buffer that the body does not refer to: the reader knows what it is.
  void beside(const Buffer& value) { add_buffer(value); }

  // Forgets the contents and keeps the memory, unless there is unusually much of it.
  void clear() noexcept;

 private:
  char* reserve(std::size_t size);
  void written(const char* end) noexcept { size_ = static_cast<std::size_t>(end - data_.get()); }
  std::uint32_t add_buffer(const Buffer& value);

  std::unique_ptr<char[]> data_;
  std::size_t size_ = 0;
  std::size_t capacity_ = 0;
  std::vector<Buffer> buffers_;
};

class DIVISI_API Unpacker {
 public:
  // What a value is, as far as its first bytes tell.
  enum class Kind {
    kNil,      // nothing
    kBool,     // true or false
    kInteger,  // of any size, with or without a sign
    kReal,     // float 32 or float 64
    kText,     // UTF-8
    kBytes,    // a bin inside the body
    kArray,    // a list; also one that was a tuple
    kMap,      // keys and values
    kBuffer,   // bytes beside the body
    kTensor,   // ext 2
    kUnknown,  // another extension type, or no value at all
  };

  // `body` and what `buffers` and `owner` point to must outlive the Unpacker and every view taken
  // from it. With an `owner` of the body, Buffers read from it share its bytes, else they copy.
  explicit Unpacker(std::span<const std::byte> body, std::span<const Buffer> buffers = {},
                    const Buffer* owner = nullptr) noexcept
      : at_(reinterpret_cast<const char*>(body.data())),
        end_(at_ + body.size()),
        buffers_(buffers),
        owner_(owner) {}

  bool at_end() const noexcept { return at_ == end_; }  // nothing is left
  Kind kind() const;                                    // of the value that is next
  bool is_tuple() const;  // the list that is next (kArray) was a tuple

  // Read the value that is next. Throw PayloadError when it is of another kind:
  void nil();
  bool boolean();
  Number number(std::string_view expected);
  std::string_view text();
  std::span<const std::byte> bytes();  // a bin, or an extra buffer
  Buffer buffer();
  Tensor tensor();

  // The number of values that follow (of pairs, in a map): never more than the body can hold.
  // Call leave() after the last of them.
  std::size_t array();
  std::size_t map();                   // as array()
  void leave() noexcept { --depth_; }  // the array or map is read

  // Passes over one value, whatever it is.
  void skip();

  // Throws: "expected <expected>, received <what is next>".
  [[noreturn]] void mismatch(std::string_view expected) const;
  // What is next, for messages: "integer 300", "string", "list of 3".
  std::string describe() const;

 private:
  std::size_t container(bool is_map);
  struct Extension {
    std::int8_t type;
    std::span<const char> data;
  };
  Extension extension();
  bool next_is_extension() const noexcept;
  const Buffer& extra_buffer(const char* index) const;
  Buffer share(std::span<const char> part, std::size_t alignment) const;
  std::span<const char> take(std::size_t size);

  const char* at_;
  const char* end_;
  std::span<const Buffer> buffers_;
  const Buffer* owner_;
  int depth_ = 0;
};

}  // namespace divisi
