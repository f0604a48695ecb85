// Network: the router of this process (router.h), made active by a runner for the time of `main`.
#pragma once

#include "divisi/event.h"
#include "io/reactor.h"
#include "mesh/node.h"
#include "runtime/barrier.h"
#include "runtime/calls.h"
#include "runtime/job_follower.h"
#include "runtime/router.h"
#include "runtime/worker_config.h"

#include <array>
#include <atomic>
#include <cstddef>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <stop_token>
#include <string>
#include <vector>

namespace divisi::runtime {

class Network final : public Router {
 public:
  // One membership in a job. Once closed it only refuses, and is freed as soon as no Pin protects
  // it: threads that the user left behind may still be inside of it.
  struct Membership {
    explicit Membership(WorkerConfig worker) : config(std::move(worker)) {}
    const WorkerConfig config;
    std::atomic<int> retries{0};  // written between two attempts
    std::atomic<bool> main_returned{false};
    EventLoop events{"router"};  // listeners of Parallel::on
    EventLoop internal{"router.internal"};
    std::mutex listeners_mutex;  // who asks what `events` has tells the peers before another asks
    std::unique_ptr<mesh::Node> node;
    std::unique_ptr<Calls> calls;
    std::unique_ptr<Barrier> barrier;
    std::unique_ptr<JobFollower> follower;  // loop only; null outside of a DIJob
    bool ended = false;                     // guarded by mutex_ of the network
    std::atomic<bool> complete{false};      // set once all of the above are there
    std::mutex labels_mutex;
    std::map<const void*, std::set<std::string>> task_labels;  // guarded by labels_mutex
    std::stop_source interruption;      // requested when this process is asked to end
    std::atomic<bool> hub_lost{false};  // and hub_lost says finish: for tasks not yet started
  };

  // Keeps memberships from being freed while a thread looks at one. To take and to drop one costs
  // an addition on a cache line that few threads share. Points to the membership, or to nothing.
  class Pin {
   public:
    Pin(std::atomic<int>& count, const std::atomic<Membership*>& which)
        : count_(count), job_((count.fetch_add(1), which.load())) {}
    ~Pin() { count_.fetch_sub(1); }
    Pin(const Pin&) = delete;
    Pin& operator=(const Pin&) = delete;
    explicit operator bool() const noexcept { return job_ != nullptr; }
    bool operator==(std::nullptr_t) const noexcept { return job_ == nullptr; }
    Membership* operator->() const noexcept { return job_; }
    Membership& operator*() const noexcept { return *job_; }

   private:
    std::atomic<int>& count_;
    Membership* const job_;
  };

  static Network& instance();

  // What a worker's life consists of (worker.h, WorkerHooks).
  Status activate(const WorkerConfig& config);
  Status deactivate(bool failed);
  void main_returned();
  void next_attempt(int retries);
  std::exception_ptr take_unseen_error();
  // A signal, or the launcher: joining ends, tasks finish, waits end.
  void request_finish();
  void forget_finish() { finish_requested_.store(false); }
  void peer_died(int node_id, const std::string& address);
  // In a child of fork(): inactive from here on; what the parent had is left as it was.
  void forked() noexcept {
    is_fork_.store(true);
    active_.store(nullptr);
    joining_.store(nullptr);
  }

  // The loop of this process, made on first use and kept: its threads are the process's.
  io::Reactor& reactor();

  // Null while inactive.
  Pin membership() const { return pin(active_); }
  // How many memberships take memory: at most one, but for those that were in use at their end.
  std::size_t kept() const;

  bool is_active() const override { return active_.load() != nullptr; }
  int node_id() const override;
  int local_id() const override;
  std::set<std::string> labels() const override;
  int attach_to_count() const override;
  void send(std::string_view topic, const PayloadView& payload,
            const SendOptions& options) override;
  void subscribe(std::string_view topic, std::string_view event,
                 std::shared_ptr<event::LoopCore> loop) override;
  bool begin_catch_up() override;
  void catch_up(std::string_view topic, std::string_view event,
                const std::shared_ptr<event::LoopCore>& loop, ListenerId id) override;
  void cancel_catch_up() override;
  void unsubscribe(std::string_view topic, const event::LoopCore* loop) override;
  void unsubscribe_all(const event::LoopCore* loop) override;
  void ready() override;
  bool flush(std::chrono::milliseconds deadline) override;
  bool flush_at_end(std::chrono::milliseconds silence) override;
  void welcome_newcomers(bool welcome) override;
  void announce_role(std::string role) override;
  void announce_labels(const void* task, std::set<std::string> labels) override;
  bool will_retry() const override;
  bool interrupted() const override;
  bool must_finish() const override;

 private:
  Network() = default;
  static void finish_tasks(Membership& job);
  void tell_of_death(Membership& job, int node_id, const std::string& address);
  Status join(Membership& job);
  std::vector<mesh::GivenUp> leave(Membership& job, const mesh::EndLimits& limits);
  void free_ended();  // mutex_ held
  Pin pin(const std::atomic<Membership*>& which) const;
  void add_peers_to_barrier(Membership& job);
  void peer_changed(Membership& job, mesh::PeerChange change, const mesh::PeerInfo& peer);

  std::atomic<Membership*> active_{nullptr};   // into memberships_
  std::atomic<Membership*> joining_{nullptr};  // the same, while activate() waits for peers
  std::atomic<Membership*> leaving_{nullptr};  // the same, while deactivate() waits for peers
  std::atomic<bool> finish_requested_{false};  // looked at after each change of those above
  std::mutex early_mutex_;                     // inside mutex_
  // Guarded by early_mutex_: siblings that died before this process had a node.
  std::vector<std::pair<int, std::string>> died_early_;
  std::once_flag reactor_made_;
  std::unique_ptr<io::Reactor> reactor_;  // constant once made
  std::atomic<bool> is_fork_{false};
  struct alignas(64) PinCount {  // a cache line
    std::atomic<int> count{0};
  };
  // Threads are spread over them, so that those who emit do not write to one line.
  mutable std::array<PinCount, 32> pins_;
  mutable std::mutex mutex_;
  // Guarded by mutex_.
  std::exception_ptr unseen_error_;  // of the last job's router listeners
  std::vector<std::unique_ptr<Membership>> memberships_;
};

}  // namespace divisi::runtime
