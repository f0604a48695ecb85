#include "kube/certificates.h"

#include "base/log.h"

#include <chrono>
#include <utility>

namespace divisi::kube {
namespace {

// Chains and bundles are some hundred kilobytes at most.
constexpr std::size_t kMaxPemBytes = std::size_t{4} << 20;
// A burst of connections costs one look; a rotation is seen soon enough for the next try.
constexpr io::Duration kLookEvery = std::chrono::seconds(2);

bool same(const std::optional<io::TlsIdentity>& a, const std::optional<io::TlsIdentity>& b) {
  if (!a || !b) return a.has_value() == b.has_value();
  return a->certificate_pem == b->certificate_pem && a->key_pem == b->key_pem;
}

}  // namespace

Result<std::string> Certificates::Source::read() const {
  if (file.empty()) return pem;
  DIVISI_TRY(std::string text, read_file(file, what, kMaxPemBytes));
  // An empty text would mean "those of the system" or "none" further down.
  if (text.empty()) {
    return failure(Code::kInvalid, "reading {} {}: it is empty", what, log::printable(file));
  }
  return text;
}

Certificates::Certificates(const Config& config, MakeTls make_tls)
    : make_tls_(std::move(make_tls)),
      verify_(!config.insecure_skip_tls_verify),
      ca_{"the certificate authority", config.ca_pem, config.ca_file},
      certificate_{"the client certificate", config.auth.client_certificate_pem,
                   config.auth.client_certificate_file},
      key_{"the client key", config.auth.client_key_pem, config.auth.client_key_file} {}

Result<std::string> Certificates::ca_pem() const {
  return ca_.read();
}

Result<TlsContextPtr> Certificates::make(
    const std::optional<io::TlsIdentity>& plugin_identity) const {
  io::TlsClientOptions options{.verify = verify_, .identity = plugin_identity};
  DIVISI_TRY(options.ca_pem, ca_.read());
  if (!plugin_identity && certificate_.given()) {
    io::TlsIdentity identity;
    DIVISI_TRY(identity.certificate_pem, certificate_.read());
    DIVISI_TRY(identity.key_pem, key_.read());
    options.identity = std::move(identity);
  }
  return make_tls_(options);
}

std::vector<FileStamp> Certificates::stamps() const {
  std::vector<FileStamp> found;
  for (const Source* const source : {&ca_, &certificate_, &key_}) {
    if (!source->file.empty()) found.push_back(stamp_of(source->file));
  }
  return found;
}

Status Certificates::remake(std::optional<io::TlsIdentity> plugin_identity) {
  // Taken before the files are read: what is written meanwhile shows at the next look.
  std::vector<FileStamp> found = stamps();
  auto made = make(plugin_identity);
  if (!made) return std::move(made).error();
  current_ = *std::move(made);
  used_ = std::move(found);
  plugin_identity_ = std::move(plugin_identity);
  return {};
}

Result<TlsContextPtr> Certificates::context() {
  if (current_ == nullptr) {
    if (Status status = remake(plugin_identity_); !status.ok()) return failure(std::move(status));
  }
  return current_;
}

bool Certificates::refresh(io::TimePoint now) {
  if (current_ == nullptr || (looked_at_ && now - *looked_at_ < kLookEvery)) return false;
  looked_at_ = now;
  std::vector<FileStamp> found = stamps();
  if (found == used_) return false;
  const Status status = remake(plugin_identity_);
  if (!status.ok() && found != warned_) {
    log::warning("the certificates changed, but the last good ones stay in use: {}",
                 status.message());
    warned_ = std::move(found);
  }
  return status.ok();
}

Result<bool> Certificates::use_identity(std::optional<io::TlsIdentity> identity) {
  if (same(identity, plugin_identity_)) return false;
  const bool was_used = current_ != nullptr;
  if (Status status = remake(std::move(identity)); !status.ok()) return failure(std::move(status));
  return was_used;
}

}  // namespace divisi::kube
