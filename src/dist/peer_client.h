// PeerClient: calls to one peer of the protocol, with its channel and token, retried when the peer
// cannot be reached.
//
// Loop only. The destructor ends all calls without callbacks; it may run inside a callback.
#pragma once

#include "dist/envelope.h"
#include "dist/protocol.h"
#include "http/client.h"
#include "io/reactor.h"

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

namespace divisi::dist {

// "host:port" or "http://host:port".
Result<http::Url> parse_peer_url(std::string_view text);

class PeerClient {
 public:
  using Done = std::function<void(Result<PeerReply>)>;

  struct Options {
    http::Url url{};
    int channel = 0;
    std::string token{};
    RetryOptions retry{};
    std::size_t max_body_bytes = kMaxBodyBytes;
  };

  PeerClient(io::Reactor& reactor, Options options);

  // `done` gets every answer, whatever its status; a failure when there was none. A POST is sent
  // again only when its connection failed; other methods also after a time-out.
  void call(std::string method, std::string target, const json::Value& body, Done done);
  void call_once(std::string method, std::string target, const json::Value& body, Done done);

 private:
  struct Pending {
    http::Request request{};
    Done done{};
    int retries_left = 0;
    std::unique_ptr<http::Call> call{};
    std::unique_ptr<io::Timer> pause{};
  };

  void start(std::string method, std::string target, const json::Value& body, int retries,
             Done done);
  void attempt(std::uint64_t id);
  void on_answer(std::uint64_t id, Result<http::Response> answer);

  io::Reactor& reactor_;
  const Options options_;
  std::map<std::uint64_t, Pending> pending_;
  std::uint64_t next_ = 0;
  std::unique_ptr<http::Client> client_;  // last: it ends its calls first
};

}  // namespace divisi::dist
