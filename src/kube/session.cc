#include "kube/session.h"

#include <utility>

namespace divisi::kube {

Result<std::unique_ptr<Session>> Session::open(const ConfigOptions& options) {
  DIVISI_TRY(Config config, load_config(options));
  std::unique_ptr<Session> session(new Session());
  session->config_ = std::move(config);
  session->reactor_ = io::make_reactor();
  Status status;
  session->reactor_->run_on_loop([&] {
    auto transport = connect(*session->reactor_, session->config_);
    if (!transport) {
      status = transport.error();
      return;
    }
    session->transport_ = *std::move(transport);
    session->client_ = std::make_unique<Client>(*session->reactor_, *session->transport_);
    session->discovery_ = std::make_unique<Discovery>(*session->client_);
  });
  if (!status.ok()) return failure(std::move(status));
  return session;
}

Session::~Session() {
  if (reactor_ == nullptr) return;
  reactor_->run_on_loop([&] {
    discovery_.reset();
    client_.reset();
    transport_.reset();
  });
}

Result<Resource> Session::find(const std::string& name) {
  return wait_for<Resource>(*reactor_, [&](auto done) { discovery_->find(name, std::move(done)); });
}

Result<Resource> Session::find_kind(const std::string& api_version, const std::string& kind) {
  return wait_for<Resource>(
      *reactor_, [&](auto done) { discovery_->find_kind(api_version, kind, std::move(done)); });
}

Result<json::Value> Session::get_path(const std::string& target, const std::string& accept) {
  return call([&](Done done) { client_->get_path(target, std::move(done), accept); });
}

}  // namespace divisi::kube
