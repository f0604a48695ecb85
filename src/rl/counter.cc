#include "rl/counter.h"

#include "divisi/error.h"

#include <fmt/format.h>

#include <span>

namespace divisi::rl {

void write_counter(std::int64_t value, const std::string& name, StateDict& state) {
  state.insert_or_assign(
      name, Tensor::copy_of<std::int64_t>({}, std::span<const std::int64_t>(&value, 1)));
}

std::int64_t read_counter(const StateDict& state, const std::string& name) {
  const auto found = state.find(name);
  if (found == state.end()) throw UsageError(fmt::format("state has no '{}' (int64 [])", name));
  const Tensor& tensor = found->second;
  if (tensor.dtype != DType::kInt64 || !tensor.shape.empty() || !tensor.is_consistent()) {
    throw UsageError(fmt::format("'{}' is {} {}, a counter is int64 []", name,
                                 dtype_name(tensor.dtype), shape_text(tensor.shape)));
  }
  const std::int64_t value = tensor.view<std::int64_t>()[0];
  if (value < 0)
    throw UsageError(fmt::format("'{}' is {}, a counter is not negative", name, value));
  return value;
}

}  // namespace divisi::rl
