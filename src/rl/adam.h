// Adam: the optimiser, over flat vectors. Equal to torch.optim.Adam without weight decay.
#pragma once

#include "rl/layers.h"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace divisi::rl {

struct AdamOptions {
  double learning_rate = 0.001;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
};

class Adam {
 public:
  Adam(AdamOptions options, std::size_t parameters);

  // One update. Both spans have the size given to the constructor (UsageError otherwise).
  void step(std::span<float> parameters, std::span<const float> gradient);

  std::int64_t steps() const noexcept { return steps_; }
  double learning_rate() const noexcept { return options_.learning_rate; }
  void set_learning_rate(double rate) noexcept { options_.learning_rate = rate; }

  // The moments by the names of the layout, as "<prefix>exp_avg.encoder.0.weight" and
  // "<prefix>exp_avg_sq....", and the number of updates as "<prefix>step".
  void write(const ParameterLayout& layout, const std::string& prefix, StateDict& state) const;
  void read(const ParameterLayout& layout, const std::string& prefix, const StateDict& state);

 private:
  AdamOptions options_;
  std::int64_t steps_ = 0;
  std::vector<float> first_;   // moving mean of the gradient
  std::vector<float> second_;  // and of its square
};

}  // namespace divisi::rl
