#include "rl/exploration.h"

#include "base/nearest_name.h"
#include "divisi/error.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace divisi::rl {

EpsilonSchedule::EpsilonSchedule(const std::string& type, double start, double end,
                                 std::int64_t decay)
    : exponential_(type == "exp"), start_(start), end_(end), decay_(static_cast<double>(decay)) {
  const std::vector<std::string> types = {"exp", "linear"};
  if (std::ranges::find(types, type) == types.end()) {
    throw UsageError(fmt::format("unknown epsilon schedule '{}'{} (known: exp, linear)", type,
                                 did_you_mean(type, types)));
  }
  for (const double value : {start, end}) {
    if (!(value >= 0.0 && value <= 1.0)) {
      throw UsageError(fmt::format("epsilon {} is no probability", value));
    }
  }
  if (decay < 1) throw UsageError(fmt::format("epsilon: a decay of {} steps, at least 1", decay));
}

double EpsilonSchedule::at(std::int64_t env_step) const noexcept {
  const double done = static_cast<double>(std::max<std::int64_t>(env_step, 0)) / decay_;
  const double left = exponential_ ? std::exp(-done) : std::max(0.0, 1.0 - done);
  return (start_ - end_) * left + end_;
}

void act_epsilon_greedy(QNetwork& network, std::span<const float> observations, int rows,
                        double eps, Random& random, std::span<int> actions) {
  if (rows < 1 || actions.size() != static_cast<std::size_t>(rows)) {
    throw UsageError(fmt::format("{} actions for {} rows of observations", actions.size(), rows));
  }
  // One for each thread, since the network belongs to one.
  static thread_local std::vector<float> q;
  const auto count = static_cast<std::size_t>(network.shape().action_count);
  q.resize(actions.size() * count);
  network.forward(observations, rows, q);
  for (std::size_t i = 0; i < actions.size(); ++i) {
    if (eps > 0.0 && random.uniform() < eps) {
      actions[i] = static_cast<int>(random.below(static_cast<std::uint32_t>(count)));
      continue;
    }
    const auto row = std::span(q).subspan(i * count, count);
    actions[i] = static_cast<int>(std::ranges::max_element(row) - row.begin());
  }
}

}  // namespace divisi::rl
