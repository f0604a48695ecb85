// What is said to a plugin and what it says: KUBERNETES_EXEC_INFO and ExecCredential.
#include "kube/exec_plugin.h"

#include "base/log.h"
#include "http/base64.h"
#include "kube/time.h"

#include <unistd.h>
#include <utility>

namespace divisi::kube {
namespace {

constexpr std::size_t kMaxDepth = 32;

// Empty when it is not there; fails for anything but text. Never shows the value.
Result<std::string> text_field(const json::Value& object, std::string_view key) {
  const json::Value* const value = object.find(key);
  if (value == nullptr || value->is_null()) return std::string();
  if (const std::string* const text = value->as_string()) return *text;
  return failure(Code::kInvalid, "{} is no text, but {}", key, value->kind());
}

Result<std::optional<std::chrono::system_clock::time_point>> expiry(const json::Value& status) {
  DIVISI_TRY(const std::string text, text_field(status, "expirationTimestamp"));
  if (text.empty()) return std::nullopt;
  // Some write 9999 for "never", which a clock that counts nanoseconds cannot hold.
  constexpr std::string_view kLastYear = "2261";
  const std::string_view year = std::string_view(text).substr(0, kLastYear.size());
  const bool never = year.size() == kLastYear.size() && year > kLastYear &&
                     year.find_first_not_of("0123456789") == std::string_view::npos;
  if (never) return std::nullopt;
  const auto expires = parse_time(text);
  if (!expires) return failure(Code::kInvalid, "expirationTimestamp is no time of RFC 3339");
  return expires;
}

Status check_kind(const json::Value& document, std::string_view api_version) {
  if (document.as_object() == nullptr) return {Code::kInvalid, "it is no JSON object"};
  const auto kind = text_field(document, "kind");
  const auto version = text_field(document, "apiVersion");
  if (!kind || *kind != "ExecCredential") {
    return {Code::kInvalid, "its kind is not ExecCredential"};
  }
  if (version && *version == api_version) return {};
  return make_status(Code::kInvalid, "its apiVersion is '{}', but the kubeconfig says {}",
                     version ? log::printable(version->substr(0, 100)) : "?", api_version);
}

}  // namespace

Result<ExecCredential> parse_exec_credential(std::string_view text, std::string_view api_version) {
  if (text.empty()) return failure(Code::kInvalid, "it printed nothing");
  // The parser's message is left out: it might show a part of the text.
  const auto document = json::parse(text, {.max_bytes = text.size(), .max_depth = kMaxDepth});
  if (!document) return failure(Code::kInvalid, "what it printed is no JSON");
  if (const Status status = check_kind(*document, api_version); !status.ok())
    return failure(status);
  const json::Value* const status = document->find("status");
  if (status == nullptr || status->as_object() == nullptr) {
    return failure(Code::kInvalid, "it gave no status");
  }
  ExecCredential credential;
  io::TlsIdentity identity;
  DIVISI_TRY(credential.token, text_field(*status, "token"));
  DIVISI_TRY(identity.certificate_pem, text_field(*status, "clientCertificateData"));
  DIVISI_TRY(identity.key_pem, text_field(*status, "clientKeyData"));
  DIVISI_TRY(credential.expires, expiry(*status));
  if (identity.certificate_pem.empty() != identity.key_pem.empty()) {
    return failure(Code::kInvalid, "it gave only one of certificate and key");
  }
  if (!identity.key_pem.empty()) credential.identity = std::move(identity);
  if (credential.token.empty() && !credential.identity) {
    return failure(Code::kInvalid, "it gave neither a token nor a certificate");
  }
  return credential;
}

std::string exec_info(const ExecPlugin& plugin, const Config& config, const std::string& ca_pem,
                      bool interactive) {
  json::Object spec;
  if (plugin.provide_cluster_info) {
    json::Object cluster{{"server", config.server}};
    const auto add = [&](const char* key, std::string value) {
      if (!value.empty()) cluster.emplace_back(key, std::move(value));
    };
    add("tls-server-name", config.tls_server_name);
    if (config.insecure_skip_tls_verify) cluster.emplace_back("insecure-skip-tls-verify", true);
    add("certificate-authority-data", http::encode_base64(ca_pem));
    add("proxy-url", config.proxy_url);
    if (!plugin.cluster_config.is_null()) cluster.emplace_back("config", plugin.cluster_config);
    spec.emplace_back("cluster", std::move(cluster));
  }
  spec.emplace_back("interactive", interactive);
  return json::print(json::Object{
      {"kind", "ExecCredential"}, {"apiVersion", plugin.api_version}, {"spec", std::move(spec)}});
}

bool stdin_is_terminal() noexcept {
  return ::isatty(STDIN_FILENO) == 1;
}

Result<bool> plays_interactive(const ExecPlugin& plugin, bool terminal) {
  using Interactive = ExecPlugin::Interactive;
  if (plugin.interactive == Interactive::kAlways && !terminal) {
    return failure(Code::kUnauthorized,
                   "the exec plugin {} has to ask a person (interactiveMode: Always), and standard "
                   "input is no terminal",
                   log::printable(plugin.command));
  }
  return plugin.interactive != Interactive::kNever && terminal;
}

}  // namespace divisi::kube
