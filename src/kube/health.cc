#include "kube/health.h"

#include <memory>
#include <string_view>
#include <utility>

namespace divisi::kube {
namespace {

http::Response text(int status, std::string body) {
  return {status, {{"Content-Type", "text/plain; charset=utf-8"}}, std::move(body)};
}

http::Response checked(const std::map<std::string, std::function<Status()>>& checks,
                       std::string_view name, bool verbose) {
  std::string lines;
  bool good = true;
  for (const auto& [what, check] : checks) {
    const Status status = check();
    good = good && status.ok();
    lines +=
        status.ok() ? "[+]" + what + " ok\n" : "[-]" + what + " failed: " + status.message() + "\n";
  }
  if (!good) return text(503, lines + std::string(name) + " check failed\n");
  return text(200, verbose ? lines + std::string(name) + " check passed\n" : "ok");
}

}  // namespace

http::Response health_answer(const HealthOptions& options, const http::Request& request) {
  const std::string_view target = request.target;
  const std::string_view path = target.substr(0, target.find('?'));
  const bool verbose = target.find("?verbose") != std::string_view::npos;
  if (request.method != "GET" && request.method != "HEAD") return text(405, "only GET\n");
  if (path == "/healthz" || path == "/livez") return checked(options.healthy, "healthz", verbose);
  if (path == "/readyz") return checked(options.ready, "readyz", verbose);
  if (path == "/metrics" && options.metrics != nullptr) {
    return {200,
            {{"Content-Type", "text/plain; version=0.0.4; charset=utf-8"}},
            options.metrics->text()};
  }
  return text(404, "there are /healthz, /readyz and /metrics\n");
}

Result<std::unique_ptr<http::Server>> serve_health(io::Reactor& reactor, HealthOptions options) {
  http::ServerOptions server;
  server.address = options.address;
  const auto shared = std::make_shared<const HealthOptions>(std::move(options));
  return http::Server::listen(reactor, std::move(server),
                              [shared](const std::shared_ptr<http::ServerCall>& call) {
                                call->respond(health_answer(*shared, call->request()));
                              });
}

}  // namespace divisi::kube
