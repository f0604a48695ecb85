#include "server/first/gpu_split.h"

#include <algorithm>
#include <map>

namespace divisi::server::first {

std::int64_t most_frequent(std::span<const std::int64_t> values) {
  std::map<std::int64_t, std::size_t> counts;
  for (const std::int64_t value : values) ++counts[value];
  std::int64_t found = 0;
  std::size_t most = 0;
  for (const auto& [value, count] : counts) {  // ascending: the larger of two wins
    if (count < most) continue;
    most = count;
    found = value;
  }
  return found;
}

std::vector<int> split_gpus(int gpus, std::span<const std::int64_t> of_nodes) {
  std::int64_t a_pod = most_frequent(of_nodes);
  if (a_pod == 0 && !of_nodes.empty()) a_pod = *std::ranges::max_element(of_nodes);
  if (a_pod <= 0 || gpus <= a_pod) return {gpus};
  const int full = static_cast<int>(a_pod);
  std::vector<int> pods(static_cast<std::size_t>(gpus / full), full);
  if (gpus % full != 0) pods.push_back(gpus % full);
  return pods;
}

}  // namespace divisi::server::first
