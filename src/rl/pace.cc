#include "rl/pace.h"

#include "divisi/error.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace divisi::rl {

namespace {

constexpr std::string_view kStaleness = "policy.collect.max_staleness";
constexpr std::string_view kPerInsert = "policy.other.replay_buffer.samples_per_insert";

// Whole numbers only, so that the sums of the message can be checked by hand.
std::int64_t rounded_up(double number) {
  return static_cast<std::int64_t>(std::ceil(std::min(number, 9e15)));
}

}  // namespace

Pace pace_of(const DqnConfig& config) {
  Pace pace;
  pace.rows_of_collect = config.n_sample_remote;
  pace.collects = config.max_staleness;
  pace.rows_of_answer = std::int64_t{kBatchesOfAnAnswer} * config.batch_size;
  pace.answers = std::max(1, config.publish_freq / kBatchesOfAnAnswer);
  const double per_insert = config.samples_per_insert;
  pace.limit = {.samples_per_insert = per_insert,
                .min_size = config.batch_size,
                .tolerance = std::max(2 * per_insert * static_cast<double>(pace.rows_of_collect),
                                      static_cast<double>(pace.rows_of_answer))};
  return pace;
}

void check_pace(const DqnConfig& config, int collectors) {
  const Pace pace = pace_of(config);
  const RateLimit& limit = pace.limit;
  const auto samples = static_cast<double>(pace.answers * pace.rows_of_answer);  // of new weights
  if (limit.samples_per_insert > 0) {
    const double rows = static_cast<double>(pace.rows_of_answer) / limit.samples_per_insert;
    if (rows > static_cast<double>(config.max_env_step)) {
      throw UsageError(
          fmt::format("{}={}: the learner would train once in {} x {} / {} = {} rows, more than "
                      "max_env_step={}; raise it, or give 0 for no limit",
                      kPerInsert, limit.samples_per_insert, kBatchesOfAnAnswer, config.batch_size,
                      limit.samples_per_insert, rounded_up(rows), config.max_env_step));
    }
  }
  if (pace.collects == 0) return;

  // The first weights that it has trained take no more than the first sample. The tolerance lets
  // it have that one as soon as there are `min_size` rows, and gives nothing in the long run.
  auto rows = static_cast<double>(limit.min_size);
  if (limit.samples_per_insert > 0) rows = std::max(rows, samples / limit.samples_per_insert);
  const std::int64_t needed = rounded_up(rows);
  const std::int64_t one_each = std::int64_t{collectors} * pace.rows_of_collect;
  if (pace.collects >= (needed + one_each - 1) / one_each) return;
  throw UsageError(fmt::format(
      "{}={}: with one set of weights {} collector{} of {} rows (policy.collect.n_sample_remote) "
      "bring {} rows, the learner needs {} for the next one ({}={}, policy.learn.publish_freq={}, "
      "policy.learn.batch_size={}); each would wait for the other. Give {} or more, or 0 for no "
      "bound",
      kStaleness, pace.collects, collectors, collectors == 1 ? "" : "s", pace.rows_of_collect,
      pace.collects * one_each, needed, kPerInsert, limit.samples_per_insert, config.publish_freq,
      config.batch_size, (needed + one_each - 1) / one_each));
}

}  // namespace divisi::rl
