// Layers: where each weight of a network lies in one flat vector, what it is called outside, and
// the two passes through one layer.
#pragma once

#include "divisi/tensor.h"
#include "rl/kernels.h"

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace divisi::rl {

// Named tensors, as PyTorch's state_dict. Weights are float32, counters int64.
using StateDict = std::map<std::string, divisi::Tensor>;

// "[64, 128]"
std::string shape_text(std::span<const std::int64_t> shape);

struct Layer {
  std::string name;  // "encoder.0"; outside "encoder.0.weight" and "encoder.0.bias"
  int inputs;
  int outputs;
  std::size_t weight;  // offset of inputs x outputs numbers
  std::size_t bias;    // offset of `outputs` numbers
};

// The order of all parameters of one network in a flat vector.
class ParameterLayout {
 public:
  // The number of the new layer.
  std::size_t add(const std::string& name, int inputs, int outputs);
  // A vector of its own, such as a log deviation: "name" [size]. Its offset.
  std::size_t add_vector(const std::string& name, int size);

  const Layer& layer(std::size_t number) const { return layers_.at(number); }
  std::size_t layer_count() const noexcept { return layers_.size(); }
  std::size_t size() const noexcept { return size_; }

  // Fills the layers as PyTorch's nn.Linear does by default; other vectors with zeros.
  void initialise(std::uint64_t seed, std::span<float> parameters) const;

  // Adds the entries, each name with the prefix, and takes them back: read() throws UsageError
  // naming the entry when one is missing, no float32 or of another shape, and writes nothing then.
  void write(std::span<const float> parameters, const std::string& prefix, StateDict& state) const;
  void read(const StateDict& state, const std::string& prefix, std::span<float> parameters) const;

  // Throws UsageError for an entry with this prefix that is none of ours.
  void refuse_others(const StateDict& state, const std::string& prefix) const;

 private:
  struct Entry {
    std::string name;
    std::vector<std::int64_t> shape;
    std::size_t offset;
    std::size_t size;
  };

  std::vector<Layer> layers_;
  std::vector<Entry> entries_;
  std::size_t size_ = 0;
};

// output (rows x outputs) = activation(input * weight + bias).
void layer_forward(const Layer& layer, std::span<const float> parameters, Activation activation,
                   int rows, const float* input, float* output);

// From output_gradient (d loss / d output, before the activation): writes the layer's part of
// `gradient`, and d loss / d input where input_gradient is not null.
void layer_backward(const Layer& layer, std::span<const float> parameters, int rows,
                    const float* input, const float* output_gradient, std::span<float> gradient,
                    float* input_gradient);

}  // namespace divisi::rl
