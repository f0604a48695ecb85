#include "io/tls_peer.h"

#include "base/log.h"
#include "io/freer.h"

#include <fmt/format.h>
#include <openssl/asn1.h>
#include <openssl/bio.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <openssl/x509_vfy.h>
#include <openssl/x509v3.h>

#include <arpa/inet.h>
#include <memory>

namespace divisi::io {

namespace {

template <class Print>
std::string printed(Print print) {
  const std::unique_ptr<BIO, Freer<BIO_free>> sink(BIO_new(BIO_s_mem()));
  print(sink.get());
  char* text = nullptr;
  const long size = BIO_get_mem_data(sink.get(), &text);
  return log::printable(size > 0 ? std::string(text, static_cast<std::size_t>(size)) : "");
}

std::string shown(const X509_NAME* name) {
  auto text = printed([&](BIO* sink) { X509_NAME_print_ex(sink, name, 0, XN_FLAG_ONELINE); });
  return text.empty() ? "(no name)" : text;
}

std::string shown(const ASN1_TIME* time) {
  return printed([&](BIO* sink) { ASN1_TIME_print(sink, time); });
}

// The names that a certificate is for.
std::string alternatives(X509* certificate) {
  const int index = X509_get_ext_by_NID(certificate, NID_subject_alt_name, -1);
  if (index < 0) return "no name at all";
  return printed(
      [&](BIO* sink) { X509V3_EXT_print(sink, X509_get_ext(certificate, index), 0, 0); });
}

bool is_address(const std::string& text) {
  unsigned char ignored[16];
  return ::inet_pton(AF_INET, text.c_str(), ignored) == 1 ||
         ::inet_pton(AF_INET6, text.c_str(), ignored) == 1;
}

int slot() {
  static const int index = SSL_get_ex_new_index(0, nullptr, nullptr, nullptr, nullptr);
  return index;
}

int on_verify(int ok, X509_STORE_CTX* chain) {
  if (ok == 1) return 1;
  auto* session =
      static_cast<SSL*>(X509_STORE_CTX_get_ex_data(chain, SSL_get_ex_data_X509_STORE_CTX_idx()));
  auto* check = static_cast<TlsPeerCheck*>(SSL_get_ex_data(session, slot()));
  check->note(X509_STORE_CTX_get_error(chain), X509_STORE_CTX_get_current_cert(chain));
  return 0;
}

}  // namespace

void TlsPeerCheck::start(ssl_st* session, bool client, bool verify, std::string name) {
  name_ = std::move(name);
  SSL_set_ex_data(session, slot(), this);
  const int mode = !verify  ? SSL_VERIFY_NONE
                   : client ? SSL_VERIFY_PEER
                            : SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT;
  SSL_set_verify(session, mode, verify ? on_verify : nullptr);
  if (name_.empty()) return;
  const bool address = is_address(name_);
  if (!address) SSL_set_tlsext_host_name(session, name_.c_str());
  if (!verify) return;
  X509_VERIFY_PARAM* const wanted = SSL_get0_param(session);
  if (address) {
    X509_VERIFY_PARAM_set1_ip_asc(wanted, name_.c_str());
  } else {
    X509_VERIFY_PARAM_set_hostflags(wanted, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
    X509_VERIFY_PARAM_set1_host(wanted, name_.c_str(), name_.size());
  }
}

void TlsPeerCheck::note(int error, void* certificate) {
  auto* const seen = static_cast<X509*>(certificate);
  if (seen == nullptr) {
    refused_ = X509_verify_cert_error_string(error);
    return;
  }
  const std::string subject = shown(X509_get_subject_name(seen));
  switch (error) {
    case X509_V_ERR_CERT_HAS_EXPIRED:
      refused_ = fmt::format("the certificate of {} expired on {}", subject,
                             shown(X509_get0_notAfter(seen)));
      return;
    case X509_V_ERR_CERT_NOT_YET_VALID:
      refused_ = fmt::format("the certificate of {} is valid from {} only", subject,
                             shown(X509_get0_notBefore(seen)));
      return;
    case X509_V_ERR_HOSTNAME_MISMATCH:
    case X509_V_ERR_IP_ADDRESS_MISMATCH:
      refused_ = fmt::format("the certificate of {} is not for {}; it is for {}", subject, name_,
                             alternatives(seen));
      return;
    case X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT:
    case X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN:
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT:
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY:
    case X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE:
      refused_ = fmt::format("the certificate of {} is signed by {}, which is not trusted", subject,
                             shown(X509_get_issuer_name(seen)));
      return;
    default:
      refused_ =
          fmt::format("the certificate of {}: {}", subject, X509_verify_cert_error_string(error));
  }
}

}  // namespace divisi::io
