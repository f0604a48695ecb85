// ModelReceiver: keeps the newest model that came until a middleware takes it.
#pragma once

#include "divisi/exchange.h"
#include "divisi/task.h"
#include "divisi/value.h"
#include "runtime/arrival.h"

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>

namespace divisi::runtime {

// One message of a sender.
struct ModelMessage {
  std::int64_t id = -1;
  double time = 0;     // seconds since the epoch
  std::string sender;  // empty: it does not say
  Value model;
};

// Seconds since the epoch, as Python's time.time().
double wall_clock();

// Which of a stream of models are news, so that what is resent counts once and a sender that was
// restarted is not taken for an old one. The rule is in exchange.h.
class ModelOrder {
 public:
  // True, and remembered, if the model is news.
  bool take(const ModelMessage& message);
  // Whether there was one.
  bool any() const { return any_; }

 private:
  bool any_ = false;
  std::int64_t id_ = -1;
  double time_ = 0;
  std::string sender_;
  std::set<std::string> replaced_;  // senders that another one has followed
};

struct ReceiverOptions {
  std::string event;
  std::int64_t period = 1;
  std::chrono::nanoseconds delay_toleration = kForever;
  std::int64_t stale_toleration = 1;
  std::chrono::nanoseconds timeout = kForever;
  std::shared_ptr<ModelVersion> in_use;
  // Of the argument of the event.
  std::function<ModelMessage(Value)> parse;
};

// Threads: serve() from one at a time; models come by the task's loop.
class ModelReceiver {
 public:
  static std::shared_ptr<ModelReceiver> create(Task& owner, Model model, ReceiverOptions options);
  ModelReceiver(const ModelReceiver&) = delete;
  ModelReceiver& operator=(const ModelReceiver&) = delete;

  // Before an iteration: loads the newest model, waits for one where it must.
  void serve(const Context& ctx);

 private:
  ModelReceiver(Task& owner, Model model, ReceiverOptions options);
  void listen(const std::shared_ptr<ModelReceiver>& self);
  void put(Value argument, bool is_answer);
  bool has_usable();

  // Constant after construction.
  Task& task_;
  const Model model_;
  const ReceiverOptions options_;

  // Of the thread that calls serve().
  std::int64_t served_;  // iterations by the model in use

  Arrival arrival_;
  // Guarded by arrival_.mutex.
  ModelOrder order_;
  std::optional<ModelMessage> newest_;
};

}  // namespace divisi::runtime
