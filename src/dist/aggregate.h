// What an aggregator makes of the answers of its learners. Pure functions.
#pragma once

#include "base/status.h"
#include "json/value.h"

#include <cstdint>
#include <vector>

namespace divisi::dist {

// Answers to learner_get_data_task.
struct MergedDemand {
  json::Value demand{};               // batch_size is the sum, the rest that of the first
  std::vector<std::int64_t> sizes{};  // what each learner wants
};
// Fails when a batch_size is missing, not positive, or the sum is absurd.
Result<MergedDemand> merge_demands(const std::vector<json::Value>& demands);

// The records of a learner_learn_task, cut by what each learner wants. Fails when their number
// is another one.
Result<std::vector<json::Array>> split_records(const json::Value* records,
                                               const std::vector<std::int64_t>& sizes);

// Answers to learner_learn_task. Of `info`: learner_step is the highest, learner_done when any is
// done (they learn in step), lists in priority_info follow each other; the rest is that of the
// first.
json::Value merge_learned(const std::vector<json::Value>& results);

}  // namespace divisi::dist
