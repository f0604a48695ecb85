// Mlp: layers one after another, tanh in between, over a part of somebody's parameters.
//
// One object belongs to one thread. After the first call with so many rows nothing is allocated.
#pragma once

#include "rl/layers.h"

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace divisi::rl {

class Mlp {
 public:
  // Adds "name.0", "name.2", ... to the layout: from sizes[0] inputs to sizes.back() outputs.
  Mlp(ParameterLayout& layout, const std::string& name, const std::vector<int>& sizes);

  const Layer& last() const { return layers_.back(); }

  // rows x outputs; valid until the next call.
  std::span<const float> forward(std::span<const float> parameters, int rows, const float* input);

  // Writes this network's part of `gradient`. Goes with the last forward() and its input.
  void backward(std::span<const float> parameters, int rows, const float* input,
                std::span<const float> output_gradient, std::span<float> gradient);

 private:
  std::vector<Layer> layers_;
  int rows_ = 0;
  std::vector<std::vector<float>> results_;
  std::vector<std::vector<float>> gradients_;  // of all results but the last
};

}  // namespace divisi::rl
