// Master: the coordinator's side of the interaction protocol. It knows slaves by the URL under
// which it connects to them, watches their heartbeats, and gives them tasks.
//
//   DIVISI_TRY(auto master, Master::start(reactor, {}));
//   master->connect("job-collector-pm5gv.default:22270", json::Object{}, [](Status status) {...});
//   master->new_task(url, json::Object{{"name", "resource"}}, {}, [](TaskReport report) {...});
//
// Loop only, callbacks too. Each slave has an HTTP client of its own: one that does not answer
// holds up nobody. Callbacks run once, never inside the call that got them, and not after the
// destructor.
#pragma once

#include "base/status.h"
#include "dist/protocol.h"
#include "io/address.h"
#include "io/reactor.h"
#include "json/value.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace divisi::dist {

enum class TaskState : std::uint8_t {
  kIdle = 0x00,
  kStarting = 0x11,     // POST /task/new is on its way
  kStarted = 0x12,      // the slave took it
  kStartFailed = 0x13,  // the slave did not take it, or cannot be reached
  kCompleted = 0x21,
  kFailed = 0x22,  // the slave said so, or is lost
};

struct TaskReport {
  TaskState state = TaskState::kIdle;  // one of the last three
  json::Value result{};                // of the slave; null when there is none
  std::string why{};                   // of a failure, for a log
  bool lost = false;                   // failed because the slave is gone
};

struct MasterOptions {
  io::Address bind{io::Address::Scheme::kTcp, "0.0.0.0", kMasterPort, {}};
  std::string announce{};  // own IP address or name for slaves; empty: own_address()
  int channel = 0;
  std::string self_token{};
  io::Duration check = std::chrono::seconds(1);       // at least 0.1 s
  io::Duration tolerance = std::chrono::seconds(17);  // a slave silent for longer is forgotten
  RetryOptions retry{};
  std::size_t max_body_bytes = kMaxBodyBytes;
  // A connected slave is gone without having been disconnected. Its tasks have failed already.
  std::function<void(const std::string& url)> on_lost{};
  std::function<void()> on_shutdown{};  // DELETE /shutdown with the self token
};

class Master {
 public:
  static Result<std::unique_ptr<Master>> start(io::Reactor& reactor, MasterOptions options);
  virtual ~Master() = default;

  virtual io::Address address() const = 0;
  virtual const std::string& announced() const = 0;  // "http://10.1.2.3:7235"
  virtual const std::string& self_token() const = 0;

  // One try, with retries of the connection. `url` is "host:port" or "http://host:port". Fails when
  // the slave refuses, cannot be reached, or is connected or being connected already.
  virtual void connect(const std::string& url, json::Value data,
                       std::function<void(Status)> done) = 0;
  // The slave is forgotten at once and its tasks fail; `done` runs when it has answered.
  virtual void disconnect(const std::string& url, std::function<void(Status)> done) = 0;
  virtual std::vector<std::string> slaves() const = 0;  // connected, in order of URL

  // Ends in one report. A slave that has not ended it within `limit` is lost; 0: no limit. A result
  // for a task that has ended already is accepted and dropped.
  virtual void new_task(const std::string& url, json::Value data, io::Duration limit,
                        std::function<void(TaskReport)> done) = 0;
  // POST /learners of the G0 aggregator: the URLs that it cannot use.
  virtual void send_learners(const std::string& url, const std::vector<std::string>& learners,
                             std::function<void(Result<std::vector<std::string>>)> done) = 0;

  // From now on every request is answered 401/101. Disconnects all slaves; then `done`.
  virtual void shutdown(std::function<void()> done) = 0;
};

// The first address of this machine that others can reach; "127.0.0.1" when there is none.
std::string own_address();

}  // namespace divisi::dist
