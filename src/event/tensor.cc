#include "divisi/tensor.h"

#include "base/status.h"

#include <algorithm>
#include <limits>

namespace divisi {

std::size_t element_size(DType dtype) noexcept {
  switch (dtype) {
    case DType::kBool:
    case DType::kInt8:
    case DType::kUint8: return 1;
    case DType::kInt16:
    case DType::kUint16:
    case DType::kFloat16:
    case DType::kBfloat16: return 2;
    case DType::kInt32:
    case DType::kUint32:
    case DType::kFloat32: return 4;
    case DType::kInt64:
    case DType::kUint64:
    case DType::kFloat64:
    case DType::kComplex64: return 8;
    case DType::kComplex128: return 16;
  }
  return 0;
}

std::string_view dtype_name(DType dtype) noexcept {
  switch (dtype) {
    case DType::kBool: return "bool";
    case DType::kInt8: return "int8";
    case DType::kUint8: return "uint8";
    case DType::kInt16: return "int16";
    case DType::kUint16: return "uint16";
    case DType::kInt32: return "int32";
    case DType::kUint32: return "uint32";
    case DType::kInt64: return "int64";
    case DType::kUint64: return "uint64";
    case DType::kFloat16: return "float16";
    case DType::kBfloat16: return "bfloat16";
    case DType::kFloat32: return "float32";
    case DType::kFloat64: return "float64";
    case DType::kComplex64: return "complex64";
    case DType::kComplex128: return "complex128";
  }
  return "unknown";
}

bool Tensor::is_consistent() const noexcept {
  const std::size_t element = element_size(dtype);
  if (element == 0 || shape.size() > kMaxRank) return false;
  std::size_t bytes = element;
  bool is_empty = false;
  for (const std::int64_t size : shape) {
    if (size < 0) return false;
    if (size == 0) {
      is_empty = true;
      continue;
    }
    // Checked also when another size is 0, so that the product of the rest stays sane.
    if (static_cast<std::uint64_t>(size) > std::numeric_limits<std::size_t>::max() / bytes) {
      return false;
    }
    bytes *= static_cast<std::size_t>(size);
  }
  return data.size() == (is_empty ? 0 : bytes);
}

bool Tensor::operator==(const Tensor& other) const noexcept {
  return dtype == other.dtype && shape == other.shape &&
         std::ranges::equal(data.bytes(), other.data.bytes());
}

void Tensor::check_view(DType wanted, std::size_t alignment) const {
  if (dtype != wanted) {
    throw UsageError(fmt::format("a tensor of {} cannot be viewed as {}", dtype_name(dtype),
                                 dtype_name(wanted)));
  }
  if (reinterpret_cast<std::uintptr_t>(data.data()) % alignment != 0) {
    throw UsageError(fmt::format("the elements of this {} tensor are not aligned to {} bytes",
                                 dtype_name(dtype), alignment));
  }
}

}  // namespace divisi
