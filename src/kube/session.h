// Session: a cluster and a loop of its own, for programs and tests that wait for each call.
//
//   DIVISI_TRY(auto session, Session::open({.context = "staging"}));
//   auto pod = session->call([&](Done done) {
//     session->client().get(resources::pods(), "default", "web-0", {}, done);
//   });
//
// Not from the loop.
#pragma once

#include "base/status.h"
#include "io/reactor.h"
#include "kube/blocking.h"
#include "kube/client.h"
#include "kube/config.h"
#include "kube/discovery.h"

#include <functional>
#include <memory>
#include <string>

namespace divisi::kube {

class Session {
 public:
  static Result<std::unique_ptr<Session>> open(const ConfigOptions& options);
  ~Session();  // ends what runs, on the loop
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  Client& client() { return *client_; }
  io::Reactor& reactor() { return *reactor_; }
  const Config& config() const { return config_; }

  Result<Resource> find(const std::string& name);
  Result<Resource> find_kind(const std::string& api_version, const std::string& kind);
  Result<json::Value> get_path(const std::string& target, const std::string& accept = {});
  Result<json::Value> call(const std::function<void(Done)>& start) {
    return wait_for<json::Value>(*reactor_, start);
  }

 private:
  Session() = default;

  Config config_;
  std::unique_ptr<io::Reactor> reactor_;
  // Of the loop.
  std::unique_ptr<Transport> transport_;
  std::unique_ptr<Client> client_;
  std::unique_ptr<Discovery> discovery_;
};

}  // namespace divisi::kube
