// Exec plugins: programs that print credentials (client.authentication.k8s.io/v1 and v1beta1).
//
//   run_ = std::make_unique<ExecRun>(reactor, request, [](Result<ExecCredential> got) {...});
#pragma once

#include "base/status.h"
#include "io/process.h"
#include "io/reactor.h"
#include "io/tls.h"
#include "kube/config.h"

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>

namespace divisi::kube {

struct ExecCredential {
  std::string token{};
  std::optional<io::TlsIdentity> identity{};
  std::optional<std::chrono::system_clock::time_point> expires{};
};

// What a plugin printed. Messages never show a part of it.
Result<ExecCredential> parse_exec_credential(std::string_view text, std::string_view api_version);

// The value of KUBERNETES_EXEC_INFO. `ca_pem`: what verifies the server, for plugins that want to
// know the cluster.
std::string exec_info(const ExecPlugin& plugin, const Config& config, const std::string& ca_pem,
                      bool interactive);

bool stdin_is_terminal() noexcept;

// May the plugin ask a person? Fails when it must, and there is no terminal.
Result<bool> plays_interactive(const ExecPlugin& plugin, bool terminal);

struct ExecRequest {
  ExecPlugin plugin{};
  std::string info{};        // exec_info()
  bool interactive = false;  // it gets our terminal and longer to end: people type slowly
  io::Duration deadline = std::chrono::seconds(60);
};

// One run on a thread of its own. `on_done` runs once on the loop, unless the object is destroyed
// first, which kills the plugin with all it started. Loop only.
class ExecRun {
 public:
  ExecRun(io::Reactor& reactor, ExecRequest request,
          std::function<void(Result<ExecCredential>)> on_done);
  ~ExecRun();
  ExecRun(const ExecRun&) = delete;
  ExecRun& operator=(const ExecRun&) = delete;

 private:
  io::Descriptor cancel_;  // closed: the run shall end
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
  std::thread thread_;
};

}  // namespace divisi::kube
