// LeaderElection: of several processes, one leads; over a Lease object.
//
//   LeaderElection election(client, {.space = "di-system", .name = "di-operator", .identity = id},
//                           {.on_started = ..., .on_lost = [] { std::exit(1); }});
//
// Loop only. Give it a client of its own, on Lane::kLease and with a deadline below `renew_within`,
// so that renewing waits for nothing else. The holder renews every `retry_every`; who has not
// managed to for `renew_within` is no longer leader and must stop writing at once, before the
// others may take over after `duration` without a change. Their clocks need not agree: each counts
// from when it saw the change.
#pragma once

#include "kube/client.h"

#include <chrono>
#include <functional>
#include <memory>
#include <string>

namespace divisi::kube {

struct LeaseOptions {
  std::string space{};
  std::string name{};
  std::string identity{};  // unique among the processes
  std::chrono::seconds duration{15};
  std::chrono::seconds renew_within{10};  // shorter than duration
  std::chrono::seconds retry_every{2};
  // For tests that move time.
  std::function<std::chrono::system_clock::time_point()> wall_clock = [] {
    return std::chrono::system_clock::now();
  };
};

struct LeaseHandlers {
  std::function<void()> on_started{};
  std::function<void()> on_lost{};                               // not after stop()
  std::function<void(const std::string& identity)> on_leader{};  // whoever it is now
};

class LeaderElection {
 public:
  LeaderElection(Client& client, LeaseOptions options, LeaseHandlers handlers);
  ~LeaderElection();

  void start();
  // Gives the lease back so that the next one need not wait; `released` runs when that is done or
  // has failed. Stop writing before.
  void stop(std::function<void()> released);

  bool leads() const noexcept { return leads_; }

 private:
  void look();
  void seen(Result<json::Value> lease);
  void claim(json::Value lease, bool is_new);
  void claimed(Result<json::Value> lease, io::TimePoint asked);
  void check_deadline();
  void observe(const json::Value& lease);
  void again();
  void lose();
  json::Value spec(const json::Value& before, bool release) const;

  Client& client_;
  const LeaseOptions options_;
  const LeaseHandlers handlers_;

  bool leads_ = false;
  bool stopped_ = false;
  std::string holder_;    // as last told
  std::string observed_;  // holder, renewTime and transitions of the lease as last seen
  io::TimePoint observed_at_{};
  json::Value last_;  // the lease as last written or seen
  io::TimePoint renewed_at_{};
  std::unique_ptr<io::Timer> timer_;
  std::unique_ptr<io::Timer> deadline_;
  std::shared_ptr<bool> alive_;
};

}  // namespace divisi::kube
