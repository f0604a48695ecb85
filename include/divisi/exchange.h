// What the nodes of a job tell each other while they train: collected data and counters
// (context_exchanger), and the model (model_exchanger, periodical_model_exchanger).
//
//   auto running = task.start({.ctx = std::make_shared<OnlineRLContext>()});
//   task.add_role(router.node_id() == 0 ? Role::kLearner : Role::kCollector);
//   task.use(divisi::context_exchanger());
//   task.use(divisi::model_exchanger({.state = [&] { return policy.state(); },
//                                     .load = [&](const auto& state) { policy.load(state); }}));
//   ...                                       // the same pipeline as in one process
//
// They are the first middleware of a pipeline: what came is taken in the forward part, what is new
// is sent in the backward part. Waits end when the task finishes. The events and their payloads
// are those of Python nodes (docs/middleware.md), so one job may have both.
//
// Threads: middleware as any other; the functions of a Model are called by the middleware's thread.
#pragma once

#include "divisi/event.h"
#include "divisi/export.h"
#include "divisi/middleware.h"
#include "divisi/task.h"
#include "divisi/tensor.h"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

namespace divisi {

// How long context_exchanger waits, and what it does with the data of several collectors.
struct ContextExchangerOptions {
  // Nodes that are no learner do not wait in the iterations before this one.
  std::int64_t skip_n_iter = 1;
  // Of a wait; afterwards a warning is logged and the iteration goes on. Default: 60 s, for a
  // learner none.
  std::optional<std::chrono::nanoseconds> timeout = {};
  // Adds to the end indices of a payload the number of trajectories that came before it in the
  // same iteration, so that they are indices of the joined list. DI-engine does not.
  bool shift_end_indices = false;
};

// For contexts of type OnlineRLContext. Every node tells those of other roles, once an iteration,
// by the event `context_exchanger_<role>`, whose argument is a map of fields:
//
//   collector   trajectories, episodes, trajectory_end_idx (where not empty), and how much env_step
//               and env_episode have grown since the last time
//   learner     train_iter
//
// A learner waits in each iteration until something came, the others as the options say. Then
// lists that came are in the context, joined in the order of arrival; growth is added to env_step
// and env_episode (not in a collector); train_iter is the learner's (not in a learner).
//
// `trajectories` and `episodes` are lists of anything that can travel: a collector stores a
// std::vector<T>, T with a Coder or DIVISI_FIELDS, or std::vector<Value>; the learner asks for the
// same by ctx.trajectories.get<std::vector<T>>(). Anything else than a list is a PayloadError in
// the receiver, raised as the error of a listener.
//
// Void (Task::use skips it) without a job, and with a warning if `owner` has no role. Call it after
// add_role.
DIVISI_API Middleware context_exchanger(ContextExchangerOptions options = {}, Task& owner = task);

// A model as the exchangers see it: its parameters by name.
struct Model {
  // A copy that nobody writes to afterwards. For nodes that send.
  std::function<std::map<std::string, Tensor>()> state = {};
  // Takes them over. For nodes that receive.
  std::function<void(const std::map<std::string, Tensor>&)> load = {};
};

// Which model a node uses, or has sent last. Written by the exchanger it was given to, to be read
// from any thread.
class DIVISI_API ModelVersion {
 public:
  ModelVersion() = default;

  // Of the sender's counter or version; -1 while it is the model that the node began with. Goes
  // back when a restarted sender counts from an earlier one.
  std::int64_t id() const noexcept { return id_.load(); }
  // Since it was sent, by the clocks of both hosts; 0 while there is none.
  std::chrono::nanoseconds age() const noexcept;
  // How many iterations of this node it has served, the running one included.
  std::int64_t iterations() const noexcept { return iterations_.load(); }
  // How many models this node has loaded, or sent.
  std::int64_t count() const noexcept { return count_.load(); }

  // For the exchangers. Another model, sent so many seconds since the epoch:
  void begin(std::int64_t id, double sent) noexcept;
  // One more iteration with the same.
  void serve() noexcept { ++iterations_; }

 private:
  // Each is a figure of its own: readers see a new id a moment before its age or after it.
  std::atomic<std::int64_t> id_{-1};
  std::atomic<double> sent_{0};
  std::atomic<std::int64_t> iterations_{0};
  std::atomic<std::int64_t> count_{0};
};

// How model_exchanger receives.
struct ModelExchangerOptions {
  // Of a wait for a new model; then a warning, and the iteration goes on with the old one.
  std::chrono::nanoseconds timeout = std::chrono::seconds(60);
  // Tells which model is in use; its id counts the models that came, from 0.
  std::shared_ptr<ModelVersion> in_use = {};
};

// The learner sends its model after every iteration, by the event `model_exchanger`, whose argument
// is the map of parameters. The others load the newest before each iteration; from iteration 1
// on they wait for one that they have not loaded yet. Who is slow skips models: the newest
// replaces what was not sent.
//
// Who comes later does not wait for the next one: the learner sends its last model at once to a
// peer that joins or comes back. Every receiver asks when it begins, by `model_exchanger_request`
// (its node id), and takes the answer, `model_exchanger_latest`, if nothing else has come.
//
// Void without a job, and with a warning if `owner` has no role. Call it after add_role. Throws
// UsageError when the function that the role needs is missing.
DIVISI_API Middleware model_exchanger(Model model, ModelExchangerOptions options = {},
                                      Task& owner = task);

// What a node does with models.
enum class ModelExchangeMode {
  kSend,     // as a learner
  kReceive,  // as everybody else
};

// How periodical_model_exchanger sends or receives. The defaults make it a model_exchanger.
struct PeriodicalOptions {
  ModelExchangeMode mode = ModelExchangeMode::kSend;  // what this node does
  // Send: every so many iterations, the first included. Receive: only ids that it divides; leave it
  // at 1 where the sender has a `version`. At least 1.
  std::int64_t period = 1;
  // A model that is older when it is looked at is not used. The clocks of both hosts count.
  std::chrono::nanoseconds delay_toleration = kForever;
  // How many iterations one model may serve before the node waits for another. At least 1.
  std::int64_t stale_toleration = 1;
  std::string event_name = "model_exchanger";  // senders and receivers of one model have the same

  // Of a wait for a new model; then a warning, and the iteration goes on with the old one.
  std::chrono::nanoseconds timeout = std::chrono::seconds(60);
  // Send: the id of the model instead of a counter of iterations, for example train_iter, so that
  // ids go on where they were after a restart. Called in each iteration that sends.
  std::function<std::int64_t()> version = {};
  // Tells which model is in use, or was sent last.
  std::shared_ptr<ModelVersion> in_use = {};
  // Send: the model that the node begins with as well, at the start of its first iteration. For a
  // sender whose first iteration waits for what receivers make of the model.
  bool send_at_start = false;
};

// As model_exchanger, for a sender and receivers of different pace. Not bound to roles; without a
// job nothing arrives and nothing is waited for. The argument of the event is a map: `id`, `model`
// (the map of parameters), `time` (seconds since the epoch), and `sender`, a text that is new with
// every start of a sender and which a Python node may leave out.
//
// A receiver takes a model when its id is higher than that of the last from the same `sender`, or
// the same and sent later. A new sender replaces the old one for good, whatever its ids are: a
// learner that was restarted from an earlier checkpoint freezes nobody. Without `sender` a lower id
// is taken when its `time` is later.
DIVISI_API Middleware periodical_model_exchanger(Model model, PeriodicalOptions options,
                                                 Task& owner = task);

}  // namespace divisi
