#include "rl/network.h"

#include "divisi/error.h"
#include "rl/random.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

namespace divisi::rl {
namespace {

// The same network in double precision and slowly, from a state dict.
class Reference {
 public:
  explicit Reference(const QNetwork& network) : shape_(network.shape()) {
    for (const auto& [name, tensor] : network.state()) {
      const auto view = tensor.view<float>();
      values_[name].assign(view.begin(), view.end());
    }
  }

  std::map<std::string, std::vector<double>>& values() { return values_; }

  std::vector<double> q(std::span<const float> observation) const {
    std::vector<double> x(observation.begin(), observation.end());
    for (std::size_t i = 0; i < shape_.hidden.size(); ++i) {
      x = linear("encoder." + std::to_string(2 * i), x, true);
    }
    if (!shape_.dueling) return linear("head", x, false);
    const double value = linear("value.2", linear("value.0", x, true), false)[0];
    auto q = linear("advantage.2", linear("advantage.0", x, true), false);
    const double mean = std::accumulate(q.begin(), q.end(), 0.0) / static_cast<double>(q.size());
    for (double& action : q) action += value - mean;
    return q;
  }

 private:
  std::vector<double> linear(const std::string& name, const std::vector<double>& x,
                             bool relu) const {
    const auto& weight = values_.at(name + ".weight");
    std::vector<double> y = values_.at(name + ".bias");
    for (std::size_t o = 0; o < y.size(); ++o) {
      for (std::size_t i = 0; i < x.size(); ++i) y[o] += weight[o * x.size() + i] * x[i];
      if (relu) y[o] = std::max(y[o], 0.0);
    }
    return y;
  }

  const NetworkShape shape_;
  std::map<std::string, std::vector<double>> values_;
};

class NetworkTest : public ::testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(DuelingAndPlain, NetworkTest, ::testing::Bool());

// Central differences of the double network, for every parameter.
TEST_P(NetworkTest, Gradients_are_those_of_finite_differences) {
  constexpr int kRows = 7;
  const NetworkShape shape{
      .observation_size = 3, .action_count = 3, .hidden = {9, 6}, .dueling = GetParam()};
  QNetwork network(shape, 4);
  Random random(5);
  std::vector<float> observations(kRows * 3);
  std::vector<float> q_gradient(kRows * 3);
  for (float& value : observations) value = static_cast<float>(random.normal());
  for (float& value : q_gradient) value = static_cast<float>(random.normal());

  std::vector<float> q(kRows * 3);
  network.forward(observations, kRows, q);
  std::vector<float> gradient(network.parameters().size(), NAN);
  network.backward(observations, kRows, q_gradient, gradient);
  StateDict gradients;
  network.layout().write(gradient, "", gradients);

  Reference reference(network);
  const auto loss = [&] {
    double sum = 0.0;
    for (std::size_t row = 0; row < kRows; ++row) {
      const auto exact = reference.q(std::span(observations).subspan(row * 3, 3));
      for (std::size_t a = 0; a < 3; ++a)
        sum += exact[a] * static_cast<double>(q_gradient[row * 3 + a]);
    }
    return sum;
  };
  std::size_t checked = 0;
  for (auto& [name, values] : reference.values()) {
    const auto computed = gradients.at(name).view<float>();
    for (std::size_t i = 0; i < values.size(); ++i, ++checked) {
      constexpr double kDelta = 1e-6;
      const double kept = values[i];
      values[i] = kept + kDelta;
      const double above = loss();
      values[i] = kept - kDelta;
      const double below = loss();
      values[i] = kept;
      EXPECT_NEAR(static_cast<double>(computed[i]), (above - below) / (2 * kDelta), 2e-5)
          << name << " " << i;
    }
  }
  EXPECT_EQ(checked, network.parameters().size());
}

TEST_P(NetworkTest, Values_are_those_of_the_formula_for_any_number_of_rows) {
  NetworkShape shape;
  shape.dueling = GetParam();
  QNetwork network(shape, 1);
  const Reference reference(network);
  Random random(2);
  for (const int rows : {1, 8, 64, 5}) {
    std::vector<float> observations(static_cast<std::size_t>(rows) * 4);
    for (float& value : observations) value = static_cast<float>(random.normal());
    std::vector<float> q(static_cast<std::size_t>(rows) * 2);
    network.forward(observations, rows, q);
    for (std::size_t row = 0; row < static_cast<std::size_t>(rows); ++row) {
      const auto exact = reference.q(std::span(observations).subspan(row * 4, 4));
      EXPECT_NEAR(static_cast<double>(q[row * 2]), exact[0], 1e-6);
      EXPECT_NEAR(static_cast<double>(q[row * 2 + 1]), exact[1], 1e-6);
    }
  }
}

TEST_P(NetworkTest, A_state_makes_another_network_the_same) {
  NetworkShape shape;
  shape.dueling = GetParam();
  QNetwork first(shape, 1);
  QNetwork second(shape, 2);
  EXPECT_FALSE(first.state() == second.state());
  second.load(first.state());
  EXPECT_TRUE(first.state() == second.state());
  EXPECT_TRUE(std::ranges::equal(first.parameters(), second.parameters()));
}

TEST(NetworkStateTest, Has_the_names_and_shapes_of_a_PyTorch_module) {
  const auto shapes = [](const QNetwork& network) {
    std::vector<std::string> all;
    for (const auto& [name, tensor] : network.state())
      all.push_back(name + " " + shape_text(tensor.shape));
    return all;
  };
  EXPECT_THAT(shapes(QNetwork({}, 0)),
              ::testing::ElementsAre(
                  "advantage.0.bias [64]", "advantage.0.weight [64, 64]", "advantage.2.bias [2]",
                  "advantage.2.weight [2, 64]", "encoder.0.bias [128]", "encoder.0.weight [128, 4]",
                  "encoder.2.bias [128]", "encoder.2.weight [128, 128]", "encoder.4.bias [64]",
                  "encoder.4.weight [64, 128]", "value.0.bias [64]", "value.0.weight [64, 64]",
                  "value.2.bias [1]", "value.2.weight [1, 64]"));
  EXPECT_THAT(shapes(QNetwork({.hidden = {8}, .dueling = false}, 0)),
              ::testing::ElementsAre("encoder.0.bias [8]", "encoder.0.weight [8, 4]",
                                     "head.bias [2]", "head.weight [2, 8]"));
}

TEST(NetworkStateTest, Begins_as_PyTorch_does) {
  const QNetwork network({}, 3);
  const StateDict state = network.state();
  for (const auto& [name, inputs] : {std::pair{"encoder.0.weight", 4.0},
                                     {"encoder.2.weight", 128.0},
                                     {"encoder.2.bias", 128.0}}) {
    float largest = 0.0F;
    for (const float value : state.at(name).view<float>())
      largest = std::max(largest, std::abs(value));
    EXPECT_LE(largest, 1.0 / std::sqrt(inputs)) << name;
    EXPECT_GT(largest, 0.9 / std::sqrt(inputs)) << name;
  }
  EXPECT_TRUE(QNetwork({}, 3).state() == state);
}

std::string refusal(const std::function<void()>& call) {
  try {
    call();
  } catch (const UsageError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(NetworkStateTest, Refuses_a_state_of_another_network_and_stays_as_it_was) {
  QNetwork network({}, 1);
  const StateDict before = network.state();
  const StateDict other = QNetwork({}, 2).state();

  StateDict state = other;
  state.erase("value.2.bias");
  EXPECT_EQ(refusal([&] { network.load(state); }), "state has no 'value.2.bias' (float32 [1])");

  state = other;
  state["value.3.bias"] = other.at("value.2.bias");
  EXPECT_EQ(refusal([&] { network.load(state); }),
            "'value.3.bias' [1] is no entry of the network, did you mean 'value.0.bias'?");

  state = other;
  state["value.2.weight"] = QNetwork({.action_count = 3}, 1).state().at("advantage.2.weight");
  EXPECT_EQ(refusal([&] { network.load(state); }),
            "'value.2.weight' is float32 [3, 64], the network has float32 [1, 64]");

  state = other;
  const std::vector<double> one = {1.0};
  state["value.2.bias"] = Tensor::copy_of<double>({1}, one);
  EXPECT_EQ(refusal([&] { network.load(state); }),
            "'value.2.bias' is float64 [1], the network has float32 [1]");

  EXPECT_TRUE(network.state() == before);
}

TEST(NetworkShapeTest, Is_printed_and_checked) {
  EXPECT_EQ(NetworkShape{}.to_string(), "4-128-128-64-2 dueling");
  EXPECT_EQ(refusal([] { QNetwork({.hidden = {8, 0}, .dueling = false}, 1); }),
            "network 4-8-0-2: every size is at least 1, and there is a hidden layer");
  EXPECT_EQ(refusal([] { QNetwork({.hidden = {}}, 1); }),
            "network 4--2 dueling: every size is at least 1, and there is a hidden layer");
  QNetwork network({}, 1);
  std::vector<float> three(3);
  std::vector<float> q(2);
  EXPECT_EQ(refusal([&] { network.forward(three, 1, q); }),
            "network: 3 observations for 1 rows of 4");
}

}  // namespace
}  // namespace divisi::rl
