// env_trace: our environments and our learner in plain text, for tests/rl to compare with
// Gymnasium and PyTorch. One mode for each:
//
//   env_trace env   reads lines "name state... action", prints for each
//                   "state... | observation... | reward terminated truncated", each from that state
//   env_trace run   reads "name state..." and then one action a line; keeps stepping and prints
//                   as above
//   env_trace dqn   reads what dqn_update() below says, prints q values, the loss, the errors
//                   and the weights after one update
#include "rl/dqn.h"
#include "rl/env.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdint>
#include <exception>
#include <iostream>
#include <map>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace divisi::rl {
namespace {

// The last number of a line is the action.
const EnvStep& step_with(VectorEnv& env, double action) {
  if (env.action_count() > 0) return env.step(std::vector<int>{static_cast<int>(action)});
  return env.step(std::vector<float>{static_cast<float>(action)});
}

std::vector<double> rest_of(std::istringstream& line) {
  std::vector<double> numbers;
  for (double number = 0; line >> number;) numbers.push_back(number);
  return numbers;
}

// Where an episode ends the state is the next one's: then the observation has to do.
std::string shown(const VectorEnv& env, const EnvStep& step) {
  return fmt::format("{:.17g} | {:.9g} | {:.9g} {} {}", fmt::join(env.state(0), " "),
                     fmt::join(step.next_observations, " "), step.rewards[0],
                     int{step.terminated[0]}, int{step.truncated[0]});
}

void trace_single_steps() {
  std::map<std::string, std::unique_ptr<VectorEnv>> envs;
  for (std::string text; std::getline(std::cin, text);) {
    std::istringstream line(text);
    std::string name;
    line >> name;
    auto& env = envs[name];
    if (env == nullptr) env = make_env(name, 1, 0);
    auto numbers = rest_of(line);
    const double action = numbers.back();
    numbers.pop_back();
    env->set_state(0, numbers);
    const EnvStep& step = step_with(*env, action);
    fmt::print("{}\n", shown(*env, step));
  }
}

void trace_run() {
  std::string text;
  std::getline(std::cin, text);
  std::istringstream line(text);
  std::string name;
  line >> name;
  const auto env = make_env(name, 1, 0);
  env->set_state(0, rest_of(line));
  for (double action = 0; std::cin >> action;)
    fmt::print("{}\n", shown(*env, step_with(*env, action)));
}

std::vector<float> floats(std::istream& in, std::size_t count) {
  std::vector<float> numbers(count);
  for (float& number : numbers) {
    // Through double: hexadecimal and "nan" are of no use here, precision is.
    double value = 0;
    if (!(in >> value)) throw std::runtime_error("a number is missing");
    number = static_cast<float>(value);
  }
  return numbers;
}

void print_floats(const std::string& name, std::span<const float> numbers) {
  fmt::print("{} {:.9g}\n", name, fmt::join(numbers, " "));
}

// All that counts is the order of the words on stdin:
//   dueling double discount learning_rate observation_size action_count, n hidden sizes
//   twice (online, target): "name numbers..." for each entry of the state, sorted by name
//   rows; observations, actions, rewards, next observations, not_done, discounts, weights
void dqn_update() {
  DqnOptions options;
  std::size_t hidden = 0;
  std::cin >> options.shape.dueling >> options.double_q >> options.discount >>
      options.learning_rate >> options.shape.observation_size >> options.shape.action_count >>
      hidden;
  options.shape.hidden.resize(hidden);
  for (int& size : options.shape.hidden) std::cin >> size;

  DqnLearner learner(options, 0);
  for (QNetwork* network : {&learner.network(), &learner.target_network()}) {
    StateDict state = network->state();
    for (auto& [name, tensor] : state) {
      std::string given;
      std::cin >> given;
      if (given != name)
        throw std::runtime_error(fmt::format("'{}' in place of '{}'", given, name));
      const auto numbers = floats(std::cin, tensor.view<float>().size());
      tensor = Tensor::copy_of<float>(tensor.shape, std::span<const float>(numbers));
    }
    network->load(state);
  }

  TransitionBatch batch;
  std::cin >> batch.size;
  const auto rows = static_cast<std::size_t>(batch.size);
  const std::size_t numbers = rows * static_cast<std::size_t>(options.shape.observation_size);
  batch.observations = floats(std::cin, numbers);
  batch.actions.resize(rows);
  for (auto& action : batch.actions) std::cin >> action;
  batch.rewards = floats(std::cin, rows);
  batch.next_observations = floats(std::cin, numbers);
  batch.not_done = floats(std::cin, rows);
  batch.discounts = floats(std::cin, rows);
  batch.weights = floats(std::cin, rows);

  std::vector<float> q(rows * static_cast<std::size_t>(options.shape.action_count));
  learner.network().forward(batch.observations, batch.size, q);
  print_floats("q", q);
  const auto result = learner.update(batch);
  fmt::print("loss {:.17g}\n", result.loss);
  fmt::print("grad_norm {:.17g}\n", result.grad_norm);
  print_floats("td_errors", result.td_errors);
  for (const auto& [name, tensor] : learner.network().state())
    print_floats(name, tensor.view<float>());
}

int run(const std::string& mode) {
  if (mode == "env") {
    trace_single_steps();
  } else if (mode == "run") {
    trace_run();
  } else if (mode == "dqn") {
    dqn_update();
  } else {
    fmt::print(stderr, "usage: env_trace env|run|dqn\n");
    return 2;
  }
  return 0;
}

}  // namespace
}  // namespace divisi::rl

int main(int argc, char** argv) {
  try {
    return divisi::rl::run(argc == 2 ? argv[1] : "");
  } catch (const std::exception& error) {
    fmt::print(stderr, "env_trace: {}\n", error.what());
    return 1;
  }
}
