#include "server/server.h"

#include "http/server.h"
#include "server/api.h"
#include "server/body.h"
#include "server/envelope.h"

#include <utility>

namespace divisi::server {
namespace {

class TwoPorts final : public Server {
 public:
  TwoPorts(kube::Client& client, std::unique_ptr<Authenticator> authenticator,
           ServerOptions options)
      : options_(std::move(options)),
        api_(client, options_.metrics == nullptr ? own_metrics_ : *options_.metrics,
             std::move(authenticator), {options_.space, options_.service_domain, options_.first}) {}

  Status listen(io::Reactor& reactor) {
    DIVISI_TRY_STATUS(open(reactor, options_.api, port_));
    DIVISI_TRY_STATUS(open(reactor, options_.probe, probe_));
    api_.start();
    return {};
  }

  io::Address api_address() const override { return port_->address(); }
  io::Address probe_address() const override { return probe_->address(); }
  bool ready() const override { return api_.in_step(); }

  void stop(std::function<void()> done) override {
    api_.end_streams();
    const auto both = std::make_shared<int>(2);
    const auto one = [this, both, done = std::move(done)] {
      if (--*both == 0) api_.drain(done);
    };
    port_->drain(one);
    probe_->drain(one);
  }

 private:
  Status open(io::Reactor& reactor, const io::Address& where,
              std::unique_ptr<http::Server>& opened) {
    http::ServerOptions server;
    server.address = where;
    server.limits.max_body_bytes = kMaxBodyBytes;
    server.max_connections = options_.max_connections;
    server.refusal = [](int status, std::string_view why) {
      return failed(status, std::string(why));
    };
    auto listening = http::Server::listen(
        reactor, std::move(server),
        [this](const std::shared_ptr<http::ServerCall>& call) { api_.handle(call); });
    if (!listening) return std::move(listening).error();
    opened = *std::move(listening);
    return {};
  }

  const ServerOptions options_;
  kube::Metrics own_metrics_;
  Api api_;
  std::unique_ptr<http::Server> port_;
  std::unique_ptr<http::Server> probe_;
};

}  // namespace

Result<std::unique_ptr<Server>> Server::start(io::Reactor& reactor, kube::Client& client,
                                              ServerOptions options) {
  DIVISI_TRY(auto authenticator, Authenticator::make(options.auth));
  auto server = std::make_unique<TwoPorts>(client, std::move(authenticator), std::move(options));
  if (Status status = server->listen(reactor); !status.ok()) {
    return failure(std::move(status));
  }
  return server;
}

}  // namespace divisi::server
