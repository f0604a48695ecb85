// bench_tune ask ALGORITHM TRIALS PARAMETERS
// bench_tune curve ALGORITHM PARAMETERS TRIALS...
// bench_tune search ALGORITHM FUNCTION SEEDS
//
// `ask`: the cost of so many ask and tell of random, tpe or bayes; every third parameter is a step,
// every fifth an alternative, the others intervals. `curve`: what one ask and tell costs at each of
// these numbers of trials (rising), as the mean of the last tenth before it, at most kWindow.
// `search`: the best values of FUNCTION, less its minimum, after 50 and 100 trials with each seed
// (cartpole: the env steps, after 20 and 40).
// Prints one JSON line; times are of the processor.
#include "divisi/sampler.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <limits>
#include <map>
#include <numbers>
#include <string>
#include <vector>

namespace {

using divisi::tune::Sample;
using divisi::tune::Sampler;
using divisi::tune::Space;
using divisi::tune::TrialState;
using Values = std::vector<double>;

struct Problem {
  std::vector<Space> spaces;
  std::function<double(const Values&, std::uint64_t seed)> value;
  double minimum;
  int trials = 100;  // looked at after half of them, too
};

auto for_any_seed(double (*function)(const Values&)) {
  return [function](const Values& x, std::uint64_t) { return function(x); };
}

double branin(const Values& x) {
  const double pi = std::numbers::pi;
  const double a = x[1] - 5.1 / (4 * pi * pi) * x[0] * x[0] + 5 / pi * x[0] - 6;
  return a * a + 10 * (1 - 1 / (8 * pi)) * std::cos(x[0]) + 10;
}

double hartmann6(const Values& x) {
  constexpr std::array<double, 4> kAlpha{1.0, 1.2, 3.0, 3.2};
  constexpr std::array<std::array<double, 6>, 4> kA{{{10, 3, 17, 3.5, 1.7, 8},
                                                     {0.05, 10, 17, 0.1, 8, 14},
                                                     {3, 3.5, 1.7, 10, 17, 8},
                                                     {17, 8, 0.05, 10, 0.1, 14}}};
  constexpr std::array<std::array<double, 6>, 4> kP{
      {{0.1312, 0.1696, 0.5569, 0.0124, 0.8283, 0.5886},
       {0.2329, 0.4135, 0.8307, 0.3736, 0.1004, 0.9991},
       {0.2348, 0.1451, 0.3522, 0.2883, 0.3047, 0.6650},
       {0.4047, 0.8828, 0.8732, 0.5743, 0.1091, 0.0381}}};
  double sum = 0;
  for (std::size_t i = 0; i < 4; ++i) {
    double exponent = 0;
    for (std::size_t j = 0; j < 6; ++j) {
      exponent += kA[i][j] * (x[j] - kP[i][j]) * (x[j] - kP[i][j]);
    }
    sum -= kAlpha[i] * std::exp(-exponent);
  }
  return sum;
}

double ackley(const Values& x) {
  double squares = 0;
  double waves = 0;
  for (const double one : x) {
    squares += one * one;
    waves += std::cos(2 * std::numbers::pi * one);
  }
  const auto n = static_cast<double>(x.size());
  return -20 * std::exp(-0.2 * std::sqrt(squares / n)) - std::exp(waves / n) + 20 + std::numbers::e;
}

double rosenbrock(const Values& x) {
  double sum = 0;
  for (std::size_t i = 0; i + 1 < x.size(); ++i) {
    sum += 100 * std::pow(x[i + 1] - x[i] * x[i], 2) + std::pow(1 - x[i], 2);
  }
  return sum;
}

// Two intervals whose best places depend on two alternatives, and a step.
double mixed(const Values& x) {
  constexpr std::array<double, 4> kFirst{0.6, 0.0, 0.3, 0.9};
  constexpr std::array<double, 3> kSecond{0.4, 0.0, 0.2};
  return kFirst[static_cast<std::size_t>(x[3])] + kSecond[static_cast<std::size_t>(x[4])] +
         4 * std::pow(x[0] - 0.2 - 0.2 * x[3], 2) + 4 * std::pow(x[1] - 0.7 + 0.2 * x[4], 2) +
         std::pow(x[2] - 13, 2) / 100;
}

constexpr double kCartPoleBudget = 3000;  // env steps of one trial

// The env steps until `cartpole_dqn` ($CARTPOLE_DQN) has solved CartPole; for a trial that has not,
// the budget and what its return is short of. The sampler's seed is the trial's.
double cartpole(const Values& x, std::uint64_t seed) {
  const char* program = std::getenv("CARTPOLE_DQN");
  std::array<char, 64> folder{"/tmp/bench-cartpole-XXXXXX"};
  if (program == nullptr || mkdtemp(folder.data()) == nullptr) {
    std::fputs("bench_tune: cartpole needs the program's path in CARTPOLE_DQN, and /tmp\n", stderr);
    std::exit(2);
  }
  constexpr std::array<int, 3> kBatch{32, 64, 128};
  std::array<char, 1024> command{};
  std::snprintf(command.data(), command.size(),
                "'%s' --alone --no-display --run-folder %s/run seed=%llu max_env_step=%.0f "
                "policy.learn.learning_rate=%.9g policy.learn.batch_size=%d "
                "policy.learn.target_update_freq=%.0f policy.other.eps.decay=%.0f "
                "policy.discount_factor=%.9g >/dev/null",
                program, folder.data(), static_cast<unsigned long long>(seed), kCartPoleBudget,
                std::pow(10, x[0]), kBatch[static_cast<std::size_t>(x[1])],
                std::round(std::exp(x[2])), std::round(std::exp(x[3])), x[4]);
  const int status = std::system(command.data());
  std::ifstream file(std::string(folder.data()) + "/run/result.json");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  std::filesystem::remove_all(folder.data());
  const auto figure = [&](const char* key) {
    const std::size_t at = text.find(key);
    if (status != 0 || at == std::string::npos) {
      std::fprintf(stderr, "bench_tune: failed: %s\n", command.data());
      std::exit(1);
    }
    return std::atof(text.c_str() + at + std::strlen(key));
  };
  const double steps = figure("\"env_step\":");
  const double value = figure("\"eval_value\":");
  return value >= 195 ? steps : kCartPoleBudget + 10 * (195 - value);
}

Problem problem_of(const std::string& name) {
  if (name == "branin") {
    return {{Space::continuous(-5, 10), Space::continuous(0, 15)},
            for_any_seed(branin),
            0.39788735772973816};
  }
  if (name == "hartmann6") {
    return {std::vector<Space>(6, Space::continuous(0, 1)), for_any_seed(hartmann6),
            -3.3223680114155147};
  }
  if (name == "ackley5") {
    return {std::vector<Space>(5, Space::continuous(-32.768, 32.768)), for_any_seed(ackley), 0};
  }
  if (name == "rosenbrock4") {
    return {std::vector<Space>(4, Space::continuous(-5, 10)), for_any_seed(rosenbrock), 0};
  }
  if (name == "mixed") {
    return {{Space::continuous(0, 1), Space::continuous(0, 1), Space::separate(0, 20, 1),
             Space::fixed(4), Space::fixed(3)},
            for_any_seed(mixed),
            0};
  }
  if (name == "cartpole") {
    return {{Space::continuous(std::log10(3e-4), -2), Space::fixed(3),
             Space::continuous(std::log(25), std::log(400)),
             Space::continuous(std::log(500), std::log(10000)), Space::continuous(0.95, 0.995)},
            cartpole,
            0,
            40};
  }
  std::fprintf(stderr, "bench_tune: no function %s\n", name.c_str());
  std::exit(2);
}

Sampler sampler_of(const std::string& name, const std::vector<Space>& spaces, std::uint64_t seed,
                   std::int64_t steps) {
  if (name == "random") {
    return Sampler::random(spaces, {.words = divisi::tune::python_random(seed)});
  }
  if (name == "tpe") return Sampler::tpe(spaces, {.max_steps = steps, .seed = seed});
  if (name == "bayes") return Sampler::bayes(spaces, {.max_steps = steps, .seed = seed});
  std::fprintf(stderr, "bench_tune: no algorithm %s\n", name.c_str());
  std::exit(2);
}

std::vector<Space> parameters(std::size_t count) {
  std::vector<Space> spaces;
  for (std::size_t i = 0; i < count; ++i) {
    spaces.push_back(i % 5 == 4   ? Space::fixed(4)
                     : i % 3 == 2 ? Space::separate(0, 20, 1)
                                  : Space::continuous(0, 1));
  }
  return spaces;
}

double simple(const Values& x) {
  double sum = 0;
  for (const double one : x) sum += (one - 0.3) * (one - 0.3);
  return sum;
}

int ask(const std::string& algorithm, std::int64_t trials, std::size_t count) {
  Sampler sampler = sampler_of(algorithm, parameters(count), 1, trials);
  const std::clock_t begin = std::clock();
  for (std::int64_t i = 0; i < trials; ++i) {
    const Sample sample = sampler.ask().value();
    sampler.tell(sample.id, TrialState::kOk, simple(sample.values));
  }
  const double seconds = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
  std::printf(
      "{\"per_s\": %.6g, \"seconds\": %.6g, \"us\": %.6g, \"sent\": 1, \"received\": 1, "
      "\"disordered\": 0}\n",
      static_cast<double>(trials) / seconds, seconds, seconds * 1e6 / static_cast<double>(trials));
  return 0;
}

constexpr std::int64_t kWindow = 100;

int curve(const std::string& algorithm, std::size_t count,
          const std::vector<std::int64_t>& numbers) {
  Sampler sampler = sampler_of(algorithm, parameters(count), 1, numbers.back());
  std::int64_t done = 0;
  const auto go_on_to = [&](std::int64_t trials) {
    const std::clock_t begin = std::clock();
    for (; done < trials; ++done) {
      const Sample sample = sampler.ask().value();
      sampler.tell(sample.id, TrialState::kOk, simple(sample.values));
    }
    return static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
  };
  std::string costs;
  for (const std::int64_t number : numbers) {
    const std::int64_t window = std::min(kWindow, (number + 9) / 10);
    go_on_to(number - window);
    std::array<char, 64> text{};
    std::snprintf(text.data(), text.size(), "%s\"%lld\": %.6g", costs.empty() ? "" : ", ",
                  static_cast<long long>(number),
                  go_on_to(number) * 1e6 / static_cast<double>(window));
    costs += text.data();
  }
  std::printf("{\"us\": {%s}}\n", costs.c_str());
  return 0;
}

int search(const std::string& algorithm, const std::string& function, std::uint64_t seeds) {
  const Problem problem = problem_of(function);
  std::map<int, std::string> regrets{{problem.trials / 2, ""}, {problem.trials, ""}};
  for (std::uint64_t seed = 0; seed < seeds; ++seed) {
    Sampler sampler = sampler_of(algorithm, problem.spaces, seed, problem.trials);
    double best = std::numeric_limits<double>::infinity();
    for (int i = 1; i <= problem.trials; ++i) {
      const Sample sample = sampler.ask().value();
      const double value = problem.value(sample.values, seed);
      sampler.tell(sample.id, TrialState::kOk, value);
      best = std::min(best, value);
      if (!regrets.contains(i)) continue;
      std::array<char, 32> text{};
      std::snprintf(text.data(), text.size(), "%s%.6g", seed == 0 ? "" : ", ",
                    best - problem.minimum);
      regrets[i] += text.data();
    }
  }
  std::printf("{\"regret_%d\": [%s], \"regret_%d\": [%s]}\n", problem.trials / 2,
              regrets[problem.trials / 2].c_str(), problem.trials, regrets[problem.trials].c_str());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  if (words.size() == 4 && words[0] == "ask") {
    return ask(words[1], std::atoll(words[2].c_str()),
               static_cast<std::size_t>(std::atoll(words[3].c_str())));
  }
  if (words.size() == 4 && words[0] == "search") {
    return search(words[1], words[2], static_cast<std::uint64_t>(std::atoll(words[3].c_str())));
  }
  if (words.size() >= 4 && words[0] == "curve") {
    std::vector<std::int64_t> numbers;
    for (std::size_t i = 3; i < words.size(); ++i) numbers.push_back(std::atoll(words[i].c_str()));
    return curve(words[1], static_cast<std::size_t>(std::atoll(words[2].c_str())), numbers);
  }
  std::fputs(
      "usage: bench_tune ask ALGORITHM TRIALS PARAMETERS\n"
      "       bench_tune curve ALGORITHM PARAMETERS TRIALS...\n"
      "       bench_tune search ALGORITHM FUNCTION SEEDS\n",
      stderr);
  return 2;
}
