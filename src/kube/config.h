// Config: where a cluster is and who we are, as kubectl would find it.
//
//   DIVISI_TRY(kube::Config config, kube::load_config({.context = "staging"}));
//
// Looked for in this order: the file that was named; the files of KUBECONFIG, merged;
// ~/.kube/config; the service account of the pod we run in. Files that a kubeconfig names are not
// read here: they change while we run, and Credentials reads them when they are needed.
#pragma once

#include "base/status.h"
#include "json/value.h"

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace divisi::kube {

// A program that prints credentials.
struct ExecPlugin {
  enum class Interactive { kNever, kIfAvailable, kAlways };

  std::string command{};  // a path when it has a slash, otherwise looked up in PATH
  std::vector<std::string> arguments{};
  std::vector<std::pair<std::string, std::string>> environment{};  // added to ours
  std::string api_version{};  // client.authentication.k8s.io/v1 or v1beta1
  std::string install_hint{};
  bool provide_cluster_info = false;
  Interactive interactive = Interactive::kIfAvailable;
  json::Value cluster_config{};  // what the cluster's entry has for plugins; null: nothing
};

struct Impersonation {
  std::string user{};  // empty: nobody
  std::string uid{};
  std::vector<std::string> groups{};
  std::map<std::string, std::vector<std::string>> extra{};
};

// At most one way to prove who we are is set, apart from a client certificate, which goes with
// any. Of a `_pem` and its `_file` at most one is set.
struct Auth {
  std::string token{};
  std::string token_file{};  // wins over `token` when it can be read
  std::string client_certificate_pem{};
  std::string client_certificate_file{};
  std::string client_key_pem{};
  std::string client_key_file{};
  std::string username{};
  std::string password{};
  std::optional<ExecPlugin> exec{};
  Impersonation impersonate{};
};

struct Config {
  std::string server{};           // a URL that http::Url::parse takes
  std::string tls_server_name{};  // to verify instead of the server's host
  std::string proxy_url{};
  std::string environment_proxy{};  // used when proxy_url is empty; HTTPS_PROXY and its kin
  bool insecure_skip_tls_verify = false;
  std::string ca_pem{};
  std::string ca_file{};
  std::string default_namespace = "default";
  Auth auth{};
  std::string context{};       // empty in a cluster
  std::string described_by{};  // "~/.kube/config", "the pod's service account": for messages
};

using EnvironmentLookup = std::function<std::optional<std::string>(const std::string& name)>;
EnvironmentLookup process_environment();

struct ConfigOptions {
  std::string kubeconfig{};  // --kubeconfig: this file and no other
  // Each empty one is left as the files say.
  std::string context{};
  std::string cluster{};
  std::string user{};
  std::string default_namespace{};

  EnvironmentLookup environment = process_environment();
  std::string home{};  // empty: HOME
  std::string service_account = "/var/run/secrets/kubernetes.io/serviceaccount";
};

// Fails with one line that says which file (and line, for text that is no YAML) is wrong and what
// to do about it. Never shows a token, a password or a key.
Result<Config> load_config(const ConfigOptions& options);

}  // namespace divisi::kube
