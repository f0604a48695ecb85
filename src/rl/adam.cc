#include "rl/adam.h"

#include "divisi/error.h"
#include "rl/counter.h"

#include <fmt/format.h>

#include <cmath>
#include <utility>

namespace divisi::rl {

Adam::Adam(AdamOptions options, std::size_t parameters)
    : options_(options), first_(parameters), second_(parameters) {}

void Adam::step(std::span<float> parameters, std::span<const float> gradient) {
  if (parameters.size() != first_.size() || gradient.size() != first_.size()) {
    throw UsageError(fmt::format("Adam of {} parameters was given {} and {} gradients",
                                 first_.size(), parameters.size(), gradient.size()));
  }
  ++steps_;
  // m / c1 / (sqrt(v / c2) + eps) with the corrections taken out of the loop.
  const double correction1 = 1.0 - std::pow(options_.beta1, static_cast<double>(steps_));
  const double correction2 = std::sqrt(1.0 - std::pow(options_.beta2, static_cast<double>(steps_)));
  const AdamStep step{
      .learning_rate = static_cast<float>(options_.learning_rate * correction2 / correction1),
      .beta1 = static_cast<float>(options_.beta1),
      .beta2 = static_cast<float>(options_.beta2),
      .epsilon = static_cast<float>(options_.epsilon * correction2)};
  kernels().adam(first_.size(), step, gradient.data(), first_.data(), second_.data(),
                 parameters.data());
}

void Adam::write(const ParameterLayout& layout, const std::string& prefix, StateDict& state) const {
  layout.write(first_, prefix + "exp_avg.", state);
  layout.write(second_, prefix + "exp_avg_sq.", state);
  write_counter(steps_, prefix + "step", state);
}

void Adam::read(const ParameterLayout& layout, const std::string& prefix, const StateDict& state) {
  std::vector<float> first(first_.size());
  std::vector<float> second(second_.size());
  layout.read(state, prefix + "exp_avg.", first);
  layout.read(state, prefix + "exp_avg_sq.", second);
  steps_ = read_counter(state, prefix + "step");
  first_ = std::move(first);
  second_ = std::move(second);
}

}  // namespace divisi::rl
