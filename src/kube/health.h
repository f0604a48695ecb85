// HealthServer: /healthz, /readyz and /metrics, as a kubelet and Prometheus ask for them.
#pragma once

#include "http/server.h"
#include "kube/metrics.h"

#include <functional>
#include <map>
#include <memory>
#include <string>

namespace divisi::kube {

// A check is ok or says what is not. `/healthz` asks those of `healthy`, `/readyz` those of
// `ready`;
// `?verbose` names each. Loop only.
struct HealthOptions {
  io::Address address{};
  std::map<std::string, std::function<Status()>> healthy{};
  std::map<std::string, std::function<Status()>> ready{};
  const Metrics* metrics = nullptr;
};

Result<std::unique_ptr<http::Server>> serve_health(io::Reactor& reactor, HealthOptions options);

// What it answers to one path.
http::Response health_answer(const HealthOptions& options, const http::Request& request);

}  // namespace divisi::kube
