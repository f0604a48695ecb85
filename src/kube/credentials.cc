#include "kube/credentials.h"

#include "base/log.h"
#include "kube/auth_headers.h"
#include "kube/files.h"

#include <algorithm>
#include <utility>

namespace divisi::kube {
namespace {

using std::chrono::minutes;
using std::chrono::seconds;

constexpr std::size_t kMaxTokenFileBytes = std::size_t{64} << 10;
// Kubernetes asks for a minute; the rest is for a clock and a file that move meanwhile.
constexpr io::Duration kTokenFileAge = seconds(60) - seconds(10);
constexpr io::Duration kPollCertificates = minutes(5);
// A person who logs in again meanwhile need not restart us.
constexpr io::Duration kRefusedAgain = minutes(5);
// A person who mends the plugin does not wait long, and requests come more often than this.
constexpr BackoffOptions kPluginAgain{
    .first = seconds(1), .longest = seconds(30), .full_jitter = false};
// A request that leaves with a credential arrives before it expires.
constexpr std::chrono::system_clock::duration kExpiryLeeway = seconds(10);

Result<std::string> read_token(const std::string& file) {
  DIVISI_TRY(const std::string text, read_file(file, "the token file", kMaxTokenFileBytes));
  std::string token = trimmed(text);
  const auto header = bearer(token, "the token file " + log::printable(file));
  if (!header) return failure(header.error());
  return token;
}

}  // namespace

Result<std::unique_ptr<Credentials>> Credentials::make(io::Reactor& reactor, Config config,
                                                       CredentialsOptions options) {
  DIVISI_TRY(http::Headers impersonation, impersonation_headers(config.auth.impersonate));
  if (!config.auth.token.empty()) {
    if (auto header = bearer(config.auth.token, config.described_by); !header) {
      return failure(std::move(header).error());
    }
  }
  std::unique_ptr<Credentials> made(
      new Credentials(reactor, std::move(config), std::move(options), std::move(impersonation)));
  made->poll_later();
  return made;
}

Credentials::Credentials(io::Reactor& reactor, Config config, CredentialsOptions options,
                         http::Headers impersonation)
    : reactor_(reactor),
      config_(std::move(config)),
      options_(std::move(options)),
      impersonation_(std::move(impersonation)),
      certificates_(config_, options_.make_tls),
      plugin_backoff_(kPluginAgain) {}

Credentials::~Credentials() = default;

RequestAuth Credentials::with(std::string authorization) const {
  RequestAuth auth{.headers = impersonation_, .version = version_};
  if (!authorization.empty()) auth.headers.set("Authorization", std::move(authorization));
  return auth;
}

Result<RequestAuth> Credentials::with_token(const std::string& token) const {
  DIVISI_TRY(std::string header, bearer(token, config_.described_by));
  return with(std::move(header));
}

void Credentials::get(std::function<void(Result<RequestAuth>)> done) {
  const Auth& auth = config_.auth;
  if (auth.exec) {
    if (running_ == nullptr && plugin_credential_ && !plugin_is_due()) {
      return done(from_plugin(*plugin_credential_));
    }
    if (!plugin_error_.ok() && reactor_.now() < plugin_again_) {
      return done(failure(plugin_error_));
    }
    waiting_.push_back(std::move(done));
    if (running_ == nullptr) start_plugin(*auth.exec);
  } else if (!auth.token_file.empty()) {
    done(from_token_file());
  } else if (!auth.token.empty()) {
    done(with_token(auth.token));
  } else if (!auth.username.empty()) {
    done(with(basic(auth.username, auth.password)));
  } else {
    done(with({}));
  }
}

Result<RequestAuth> Credentials::from_token_file() {
  const bool due = stale_ || !file_read_at_ || reactor_.now() - *file_read_at_ >= kTokenFileAge;
  if (!due) return with_token(file_token_);

  auto token = read_token(config_.auth.token_file);
  if (!token) {
    // The next request tries again; until then the last token may still be good.
    const std::string& last = file_token_.empty() ? config_.auth.token : file_token_;
    if (last.empty()) return failure(std::move(token).error());
    log::warning("the last token stays in use: {}", token.error().message());
    return with_token(last);
  }
  file_read_at_ = reactor_.now();
  stale_ = false;
  if (*token != file_token_) {
    file_token_ = *std::move(token);
    ++version_;
  }
  return with_token(file_token_);
}

bool Credentials::plugin_is_due() const {
  return stale_ || (renew_at_ && options_.wall_clock() >= *renew_at_);
}

Result<RequestAuth> Credentials::from_plugin(const ExecCredential& credential) const {
  if (credential.token.empty()) return with({});  // a certificate says who we are
  return with_token(credential.token);
}

void Credentials::start_plugin(const ExecPlugin& plugin) {
  const auto interactive = plays_interactive(plugin, options_.terminal);
  if (!interactive) return answer_waiting(failure(interactive.error()));
  std::string ca_pem;
  if (plugin.provide_cluster_info) {
    auto read = certificates_.ca_pem();
    if (!read) return answer_waiting(failure(std::move(read).error()));
    ca_pem = *std::move(read);
  }
  running_ = std::make_unique<ExecRun>(
      reactor_,
      ExecRequest{.plugin = plugin,
                  .info = exec_info(plugin, config_, ca_pem, *interactive),
                  .interactive = *interactive,
                  .deadline = options_.plugin_deadline},
      [this, name = "the exec plugin " + log::printable(plugin.command)](
          Result<ExecCredential> outcome) { plugin_ended(name, std::move(outcome)); });
}

void Credentials::plugin_ended(const std::string& name, Result<ExecCredential> outcome) {
  running_.reset();
  stale_ = false;  // also after a failure: there is nothing left that could be refused
  plugin_credential_.reset();
  if (!outcome) return plugin_failed(std::move(outcome).error());
  if (Status status = take(name, *outcome); !status.ok()) return plugin_failed(std::move(status));
  plugin_error_ = {};
  plugin_backoff_.reset();
  const auto auth = from_plugin(*outcome);
  plugin_credential_ = *std::move(outcome);
  answer_waiting(auth);
}

void Credentials::plugin_failed(Status why) {
  plugin_again_ = reactor_.now() + plugin_backoff_.next();
  plugin_error_ = why;
  answer_waiting(failure(std::move(why)));
}

Status Credentials::take(const std::string& name, const ExecCredential& credential) {
  if (!credential.token.empty()) {
    if (auto header = bearer(credential.token, name); !header) return std::move(header).error();
  }
  const auto other = certificates_.use_identity(credential.identity);
  if (!other) return other.error().with_context(name);
  if (*other) changed();
  renew_at_.reset();
  if (credential.expires) {
    const auto lifetime = *credential.expires - options_.wall_clock();
    // Of a short life most is still used, so that a plugin does not run for every request.
    renew_at_ = *credential.expires - std::clamp(lifetime / 5, 0 * kExpiryLeeway, kExpiryLeeway);
  }
  ++version_;
  return {};
}

void Credentials::answer_waiting(const Result<RequestAuth>& outcome) {
  const std::weak_ptr<bool> alive = alive_;
  for (const auto& done : std::exchange(waiting_, {})) {
    if (alive.expired()) return;  // one of those before has destroyed us
    done(outcome);
  }
}

void Credentials::refused(std::uint64_t version) {
  // A connection that is kept open was made with the certificate of its time, which may have ended.
  if (certificates_.refresh(reactor_.now())) changed();
  if (version != version_) return;  // newer ones have been given out since
  const bool tried = refused_at_ && reactor_.now() - *refused_at_ < kRefusedAgain;
  if (tried) return;
  refused_at_ = reactor_.now();
  stale_ = true;
}

void Credentials::accepted(std::uint64_t version) {
  if (version == version_) refused_at_.reset();
}

Result<TlsContextPtr> Credentials::tls() {
  if (certificates_.refresh(reactor_.now())) changed();
  return certificates_.context();
}

void Credentials::poll_later() {
  poll_ = reactor_.after(kPollCertificates, [this] {
    poll_later();
    if (certificates_.refresh(reactor_.now())) changed();
  });
}

// Not at once: whoever asks for a context is in the middle of opening a connection.
void Credentials::changed() {
  reactor_.post([this, alive = std::weak_ptr(alive_)] {
    if (!alive.expired() && options_.on_changed) options_.on_changed();
  });
}

}  // namespace divisi::kube
