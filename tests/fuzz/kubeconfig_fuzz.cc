// Any text as a kubeconfig: it gives a configuration that makes sense, or one line that says why
// not.
#include "http/client.h"
#include "kube/exec_plugin.h"
#include "kube/kubeconfig.h"

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

namespace {

using divisi::kube::Config;
using divisi::kube::Kubeconfig;

void require(bool condition) {
  if (!condition) std::abort();
}

void check(const Config& config) {
  require(divisi::http::Url::parse(config.server).has_value());
  require(config.ca_pem.empty() || config.ca_file.empty());
  require(!config.insecure_skip_tls_verify || (config.ca_pem.empty() && config.ca_file.empty()));
  require(config.ca_file.empty() || config.ca_file.starts_with('/'));
  const divisi::kube::Auth& auth = config.auth;
  require(auth.token_file.empty() || auth.token_file.starts_with('/'));
  require(auth.token.empty() || auth.username.empty());
  if (!auth.exec) return;
  require(auth.token.empty() && !auth.exec->command.empty());
  require(!divisi::kube::exec_info(*auth.exec, config, "", false).empty());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto files = divisi::kube::parse_kubeconfig(text, "/home/ann/.kube/config");
  if (!files) {
    require(!files.error().message().empty());
    return 0;
  }
  Kubeconfig merged = *files;
  merged.merge(*files);
  require(merged.contexts.size() == files->contexts.size());
  for (const auto& [name, context] : files->contexts) {
    const auto config = divisi::kube::resolve(*files, {.context = name});
    if (config) {
      check(*config);
    } else {
      require(!config.error().message().empty());
    }
  }
  (void)divisi::kube::parse_exec_credential(text, "client.authentication.k8s.io/v1");
  return 0;
}
