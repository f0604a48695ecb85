// di-server: answers until it is told to end. Any number of them run side by side.

#include "server/server.h"

#include "base/log.h"
#include "program.h"

#include <memory>
#include <optional>
#include <utility>

namespace divisi::apps {
namespace {

class Process {
 public:
  Status start(kube::Session& session, const ServerFlags& flags) {
    add_process_metrics(metrics_);
    answers_.emplace(session.client().transport(), metrics_);
    server::ServerOptions options;
    options.api = flags.api;
    options.probe = flags.probe;
    options.space = flags.common.space;
    options.service_domain = flags.common.names.service_domain;
    options.auth = flags.auth;
    options.first = flags.first;
    options.metrics = &metrics_;
    auto server = server::Server::start(session.reactor(), session.client(), std::move(options));
    if (!server) return server.error();
    server_ = *std::move(server);
    kube::HealthOptions health;
    health.metrics = &metrics_;
    auto probes = serve_probes(session.reactor(), flags.common.metrics, std::move(health));
    if (!probes) return probes.error();
    probes_ = *std::move(probes);
    log::info("serving api={} probe={}", server_->api_address().to_string(),
              server_->probe_address().to_string());
    return {};
  }

  void stop(std::function<void()> done) { server_->stop(std::move(done)); }

 private:
  kube::Metrics metrics_;
  std::optional<CountedAnswers> answers_;
  std::unique_ptr<server::Server> server_;
  std::unique_ptr<http::Server> probes_;
};

}  // namespace

int run_server(const ServerFlags& flags, const EndSignal& end) {
  return run_until_ended<Process>(flags, end);
}

}  // namespace divisi::apps
