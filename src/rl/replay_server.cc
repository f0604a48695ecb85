#include "rl/replay_server.h"

#include "divisi/parallel.h"
#include "rl/listeners.h"
#include "rl/saved_file.h"

#include <fmt/format.h>

#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>

namespace divisi::rl {

namespace {

constexpr auto kLookAgain = std::chrono::milliseconds(50);  // whether to give up
constexpr std::string_view kKind = "replay";
constexpr int kMostRows = 1 << 20;  // of one request: what it may make us allocate

std::int64_t now_in_microseconds() {
  return std::chrono::duration_cast<std::chrono::microseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

// What a checkpoint holds besides the rows.
struct Progress {
  std::int64_t env_step = 0;
  std::int64_t env_episode = 0;
  double return_sum = 0;
  std::int64_t inserted = 0;
  std::int64_t sampled = 0;
  std::map<std::string, std::int64_t> last_insert;  // of each node
};
DIVISI_FIELDS(Progress, env_step, env_episode, return_sum, inserted, sampled, last_insert)

}  // namespace

class ReplayServer::State : public std::enable_shared_from_this<ReplayServer::State> {
 public:
  explicit State(const ReplayServerOptions& options)
      : path_(options.checkpoint), buffer_(options.buffer, options.seed), limiter_(options.limit) {
    if (path_.empty()) return;
    auto saved = load_file<Progress, Buffer>(path_, kKind);
    if (!saved) return;
    auto& [progress, rows] = *saved;
    try {
      buffer_.restore(rows.bytes());
    } catch (const UsageError& error) {
      throw UsageError(
          fmt::format("{}: {}; give the same keys, or another folder", path_, error.what()));
    }
    limiter_.restore(progress.inserted, progress.sampled);
    progress_ = std::move(progress);
  }

  void listen(Parallel& router, Listeners& listeners) {
    router_ = &router;
    const auto self = shared_from_this();
    listeners.on("replay.insert",
                 [self](int node, std::int64_t number, const Transitions& rows,
                        std::int64_t env_steps, std::int64_t episodes, double return_sum) {
                   self->on_insert(node, number, rows, {env_steps, episodes, return_sum});
                 });
    listeners.on("replay.sample", [self](int node, std::int64_t request, int batch, int batches) {
      self->on_sample({node, request, std::int64_t{batch} * batches});
    });
    listeners.on("replay.priorities", [self](const Tensor& index, const Tensor& errors) {
      const std::lock_guard lock(self->mutex_);
      self->buffer_.update_priorities(index.view<std::int64_t>(), errors.view<float>());
    });
    listeners.on("replay.hello", [self](int node, int protocol, int observation_size) {
      self->on_hello(node, protocol, observation_size);
    });
    for (const char* const change : {"peer_joined", "peer_back"}) {
      listeners.on(change, [self](int node) { self->announce(Target::to_node(node)); });
    }
    // Not of one that is lost: it may come back, and waits for its answers.
    listeners.on("peer_left", [self](int node) { self->forget(node); });
    announce(Target::all());
  }

  bool insert(const Transitions& rows, const Collected& collected, const GiveUp& give_up) {
    std::unique_lock lock(mutex_);
    if (!wait(lock, give_up, [&] { return limiter_.may_insert(); })) return false;
    add(rows, collected);
    answer_waiting(lock);
    return true;
  }

  std::optional<Samples> sample(int rows, const GiveUp& give_up) {
    std::unique_lock lock(mutex_);
    limiter_.widen(rows);
    if (!wait(lock, give_up, [&] { return limiter_.may_sample(rows); })) return std::nullopt;
    Samples samples = draw(rows);
    answer_waiting(lock);
    return samples;
  }

  void update_priorities(std::span<const std::int64_t> index, std::span<const float> errors) {
    const std::lock_guard lock(mutex_);
    buffer_.update_priorities(index, errors);
  }

  ReplayTotals totals() const {
    const std::lock_guard lock(mutex_);
    return {.env_step = progress_.env_step,
            .env_episode = progress_.env_episode,
            .return_sum = progress_.return_sum,
            .inserted = limiter_.inserted(),
            .sampled = limiter_.sampled(),
            .size = buffer_.size()};
  }

  void save() const {
    if (path_.empty()) return;
    Progress progress;
    Buffer rows;
    {
      const std::lock_guard lock(mutex_);
      progress = progress_;
      progress.inserted = limiter_.inserted();
      progress.sampled = limiter_.sampled();
      rows = Buffer::copy_of(buffer_.save());
    }
    // The disk is slow: nobody waits for it.
    save_file(path_, kKind, progress, rows);
  }

 private:
  struct Insert {
    int node = 0;
    std::int64_t number = 0;
  };
  struct Request {
    int node = 0;
    std::int64_t number = 0;
    std::int64_t rows = 0;
  };

  void on_insert(int node, std::int64_t number, const Transitions& rows,
                 const Collected& collected) {
    std::unique_lock lock(mutex_);
    std::int64_t& last = progress_.last_insert[std::to_string(node)];
    // One that was sent again because our answer died with an earlier life of ours.
    if (number > last) {
      try {
        add(rows, collected);
      } catch (const UsageError& error) {
        lock.unlock();
        send(node, "replay.refused", std::string(error.what()));
        return;
      }
      last = number;
    }
    inserts_.push_back({node, number});
    answer_waiting(lock);
  }

  void on_sample(const Request& request) {
    if (request.rows < 1 || request.rows > kMostRows) {
      send(request.node, "replay.refused",
           fmt::format("a sample of {} rows: 1 to {}", request.rows, kMostRows));
      return;
    }
    std::unique_lock lock(mutex_);
    limiter_.widen(request.rows);
    requests_.push_back(request);
    answer_waiting(lock);
  }

  void on_hello(int node, int protocol, int observation_size) {
    if (protocol != kReplayProtocol) {
      send(node, "replay.refused",
           fmt::format("node {} speaks version {} of the replay's events, this replay version {}: "
                       "build both from the same source",
                       node, protocol, kReplayProtocol));
    } else if (observation_size != buffer_.options().observation_size) {
      send(node, "replay.refused",
           fmt::format("node {} has observations of {} numbers, this replay holds {}: do both have "
                       "the same env.name?",
                       node, observation_size, buffer_.options().observation_size));
    } else {
      send(node, "replay.welcome");
    }
  }

  // False: it has left again; whoever comes next is told as well.
  bool announce(const Target& to) { return send_to(to, "replay.here", router_->node_id(), life_); }

  void forget(int node) {
    const std::lock_guard lock(mutex_);
    std::erase_if(inserts_, [&](const Insert& each) { return each.node == node; });
    std::erase_if(requests_, [&](const Request& each) { return each.node == node; });
  }

  void add(const Transitions& rows, const Collected& collected) {
    const std::int64_t before = buffer_.inserted();
    buffer_.insert(rows);
    limiter_.inserted(buffer_.inserted() - before);
    progress_.env_step += collected.env_steps;
    progress_.env_episode += collected.episodes;
    progress_.return_sum += collected.return_sum;
  }

  Samples draw(std::int64_t rows) {
    limiter_.sampled(rows);
    return buffer_.sample(static_cast<int>(rows));
  }

  // Everything that the limiter lets go on now, until nothing changes.
  void answer_waiting(std::unique_lock<std::mutex>& lock) {
    changed_.notify_all();
    while (true) {
      const std::int64_t env_step = progress_.env_step;
      if (!inserts_.empty() && limiter_.may_insert()) {
        const Insert insert = inserts_.front();
        inserts_.pop_front();
        lock.unlock();
        send(insert.node, "replay.inserted", insert.number, env_step);
      } else if (!requests_.empty() && limiter_.may_sample(requests_.front().rows)) {
        const Request request = requests_.front();
        requests_.pop_front();
        const Samples samples = draw(request.rows);
        lock.unlock();
        send(request.node, "replay.samples", request.number, samples, env_step);
      } else {
        return;
      }
      lock.lock();
      changed_.notify_all();
    }
  }

  // False: the node has left meanwhile, and nobody waits for this.
  template <class... A>
  bool send(int node, std::string_view event, const A&... args) {
    return send_to(Target::to_node(node), event, args...);
  }
  template <class... A>
  bool send_to(const Target& to, std::string_view event, const A&... args) {
    try {
      router_->emit_to({.to = to}, event, args...);
      return true;
    } catch (const Error&) {
      return false;
    }
  }

  // Asks whether to give up before it waits, and again and again while it does.
  template <class Condition>
  bool wait(std::unique_lock<std::mutex>& lock, const GiveUp& give_up, const Condition& holds) {
    while (!holds()) {
      lock.unlock();
      const bool enough = give_up && give_up();
      lock.lock();
      if (enough) return holds();
      changed_.wait_for(lock, kLookAgain, holds);
    }
    return true;
  }

  const std::string path_;
  const std::int64_t life_ = now_in_microseconds();  // tells one process from its successor
  Parallel* router_ = nullptr;                       // set before the first listener

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  // All below: guarded by mutex_.
  ReplayBuffer buffer_;
  RateLimiter limiter_;
  Progress progress_;
  std::deque<Insert> inserts_;    // in the buffer, but not yet answered
  std::deque<Request> requests_;  // not yet answered
};

ReplayServer::ReplayServer(const ReplayServerOptions& options)
    : state_(std::make_shared<State>(options)) {}

ReplayServer::~ReplayServer() = default;

void ReplayServer::serve(Parallel& router) {
  listeners_ = std::make_unique<Listeners>(router);
  state_->listen(router, *listeners_);
}

bool ReplayServer::insert(const Transitions& transitions, const Collected& collected,
                          const GiveUp& give_up) {
  return state_->insert(transitions, collected, give_up);
}

std::optional<Samples> ReplayServer::sample(int rows, const GiveUp& give_up) {
  return state_->sample(rows, give_up);
}

void ReplayServer::update_priorities(const Samples& samples, std::span<const float> errors) {
  state_->update_priorities(samples.index.view<std::int64_t>(), errors);
}

ReplayTotals ReplayServer::totals() const {
  return state_->totals();
}

void ReplayServer::save() const {
  state_->save();
}

}  // namespace divisi::rl
