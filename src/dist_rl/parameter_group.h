// ParameterGroup: the ranks of a distributed learner, which average their parameters.
//
//   DIVISI_TRY(auto group, ParameterGroup::from_environment());   // null: alone
//   group->join();  ...  group->average(network.parameters());
//
// Rank 0 listens on MASTER_PORT; the others connect to MASTER_ADDR. Every rank calls average() the
// same number of times; each call waits for all. What averages is the parameters after a learn task
// of several updates (local SGD), not each gradient: a rank's Adam keeps its own moments. One
// thread, except stop().
#pragma once

#include "base/status.h"
#include "io/process.h"

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace divisi::dist_rl {

struct ParameterGroupOptions {
  int rank = 0;
  int size = 1;
  std::string master = "localhost";
  std::uint16_t port = 10'314;
  // For all ranks to come together, and for the slowest in one average().
  std::chrono::milliseconds patience = std::chrono::seconds(60);
};

class ParameterGroup {
 public:
  // RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT; null when WORLD_SIZE is absent or 1. Fails for
  // values that make no sense.
  static Result<std::unique_ptr<ParameterGroup>> from_environment();

  explicit ParameterGroup(ParameterGroupOptions options);

  int rank() const noexcept { return options_.rank; }
  int size() const noexcept { return options_.size; }

  // Connects all ranks, once more where they were connected before. `parameters` of average() have
  // the same number everywhere.
  Status join();
  // Fails when a rank is lost or too slow; then join() is the way back.
  Status average(std::span<float> parameters);
  void leave();

  // The call in progress, and each until leave(), returns soon. Any thread.
  void stop();

 private:
  using TimePoint = std::chrono::steady_clock::time_point;

  Status accept_all(TimePoint deadline);
  Status accept_one(int listener, TimePoint deadline);
  Status connect_to_master(TimePoint deadline);
  Status wait_for(int descriptor, short events, TimePoint deadline);
  Status send_all(int descriptor, std::span<const std::byte> bytes, TimePoint deadline);
  Status receive_all(int descriptor, std::span<std::byte> bytes, TimePoint deadline);

  const ParameterGroupOptions options_;
  std::vector<io::Descriptor> peers_;  // rank 0: of rank i + 1; others: the master's
  io::PipePair wake_;                  // stop() writes, everybody who waits looks
};

}  // namespace divisi::dist_rl
