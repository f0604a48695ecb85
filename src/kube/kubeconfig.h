// Kubeconfig: the text of kubeconfig files as values, and what one context of them means.
//
//   DIVISI_TRY(Kubeconfig all, parse_kubeconfig(text, "/home/ann/.kube/config"));
//   DIVISI_TRY(Config config, resolve(all, {.context = "staging"}));
//
// Pure functions: nothing is read but the text.
#pragma once

#include "base/status.h"
#include "json/value.h"
#include "kube/config.h"

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace divisi::kube {

struct Kubeconfig {
  struct Cluster {
    std::string file{};  // that has this entry
    std::string server{};
    std::string tls_server_name{};
    std::string proxy_url{};
    bool insecure_skip_tls_verify = false;
    std::string ca_pem{};
    std::string ca_file{};
    json::Value plugin_config{};
  };
  struct User {
    std::string file{};
    Auth auth{};
    std::string auth_provider{};  // the removed way; its name, or "?"
    std::string plugin_interactive{};
  };
  struct Context {
    std::string file{};
    std::string cluster{};
    std::string user{};
    std::string default_namespace{};
  };

  std::map<std::string, Cluster, std::less<>> clusters{};
  std::map<std::string, User, std::less<>> users{};
  std::map<std::string, Context, std::less<>> contexts{};
  std::string current_context{};

  bool empty() const {
    return clusters.empty() && users.empty() && contexts.empty() && current_context.empty();
  }
  // Of two entries with one name, ours stays.
  void merge(Kubeconfig other);
};

// YAML or JSON. Paths in it are relative to the folder of `file`, which is absolute; `file` also
// names the text in messages. Fields we do not know are skipped.
Result<Kubeconfig> parse_kubeconfig(std::string_view text, const std::string& file);

// What to take instead of what the files say, where not empty.
struct KubeconfigChoice {
  std::string context{};
  std::string cluster{};
  std::string user{};
  std::string default_namespace{};
};

// The chosen context with its cluster and user, if they make sense together.
Result<Config> resolve(const Kubeconfig& files, const KubeconfigChoice& choice);

// A DNS label, as a namespace's name has to be. `where` begins the message.
Status check_namespace(std::string_view name, std::string_view where);

}  // namespace divisi::kube
