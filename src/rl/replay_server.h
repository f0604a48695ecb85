// ReplayServer: a replay buffer that collectors fill and learners draw from, in this process and
// in others. docs/rl.md has the events.
//
//   ReplayServer replay(options);          // goes on from its checkpoint, if there is one
//   replay.serve(router);                  // answers the events of other nodes from now on
//   replay.save();                         // now and then
//
// A rate limiter holds the faster side back: inserts are acknowledged, and samples delivered, when
// it lets them.
//
// Every member may be called from any thread.
#pragma once

#include "rl/rate_limiter.h"
#include "rl/replay_buffer.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

namespace divisi {
class Parallel;
}

namespace divisi::rl {

class Listeners;

// Nodes of another number cannot be understood.
inline constexpr int kReplayProtocol = 1;

// What a collector did to gather its rows.
struct Collected {
  std::int64_t env_steps = 0;
  std::int64_t episodes = 0;
  double return_sum = 0;  // of those episodes
};

struct ReplayTotals {
  std::int64_t env_step = 0;
  std::int64_t env_episode = 0;
  double return_sum = 0;
  std::int64_t inserted = 0;
  std::int64_t sampled = 0;
  std::int64_t size = 0;
};

struct ReplayServerOptions {
  ReplayOptions buffer;
  RateLimit limit;
  std::uint64_t seed = 0;
  std::string checkpoint;  // a path; empty: none
};

class ReplayServer {
 public:
  // Throws UsageError for a checkpoint that does not fit, and for a limit that lets nobody go on.
  explicit ReplayServer(const ReplayServerOptions& options);
  ~ReplayServer();
  ReplayServer(const ReplayServer&) = delete;
  ReplayServer& operator=(const ReplayServer&) = delete;

  // Answers other nodes, and tells them where the replay is.
  void serve(Parallel& router);

  // In this process. Both wait for the rate limiter until `give_up` says so: false, nothing then.
  using GiveUp = std::function<bool()>;
  bool insert(const Transitions& transitions, const Collected& collected, const GiveUp& give_up);
  std::optional<Samples> sample(int rows, const GiveUp& give_up);
  void update_priorities(const Samples& samples, std::span<const float> errors);

  ReplayTotals totals() const;
  // Writes the checkpoint. Throws Error when it cannot be written; the old one stays then.
  void save() const;

 private:
  class State;
  // Listeners hold it too: one may still run when the server goes.
  std::shared_ptr<State> state_;
  std::unique_ptr<Listeners> listeners_;
};

}  // namespace divisi::rl
