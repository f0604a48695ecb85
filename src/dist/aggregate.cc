#include "dist/aggregate.h"

#include <algorithm>
#include <utility>

namespace divisi::dist {
namespace {

constexpr std::int64_t kLargestSum = 10'000'000;
constexpr int kDeepestMerge = 8;  // priority_info is a list, or lists in an object

// Lists one after the other, objects member by member; of anything else the first.
void merge_into(json::Value& merged, const json::Value& other, int depth) {
  if (depth >= kDeepestMerge) return;
  if (json::Array* list = merged.as_array()) {
    if (const json::Array* more = other.as_array()) {
      list->insert(list->end(), more->begin(), more->end());
    }
  } else if (const json::Object* members = other.as_object();
             members != nullptr && merged.as_object() != nullptr) {
    for (const auto& [key, value] : *members) {
      if (json::Value* present = merged.find(key)) {
        merge_into(*present, value, depth + 1);
      } else {
        merged[key] = value;
      }
    }
  }
}

}  // namespace

Result<MergedDemand> merge_demands(const std::vector<json::Value>& demands) {
  MergedDemand merged;
  std::int64_t sum = 0;
  for (const json::Value& each : demands) {
    const std::int64_t size = each.int_at({"batch_size"}).value_or(0);
    if (size < 1 || size > kLargestSum - sum) {
      return failure(Code::kInvalid,
                     "learner_get_data_task: a learner's batch_size must be 1 or more, and all "
                     "together at most {}",
                     kLargestSum);
    }
    sum += size;
    merged.sizes.push_back(size);
  }
  if (demands.empty()) return failure(Code::kInvalid, "learner_get_data_task: no learner");
  merged.demand = demands.front();
  merged.demand["batch_size"] = sum;
  return merged;
}

Result<std::vector<json::Array>> split_records(const json::Value* records,
                                               const std::vector<std::int64_t>& sizes) {
  const json::Array* all = records != nullptr ? records->as_array() : nullptr;
  std::int64_t wanted = 0;
  for (const std::int64_t size : sizes) wanted += size;
  if (all == nullptr || sizes.empty() || all->size() != static_cast<std::size_t>(wanted)) {
    return failure(Code::kInvalid, "learner_learn_task: the learners asked for {} records, not {}",
                   wanted, all != nullptr ? all->size() : 0);
  }
  std::vector<json::Array> parts;
  auto next = all->begin();
  for (const std::int64_t size : sizes) {
    parts.emplace_back(next, next + size);
    next += size;
  }
  return parts;
}

json::Value merge_learned(const std::vector<json::Value>& results) {
  if (results.empty()) return json::Object{};
  json::Value merged = results.front();
  const json::Value* first = merged.find("info");
  json::Value info = first != nullptr ? *first : json::Value(json::Object{});
  std::int64_t step = info.int_at({"learner_step"}).value_or(0);
  bool done = info.bool_at({"learner_done"}).value_or(false);
  for (std::size_t i = 1; i < results.size(); ++i) {
    const json::Value* other = results[i].find("info");
    if (other == nullptr) continue;
    step = std::max(step, other->int_at({"learner_step"}).value_or(0));
    done = done || other->bool_at({"learner_done"}).value_or(false);
    json::Value* priorities = info.find("priority_info");
    const json::Value* more = other->find("priority_info");
    if (priorities != nullptr && more != nullptr) merge_into(*priorities, *more, 0);
  }
  info["learner_step"] = step;
  info["learner_done"] = done;
  merged["info"] = std::move(info);
  return merged;
}

}  // namespace divisi::dist
