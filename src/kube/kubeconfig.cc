#include "kube/kubeconfig.h"

#include "base/log.h"
#include "http/base64.h"
#include "json/yaml.h"

#include <algorithm>
#include <filesystem>
#include <utility>

namespace divisi::kube {
namespace {

constexpr std::size_t kMaxDepth = 32;  // of a kubeconfig: 6; the rest is for extensions

// The fields of one entry. The first thing that is wrong is kept and ends the reading; until then
// whoever reads need not look after every field.
class Fields {
 public:
  Fields(const json::Value& entry, std::string where, Status& problem)
      : entry_(entry), where_(std::move(where)), problem_(problem) {
    if (!entry.is_null() && entry.as_object() == nullptr) refuse("", "a mapping", entry);
  }

  std::string text(std::string_view key) {
    const json::Value* const value = find(key);
    return value == nullptr ? std::string() : text_of(key, *value);
  }

  bool flag(std::string_view key) {
    const json::Value* const value = find(key);
    if (value == nullptr) return false;
    if (const bool* const flag = value->as_bool()) return *flag;
    refuse(key, "true or false", *value);
    return false;
  }

  // What a `-data` field holds.
  std::string data(std::string_view key) {
    std::string encoded = text(key);
    // Wrapped lines are common.
    std::erase_if(encoded, [](char c) { return c == '\n' || c == '\r' || c == ' ' || c == '\t'; });
    if (auto decoded = http::decode_base64(encoded)) return *std::move(decoded);
    report(fmt::format("{} is not base64", key));
    return {};
  }

  std::vector<std::string> texts(std::string_view key) {
    std::vector<std::string> found;
    for (const json::Value& item : list(key)) found.push_back(text_of(key, item));
    return found;
  }

  const json::Array& list(std::string_view key) {
    static const json::Array nothing;
    const json::Value* const value = find(key);
    if (value == nullptr) return nothing;
    if (const json::Array* const items = value->as_array()) return *items;
    refuse(key, "a list", *value);
    return nothing;
  }

  const json::Object& mapping(std::string_view key) {
    static const json::Object nothing;
    const json::Value* const value = find(key);
    if (value == nullptr) return nothing;
    if (const json::Object* const members = value->as_object()) return *members;
    refuse(key, "a mapping", *value);
    return nothing;
  }

  // Null when there is none, or nothing in it.
  const json::Value* find(std::string_view key) const {
    const json::Value* const value = entry_.find(key);
    return value == nullptr || value->is_null() ? nullptr : value;
  }

  Fields inside(std::string_view key) {
    static const json::Value nothing;
    const json::Value* const value = find(key);
    return {value == nullptr ? nothing : *value, fmt::format("{}: {}", where_, key), problem_};
  }

  Status& problem() { return problem_; }

  void report(std::string_view what) {
    if (problem_.ok()) problem_ = make_status(Code::kInvalid, "{}: {}", where_, what);
  }

 private:
  std::string text_of(std::string_view key, const json::Value& value) {
    const std::string* const text = value.as_string();
    if (text == nullptr) {
      refuse(key, "text (in quotes, if it looks like something else)", value);
    } else if (text->find('\0') != std::string::npos) {
      report(fmt::format("{} has a zero byte", key));
    } else {
      return *text;
    }
    return {};
  }

  // Shows the kind of what was found, never the value: it may be a secret.
  void refuse(std::string_view key, std::string_view wanted, const json::Value& found) {
    report(
        fmt::format("{}{}must be {}, not {}", key, key.empty() ? "" : " ", wanted, found.kind()));
  }

  const json::Value& entry_;
  std::string where_;
  Status& problem_;
};

// Relative to the folder of the file that names it.
std::string resolved(const std::string& path, const std::string& file) {
  if (path.empty()) return path;
  return (std::filesystem::path(file).parent_path() / path).lexically_normal().string();
}

// The data wins when both are given, so the file is then forgotten.
void read_pem(Fields& fields, const std::string& key, const std::string& file, std::string& pem,
              std::string& pem_file) {
  pem = fields.data(key + "-data");
  pem_file = pem.empty() ? resolved(fields.text(key), file) : std::string();
}

Kubeconfig::Cluster read_cluster(Fields fields, const std::string& file) {
  Kubeconfig::Cluster cluster{.file = file,
                              .server = fields.text("server"),
                              .tls_server_name = fields.text("tls-server-name"),
                              .proxy_url = fields.text("proxy-url"),
                              .insecure_skip_tls_verify = fields.flag("insecure-skip-tls-verify")};
  read_pem(fields, "certificate-authority", file, cluster.ca_pem, cluster.ca_file);
  for (const json::Value& item : fields.list("extensions")) {
    Fields extension(item, "clusters: extensions", fields.problem());
    if (extension.text("name") != "client.authentication.k8s.io/exec") continue;
    if (const json::Value* const config = extension.find("extension")) {
      cluster.plugin_config = *config;
    }
  }
  return cluster;
}

ExecPlugin read_plugin(Fields fields, const std::string& file) {
  ExecPlugin plugin{.command = fields.text("command"),
                    .arguments = fields.texts("args"),
                    .api_version = fields.text("apiVersion"),
                    .install_hint = fields.text("installHint"),
                    .provide_cluster_info = fields.flag("provideClusterInfo")};
  // A bare name is looked up in PATH; anything else is a path like the others in the file.
  if (plugin.command.find('/') != std::string::npos) {
    plugin.command = resolved(plugin.command, file);
  }
  for (const json::Value& item : fields.list("env")) {
    Fields variable(item, "users: exec: env", fields.problem());
    plugin.environment.emplace_back(variable.text("name"), variable.text("value"));
  }
  return plugin;
}

Kubeconfig::User read_user(Fields fields, const std::string& file) {
  Kubeconfig::User user{.file = file};
  Auth& auth = user.auth;
  auth.token = fields.text("token");
  auth.token_file = resolved(fields.text("tokenFile"), file);
  auth.username = fields.text("username");
  auth.password = fields.text("password");
  read_pem(fields, "client-certificate", file, auth.client_certificate_pem,
           auth.client_certificate_file);
  read_pem(fields, "client-key", file, auth.client_key_pem, auth.client_key_file);
  auth.impersonate.user = fields.text("as");
  auth.impersonate.uid = fields.text("as-uid");
  auth.impersonate.groups = fields.texts("as-groups");
  Fields extra = fields.inside("as-user-extra");
  for (const auto& [key, values] : fields.mapping("as-user-extra")) {
    auth.impersonate.extra[key] = extra.texts(key);
  }
  if (fields.find("exec") != nullptr) {
    auth.exec = read_plugin(fields.inside("exec"), file);
    user.plugin_interactive = fields.inside("exec").text("interactiveMode");
  }
  if (fields.find("auth-provider") != nullptr) {
    user.auth_provider = fields.inside("auth-provider").text("name");
    if (user.auth_provider.empty()) user.auth_provider = std::string(1, '?');
  }
  return user;
}

Kubeconfig::Context read_context(Fields fields, const std::string& file) {
  return {.file = file,
          .cluster = fields.text("cluster"),
          .user = fields.text("user"),
          .default_namespace = fields.text("namespace")};
}

// A list of {name: ..., <kind>: {...}}.
template <class Entry>
void read_entries(Fields& file_fields, const std::string& kind, const std::string& file,
                  std::map<std::string, Entry, std::less<>>& entries,
                  Entry (*read)(Fields, const std::string&)) {
  const std::string list = kind + "s";
  for (const json::Value& item : file_fields.list(list)) {
    Fields named(item, fmt::format("{}: {}", file, list), file_fields.problem());
    const std::string name = named.text("name");
    if (name.empty()) named.report("an entry has no name");
    const std::string where = fmt::format("{}: {} '{}'", file, kind, log::printable(name));
    static const json::Value nothing;
    const json::Value* const body = named.find(kind);
    Fields fields(body == nullptr ? nothing : *body, where, file_fields.problem());
    if (!entries.try_emplace(name, read(fields, file)).second) fields.report("is there twice");
  }
}

}  // namespace

void Kubeconfig::merge(Kubeconfig other) {
  clusters.merge(other.clusters);
  users.merge(other.users);
  contexts.merge(other.contexts);
  if (current_context.empty()) current_context = std::move(other.current_context);
}

Result<Kubeconfig> parse_kubeconfig(std::string_view text, const std::string& file) {
  const std::string shown = log::printable(file);
  const auto documents = json::parse_yaml(text, {.max_bytes = text.size(), .max_depth = kMaxDepth});
  if (!documents) return failure(documents.error().with_context(shown));
  if (documents->empty()) return Kubeconfig();  // a file that tools have made and not yet filled

  Status problem;
  Fields fields(documents->front(), shown, problem);
  if (documents->size() > 1) fields.report("it has more than one document");
  const std::string version = fields.text("apiVersion");
  const std::string kind = fields.text("kind");
  if ((!version.empty() && version != "v1") || (!kind.empty() && kind != "Config")) {
    fields.report(fmt::format("it is a {} of {}, not a Config of v1", log::printable(kind),
                              log::printable(version)));
  }
  Kubeconfig config;
  config.current_context = fields.text("current-context");
  read_entries(fields, "cluster", file, config.clusters, &read_cluster);
  read_entries(fields, "user", file, config.users, &read_user);
  read_entries(fields, "context", file, config.contexts, &read_context);
  if (!problem.ok()) return failure(std::move(problem));
  return config;
}

}  // namespace divisi::kube
