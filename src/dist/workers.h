// Workers: the collectors and learners of a coordinator, from the first try to connect until they
// are gone, and which of them are idle.
//
// A worker joins when POST /connect and a `resource` task succeeded. One that cannot be joined
// within the limit is put into the failed set, for di-server. Loop only; hooks run on the loop, not
// inside a call of this class.
#pragma once

#include "dist/commander.h"
#include "dist/coordinator_log.h"
#include "dist/master.h"
#include "io/reactor.h"

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace divisi::dist {

struct WorkersOptions {
  io::Duration connect_retry{};
  io::Duration connect_limit{};
  io::Duration resource_limit{};
  bool ask_resource = true;  // false: connected is enough (an aggregator's learners)
};

class Workers {
 public:
  struct Hooks {
    std::function<void(Role, const std::string& url)> on_joined{};  // for the first time
    std::function<void(Role, const std::string& url)> on_idle{};    // also after a task
    std::function<void(Role, const std::string& url)> on_gone{};    // had joined
    std::function<void(Role, const std::string& url)> on_failed{};  // is in the failed set now
  };
  struct Idle {
    std::string url;
    json::Value resource;
  };

  Workers(io::Reactor& reactor, Master& master, const CoordinatorLog& log, WorkersOptions options,
          Hooks hooks);

  // Exactly these shall be connected: new ones are, the others are disconnected. Those in the
  // failed set are left alone.
  void want(Role role, const std::vector<std::string>& urls);

  // One of the idle ones, at random; busy from now on.
  std::optional<Idle> take(Role role);
  // A task of it has ended: idle again when it answers a `resource` task.
  void release(const std::string& url);
  // The master lost it.
  void on_lost(const std::string& url);

  // Nobody is wanted any more; the master disconnects them.
  void clear() { workers_.clear(); }

  std::size_t joined(Role role) const;
  std::size_t joining(Role role) const;  // tried, and neither joined nor failed yet
  std::vector<std::string> joined_urls(Role role) const;
  bool is_joined(const std::string& url) const;
  const std::set<std::string>& failed(Role role) const { return failed_[index(role)]; }
  // Those that were listed, or expected, and are not listed any more, whoever took them away:
  // di-server knows whether they shall be made again.
  const std::set<std::string>& unlisted(Role role) const { return unlisted_[index(role)]; }
  // di-server has made these; the next list should have them.
  void expect(Role role, const std::vector<std::string>& urls) {
    known_[index(role)].insert(urls.begin(), urls.end());
  }
  // What was reported to di-server.
  void forget_failed(Role role, const std::vector<std::string>& urls);
  // These were given back: nobody misses them.
  void forget_known(Role role, const std::vector<std::string>& urls) {
    for (const std::string& url : urls) known_[index(role)].erase(url);
  }
  void forget_unlisted() { unlisted_[0].clear(), unlisted_[1].clear(); }

 private:
  enum class State { kConnecting, kChecking, kWaiting, kIdle, kBusy };
  struct Worker {
    std::string url;
    Role role = Role::kCollector;
    State state = State::kConnecting;
    bool joined = false;
    bool complained = false;
    io::TimePoint since{};  // the first try
    json::Value resource;
    std::unique_ptr<io::Timer> retry;
  };
  using WorkerPtr = std::shared_ptr<Worker>;
  static std::size_t index(Role role) { return role == Role::kCollector ? 0 : 1; }

  void add(Role role, const std::string& url);
  void drop(const std::string& url);
  void erase(const WorkerPtr& worker);
  void connect(const WorkerPtr& worker);
  void check_resource(const WorkerPtr& worker);
  void retry_later(const WorkerPtr& worker, const std::string& why);
  void become_idle(const WorkerPtr& worker);

  io::Reactor& reactor_;
  Master& master_;
  const CoordinatorLog& log_;
  const WorkersOptions options_;
  const Hooks hooks_;
  std::map<std::string, WorkerPtr> workers_;
  std::set<std::string> failed_[2];
  std::set<std::string> known_[2];  // listed or expected
  std::set<std::string> unlisted_[2];
};

}  // namespace divisi::dist
