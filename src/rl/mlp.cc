#include "rl/mlp.h"

#include <fmt/format.h>

namespace divisi::rl {

Mlp::Mlp(ParameterLayout& layout, const std::string& name, const std::vector<int>& sizes) {
  for (std::size_t i = 0; i + 1 < sizes.size(); ++i) {
    const std::size_t number =
        layout.add(fmt::format("{}.{}", name, 2 * i), sizes[i], sizes[i + 1]);
    layers_.push_back(layout.layer(number));
  }
  results_.resize(layers_.size());
  gradients_.resize(layers_.size());
}

std::span<const float> Mlp::forward(std::span<const float> parameters, int rows,
                                    const float* input) {
  if (rows > rows_) {
    for (std::size_t i = 0; i < layers_.size(); ++i) {
      const auto size =
          static_cast<std::size_t>(rows) * static_cast<std::size_t>(layers_[i].outputs);
      results_[i].resize(size);
      gradients_[i].resize(size);
    }
    rows_ = rows;
  }
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    const Activation activation = i + 1 == layers_.size() ? Activation::kNone : Activation::kTanh;
    layer_forward(layers_[i], parameters, activation, rows, input, results_[i].data());
    input = results_[i].data();
  }
  return std::span(results_.back())
      .first(static_cast<std::size_t>(rows) * static_cast<std::size_t>(last().outputs));
}

void Mlp::backward(std::span<const float> parameters, int rows, const float* input,
                   std::span<const float> output_gradient, std::span<float> gradient) {
  const float* from = output_gradient.data();
  for (std::size_t i = layers_.size(); i-- > 0;) {
    if (i == 0) {
      layer_backward(layers_[i], parameters, rows, input, from, gradient, nullptr);
      return;
    }
    float* to = gradients_[i - 1].data();
    layer_backward(layers_[i], parameters, rows, results_[i - 1].data(), from, gradient, to);
    const auto size = static_cast<std::size_t>(rows) * static_cast<std::size_t>(layers_[i].inputs);
    kernels().activation_backward(size, Activation::kTanh, results_[i - 1].data(), to);
    from = to;
  }
}

}  // namespace divisi::rl
