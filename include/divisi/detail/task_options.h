// The option structs of Task, and the small types they are made of.
#pragma once

#include "divisi/context.h"
#include "divisi/delivery.h"
#include "divisi/event.h"
#include "divisi/export.h"
#include "divisi/middleware.h"

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace divisi {

class Back;

// More iterations than any run has.
inline constexpr std::int64_t kForeverSteps = 1'000'000'000'000;

// The usual roles; any other text is a role as well:
struct Role {
  static constexpr std::string_view kLearner = "learner";
  static constexpr std::string_view kCollector = "collector";
  static constexpr std::string_view kEvaluator = "evaluator";
  static constexpr std::string_view kFetcher = "fetcher";
};

// How a task lives.
struct StartOptions {
  // Forward parts of an iteration run at the same time on a pool of n_async_workers threads.
  bool async_mode = false;
  int n_async_workers = 3;            // at least 1
  std::shared_ptr<Context> ctx = {};  // default: a plain Context
  // Added to those the task gives itself: for match_labels, filter_labels and Target::to_label.
  std::set<std::string> labels = {};
  // The longest wait at stop for queued events, running middleware, and a peer's next sign.
  std::chrono::milliseconds stop_timeout = std::chrono::seconds(30);
  OnError on_error = OnError::kRaise;  // what the error of a listener does
};

// The mutex under which the parts of a middleware run: none, the task's own (true), or one of the
// caller's, which must outlive the pipeline.
class Lock {
 public:
  // {.lock = true} is the task's own, {.lock = mutex} the caller's.
  Lock(bool own = false) noexcept : own_(own) {}         // NOLINT
  Lock(std::mutex& mutex) noexcept : custom_(&mutex) {}  // NOLINT
  Lock(std::shared_ptr<std::mutex> mutex) noexcept       // NOLINT
      : shared_(std::move(mutex)), custom_(shared_.get()) {}

  // For the task:
  bool is_own() const noexcept { return own_; }
  std::mutex* custom() const noexcept { return custom_; }

 private:
  bool own_ = false;
  std::shared_ptr<std::mutex> shared_;
  std::mutex* custom_ = nullptr;
};

// How one middleware is registered.
struct UseOptions {
  Lock lock = {};  // held while its parts run
  // Register only if one of these patterns matches a label. Empty: always.
  std::vector<std::string> filter_labels = {};
};

// Where an emit of a task goes.
struct EmitOptions {
  bool only_local = false;            // not to peers; wins over only_remote
  bool only_remote = false;           // not to the listeners here
  Target to = {};                     // which peers; default all
  std::optional<Policy> policy = {};  // what a full queue does; default: the runner's send_policy
};
// The two by name. Not to peers:
inline const EmitOptions only_local{.only_local = true};  // NOLINT: read as words at the call
// Not to the listeners here, as in emit("e", divisi::only_remote, 1):
inline const EmitOptions only_remote{.only_remote = true};  // NOLINT

// How a wait of a task ends without its event.
struct WaitForOptions {
  std::chrono::nanoseconds timeout = kForever;  // default: none
  bool ignore_timeout = true;                   // false: TimeoutError instead of nothing
  bool wake_on_finish = false;                  // return nothing when `finish` becomes true
  std::stop_token stop = {};                    // a requested stop makes the wait return nothing
};

// What Task::wrap returns: a middleware whose backward part the caller may run itself.
class DIVISI_API Wrapped {
 public:
  // Made by Task::wrap.
  Wrapped(std::string name, std::function<Back(Context&)> call)
      : name_(std::move(name)), call_(std::move(call)) {}
  // Runs the forward part.
  Back operator()(Context& ctx) const;
  // Of the middleware that it wraps.
  const std::string& name() const noexcept { return name_; }

 private:
  std::string name_;
  std::function<Back(Context&)> call_;
};

}  // namespace divisi
