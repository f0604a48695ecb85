// How the GPUs of one learner are spread over pods: the policy `simple`. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace divisi::server::first {

// The value that occurs most often; of several the largest. 0 when there is none.
std::int64_t most_frequent(std::span<const std::int64_t> values);

// The GPUs of each pod. `of_nodes` is what each node of the cluster has, 0 where it has none: the
// usual node is what a pod may fill.
std::vector<int> split_gpus(int gpus, std::span<const std::int64_t> of_nodes);

}  // namespace divisi::server::first
