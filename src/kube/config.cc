#include "kube/config.h"

#include "base/log.h"
#include "http/client.h"
#include "kube/files.h"
#include "kube/kubeconfig.h"
#include "kube/proxy.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string_view>

namespace divisi::kube {
namespace {

constexpr std::size_t kMaxFileBytes = std::size_t{8} << 20;  // hundreds of clusters take 1 MB
constexpr std::size_t kMaxFiles = 100;                       // of KUBECONFIG
constexpr std::size_t kMaxNamespaceBytes = 1024;

Result<Kubeconfig> read_kubeconfig(const std::string& path) {
  std::error_code error;
  const std::string file = std::filesystem::absolute(path, error).string();
  if (error) return failure(Code::kInvalid, "the kubeconfig {}: {}", path, error.message());
  DIVISI_TRY(const std::string text,
             read_file(file, "the kubeconfig", kMaxFileBytes, FileKind::kAny));
  return parse_kubeconfig(text, file);
}

// All that exist, the first ones counting most. A file that is not there is normal: people list
// where files may be.
Result<Kubeconfig> read_list(std::string_view list) {
  Kubeconfig merged;
  std::size_t count = 0;
  while (!list.empty()) {
    const std::size_t end = std::min(list.find(':'), list.size());
    const std::string path(list.substr(0, end));
    list.remove_prefix(std::min(end + 1, list.size()));
    if (path.empty()) continue;
    if (++count > kMaxFiles) {
      return failure(Code::kInvalid, "KUBECONFIG names more than {} files", kMaxFiles);
    }
    auto file = read_kubeconfig(path);
    if (file) {
      merged.merge(*std::move(file));
    } else if (file.error().code() != Code::kNotFound) {
      return failure(std::move(file).error());
    }
  }
  return merged;
}

std::string value_of(const ConfigOptions& options, const std::string& name) {
  return options.environment ? options.environment(name).value_or("") : std::string();
}

// Empty when no kubeconfig is there. `looked_at` says where, for the message.
Result<Kubeconfig> find_kubeconfig(const ConfigOptions& options, std::string& looked_at) {
  if (const std::string list = value_of(options, "KUBECONFIG"); !list.empty()) {
    looked_at = fmt::format("the files of KUBECONFIG ({})", log::printable(list));
    return read_list(list);
  }
  const std::string home = options.home.empty() ? value_of(options, "HOME") : options.home;
  if (home.empty()) {
    looked_at = "~/.kube/config (HOME is not set)";
    return Kubeconfig();
  }
  const std::string file = home + "/.kube/config";
  looked_at = log::printable(file);
  auto found = read_kubeconfig(file);
  if (!found && found.error().code() == Code::kNotFound) return Kubeconfig();
  return found;
}

Result<std::string> pod_namespace(const std::string& folder) {
  const std::string file = folder + "/namespace";
  auto text = read_file(file, "the pod's namespace", kMaxNamespaceBytes);
  if (!text && text.error().code() == Code::kNotFound) return std::string("default");
  if (!text) return failure(std::move(text).error());
  std::string name = trimmed(*text);
  if (const Status status = check_namespace(name, file); !status.ok()) return failure(status);
  return name;
}

Result<Config> in_cluster(const ConfigOptions& options) {
  const std::string host = value_of(options, "KUBERNETES_SERVICE_HOST");
  const std::string port = value_of(options, "KUBERNETES_SERVICE_PORT");
  Config config;
  const bool bracket = host.find(':') != std::string::npos && !host.starts_with('[');
  config.server =
      fmt::format("https://{}{}{}:{}", bracket ? "[" : "", host, bracket ? "]" : "", port);
  if (const auto url = http::Url::parse(config.server); !url) {
    return failure(url.error().with_context("KUBERNETES_SERVICE_HOST and _PORT"));
  }
  config.auth.token_file = options.service_account + "/token";
  config.ca_file = options.service_account + "/ca.crt";
  config.described_by = "the pod's service account";
  if (!options.default_namespace.empty()) {
    Status status = check_namespace(options.default_namespace, "the option");
    if (!status.ok()) return failure(std::move(status));
    config.default_namespace = options.default_namespace;
    return config;
  }
  DIVISI_TRY(config.default_namespace, pod_namespace(options.service_account));
  return config;
}

bool runs_in_pod(const ConfigOptions& options) {
  return !value_of(options, "KUBERNETES_SERVICE_HOST").empty() &&
         !value_of(options, "KUBERNETES_SERVICE_PORT").empty() &&
         stamp_of(options.service_account + "/token").size >= 0;
}

Result<Config> find_config(const ConfigOptions& options) {
  const KubeconfigChoice choice{.context = options.context,
                                .cluster = options.cluster,
                                .user = options.user,
                                .default_namespace = options.default_namespace};
  if (!options.kubeconfig.empty()) {
    DIVISI_TRY(const Kubeconfig file, read_kubeconfig(options.kubeconfig));
    return resolve(file, choice);
  }
  std::string looked_at;
  DIVISI_TRY(const Kubeconfig files, find_kubeconfig(options, looked_at));
  if (!files.empty()) return resolve(files, choice);
  // A context, a cluster or a user was asked for by name, and only kubeconfigs have names.
  const bool named = !choice.context.empty() || !choice.cluster.empty() || !choice.user.empty();
  if (!named && runs_in_pod(options)) return in_cluster(options);
  return failure(Code::kNotFound,
                 "no Kubernetes cluster is configured: there is nothing in {}{}; name a file with "
                 "--kubeconfig or KUBECONFIG",
                 looked_at, named ? "" : ", and this is no pod with a service account");
}

}  // namespace

EnvironmentLookup process_environment() {
  return [](const std::string& name) -> std::optional<std::string> {
    const char* const value = std::getenv(name.c_str());
    if (value == nullptr) return std::nullopt;
    return value;
  };
}

Result<Config> load_config(const ConfigOptions& options) {
  DIVISI_TRY(Config config, find_config(options));
  if (!config.proxy_url.empty()) return config;
  DIVISI_TRY(const http::Url server, http::Url::parse(config.server));
  DIVISI_TRY(config.environment_proxy, proxy_from_environment(options.environment, server));
  return config;
}

}  // namespace divisi::kube
