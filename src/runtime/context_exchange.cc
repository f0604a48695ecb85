// context_exchanger.
#include "base/log.h"
#include "divisi/error.h"
#include "divisi/exchange.h"
#include "divisi/parallel.h"
#include "runtime/arrival.h"
#include "runtime/exchange_gate.h"

#include <fmt/format.h>

#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace divisi {
namespace {

using runtime::Arrival;

constexpr std::string_view kName = "context_exchanger";
constexpr std::chrono::nanoseconds kTimeout = std::chrono::seconds(60);

using Fields = std::map<std::string, Value>;

// What came since the last iteration.
struct Received {
  bool any = false;
  std::optional<Value::Array> trajectories;
  std::optional<Value::Array> episodes;
  std::optional<std::vector<std::int64_t>> end_idx;
  std::int64_t env_step = 0;  // growth
  std::int64_t env_episode = 0;
  std::optional<std::int64_t> train_iter;
};

template <class List>
void append(std::optional<List>& list, List more) {
  if (!list) list.emplace();
  list->insert(list->end(), std::make_move_iterator(more.begin()),
               std::make_move_iterator(more.end()));
}

Value::Array list_of(const std::string& key, const Value& value) {
  if (const auto* const list = value.get_if<Value::Array>()) return *list;
  throw PayloadError(fmt::format("{}: {} is a list, not {}", kName, key, value.describe()));
}

class ContextExchanger : public std::enable_shared_from_this<ContextExchanger> {
 public:
  ContextExchanger(ContextExchangerOptions options, Task& owner)
      : task_(owner),
        options_(options),
        learner_(owner.has_role(Role::kLearner)),
        collector_(owner.has_role(Role::kCollector)),
        timeout_(options.timeout.value_or(learner_ ? kForever : kTimeout)) {}

  void listen() {
    for (const std::string_view role :
         {Role::kLearner, Role::kCollector, Role::kEvaluator, Role::kFetcher}) {
      if (task_.has_role(role)) continue;
      task_.on(event_of(role), [weak = weak_from_this()](const Fields& payload) {
        if (const auto self = weak.lock()) self->put(payload);
      });
    }
  }

  void run(OnlineRLContext& ctx) {
    if (!told_) told_ = {ctx.env_step, ctx.env_episode};
    merge(ctx);
    suspend();
    send(ctx);
  }

 private:
  static std::string event_of(std::string_view role) { return fmt::format("{}_{}", kName, role); }

  // A payload counts as a whole or, if a field has a wrong type, not at all.
  void put(const Fields& payload) {
    Received one;
    for (const auto& [key, value] : payload) {
      if (value.is_nil()) continue;
      if (key == "trajectories") {
        if (learner_) one.trajectories = list_of(key, value);
      } else if (key == "episodes") {
        if (learner_) one.episodes = list_of(key, value);
      } else if (key == "trajectory_end_idx") {
        if (learner_) one.end_idx = value.as<std::vector<std::int64_t>>();
      } else if (key == "env_step") {
        if (!collector_) one.env_step = value.as<std::int64_t>();
      } else if (key == "env_episode") {
        if (!collector_) one.env_episode = value.as<std::int64_t>();
      } else if (key == "train_iter") {
        if (!learner_) one.train_iter = value.as<std::int64_t>();
      } else {
        log::warning("{}: the field '{}' came, which is not exchanged", kName, log::printable(key));
        continue;
      }
      one.any = one.any || is_taken(key);
    }
    if (one.any) add(std::move(one));
  }

  bool is_taken(std::string_view key) const {
    if (key == "train_iter") return !learner_;
    if (key == "env_step" || key == "env_episode") return !collector_;
    return learner_;
  }

  void add(Received one) {
    const std::lock_guard lock(arrival_.mutex);
    received_.any = true;
    if (one.end_idx) {
      const std::size_t before = received_.trajectories ? received_.trajectories->size() : 0;
      if (options_.shift_end_indices) {
        for (std::int64_t& index : *one.end_idx) index += static_cast<std::int64_t>(before);
      }
      append(received_.end_idx, std::move(*one.end_idx));
    }
    if (one.trajectories) append(received_.trajectories, std::move(*one.trajectories));
    if (one.episodes) append(received_.episodes, std::move(*one.episodes));
    received_.env_step += one.env_step;
    received_.env_episode += one.env_episode;
    if (one.train_iter) received_.train_iter = one.train_iter;
    arrival_.tell();
  }

  void merge(OnlineRLContext& ctx) {
    std::unique_lock lock(arrival_.mutex);
    if (learner_ || ctx.total_step >= options_.skip_n_iter) {
      const auto woken = arrival_.wait(task_, lock, timeout_, [this] { return received_.any; });
      if (woken == Arrival::Woken::kTimeout) {
        log::warning("{}: nothing came within {:.0f} s; node {} goes on without", kName,
                     std::chrono::duration<double>(timeout_).count(),
                     Parallel::instance().node_id());
      }
    }
    Received taken = std::exchange(received_, {});
    lock.unlock();
    if (taken.trajectories) ctx.trajectories = Value(std::move(*taken.trajectories));
    if (taken.episodes) ctx.episodes = Value(std::move(*taken.episodes));
    if (taken.end_idx) ctx.trajectory_end_idx = std::move(*taken.end_idx);
    ctx.env_step += taken.env_step;
    ctx.env_episode += taken.env_episode;
    if (taken.train_iter) ctx.train_iter = *taken.train_iter;
  }

  void send(const OnlineRLContext& ctx) {
    std::map<std::string, Attribute> payload;
    if (collector_) {
      if (ctx.trajectories) payload["trajectories"] = ctx.trajectories;
      if (ctx.episodes) payload["episodes"] = ctx.episodes;
      if (!ctx.trajectory_end_idx.empty()) payload["trajectory_end_idx"] = ctx.trajectory_end_idx;
      payload["env_step"] = ctx.env_step - told_->first;
      payload["env_episode"] = ctx.env_episode - told_->second;
      told_ = {ctx.env_step, ctx.env_episode};
    }
    if (learner_) payload["train_iter"] = ctx.train_iter;
    if (payload.empty()) return;
    for (const std::string& role : task_.roles()) {
      task_.emit(event_of(role), only_remote, payload);
    }
  }

  // Constant after construction.
  Task& task_;
  const ContextExchangerOptions options_;
  const bool learner_;
  const bool collector_;
  const std::chrono::nanoseconds timeout_;

  // Of the thread that runs the middleware: env_step and env_episode as told last.
  std::optional<std::pair<std::int64_t, std::int64_t>> told_;

  Arrival arrival_;
  Received received_;  // guarded by arrival_.mutex
};

}  // namespace

Middleware context_exchanger(ContextExchangerOptions options, Task& owner) {
  if (!runtime::has_exchange(owner, kName)) return VoidMiddleware{};
  auto exchanger = std::make_shared<ContextExchanger>(options, owner);
  exchanger->listen();
  return named(std::string(kName),
               [exchanger = std::move(exchanger)](OnlineRLContext& ctx) { exchanger->run(ctx); });
}

}  // namespace divisi
