#include "rl/layers.h"

#include "base/nearest_name.h"
#include "divisi/error.h"
#include "rl/random.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

namespace divisi::rl {

namespace {

// rows x columns numbers, written as columns x rows.
void transpose(int rows, int columns, const float* from, float* to) {
  for (int i = 0; i < rows; ++i) {
    for (int j = 0; j < columns; ++j) to[std::ptrdiff_t{j} * rows + i] = *from++;
  }
}

}  // namespace

std::string shape_text(std::span<const std::int64_t> shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

std::size_t ParameterLayout::add(const std::string& name, int inputs, int outputs) {
  const auto weights = static_cast<std::size_t>(inputs) * static_cast<std::size_t>(outputs);
  entries_.push_back({name + ".weight", {outputs, inputs}, size_, weights});
  layers_.push_back({name, inputs, outputs, size_, size_ + weights});
  size_ += weights;
  add_vector(name + ".bias", outputs);
  return layers_.size() - 1;
}

std::size_t ParameterLayout::add_vector(const std::string& name, int size) {
  const std::size_t offset = size_;
  entries_.push_back({name, {size}, offset, static_cast<std::size_t>(size)});
  size_ += static_cast<std::size_t>(size);
  return offset;
}

void ParameterLayout::initialise(std::uint64_t seed, std::span<float> parameters) const {
  Random random(seed);
  std::ranges::fill(parameters, 0.0F);
  for (const Layer& layer : layers_) {
    const double bound = 1.0 / std::sqrt(static_cast<double>(layer.inputs));
    const std::size_t end = layer.bias + static_cast<std::size_t>(layer.outputs);
    for (std::size_t i = layer.weight; i < end; ++i) {
      parameters[i] = static_cast<float>(random.uniform(-bound, bound));
    }
  }
}

void ParameterLayout::write(std::span<const float> parameters, const std::string& prefix,
                            StateDict& state) const {
  for (const Entry& entry : entries_) {
    Tensor tensor{DType::kFloat32, entry.shape, Buffer(entry.size * sizeof(float))};
    auto* to = reinterpret_cast<float*>(tensor.data.mutable_data());
    const auto from = parameters.subspan(entry.offset, entry.size);
    if (entry.shape.size() == 2) {
      transpose(static_cast<int>(entry.shape[1]), static_cast<int>(entry.shape[0]), from.data(),
                to);
    } else {
      std::ranges::copy(from, to);
    }
    state.insert_or_assign(prefix + entry.name, std::move(tensor));
  }
}

void ParameterLayout::read(const StateDict& state, const std::string& prefix,
                           std::span<float> parameters) const {
  for (const Entry& entry : entries_) {
    const std::string name = prefix + entry.name;
    const auto found = state.find(name);
    if (found == state.end()) {
      throw UsageError(
          fmt::format("state has no '{}' (float32 {})", name, shape_text(entry.shape)));
    }
    const Tensor& tensor = found->second;
    if (tensor.dtype != DType::kFloat32 || tensor.shape != entry.shape || !tensor.is_consistent()) {
      throw UsageError(fmt::format("'{}' is {} {}, the network has float32 {}", name,
                                   dtype_name(tensor.dtype), shape_text(tensor.shape),
                                   shape_text(entry.shape)));
    }
  }
  for (const Entry& entry : entries_) {
    const auto from = state.at(prefix + entry.name).view<float>();
    const auto to = parameters.subspan(entry.offset, entry.size);
    if (entry.shape.size() == 2) {
      transpose(static_cast<int>(entry.shape[0]), static_cast<int>(entry.shape[1]), from.data(),
                to.data());
    } else {
      std::ranges::copy(from, to.begin());
    }
  }
}

void ParameterLayout::refuse_others(const StateDict& state, const std::string& prefix) const {
  for (const auto& [name, tensor] : state) {
    if (!name.starts_with(prefix)) continue;
    const auto ours = [&, key = std::string_view(name).substr(prefix.size())](const Entry& entry) {
      return entry.name == key;
    };
    if (std::ranges::any_of(entries_, ours)) continue;
    std::vector<std::string> names;
    for (const Entry& entry : entries_) names.push_back(prefix + entry.name);
    throw UsageError(fmt::format("'{}' {} is no entry of the network{}", name,
                                 shape_text(tensor.shape), did_you_mean(name, names)));
  }
}

void layer_forward(const Layer& layer, std::span<const float> parameters, Activation activation,
                   int rows, const float* input, float* output) {
  kernels().gemm(rows, layer.outputs, layer.inputs, {input, layer.inputs, 1},
                 {parameters.data() + layer.weight, layer.outputs, 1},
                 parameters.data() + layer.bias, activation, output);
}

void layer_backward(const Layer& layer, std::span<const float> parameters, int rows,
                    const float* input, const float* output_gradient, std::span<float> gradient,
                    float* input_gradient) {
  kernels().gemm(layer.inputs, layer.outputs, rows, {input, 1, layer.inputs},
                 {output_gradient, layer.outputs, 1}, nullptr, Activation::kNone,
                 gradient.data() + layer.weight);
  kernels().column_sums(rows, layer.outputs, output_gradient, gradient.data() + layer.bias);
  if (input_gradient == nullptr) return;
  kernels().gemm(rows, layer.inputs, layer.outputs, {output_gradient, layer.outputs, 1},
                 {parameters.data() + layer.weight, 1, layer.outputs}, nullptr, Activation::kNone,
                 input_gradient);
}

}  // namespace divisi::rl
