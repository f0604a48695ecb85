// QNetwork: a multi-layer perceptron from observations to action values, and Adam to train it.
//
//   QNetwork network(NetworkShape{}, seed);
//   network.forward(observations, rows, q);           // q: rows x action_count
//   task.emit("weights", network.state());            // names and shapes as PyTorch's
//
// One object belongs to one thread (forward keeps what backward needs); different objects may
// be used at the same time. After the first call with so many rows nothing is allocated.
#pragma once

#include "divisi/tensor.h"
#include "rl/adam.h"
#include "rl/layers.h"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace divisi::rl {

struct NetworkShape {
  int observation_size = 4;
  int action_count = 2;
  std::vector<int> hidden = {128, 128, 64};  // of the encoder; at least one
  bool dueling = true;  // q = value + advantage - mean advantage, each branch with a hidden layer

  bool operator==(const NetworkShape&) const = default;
  std::string to_string() const;  // "4-128-128-64-2 dueling"
};

class QNetwork {
 public:
  // Weights and biases uniform in +-1/sqrt(inputs), PyTorch's default. Throws UsageError for a
  // shape with a size below 1.
  QNetwork(NetworkShape shape, std::uint64_t seed);

  const NetworkShape& shape() const noexcept { return shape_; }

  // q (rows x action_count) of `rows` observations.
  void forward(std::span<const float> observations, int rows, std::span<float> q);

  // Gradients of the parameters, in their order, for `q_gradient` = d loss / d q. Goes with the
  // last forward(), and with the same observations.
  void backward(std::span<const float> observations, int rows, std::span<const float> q_gradient,
                std::span<float> gradient);

  // Everything that is trained, in one piece. Weights lie as [in][out], PyTorch's transposed,
  // because that is how forward() reads them: between networks of one shape copy these, to the
  // outside give state().
  std::span<float> parameters() noexcept { return parameters_; }
  std::span<const float> parameters() const noexcept { return parameters_; }
  const ParameterLayout& layout() const noexcept { return layout_; }

  // "encoder.0.weight" [out, in], ... as of a PyTorch module. load() throws UsageError, and
  // changes nothing, when an entry is missing, unknown or of another shape.
  StateDict state() const;
  void load(const StateDict& state);

 private:
  // One branch of a dueling network.
  struct Branch {
    std::size_t hidden;
    std::size_t output;
  };

  void make_room(int rows);

  const NetworkShape shape_;
  ParameterLayout layout_;
  Branch value_{};
  Branch advantage_{};
  std::size_t head_ = 0;  // the only output layer when not dueling
  std::vector<float> parameters_;

  // Results of each layer and gradients with respect to them, for rows_ rows.
  int rows_ = 0;
  std::vector<std::vector<float>> results_;
  std::vector<std::vector<float>> gradients_;
  std::vector<float> branch_sum_;
};

}  // namespace divisi::rl
