// The two ends of a replay: where a collector's rows go, and where a learner's come from. The
// replay may be in this process (LocalReplay) or in another one (RemoteSink, RemoteSource).
//
// One thread uses each; a remote one's listeners run on the router's loop.
#pragma once

#include "rl/replay_server.h"
#include "rl/replay_wire.h"

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>

namespace divisi {
class Parallel;
}

namespace divisi::rl {

class Listeners;

class ReplaySink {
 public:
  virtual ~ReplaySink() = default;
  // Waits while the collectors are too far ahead. False: the task finishes, the rows are dropped.
  virtual bool push(const Transitions& transitions, const Collected& collected) = 0;
  // Of all collectors together, as far as known here.
  virtual std::int64_t env_step() const = 0;
};

class ReplaySource {
 public:
  virtual ~ReplaySource() = default;
  // Waits while the learner is too far ahead. Nothing: the task finishes.
  virtual std::optional<Samples> next() = 0;
  virtual void update_priorities(const Samples& samples, std::span<const float> errors) = 0;
  virtual std::int64_t env_step() const = 0;
};

// Says when a wait is to end: usually that the task finishes.
using GiveUp = std::function<bool()>;

class LocalReplay final : public ReplaySink, public ReplaySource {
 public:
  LocalReplay(ReplayServer& server, int rows, GiveUp give_up);
  bool push(const Transitions& transitions, const Collected& collected) override;
  std::optional<Samples> next() override;
  void update_priorities(const Samples& samples, std::span<const float> errors) override;
  std::int64_t env_step() const override;

 private:
  ReplayServer& server_;
  const int rows_;
  const GiveUp give_up_;
};

// What both remote ends do first: greet the replay once it has announced itself. Call it before the
// task is started, so that a node that does not fit ends alone and not with the whole job. Throws
// UsageError when the replay refuses this node, TimeoutError when none is found; returns early
// when the process is asked to end. False: the job has ended without this node, which the launcher
// has started again after everybody else had left.
inline constexpr auto kReplaySoon = std::chrono::seconds(60);

// Keeps up to two inserts unanswered. When the replay comes back as another process, what it had
// not answered is sent again.
class RemoteSink final : public ReplaySink {
 public:
  RemoteSink(Parallel& router, int observation_size, GiveUp give_up);
  ~RemoteSink() override;
  bool greet(std::chrono::milliseconds timeout = kReplaySoon);
  // Throws UsageError when the replay refuses this node.
  bool push(const Transitions& transitions, const Collected& collected) override;
  std::int64_t env_step() const override;

 private:
  class State;
  std::shared_ptr<State> state_;
  std::unique_ptr<Listeners> listeners_;
};

struct SampleShape {
  int batch_size = 64;
  int batches = 1;  // of one answer
  int observation_size = 4;
  int action_count = 2;
};

// Keeps two requests under way, so that the next rows are there when the last were used.
class RemoteSource final : public ReplaySource {
 public:
  RemoteSource(Parallel& router, SampleShape shape, GiveUp give_up);
  ~RemoteSource() override;
  bool greet(std::chrono::milliseconds timeout = kReplaySoon);
  // Throws UsageError for rows that do not fit, or when the replay refuses this node.
  std::optional<Samples> next() override;
  void update_priorities(const Samples& samples, std::span<const float> errors) override;
  std::int64_t env_step() const override;

 private:
  class State;
  std::shared_ptr<State> state_;
  std::unique_ptr<Listeners> listeners_;
};

}  // namespace divisi::rl
