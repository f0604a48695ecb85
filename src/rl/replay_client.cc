#include "rl/replay_client.h"

#include "base/deadline.h"
#include "divisi/node_restarts.h"
#include "divisi/parallel.h"
#include "rl/listeners.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <string>
#include <utility>

namespace divisi::rl {

namespace {

constexpr auto kLookAgain = std::chrono::milliseconds(50);  // whether to give up
// Others of a job link with a node that came back within milliseconds.
constexpr auto kLeftAlone = std::chrono::seconds(5);
constexpr std::size_t kUnderWay = 2;  // inserts, or requests

// A later life of this node begins above everything this one sends.
std::int64_t first_number() {
  return std::chrono::duration_cast<std::chrono::microseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

// Where the replay is, and how to wait for it. Shared with the listeners, which may still run when
// their owner is gone.
class Connection {
 public:
  Connection(Parallel& its_router, int observation_size, GiveUp give_up)
      : router(its_router), observation_size_(observation_size), give_up_(std::move(give_up)) {}
  virtual ~Connection() = default;
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  static void listen(const std::shared_ptr<Connection>& self, Listeners& listeners) {
    listeners.on("replay.here", [self](int node, std::int64_t life) { self->on_here(node, life); });
    listeners.on("replay.welcome", [self] {
      std::unique_lock lock(self->mutex);
      self->welcome = true;
      self->go_on(lock);
      self->changed.notify_all();
    });
    listeners.on("replay.refused", [self](std::string why) {
      const std::lock_guard lock(self->mutex);
      self->refused = std::move(why);
      self->changed.notify_all();
    });
  }

  bool greet(std::chrono::milliseconds timeout) {
    const auto deadline = deadline_after(timeout);
    auto last_seen = std::chrono::steady_clock::now();  // anybody
    std::unique_lock lock(mutex);
    while (!changed.wait_for(lock, kLookAgain, [&] { return welcome || !refused.empty(); })) {
      if (router.interrupted()) return true;
      const auto now = std::chrono::steady_clock::now();
      if (node_restarts() == 0 || !router.peers().empty()) last_seen = now;
      if (now - last_seen > kLeftAlone) return false;
      if (now < deadline) continue;
      throw TimeoutError("no replay has announced itself in " +
                         std::to_string(timeout.count() / 1000) +
                         " s: is there a node with the role replay, and is this one linked to it?");
    }
    if (!refused.empty()) throw UsageError(refused);
    return true;
  }

  // Under the mutex. True once it holds; false: give up. Throws what the replay refused us for.
  template <class Condition>
  bool wait(std::unique_lock<std::mutex>& lock, const Condition& holds) {
    while (!changed.wait_for(lock, kLookAgain, [&] { return !refused.empty() || holds(); })) {
      lock.unlock();
      const bool enough = give_up_ && give_up_();
      lock.lock();
      if (enough) return false;
    }
    if (!refused.empty()) throw UsageError(refused);
    return true;
  }

  // Not under the mutex. False: the replay has just gone, and will announce itself again.
  template <class... A>
  bool send(int to, std::string_view event, const A&... args) {
    try {
      router.emit_to({.to = Target::to_node(to)}, event, args...);
      return true;
    } catch (const Error&) {
      return false;
    }
  }

  Parallel& router;
  std::mutex mutex;
  std::condition_variable changed;
  // All below: guarded by mutex.
  int node = -1;         // of the replay; -1: not known yet
  bool welcome = false;  // it has said so
  std::string refused;

 private:
  // The replay that `node` names takes us: what its predecessor has not answered is sent again.
  // Under the mutex, which may be released meanwhile.
  virtual void go_on(std::unique_lock<std::mutex>& lock) = 0;

  void on_here(int at, std::int64_t life) {
    {
      const std::lock_guard lock(mutex);
      if (node == at && life_ == life) return;  // told again because a link was
      node = at;
      life_ = life;
      welcome = false;
    }
    send(at, "replay.hello", router.node_id(), kReplayProtocol, observation_size_);
  }

  const int observation_size_;
  const GiveUp give_up_;
  std::int64_t life_ = 0;  // guarded by mutex
};

}  // namespace

LocalReplay::LocalReplay(ReplayServer& server, int rows, GiveUp give_up)
    : server_(server), rows_(rows), give_up_(std::move(give_up)) {}

bool LocalReplay::push(const Transitions& transitions, const Collected& collected) {
  return server_.insert(transitions, collected, give_up_);
}

std::optional<Samples> LocalReplay::next() {
  return server_.sample(rows_, give_up_);
}

void LocalReplay::update_priorities(const Samples& samples, std::span<const float> errors) {
  server_.update_priorities(samples, errors);
}

std::int64_t LocalReplay::env_step() const {
  return server_.totals().env_step;
}

// --- collectors ---

class RemoteSink::State final : public Connection {
 public:
  using Connection::Connection;

  static void listen(const std::shared_ptr<State>& self, Listeners& listeners) {
    Connection::listen(self, listeners);
    listeners.on("replay.inserted", [self](std::int64_t number, std::int64_t env_step) {
      const std::lock_guard lock(self->mutex);
      // Answers come in the order of the inserts.
      while (!self->unanswered_.empty() && self->unanswered_.front().number <= number) {
        self->unanswered_.pop_front();
      }
      self->env_step_ = std::max(self->env_step_.load(), env_step);
      self->changed.notify_all();
    });
  }

  bool push(const Transitions& transitions, const Collected& collected) {
    std::unique_lock lock(mutex);
    if (!wait(lock, [&] { return welcome && unanswered_.size() < kUnderWay; })) return false;
    unanswered_.push_back({++number_, transitions, collected});
    const Insert insert = unanswered_.back();
    const int to = node;
    lock.unlock();
    send_insert(to, insert);
    return true;
  }

  std::int64_t env_step() const { return env_step_; }

 private:
  struct Insert {
    std::int64_t number = 0;
    Transitions transitions;
    Collected collected;
  };

  void go_on(std::unique_lock<std::mutex>& lock) override {
    const std::deque<Insert> again = unanswered_;
    const int to = node;
    lock.unlock();
    for (const Insert& insert : again) send_insert(to, insert);
    lock.lock();
  }

  void send_insert(int to, const Insert& insert) {
    send(to, "replay.insert", router.node_id(), insert.number, insert.transitions,
         insert.collected.env_steps, insert.collected.episodes, insert.collected.return_sum);
  }

  std::atomic<std::int64_t> env_step_{0};
  // Guarded by mutex.
  std::int64_t number_ = first_number();
  std::deque<Insert> unanswered_;
};

RemoteSink::RemoteSink(Parallel& router, int observation_size, GiveUp give_up)
    : state_(std::make_shared<State>(router, observation_size, std::move(give_up))),
      listeners_(std::make_unique<Listeners>(router)) {
  State::listen(state_, *listeners_);
}

RemoteSink::~RemoteSink() = default;

bool RemoteSink::greet(std::chrono::milliseconds timeout) {
  return state_->greet(timeout);
}

bool RemoteSink::push(const Transitions& transitions, const Collected& collected) {
  return state_->push(transitions, collected);
}

std::int64_t RemoteSink::env_step() const {
  return state_->env_step();
}

// --- learners ---

class RemoteSource::State final : public Connection {
 public:
  State(Parallel& its_router, SampleShape shape, GiveUp give_up)
      : Connection(its_router, shape.observation_size, std::move(give_up)), shape_(shape) {}

  static void listen(const std::shared_ptr<State>& self, Listeners& listeners) {
    Connection::listen(self, listeners);
    listeners.on("replay.samples", [self](std::int64_t number, Samples samples, std::int64_t step) {
      const std::lock_guard lock(self->mutex);
      // Of a request that an earlier life of this node made: not ours.
      if (number <= self->answered_ || number > self->number_) return;
      self->answered_ = number;
      self->env_step_ = std::max(self->env_step_.load(), step);
      self->ready_.push_back(std::move(samples));
      self->changed.notify_all();
    });
  }

  std::optional<Samples> next() {
    std::unique_lock lock(mutex);
    if (!wait(lock, [&] { return welcome; })) return std::nullopt;
    request_more(lock);
    if (!wait(lock, [&] { return !ready_.empty(); })) return std::nullopt;
    Samples samples = std::move(ready_.front());
    ready_.pop_front();
    if (welcome) request_more(lock);
    lock.unlock();
    checked_rows(samples, shape_.observation_size, shape_.action_count);
    return samples;
  }

  void update_priorities(const Samples& samples, std::span<const float> errors) {
    std::unique_lock lock(mutex);
    const int to = node;
    lock.unlock();
    const auto rows = static_cast<std::int64_t>(errors.size());
    send(to, "replay.priorities", samples.index, Tensor::copy_of<float>({rows}, errors));
  }

  std::int64_t env_step() const { return env_step_; }

 private:
  void go_on(std::unique_lock<std::mutex>& lock) override {
    answered_ = number_;  // what its predecessor was asked for is asked for again
    request_more(lock);
  }

  // Under the mutex, which is released while sending.
  void request_more(std::unique_lock<std::mutex>& lock) {
    const std::int64_t under_way = number_ - answered_;
    const auto have = static_cast<std::size_t>(under_way) + ready_.size();
    for (std::size_t i = have; i < kUnderWay; ++i) {
      const std::int64_t number = ++number_;
      const int to = node;
      lock.unlock();
      send(to, "replay.sample", router.node_id(), number, shape_.batch_size, shape_.batches);
      lock.lock();
    }
  }

  const SampleShape shape_;
  std::atomic<std::int64_t> env_step_{0};
  // Guarded by mutex.
  std::int64_t number_ = first_number();  // of the last request
  std::int64_t answered_ = number_;       // all up to here
  std::deque<Samples> ready_;
};

RemoteSource::RemoteSource(Parallel& router, SampleShape shape, GiveUp give_up)
    : state_(std::make_shared<State>(router, shape, std::move(give_up))),
      listeners_(std::make_unique<Listeners>(router)) {
  State::listen(state_, *listeners_);
}

RemoteSource::~RemoteSource() = default;

bool RemoteSource::greet(std::chrono::milliseconds timeout) {
  return state_->greet(timeout);
}

std::optional<Samples> RemoteSource::next() {
  return state_->next();
}

void RemoteSource::update_priorities(const Samples& samples, std::span<const float> errors) {
  state_->update_priorities(samples, errors);
}

std::int64_t RemoteSource::env_step() const {
  return state_->env_step();
}

}  // namespace divisi::rl
