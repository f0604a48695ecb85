// What a context of kubeconfig files means, and which contradictions are refused (as client-go
// refuses them).
#include "base/log.h"
#include "http/client.h"
#include "kube/kubeconfig.h"

#include <algorithm>

namespace divisi::kube {
namespace {

constexpr std::string_view kPluginVersion = "client.authentication.k8s.io/v1";
constexpr std::string_view kPluginBetaVersion = "client.authentication.k8s.io/v1beta1";

// "context 'x' of /file".
std::string entry_name(std::string_view kind, std::string_view name, std::string_view file) {
  return fmt::format("{} '{}' of {}", kind, log::printable(std::string(name)),
                     log::printable(std::string(file)));
}

template <class Entries>
std::string names_of(const Entries& entries) {
  constexpr std::size_t kShown = 20;
  std::string names;
  std::size_t count = 0;
  for (const auto& [name, entry] : entries) {
    if (++count > kShown) break;
    names += fmt::format("{}'{}'", names.empty() ? "" : ", ", log::printable(name));
  }
  if (entries.empty()) return "there is none";
  return fmt::format("there {} {}{}", entries.size() == 1 ? "is" : "are", names,
                     entries.size() > kShown ? fmt::format(" and {} more", entries.size() - kShown)
                                             : std::string());
}

template <class Entries>
Result<const typename Entries::value_type*> find_entry(const Entries& entries,
                                                       std::string_view kind,
                                                       const std::string& name,
                                                       std::string_view wanted_by) {
  const auto found = entries.find(name);
  if (found != entries.end()) return &*found;
  return failure(Code::kInvalid, "{} names the {} '{}', which the kubeconfig does not have; {}",
                 wanted_by, kind, log::printable(name), names_of(entries));
}

// kubectl takes a server without a scheme; what it is then depends on whether TLS was prepared.
std::string with_scheme(const Kubeconfig::Cluster& cluster, const Auth& auth) {
  if (cluster.server.find("://") != std::string::npos) return cluster.server;
  const bool prepared = !cluster.ca_pem.empty() || !cluster.ca_file.empty() ||
                        cluster.insecure_skip_tls_verify || !auth.client_certificate_pem.empty() ||
                        !auth.client_certificate_file.empty();
  return (prepared ? "https://" : "http://") + cluster.server;
}

Status check_proxy(const std::string& proxy, std::string_view where) {
  if (proxy.empty()) return {};
  const auto url = http::Url::parse(proxy);
  if (url && !url->tls) return {};
  // The text is not shown: it may hold a password.
  return make_status(Code::kInvalid, "{}: proxy-url must be http://host:port", where);
}

Status check_cluster(const Kubeconfig::Cluster& cluster, std::string_view where) {
  if (cluster.server.empty()) return make_status(Code::kInvalid, "{} has no server", where);
  if (cluster.insecure_skip_tls_verify && !(cluster.ca_pem.empty() && cluster.ca_file.empty())) {
    return make_status(Code::kInvalid,
                       "{}: insecure-skip-tls-verify and a certificate-authority exclude each "
                       "other; remove one",
                       where);
  }
  return check_proxy(cluster.proxy_url, where);
}

Result<ExecPlugin> checked_plugin(ExecPlugin plugin, const std::string& interactive,
                                  std::string_view where) {
  if (plugin.command.empty()) return failure(Code::kInvalid, "{}: exec has no command", where);
  if (plugin.api_version != kPluginVersion && plugin.api_version != kPluginBetaVersion) {
    return failure(Code::kInvalid, "{}: exec: apiVersion must be {} or {}{}", where, kPluginVersion,
                   kPluginBetaVersion,
                   plugin.api_version.ends_with("/v1alpha1")
                       ? "; v1alpha1 is no more, update the plugin"
                       : "");
  }
  for (const auto& [name, value] : plugin.environment) {
    if (!name.empty() && name.find('=') == std::string::npos) continue;
    return failure(Code::kInvalid, "{}: exec: env has a variable without a usable name", where);
  }
  using Interactive = ExecPlugin::Interactive;
  if (interactive == "Never") {
    plugin.interactive = Interactive::kNever;
  } else if (interactive == "Always") {
    plugin.interactive = Interactive::kAlways;
  } else if (interactive == "IfAvailable" ||
             (interactive.empty() && plugin.api_version == kPluginBetaVersion)) {
    plugin.interactive = Interactive::kIfAvailable;
  } else {
    return failure(Code::kInvalid, "{}: exec: interactiveMode must be Never, IfAvailable or Always",
                   where);
  }
  return plugin;
}

Status check_ways(const Auth& auth, std::string_view where) {
  const bool token = !auth.token.empty() || !auth.token_file.empty();
  if (auth.username.empty() && !auth.password.empty()) {
    return make_status(Code::kInvalid, "{} has a password, but no username", where);
  }
  if (token && !auth.username.empty()) {
    return make_status(Code::kInvalid, "{} has both a token and a username; remove one", where);
  }
  if (auth.username.find(':') != std::string::npos) {
    return make_status(Code::kInvalid, "{}: a username cannot have a colon", where);
  }
  return {};
}

Status check_certificate(const Auth& auth, std::string_view where) {
  const bool certificate =
      !auth.client_certificate_pem.empty() || !auth.client_certificate_file.empty();
  const bool key = !auth.client_key_pem.empty() || !auth.client_key_file.empty();
  if (certificate == key) return {};
  return make_status(Code::kInvalid, "{} has a client-{} without a client-{}", where,
                     certificate ? "certificate" : "key", certificate ? "key" : "certificate");
}

Status check_impersonation(const Impersonation& as, std::string_view where) {
  if (!as.user.empty() || (as.uid.empty() && as.groups.empty() && as.extra.empty())) return {};
  return make_status(Code::kInvalid, "{}: as-uid, as-groups and as-user-extra need 'as'", where);
}

Result<Auth> checked_auth(const Kubeconfig::User& user, std::string_view where) {
  if (!user.auth_provider.empty()) {
    return failure(Code::kInvalid,
                   "{}: the auth-provider '{}' is no longer part of Kubernetes; use its exec "
                   "plugin (gke-gcloud-auth-plugin, kubelogin) or a token",
                   where, log::printable(user.auth_provider));
  }
  Auth auth = user.auth;
  for (const Status& status : {check_ways(auth, where), check_certificate(auth, where),
                               check_impersonation(auth.impersonate, where)}) {
    if (!status.ok()) return failure(status);
  }
  if (auth.exec) {
    DIVISI_TRY(auth.exec, checked_plugin(*std::move(auth.exec), user.plugin_interactive, where));
    // Whatever is at hand without a program is what the user meant.
    const bool at_hand = !auth.token.empty() || !auth.token_file.empty() ||
                         !auth.username.empty() || !auth.client_certificate_pem.empty() ||
                         !auth.client_certificate_file.empty();
    if (at_hand) auth.exec.reset();
  }
  return auth;
}

// The chosen context, or one made of the choice alone when it names a cluster.
Result<Kubeconfig::Context> chosen_context(const Kubeconfig& files, const KubeconfigChoice& choice,
                                           std::string& name) {
  name = choice.context.empty() ? files.current_context : choice.context;
  Kubeconfig::Context context;
  if (!name.empty()) {
    const std::string_view by = choice.context.empty() ? "current-context" : "the option";
    DIVISI_TRY(const auto* const entry, find_entry(files.contexts, "context", name, by));
    context = entry->second;
  } else if (choice.cluster.empty()) {
    return failure(Code::kInvalid, "the kubeconfig names no current-context; choose a context: {}",
                   names_of(files.contexts));
  }
  if (!choice.cluster.empty()) context.cluster = choice.cluster;
  if (!choice.user.empty()) context.user = choice.user;
  if (!choice.default_namespace.empty()) context.default_namespace = choice.default_namespace;
  return context;
}

}  // namespace

Status check_namespace(std::string_view name, std::string_view where) {
  constexpr std::size_t kMost = 63;
  constexpr std::string_view kCharacters = "abcdefghijklmnopqrstuvwxyz0123456789-";
  const bool fits = !name.empty() && name.size() <= kMost && name.front() != '-' &&
                    name.back() != '-' &&
                    name.find_first_not_of(kCharacters) == std::string_view::npos;
  if (fits) return {};
  return make_status(Code::kInvalid,
                     "{}: a namespace's name has up to 63 lower-case letters, digits and dashes "
                     "inside",
                     where);
}

Result<Config> resolve(const Kubeconfig& files, const KubeconfigChoice& choice) {
  Config config;
  DIVISI_TRY(const Kubeconfig::Context context, chosen_context(files, choice, config.context));
  const std::string by =
      config.context.empty() ? "the option" : entry_name("context", config.context, context.file);
  if (context.cluster.empty()) return failure(Code::kInvalid, "{} names no cluster", by);
  DIVISI_TRY(const auto* const found, find_entry(files.clusters, "cluster", context.cluster, by));
  const Kubeconfig::Cluster& cluster = found->second;
  const std::string where = entry_name("cluster", context.cluster, cluster.file);
  if (const Status status = check_cluster(cluster, where); !status.ok()) return failure(status);

  if (!context.user.empty()) {  // nobody in particular is fine for a server that asks no names
    DIVISI_TRY(const auto* const user, find_entry(files.users, "user", context.user, by));
    DIVISI_TRY(config.auth,
               checked_auth(user->second, entry_name("user", context.user, user->second.file)));
  }
  config.server = with_scheme(cluster, config.auth);
  if (const auto url = http::Url::parse(config.server); !url) {
    return failure(Code::kInvalid, "{}: server: {}", where, log::printable(url.error().message()));
  }
  config.tls_server_name = cluster.tls_server_name;
  config.proxy_url = cluster.proxy_url;
  config.insecure_skip_tls_verify = cluster.insecure_skip_tls_verify;
  config.ca_pem = cluster.ca_pem;
  config.ca_file = cluster.ca_file;
  if (config.auth.exec) config.auth.exec->cluster_config = cluster.plugin_config;
  if (!context.default_namespace.empty()) {
    if (const Status status = check_namespace(context.default_namespace, by); !status.ok()) {
      return failure(status);
    }
    config.default_namespace = context.default_namespace;
  }
  config.described_by = config.context.empty() ? where : by;
  return config;
}

}  // namespace divisi::kube
