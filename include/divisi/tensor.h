// Tensor: a typed, shaped view of a Buffer, as it travels in an event.
//
//   auto t = divisi::Tensor::copy_of<float>({2, 3}, values);
//   task.emit("observation", t);                       // 8 KiB and more: the bytes are not copied
//   task.on("observation", [](divisi::Tensor t) { use(t.view<float>(), t.shape); });
//
// Elements are in row-major order and little-endian. Copies share the bytes.
#pragma once

#include "divisi/buffer.h"
#include "divisi/error.h"
#include "divisi/export.h"

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <type_traits>
#include <vector>

namespace divisi {

static_assert(std::endian::native == std::endian::little, "tensors travel as little-endian bytes");

// The numbers are part of the wire format: never change one.
enum class DType : std::uint8_t {
  kBool = 0,         // one byte, 0 or 1
  kInt8 = 1,         // 1 byte, with a sign
  kUint8 = 2,        // 1 byte
  kInt16 = 3,        // 2 bytes, with a sign
  kUint16 = 4,       // 2 bytes
  kInt32 = 5,        // 4 bytes, with a sign
  kUint32 = 6,       // 4 bytes
  kInt64 = 7,        // 8 bytes, with a sign
  kUint64 = 8,       // 8 bytes
  kFloat16 = 9,      // IEEE half precision
  kBfloat16 = 10,    // the upper half of a float32
  kFloat32 = 11,     // IEEE single precision
  kFloat64 = 12,     // IEEE double precision
  kComplex64 = 13,   // two float32, real and imaginary part
  kComplex128 = 14,  // two float64, real and imaginary part
};

// Bytes of one element; 0 for a number that is no DType.
DIVISI_API std::size_t element_size(DType dtype) noexcept;
DIVISI_API std::string_view dtype_name(DType dtype) noexcept;  // "float32", "int8", ...

// The DType of a C++ type that has one.
template <class T>
constexpr DType dtype_of() {
  if constexpr (std::is_same_v<T, bool>) return DType::kBool;
  if constexpr (std::is_integral_v<T> && sizeof(T) == 1)
    return std::is_signed_v<T> ? DType::kInt8 : DType::kUint8;
  if constexpr (std::is_integral_v<T> && sizeof(T) == 2)
    return std::is_signed_v<T> ? DType::kInt16 : DType::kUint16;
  if constexpr (std::is_integral_v<T> && sizeof(T) == 4)
    return std::is_signed_v<T> ? DType::kInt32 : DType::kUint32;
  if constexpr (std::is_integral_v<T> && sizeof(T) == 8)
    return std::is_signed_v<T> ? DType::kInt64 : DType::kUint64;
  if constexpr (std::is_same_v<T, float>) return DType::kFloat32;
  if constexpr (std::is_same_v<T, double>) return DType::kFloat64;
}

struct DIVISI_API Tensor {
  static constexpr std::size_t kMaxRank = 32;  // numpy's bound

  DType dtype = DType::kFloat32;          // of every element
  std::vector<std::int64_t> shape = {0};  // {} is a scalar: one element
  Buffer data;                            // the elements
  // What a front end made it of, so that the receiver's can do the same. Not part of the value.
  std::uint8_t flavour = 0;  // 0: an array, 1: a PyTorch tensor, 2: a NumPy scalar

  // A tensor of its own memory with these elements.
  template <class T>
  static Tensor copy_of(std::vector<std::int64_t> shape, std::span<const T> elements) {
    return {dtype_of<T>(), std::move(shape), Buffer::copy_of(std::as_bytes(elements))};
  }

  // The elements in place. Throws UsageError when T is not the dtype or the data is not aligned
  // for it (received tensors always are).
  template <class T>
  std::span<const T> view() const {
    check_view(dtype_of<T>(), alignof(T));
    return {reinterpret_cast<const T*>(data.data()), data.size() / sizeof(T)};
  }

  // False when the shape has a negative or overflowing size, or does not match the bytes.
  bool is_consistent() const noexcept;

  // Same dtype, shape and bytes.
  bool operator==(const Tensor& other) const noexcept;

 private:
  void check_view(DType wanted, std::size_t alignment) const;
};

}  // namespace divisi
