// Transport: what carries a client's requests, either the network or a simulation in memory.
#pragma once

#include "base/status.h"
#include "http/client.h"
#include "io/reactor.h"

#include <memory>
#include <string>

namespace divisi::kube {

struct Config;
class Metrics;

// Each lane has connections of its own, so that watches do not take those of the calls, and
// renewing a lease never waits behind either.
enum class Lane { kCall, kWatch, kLease };
inline constexpr int kLanes = 3;

// Loop only. The same contract as http::Client::send().
class Transport {
 public:
  virtual ~Transport() = default;
  // Every answer is counted there, under its method and status; null: no longer.
  void count_answers(Metrics* metrics) noexcept { metrics_ = metrics; }
  [[nodiscard]] virtual std::unique_ptr<http::Call> send(
      Lane lane, http::Request request, http::CallOptions options,
      std::shared_ptr<http::ResponseHandler> handler) = 0;

 protected:
  // Status 0: there was none.
  void answered(const std::string& method, int status);

 private:
  Metrics* metrics_ = nullptr;
};

struct TransportOptions {
  // Calls in flight. The server's own fair queuing gives one client no more than some hundred.
  std::size_t max_calls = 64;
  std::string user_agent = "divisi";
  // A path whose peer acknowledges nothing for so long is given up.
  io::Duration dead_after = std::chrono::seconds(30);
};

// The network: TLS, proxies, credentials that are kept fresh. An answer 401 makes it ask for
// credentials once more and repeat the request.
Result<std::unique_ptr<Transport>> connect(io::Reactor& reactor, const Config& config,
                                           TransportOptions options = {});

}  // namespace divisi::kube
