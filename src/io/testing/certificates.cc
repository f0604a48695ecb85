#include "io/testing/certificates.h"

#include "io/crypto.h"
#include "io/freer.h"

#include <openssl/bio.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <arpa/inet.h>

namespace divisi::io::testing {

namespace {

using Key = std::unique_ptr<EVP_PKEY, Freer<EVP_PKEY_free>>;
using Certificate = std::unique_ptr<X509, Freer<X509_free>>;
using Bio = std::unique_ptr<BIO, Freer<BIO_free>>;

template <class Write>
std::string to_pem(Write write) {
  const Bio sink(BIO_new(BIO_s_mem()));
  DIVISI_CHECK(write(sink.get()) == 1, "a key or certificate can be written");
  char* text = nullptr;
  const long size = BIO_get_mem_data(sink.get(), &text);
  return {text, static_cast<std::size_t>(size)};
}

std::string to_pem(X509* certificate) {
  return to_pem([&](BIO* sink) { return PEM_write_bio_X509(sink, certificate); });
}

void add_extension(X509* certificate, int kind, const std::string& value) {
  X509_EXTENSION* const extension = X509V3_EXT_conf_nid(nullptr, nullptr, kind, value.c_str());
  DIVISI_CHECK(extension != nullptr, "the extension is well formed");
  X509_add_ext(certificate, extension, -1);
  X509_EXTENSION_free(extension);
}

std::string alternative_names(const std::vector<std::string>& hosts) {
  std::string text;
  for (const auto& host : hosts) {
    unsigned char ignored[16];
    const bool address = ::inet_pton(AF_INET, host.c_str(), ignored) == 1 ||
                         ::inet_pton(AF_INET6, host.c_str(), ignored) == 1;
    text += (text.empty() ? "" : ",") + std::string(address ? "IP:" : "DNS:") + host;
  }
  return text;
}

// Unsigned, with a name, a time and a key.
Certificate draft(const CertificateSpec& spec, EVP_PKEY* key) {
  Certificate certificate(X509_new());
  X509_set_version(certificate.get(), X509_VERSION_3);
  ASN1_INTEGER_set_uint64(X509_get_serialNumber(certificate.get()), random_u64() >> 1);
  X509_gmtime_adj(X509_getm_notBefore(certificate.get()), spec.valid_from.count());
  X509_gmtime_adj(X509_getm_notAfter(certificate.get()), spec.valid_until.count());
  X509_set_pubkey(certificate.get(), key);
  X509_NAME_add_entry_by_txt(X509_get_subject_name(certificate.get()), "CN", MBSTRING_UTF8,
                             reinterpret_cast<const unsigned char*>(spec.name.c_str()), -1, -1, 0);
  return certificate;
}

}  // namespace

struct Authority::Keys {
  Key key;
  Certificate certificate;
};

Authority::Authority(const std::string& name) : keys_(std::make_unique<Keys>()) {
  keys_->key.reset(EVP_EC_gen("P-256"));
  keys_->certificate = draft({.name = name}, keys_->key.get());
  X509* const own = keys_->certificate.get();
  X509_set_issuer_name(own, X509_get_subject_name(own));
  add_extension(own, NID_basic_constraints, "critical,CA:TRUE");
  X509_sign(own, keys_->key.get(), EVP_sha256());
  pem_ = to_pem(own);
}

Authority::~Authority() = default;

TlsIdentity Authority::issue(const CertificateSpec& spec) const {
  const Key key(EVP_EC_gen("P-256"));
  const Certificate certificate = draft(spec, key.get());
  X509_set_issuer_name(certificate.get(), X509_get_subject_name(keys_->certificate.get()));
  if (!spec.hosts.empty()) {
    add_extension(certificate.get(), NID_subject_alt_name, alternative_names(spec.hosts));
  }
  X509_sign(certificate.get(), keys_->key.get(), EVP_sha256());
  return {.certificate_pem = to_pem(certificate.get()),
          .key_pem = to_pem([&](BIO* sink) {
            return PEM_write_bio_PrivateKey(sink, key.get(), nullptr, nullptr, 0, nullptr, nullptr);
          })};
}

}  // namespace divisi::io::testing
