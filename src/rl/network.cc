#include "rl/network.h"

#include "divisi/error.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

namespace divisi::rl {

namespace {

NetworkShape checked(NetworkShape shape) {
  const auto positive = [](int size) { return size >= 1; };
  if (shape.observation_size < 1 || shape.action_count < 1 || shape.hidden.empty() ||
      !std::ranges::all_of(shape.hidden, positive)) {
    throw UsageError(fmt::format(
        "network {}: every size is at least 1, and there is a hidden layer", shape.to_string()));
  }
  return shape;
}

void check_size(const char* what, std::size_t size, int rows, int columns) {
  const auto wanted = static_cast<std::size_t>(rows) * static_cast<std::size_t>(columns);
  if (rows < 1) throw UsageError(fmt::format("network: {} rows, at least 1 is needed", rows));
  if (size == wanted) return;
  throw UsageError(fmt::format("network: {} {} for {} rows of {}", size, what, rows, columns));
}

}  // namespace

std::string NetworkShape::to_string() const {
  return fmt::format("{}-{}-{}{}", observation_size, fmt::join(hidden, "-"), action_count,
                     dueling ? " dueling" : "");
}

QNetwork::QNetwork(NetworkShape shape, std::uint64_t seed) : shape_(checked(std::move(shape))) {
  int inputs = shape_.observation_size;
  // Even numbers only: in between stand PyTorch's ReLUs.
  for (std::size_t i = 0; i < shape_.hidden.size(); ++i) {
    layout_.add(fmt::format("encoder.{}", 2 * i), inputs, shape_.hidden[i]);
    inputs = shape_.hidden[i];
  }
  if (shape_.dueling) {
    value_ = {layout_.add("value.0", inputs, inputs), layout_.add("value.2", inputs, 1)};
    advantage_ = {layout_.add("advantage.0", inputs, inputs),
                  layout_.add("advantage.2", inputs, shape_.action_count)};
  } else {
    head_ = layout_.add("head", inputs, shape_.action_count);
  }
  parameters_.resize(layout_.size());
  layout_.initialise(seed, parameters_);
  results_.resize(layout_.layer_count());
  gradients_.resize(layout_.layer_count());
}

void QNetwork::make_room(int rows) {
  if (rows <= rows_) return;
  for (std::size_t i = 0; i < layout_.layer_count(); ++i) {
    const auto size =
        static_cast<std::size_t>(rows) * static_cast<std::size_t>(layout_.layer(i).outputs);
    results_[i].resize(size);
    gradients_[i].resize(size);
  }
  branch_sum_.resize(static_cast<std::size_t>(rows) *
                     static_cast<std::size_t>(shape_.hidden.back()));
  rows_ = rows;
}

void QNetwork::forward(std::span<const float> observations, int rows, std::span<float> q) {
  check_size("observations", observations.size(), rows, shape_.observation_size);
  check_size("action values", q.size(), rows, shape_.action_count);
  make_room(rows);
  const auto pass = [&](std::size_t i, Activation activation, const float* input, float* output) {
    layer_forward(layout_.layer(i), parameters_, activation, rows, input, output);
    return static_cast<const float*>(output);
  };
  const float* input = observations.data();
  for (std::size_t i = 0; i < shape_.hidden.size(); ++i) {
    input = pass(i, Activation::kRelu, input, results_[i].data());
  }
  if (!shape_.dueling) {
    pass(head_, Activation::kNone, input, q.data());
    return;
  }
  for (const Branch& branch : {value_, advantage_}) {
    const float* hidden =
        pass(branch.hidden, Activation::kRelu, input, results_[branch.hidden].data());
    pass(branch.output, Activation::kNone, hidden, results_[branch.output].data());
  }
  const auto actions = static_cast<std::size_t>(shape_.action_count);
  for (std::size_t row = 0; row < static_cast<std::size_t>(rows); ++row) {
    const float* advantage = results_[advantage_.output].data() + row * actions;
    float sum = 0.0F;
    for (std::size_t a = 0; a < actions; ++a) sum += advantage[a];
    const float base = results_[value_.output][row] - sum / static_cast<float>(actions);
    for (std::size_t a = 0; a < actions; ++a) q[row * actions + a] = base + advantage[a];
  }
}

void QNetwork::backward(std::span<const float> observations, int rows,
                        std::span<const float> q_gradient, std::span<float> gradient) {
  check_size("observations", observations.size(), rows, shape_.observation_size);
  check_size("gradients", q_gradient.size(), rows, shape_.action_count);
  check_size("gradients of parameters", gradient.size(), 1, static_cast<int>(layout_.size()));
  if (rows > rows_) throw UsageError("network: backward without a forward of as many rows");

  // To the input of layer i, whose result is to `results`; the layer below it is relu's.
  const auto pass = [&](std::size_t i, const float* input, const float* output_gradient,
                        float* input_gradient) {
    const Layer& layer = layout_.layer(i);
    layer_backward(layer, parameters_, rows, input, output_gradient, gradient, input_gradient);
    if (input_gradient == nullptr) return;
    const auto size = static_cast<std::size_t>(rows) * static_cast<std::size_t>(layer.inputs);
    kernels().activation_backward(size, Activation::kRelu, input, input_gradient);
  };

  const std::size_t last = shape_.hidden.size() - 1;
  const float* encoded = results_[last].data();
  float* encoded_gradient = gradients_[last].data();
  if (shape_.dueling) {
    const auto actions = static_cast<std::size_t>(shape_.action_count);
    for (std::size_t row = 0; row < static_cast<std::size_t>(rows); ++row) {
      float sum = 0.0F;
      for (std::size_t a = 0; a < actions; ++a) sum += q_gradient[row * actions + a];
      gradients_[value_.output][row] = sum;
      for (std::size_t a = 0; a < actions; ++a) {
        gradients_[advantage_.output][row * actions + a] =
            q_gradient[row * actions + a] - sum / static_cast<float>(actions);
      }
    }
    for (const Branch& branch : {value_, advantage_}) {
      pass(branch.output, results_[branch.hidden].data(), gradients_[branch.output].data(),
           gradients_[branch.hidden].data());
    }
    pass(value_.hidden, encoded, gradients_[value_.hidden].data(), branch_sum_.data());
    pass(advantage_.hidden, encoded, gradients_[advantage_.hidden].data(), encoded_gradient);
    const auto size =
        static_cast<std::size_t>(rows) * static_cast<std::size_t>(shape_.hidden.back());
    for (std::size_t i = 0; i < size; ++i) encoded_gradient[i] += branch_sum_[i];
  } else {
    pass(head_, encoded, q_gradient.data(), encoded_gradient);
  }
  for (std::size_t i = last + 1; i-- > 0;) {
    const float* input = i == 0 ? observations.data() : results_[i - 1].data();
    pass(i, input, gradients_[i].data(), i == 0 ? nullptr : gradients_[i - 1].data());
  }
}

StateDict QNetwork::state() const {
  StateDict state;
  layout_.write(parameters_, "", state);
  return state;
}

void QNetwork::load(const StateDict& state) {
  layout_.refuse_others(state, "");
  layout_.read(state, "", parameters_);
}

}  // namespace divisi::rl
