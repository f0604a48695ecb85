// Contexts: certificates, keys, and what is required of the other side.
#include "io/tls.h"

#include "io/freer.h"
#include "io/tls_context.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include <string_view>
#include <vector>

namespace divisi::io {

namespace {

using Bio = std::unique_ptr<BIO, Freer<BIO_free>>;
using Certificate = std::unique_ptr<X509, Freer<X509_free>>;
using Key = std::unique_ptr<EVP_PKEY, Freer<EVP_PKEY_free>>;
using Native = NativeTlsContext::Native;

// No user of ours has more; a file that is no PEM at all should not be read for minutes.
constexpr std::size_t kMaxPem = std::size_t{8} << 20;

Bio read_from(const std::string& pem) {
  return Bio(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
}

int no_password(char*, int, int, void*) {
  return -1;  // never ask on the terminal
}

Result<std::vector<Certificate>> read_certificates(const std::string& pem, std::string_view what) {
  if (pem.size() > kMaxPem) return failure(Code::kInvalid, "{} has more than 8 MiB", what);
  std::vector<Certificate> found;
  const Bio source = read_from(pem);
  while (X509* next = PEM_read_bio_X509(source.get(), nullptr, no_password, nullptr)) {
    found.emplace_back(next);
  }
  const auto last = ERR_peek_last_error();
  const bool at_the_end =
      ERR_GET_LIB(last) == ERR_LIB_PEM && ERR_GET_REASON(last) == PEM_R_NO_START_LINE;
  const std::string errors = tls_errors();
  if (!at_the_end) return failure(Code::kInvalid, "{} is damaged: {}", what, errors);
  if (found.empty()) {
    return failure(Code::kInvalid, "{} has no certificate in PEM form (-----BEGIN CERTIFICATE)",
                   what);
  }
  return found;
}

Status use_identity(SSL_CTX* context, const TlsIdentity& identity, std::string_view whose) {
  auto chain =
      read_certificates(identity.certificate_pem, fmt::format("the certificate of the {}", whose));
  if (!chain) return chain.error();
  if (identity.key_pem.size() > kMaxPem) {
    return make_status(Code::kInvalid, "the key of the {} has more than 8 MiB", whose);
  }
  const Bio source = read_from(identity.key_pem);
  const Key key(PEM_read_bio_PrivateKey(source.get(), nullptr, no_password, nullptr));
  if (!key) {
    tls_errors();  // they speak of decoders
    return make_status(Code::kInvalid,
                       "the key of the {} is no private key in PEM form without a password", whose);
  }
  if (X509_check_private_key(chain->front().get(), key.get()) != 1) {
    tls_errors();
    return make_status(Code::kInvalid, "the key of the {} does not belong to its certificate",
                       whose);
  }
  bool used = SSL_CTX_use_certificate(context, chain->front().get()) == 1 &&
              SSL_CTX_use_PrivateKey(context, key.get()) == 1;
  for (std::size_t i = 1; i < chain->size() && used; ++i) {
    used = SSL_CTX_add1_chain_cert(context, (*chain)[i].get()) == 1;
  }
  if (used) return {};
  return make_status(Code::kInvalid, "the certificate of the {} cannot be used: {}", whose,
                     tls_errors());
}

Status trust(SSL_CTX* context, const std::string& pem, std::string_view what, bool tell_clients) {
  auto authorities = read_certificates(pem, what);
  if (!authorities) return authorities.error();
  // What the user names is trusted, also an authority below another one.
  X509_VERIFY_PARAM_set_flags(SSL_CTX_get0_param(context), X509_V_FLAG_PARTIAL_CHAIN);
  for (const auto& authority : *authorities) {
    X509_STORE_add_cert(SSL_CTX_get_cert_store(context), authority.get());  // twice is no error
    if (tell_clients) SSL_CTX_add_client_CA(context, authority.get());
  }
  return {};
}

Native make_native(const SSL_METHOD* method) {
  Native native(SSL_CTX_new(method));
  DIVISI_CHECK(native != nullptr, "OpenSSL has memory for a context");
  SSL_CTX_set_min_proto_version(native.get(), TLS1_2_VERSION);
  // Small while idle; no renegotiation, no compression, no surprises about partial writes.
  SSL_CTX_set_mode(native.get(), SSL_MODE_RELEASE_BUFFERS | SSL_MODE_ENABLE_PARTIAL_WRITE |
                                     SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  SSL_CTX_set_options(native.get(), SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
  // A session kept for a later connection would survive a change of certificates.
  SSL_CTX_set_session_cache_mode(native.get(), SSL_SESS_CACHE_OFF);
  return native;
}

}  // namespace

void NativeTlsContext::Free::operator()(ssl_ctx_st* native) const {
  SSL_CTX_free(native);
}

std::string tls_errors() {
  std::string text;
  while (const auto error = ERR_get_error()) {
    const char* const reason = ERR_reason_error_string(error);
    if (!text.empty()) text += "; ";
    text += reason != nullptr ? std::string(reason) : fmt::format("error {:x}", error);
  }
  return text.empty() ? "unknown error" : text;
}

Result<std::shared_ptr<const TlsContext>> TlsContext::client(const TlsClientOptions& options) {
  Native native = make_native(TLS_client_method());
  if (!options.ca_pem.empty()) {
    const auto trusted = trust(native.get(), options.ca_pem, "the CA of the server", false);
    if (!trusted.ok()) return failure(trusted);
  } else if (options.verify && SSL_CTX_set_default_verify_paths(native.get()) != 1) {
    return failure(Code::kInvalid, "the certificates of the system cannot be read: {}",
                   tls_errors());
  }
  if (options.identity) {
    const auto used = use_identity(native.get(), *options.identity, "client");
    if (!used.ok()) return failure(used);
  }
  return std::make_shared<const NativeTlsContext>(std::move(native), true, options.verify);
}

Result<std::shared_ptr<const TlsContext>> TlsContext::server(const TlsServerOptions& options) {
  Native native = make_native(TLS_server_method());
  // No tickets: nobody comes back with a session of a certificate that is revoked by now.
  SSL_CTX_set_num_tickets(native.get(), 0);
  SSL_CTX_set_options(native.get(), SSL_OP_NO_TICKET | SSL_OP_CIPHER_SERVER_PREFERENCE);
  const auto used = use_identity(native.get(), options.identity, "server");
  if (!used.ok()) return failure(used);
  const bool verify = !options.client_ca_pem.empty();
  if (verify) {
    const auto trusted = trust(native.get(), options.client_ca_pem, "the CA of the clients", true);
    if (!trusted.ok()) return failure(trusted);
  }
  return std::make_shared<const NativeTlsContext>(std::move(native), false, verify);
}

}  // namespace divisi::io
